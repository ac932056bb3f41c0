// The ports of a service: gRPC with health and reflection, the admin port, and the file that says where they are.
//
// bind, then the service adds its methods to `server`, then open; at the end close, then the service's parts are
// destroyed, then destroy. All on the main thread.
#ifndef RELAY_COMMON_SERVICE_PORTS_H
#define RELAY_COMMON_SERVICE_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/admin_http.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "common/rpc_server.h"
#include "common/rpc_standard.h"
#include "common/service_settings.h"

// Owned; NULL until made. All zero before bind, which close and destroy take too.
typedef struct relay_service_ports {
    relay_metrics *metrics; // those of the process and of gRPC are in it
    relay_rpc_server *server;
    relay_rpc_health *health; // NOT_SERVING until the service says otherwise
    relay_rpc_reflection *reflection;
    relay_admin_http *admin; // NULL where --admin-listen is empty
    bool is_open;            // the server takes calls
} relay_service_ports;

// Metrics, the gRPC port, health and reflection for the services named. max_request_bytes as in relay_rpc_server_opts.
relay_code relay_service_ports_bind(relay_service_ports *p, const relay_service_settings *s,
                                    const char *const *services, size_t n_services, uint32_t max_request_bytes,
                                    relay_err *e) RELAY_NODISCARD;
// The admin port, then calls; logs the ports and writes the file. The functions are those of relay_admin_http_opts.
relay_code relay_service_ports_open(relay_service_ports *p, const relay_service_settings *s,
                                    bool (*is_healthy)(void *arg, char *why, size_t why_cap),
                                    bool (*is_ready)(void *arg, char *why, size_t why_cap), void *arg,
                                    relay_err *e) RELAY_NODISCARD;
// Ends health watches, lets running calls go on for up to `grace_us` or until the second signal, cancels the others,
// and closes the ports. No callback of the server runs after it.
void relay_service_ports_close(relay_service_ports *p, relay_mono_us grace_us);
void relay_service_ports_destroy(relay_service_ports *p);

#endif
