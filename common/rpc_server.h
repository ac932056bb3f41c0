// A gRPC server on the C core: with rpc_client, the only code that knows gRPC.
//
// A service is a table of methods with callbacks. The server owns a completion queue and its thread; callbacks come
// one at a time on that thread, those of one call in order, and must not block.
// Everything a callback starts elsewhere may answer later and from any thread through relay_rpc_call_send and _finish.
//
//   on_start, on_message (once for a request that is no stream), on_half_close, then at most one of: the handler calls
//   _finish, or on_cancel (client cancelled, its connection is gone, the deadline passed, the drain time ran out, or a
//   later message of a stream was garbage); on_destroy last, when nothing of the call is in flight and every reference
//   is gone.
//
// A call that is refused here (unknown method, too many calls, a single request that is missing or garbage) never
// reaches its handler: no callback at all.
//
// Bounds, beside those of the options below: a request parsed takes at most 1 MiB and 16 times its size on the wire
// (past it INVALID_ARGUMENT); a message counts 128 bytes more than its size in its call's outbox; the metadata of a
// call is at most RELAY_RPC_MAX_METADATA_BYTES; past max_calls a call is RESOURCE_EXHAUSTED; compression is off
// (compressed messages would inflate past any limit). Unknown methods get UNIMPLEMENTED, garbage INVALID_ARGUMENT.
#ifndef RELAY_COMMON_RPC_SERVER_H
#define RELAY_COMMON_RPC_SERVER_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/metrics.h"
#include "common/status.h"

enum { RELAY_RPC_MAX_METADATA_BYTES = 8 << 10 }; // keys, values and 32 bytes a pair, as HTTP/2 counts them

typedef struct relay_rpc_server relay_rpc_server;
typedef struct relay_rpc_call relay_rpc_call;

typedef enum relay_rpc_kind {
    RELAY_RPC_UNARY,
    RELAY_RPC_SERVER_STREAM,
    RELAY_RPC_CLIENT_STREAM,
    RELAY_RPC_BIDI,
} relay_rpc_kind;

typedef struct relay_rpc_method {
    const char *path; // "/relay.v1.ModelService/GenerateTokens"; outlives the server
    relay_rpc_kind kind;
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *response;
    void *service; // what relay_rpc_call_service gives
    // Each may be NULL but on_message.
    void (*on_start)(relay_rpc_call *call);
    // `message` is borrowed until the callback returns; relay_rpc_call_take_message keeps it. Text fields are not yet
    // checked for UTF-8: see relay_rpc_check_utf8.
    void (*on_message)(relay_rpc_call *call, ProtobufCMessage *message);
    // Streams of requests only: the client has sent its last message.
    void (*on_half_close)(relay_rpc_call *call);
    void (*on_cancel)(relay_rpc_call *call);
    // All that was queued is taken by the transport: the outbox is empty.
    void (*on_drained)(relay_rpc_call *call);
    void (*on_destroy)(relay_rpc_call *call);
    bool is_always_admitted; // not refused at max_calls: health checks, which must work under load
} relay_rpc_method;

typedef struct relay_rpc_server_opts {
    const char *listen;            // "127.0.0.1:0": port 0 picks one
    uint32_t max_calls;            // calls at a time over all methods, and of each connection; 0: 1024
    uint32_t max_request_bytes;    // 0: 16 MiB
    uint32_t max_response_bytes;   // 0: 64 MiB
    uint32_t outbox_bytes;         // 0: 1 MiB a call
    uint32_t keepalive_time_ms;    // ping a silent connection; 0: 60 s
    uint32_t keepalive_timeout_ms; // and drop it when no answer comes; 0: 20 s
    relay_metrics *metrics; // relay_rpc_requests_total{method,code}, _rpc_seconds{method}, _rpc_active; may be NULL
} relay_rpc_server_opts;

// Binds the port; calls are taken from _start on. Raises the process's limit of open files to what the system allows:
// the C core stops accepting connections for good once it has run out of them (CVE-2023-4785).
relay_code relay_rpc_server_create(relay_rpc_server **out, const relay_rpc_server_opts *opts,
                                   relay_err *e) RELAY_NODISCARD;
