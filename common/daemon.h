// What the main functions of both services share: signals, and the file that says which ports were bound.
//
// SIGTERM and SIGINT are blocked in every thread and taken by one thread of this file. Until relay_daemon_ready the
// first one ends the process at once with status 0: nothing is being served. After it, the first wakes
// relay_daemon_wait and the second, besides, calls the function given to relay_daemon_on_second_signal.
#ifndef RELAY_COMMON_DAEMON_H
#define RELAY_COMMON_DAEMON_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/status.h"

// First thing in main, before any thread is started. Also ignores SIGPIPE.
void relay_daemon_start(void);
void relay_daemon_ready(void);
// Waits until `n_signals` (1 or 2) have come since the start, or until the time is there; true if they have.
bool relay_daemon_wait(uint32_t n_signals, relay_mono_us until);
// `hurry` runs on the signal thread, at once where the second signal has already come. NULL: from now on nothing is
// called, and when this returns a call in progress has ended.
void relay_daemon_on_second_signal(void (*hurry)(void *arg), void *arg);

// Writes "grpc=PORT\nadmin=PORT\n" under a temporary name and renames it, so that a reader sees all of it or nothing.
// admin 0 (no admin port) leaves its line out.
relay_code relay_daemon_write_port_file(const char *path, uint16_t grpc_port, uint16_t admin_port,
                                        relay_err *e) RELAY_NODISCARD;

#endif
