// The admin port: GET /metrics (Prometheus text), /healthz (200 while the process works), /readyz (200 while it is
// SERVING, else 503). HTTP/1.1 by libmicrohttpd on its own thread; everything else is 404 or 405.
#ifndef RELAY_COMMON_ADMIN_HTTP_H
#define RELAY_COMMON_ADMIN_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/metrics.h"
#include "common/status.h"

typedef struct relay_admin_http relay_admin_http;

typedef struct relay_admin_http_opts {
    const char *listen; // "127.0.0.1:0"
    relay_metrics *metrics;
    // Called on the HTTP thread; must answer at once. `why` gets a line of text for the body.
    bool (*is_healthy)(void *arg, char *why, unsigned long why_cap);
    bool (*is_ready)(void *arg, char *why, unsigned long why_cap);
    void *arg;
} relay_admin_http_opts;

relay_code relay_admin_http_start(relay_admin_http **out, const relay_admin_http_opts *opts,
                                  relay_err *e) RELAY_NODISCARD;
uint16_t relay_admin_http_port(const relay_admin_http *a);
void relay_admin_http_stop(relay_admin_http *a);

#endif