// Before _start. The methods are copied.
void relay_rpc_server_add(relay_rpc_server *s, const relay_rpc_method *methods, size_t n_methods);
relay_code relay_rpc_server_start(relay_rpc_server *s, relay_err *e) RELAY_NODISCARD;
uint16_t relay_rpc_server_port(const relay_rpc_server *s);
// Refuses new connections and calls, waits up to `grace_us` for running calls, then cancels what is left, and waits
// until every call is destroyed and the thread is joined. Blocks; call once, from a thread that is no queue thread. A
// second thread may call relay_rpc_server_hurry to end the wait.
//
// A call that arrives in the instant in which the C core (1.51) shuts down may be left in a list of its own: it has no
// answer until its deadline or the end of the wait, and no handler ever sees it. Clients need deadlines anyway.
void relay_rpc_server_drain(relay_rpc_server *s, relay_mono_us grace_us);
void relay_rpc_server_hurry(relay_rpc_server *s);
// After _drain, or when never started.
void relay_rpc_server_destroy(relay_rpc_server *s);

// ---- One call. All of these are thread-safe; a call lives until its last reference is gone and on_destroy has run.

void relay_rpc_call_ref(relay_rpc_call *c);
void relay_rpc_call_unref(relay_rpc_call *c);
void *relay_rpc_call_service(const relay_rpc_call *c);
const relay_rpc_method *relay_rpc_call_method(const relay_rpc_call *c);
// The handler's own pointer; set it in on_start or on_message.
void relay_rpc_call_set_data(relay_rpc_call *c, void *data);
void *relay_rpc_call_data(const relay_rpc_call *c);
// The client's deadline; RELAY_NEVER_US if none.
relay_mono_us relay_rpc_call_deadline(const relay_rpc_call *c);
// "ipv4:127.0.0.1:4711"; valid as long as the call.
const char *relay_rpc_call_peer(const relay_rpc_call *c);
// Of the last request message, on the wire. Inside on_message.
uint64_t relay_rpc_call_request_bytes(const relay_rpc_call *c);
// True once on_cancel was or is about to be called, or the call was finished.
bool relay_rpc_call_is_over(const relay_rpc_call *c);
// Inside on_message: the handler keeps the message and frees it with protobuf_c_message_free_unpacked(m, NULL).
ProtobufCMessage *relay_rpc_call_take_message(relay_rpc_call *c);

// Queues a response, packed before this returns. OK; CANCELLED when the call is over; RESOURCE_EXHAUSTED when the
// outbox is full because the client does not read, or the message passes max_response_bytes: nothing is queued then,
// and the handler ends the call. A message that finds the outbox empty is never too large for it.
relay_code relay_rpc_call_send(relay_rpc_call *c, const ProtobufCMessage *message) RELAY_NODISCARD;
// Bytes queued and not yet taken by the transport; a message counts 128 bytes more than its size.
uint64_t relay_rpc_call_outbox_used(const relay_rpc_call *c);
// Ends the call with a status after what is queued has been written. `e` gives the message and the retry hint (as
// `grpc-retry-pushback-ms` and a google.rpc.RetryInfo in grpc-status-details-bin); NULL with OK. Later calls do
// nothing.
void relay_rpc_call_finish(relay_rpc_call *c, relay_code code, const relay_err *e);
// send + finish(OK) of a unary call; finishes with RESOURCE_EXHAUSTED if the message passes max_response_bytes.
void relay_rpc_call_reply(relay_rpc_call *c, const ProtobufCMessage *message);
// Drops what is queued and ends the call at once with a status: for a client that does not read. The retry hint is lost
// when a write is stuck.
void relay_rpc_call_abort(relay_rpc_call *c, relay_code code, const relay_err *e);

// Every `string` field of the message (held as bytes in the C copy), submessages included, is valid UTF-8; else
// INVALID_ARGUMENT naming the field's path and the byte. Which fields are strings is read from the descriptor set.
relay_code relay_rpc_check_utf8(const ProtobufCMessage *m, relay_err *e) RELAY_NODISCARD;

#endif
