// The admin port: GET /metrics (Prometheus text), /healthz (200 while the process works), /readyz (200 while it is
// SERVING, else 503). HTTP/1.1 by libmicrohttpd on one thread of its own; every other path is 404, every other method
// than GET and HEAD 405.
//
// Bounded: RELAY_ADMIN_MAX_CONNECTIONS at a time, RELAY_ADMIN_TIMEOUT_S of silence on each,
// RELAY_ADMIN_MAX_METRICS_BYTES of metrics (more is 500).
#ifndef RELAY_COMMON_ADMIN_HTTP_H
#define RELAY_COMMON_ADMIN_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/metrics.h"
#include "common/status.h"

enum {
    RELAY_ADMIN_MAX_CONNECTIONS = 64,
    RELAY_ADMIN_TIMEOUT_S = 10,
    RELAY_ADMIN_MAX_METRICS_BYTES = 16 << 20,
};

typedef struct relay_admin_http relay_admin_http;

typedef struct relay_admin_http_opts {
    const char *listen; // "127.0.0.1:0", "[::]:9090", ":9090" (every address); port 0 picks one
    relay_metrics *metrics;
    // Called on the HTTP thread; must answer at once. `why` gets a line of text for the body, with a NUL behind it.
    bool (*is_healthy)(void *arg, char *why, size_t why_cap);
    bool (*is_ready)(void *arg, char *why, size_t why_cap);
    void *arg;
} relay_admin_http_opts;

// Listens when it returns OK. INVALID_ARGUMENT for an address that is none, UNAVAILABLE for one that cannot be had.
relay_code relay_admin_http_start(relay_admin_http **out, const relay_admin_http_opts *opts,
                                  relay_err *e) RELAY_NODISCARD;
uint16_t relay_admin_http_port(const relay_admin_http *a);
// Ends open connections, joins the thread and frees. NULL is fine.
void relay_admin_http_stop(relay_admin_http *a);

#endif
