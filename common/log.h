// The log: one line an event, to standard error, as key=value or as JSON.
//
//   RELAY_LOG(RELAY_LOG_INFO, "request finished", "request_id=%s tokens=%u", id, n);
//
// prints `ts=2026-01-02T03:04:05.678901Z level=info msg="request finished" request_id=abc tokens=7`. The format's words are
// key=value pairs; a value with spaces, quotes or control characters is quoted. In JSON form every pair is a member
// (numbers stay numbers). Thread-safe; a line is one write. Never called from the engine's step.
#ifndef RELAY_COMMON_LOG_H
#define RELAY_COMMON_LOG_H

#include <stdbool.h>

#include "common/status.h"

typedef enum relay_log_level {
    RELAY_LOG_DEBUG,
    RELAY_LOG_INFO,
    RELAY_LOG_WARN,
    RELAY_LOG_ERROR,
} relay_log_level;

typedef enum relay_log_format {
    RELAY_LOG_KEY_VALUE,
    RELAY_LOG_JSON,
} relay_log_format;

// Call once before threads start. Lines below `level` are dropped before they are formatted.
void relay_log_init(relay_log_level level, relay_log_format format);
// "debug", "info", "warn", "error"; false if it is none of them.
bool relay_log_level_parse(const char *name, relay_log_level *out);
bool relay_log_enabled(relay_log_level level);
// `fields` is a printf format that makes space-separated key=value pairs; a value that may hold spaces must be printed
// through %s as the last pair or be quoted by relay_log_quote. "" for none.
void relay_log_write(relay_log_level level, const char *msg, const char *fields, ...) RELAY_PRINTF(3, 4);
// Writes `s` into `out` as a quoted value, cut to fit; returns `out`.
const char *relay_log_quote(char *out, unsigned long cap, const char *s, unsigned long len);

#define RELAY_LOG(level, msg, ...)                                                                                     \
    do {                                                                                                               \
        if (relay_log_enabled(level)) relay_log_write(level, msg, __VA_ARGS__);                                        \
    } while (0)

#endif
