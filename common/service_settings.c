#include "common/service_settings.h"

#include <string.h>

#include "common/log.h"

void relay_service_settings_init(relay_service_settings *s, const char *listen, relay_config_entry *entries) {
    *s = (relay_service_settings){
        .listen = listen,
        .admin_listen = "127.0.0.1:0",
        .log_level = "info",
        .log_format = "text",
        .port_file = "",
        .max_calls = 2048,
        .drain_seconds = 45,
        .keepalive_ms = 60000,
    };
    const relay_config_entry flags[RELAY_SERVICE_FLAGS] = {
        {"listen", RELAY_CONFIG_ADDRESS, &s->listen, .metavar = "HOST:PORT",
         .help = "where gRPC is served; port 0 picks a free one"},
        {"admin-listen", RELAY_CONFIG_ADDRESS, &s->admin_listen, .metavar = "HOST:PORT",
         .help = "where /metrics, /healthz and /readyz are served; empty: nowhere", .may_be_empty = true},
        {"max-calls", RELAY_CONFIG_INT, &s->max_calls, 1, 1 << 16, "N", .help = "gRPC calls open at a time"},
        {"drain-seconds", RELAY_CONFIG_INT, &s->drain_seconds, 0, 86400, "N",
         .help = "how long what is running may go on after SIGTERM"},
        {"keepalive-ms", RELAY_CONFIG_INT, &s->keepalive_ms, 10, 1 << 30, "MS",
         .help = "how long a connection may be silent before it is asked whether it lives"},
        {"log-level", RELAY_CONFIG_STRING, &s->log_level, .metavar = "LEVEL", .help = "least level that is logged",
         .choices = "debug|info|warn|error"},
        {"log-format", RELAY_CONFIG_STRING, &s->log_format, .metavar = "FORMAT", .help = "key=value text or JSON",
         .choices = "text|json"},
        {"port-file", RELAY_CONFIG_STRING, &s->port_file, .metavar = "FILE",
         .help = "written with the ports once they are bound"},
    };
    memcpy(entries, flags, sizeof flags);
}

void relay_service_settings_start_log(const relay_service_settings *s) {
    relay_log_level level = RELAY_LOG_INFO;
    relay_log_level_parse(s->log_level, &level);
    relay_log_init(level, strcmp(s->log_format, "json") == 0 ? RELAY_LOG_JSON : RELAY_LOG_KEY_VALUE);
}
