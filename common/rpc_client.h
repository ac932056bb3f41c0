// A gRPC client on the C core: blocking calls for tools and tests, and streams with callbacks for services.
//
// Codes are the server's, but that CANCELLED always means a cancel from this side: a call that the server cancelled is
// UNAVAILABLE. Errors bring the server's message and its retry hint.
#ifndef RELAY_COMMON_RPC_CLIENT_H
#define RELAY_COMMON_RPC_CLIENT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/status.h"

typedef struct relay_rpc_client relay_rpc_client; // a channel and its queue thread
typedef struct relay_rpc_stream relay_rpc_stream; // one call on it

typedef struct relay_rpc_client_opts {
    const char *target;            // "127.0.0.1:50051", "dns:///host:port"
    uint32_t max_response_bytes;   // 0: 64 MiB
    uint32_t keepalive_time_ms;    // 0: 60 s
    uint32_t keepalive_timeout_ms; // 0: 20 s
    uint32_t outbox_bytes;         // of each stream; 0: 1 MiB
} relay_rpc_client_opts;

relay_code relay_rpc_client_create(relay_rpc_client **out, const relay_rpc_client_opts *opts,
                                   relay_err *e) RELAY_NODISCARD;
// Streams must be over and released first. Joins the thread.
void relay_rpc_client_destroy(relay_rpc_client *c);
// Waits until the channel is connected. UNAVAILABLE as soon as an attempt to connect fails (refused, no such host),
// DEADLINE_EXCEEDED when none ends in time.
relay_code relay_rpc_client_wait_ready(relay_rpc_client *c, relay_mono_us deadline, relay_err *e) RELAY_NODISCARD;

typedef struct relay_rpc_metadata {
    const char *key, *value;
} relay_rpc_metadata;

// A unary call; blocks the caller (never a queue thread). Gives the response, to be freed with
// protobuf_c_message_free_unpacked.
relay_code relay_rpc_client_unary(relay_rpc_client *c, const char *path, const ProtobufCMessage *request,
                                  const ProtobufCMessageDescriptor *response_type, const relay_rpc_metadata *metadata,
                                  size_t n_metadata, relay_mono_us deadline, ProtobufCMessage **response,
                                  relay_err *e) RELAY_NODISCARD;

// ---- Streams with callbacks. Callbacks of one stream come one at a time on the client's thread, which they must not
// block.
typedef struct relay_rpc_stream_callbacks {
    // `message` is borrowed until the callback returns.
    void (*on_message)(void *arg, ProtobufCMessage *message);
    // Once, last: the call's status. `e` holds message and retry hint.
    void (*on_done)(void *arg, relay_code code, const relay_err *e);
} relay_rpc_stream_callbacks;

// Starts a call of any kind. The caller holds one reference until _release; on_done comes in any case.
relay_code relay_rpc_stream_open(relay_rpc_stream **out, relay_rpc_client *c, const char *path,
                                 const ProtobufCMessageDescriptor *response_type, const relay_rpc_metadata *metadata,
                                 size_t n_metadata, relay_mono_us deadline, const relay_rpc_stream_callbacks *callbacks,
                                 void *arg, relay_err *e) RELAY_NODISCARD;
// Queues a request; as relay_rpc_call_send.
relay_code relay_rpc_stream_send(relay_rpc_stream *s, const ProtobufCMessage *message) RELAY_NODISCARD;
void relay_rpc_stream_half_close(relay_rpc_stream *s);
void relay_rpc_stream_cancel(relay_rpc_stream *s);
void relay_rpc_stream_release(relay_rpc_stream *s);

// ---- The same for a caller that wants to block: tools and tests. Opened with _open and NULL callbacks.
// Waits for the next message: *message is NULL at the end of the stream, where code and error are the call's status.
// DEADLINE_EXCEEDED with *timed_out set when `until` came first: the stream goes on.
relay_code relay_rpc_stream_next(relay_rpc_stream *s, relay_mono_us until, ProtobufCMessage **message, bool *timed_out,
                                 relay_err *e) RELAY_NODISCARD;

#endif
