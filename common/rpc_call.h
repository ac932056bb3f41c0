// Between rpc_server.c and rpc_call.c: how a call comes to life, and what it tells the server about its end.
#ifndef RELAY_COMMON_RPC_CALL_H
#define RELAY_COMMON_RPC_CALL_H

#include "common/metrics.h"
#include "common/rpc_core.h"
#include "common/rpc_server.h"

enum { RELAY_RPC_N_CODES = RELAY_UNAUTHENTICATED + 1 };

// A method as the server keeps it.
typedef struct relay_rpc_served {
    relay_rpc_method method;                 // path NULL: the catch-all for unknown paths
    void *registration;                      // the C core's handle; NULL for the catch-all
    relay_counter *ended[RELAY_RPC_N_CODES]; // by code; NULL without metrics
    relay_histogram *seconds;                // NULL without metrics
} relay_rpc_served;

// What a filled slot holds. Owned by whoever holds the struct.
typedef struct relay_rpc_arrival {
    relay_rpc_server *server;
    relay_rpc_served *served;
    grpc_call *call;
    grpc_metadata_array metadata; // keys and values belong to the call
    gpr_timespec deadline;
    grpc_byte_buffer *payload; // of methods whose request is no stream; may be NULL even so
    grpc_call_details details; // of the catch-all
} relay_rpc_arrival;

// Takes what the arrival holds, makes the call, and runs its first callbacks. On the server's queue thread.
void relay_rpc_call_begin(relay_rpc_arrival *a);

// ---- What a call needs of its server.

// Counts a call in; false when that is more than the server's limit: the call still counts until its _closed.
bool relay_rpc_server_call_opened(relay_rpc_server *s);
// The call is over on the wire. `code` is what it ended with.
void relay_rpc_server_call_closed(relay_rpc_server *s, relay_rpc_served *served, relay_code code,
                                  relay_mono_us elapsed);
// The call's memory is gone.
void relay_rpc_server_call_destroyed(relay_rpc_server *s);
const relay_rpc_server_opts *relay_rpc_server_get_opts(const relay_rpc_server *s);

#endif
