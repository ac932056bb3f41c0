// The two services that every gRPC server is expected to have: health and reflection.
#ifndef RELAY_COMMON_RPC_STANDARD_H
#define RELAY_COMMON_RPC_STANDARD_H

#include <stdbool.h>
#include <stddef.h>

#include "common/rpc_server.h"

// grpc.health.v1.Health with Check and a live Watch: a watcher is told the status at once and then every change; if it
// reads slowly it gets the newest. Service names: "" for the whole server and each one given here.
typedef struct relay_rpc_health relay_rpc_health;
// Adds the methods to the server (before its start). All services begin as NOT_SERVING. Destroy after the server.
relay_rpc_health *relay_rpc_health_create(relay_rpc_server *s, const char *const *services, size_t n_services);
// Thread-safe. Sets "" and every service.
void relay_rpc_health_set(relay_rpc_health *h, bool is_serving);
// Ends the open watches with their last status sent, so that a drain need not wait for them.
void relay_rpc_health_close_watches(relay_rpc_health *h);
void relay_rpc_health_destroy(relay_rpc_health *h);

// grpc.reflection.v1 and v1alpha over the descriptor set built into the binary; lists `services` and the standard ones.
typedef struct relay_rpc_reflection relay_rpc_reflection;
relay_rpc_reflection *relay_rpc_reflection_create(relay_rpc_server *s, const char *const *services, size_t n_services);
void relay_rpc_reflection_destroy(relay_rpc_reflection *r);

#endif
