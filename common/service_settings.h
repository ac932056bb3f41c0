// The flags that both services have: their ports, their limits of calls and time, their log.
#ifndef RELAY_COMMON_SERVICE_SETTINGS_H
#define RELAY_COMMON_SERVICE_SETTINGS_H

#include <stdint.h>

#include "common/config.h"

enum { RELAY_SERVICE_FLAGS = 8 };

// As the flags of the same names (service_settings.c). Strings are never NULL.
typedef struct relay_service_settings {
    const char *listen, *admin_listen, *log_level, *log_format, *port_file;
    int64_t max_calls, drain_seconds, keepalive_ms;
} relay_service_settings;

// Sets the defaults, gRPC on `listen`, and fills `entries` with RELAY_SERVICE_FLAGS flags that write into `s`.
void relay_service_settings_init(relay_service_settings *s, const char *listen, relay_config_entry *entries);

// Starts the log as the flags say. Before any thread that logs.
void relay_service_settings_start_log(const relay_service_settings *s);

#endif
