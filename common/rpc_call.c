// One call on the server: its state, its batches, its callbacks.
//
// References. `refs` counts them; each has a name:
//   begin     while relay_rpc_call_begin runs
//   close     the batch {RECV_CLOSE_ON_SERVER}: from the first moment until the call is over on the wire
//   read      the batch {RECV_MESSAGE}, of request streams: at most one outstanding
//   write     the batch {[SEND_INITIAL_METADATA] [SEND_MESSAGE] [SEND_STATUS_FROM_SERVER]}: at most one outstanding
//   handler   those taken by relay_rpc_call_ref
// The last one to go destroys the call on the queue thread. A handler may drop its own anywhere, under its own locks
// too, so in that case an empty batch brings the call back to the queue thread first: on_destroy never runs inside
// another callback or inside relay_rpc_call_unref.
//
// Threads. Callbacks, reads and the close run on the queue thread alone, in the order in which tags come back: no lock.
// Sends and the end of the call may come from any thread. They are serialised by `mu`, which is held while a batch is
// started (the C core never calls back) and never while a callback runs. It is the last lock in every order.
//
// The end. `is_over` is set once, under `mu`, by the first of: the handler's finish or abort, a refusal here, or the
// close with `cancelled`. Only the two last tell the handler (on_cancel). A status is sent when the outbox has drained.
// RECV_CLOSE is a batch of its own and the first one: in a batch with others it would hold back their tags.
#include "common/rpc_call.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc_status.h"

// When to try again after a refusal at the server's limit of calls.
enum { BUSY_RETRY_MS = 500 };

struct relay_rpc_call {
    // Set by begin and constant since.
    relay_rpc_server *server;
    relay_rpc_served *served;
    grpc_call *call;
    char *peer;
    relay_mono_us started, deadline;

    atomic_uint refs;
    atomic_bool is_over; // written under mu

    // The queue thread's.
    relay_rpc_tag close_tag, read_tag, destroy_tag;
    int close_cancelled;          // filled in by the close batch
    grpc_byte_buffer *read_bytes; // filled in by the read batch
    ProtobufCMessage *message;    // during on_message, unless taken
    uint64_t request_bytes;       // of it, on the wire
    bool has_handler;             // on_start was reached: the handler gets its on_destroy

    void *data; // the handler's

    pthread_mutex_t mu; // guards what follows
    relay_rpc_tag write_tag;
    relay_rpc_outbox outbox;
    bool is_writing;      // the write batch is outstanding
    bool has_sent_head;   // initial metadata was started
    bool has_sent_status; // status was started, or never will be
    relay_code code;      // once is_over
    relay_err err;        // once is_over, when code is not OK
    grpc_metadata trailers[2];
    size_t n_trailers;
};

// ---- References

static void destroy(relay_rpc_call *c) {
    if (c->has_handler && c->served->method.on_destroy != NULL) c->served->method.on_destroy(c);
    relay_rpc_server *server = c->server;
    relay_rpc_outbox_clear(&c->outbox);
    for (size_t i = 0; i < c->n_trailers; i++)
        grpc_slice_unref(c->trailers[i].value);
    grpc_call_unref(c->call);
    gpr_free(c->peer);
    pthread_mutex_destroy(&c->mu);
    free(c);
    relay_rpc_server_call_destroyed(server);
}

static void destroy_tag_done(relay_rpc_tag *tag, bool ok) {
    destroy(RELAY_RPC_HOLDER(tag, relay_rpc_call, destroy_tag));
}

static void ref(relay_rpc_call *c) {
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

// For the references that end on the queue thread, outside of callbacks.
static void unref(relay_rpc_call *c) {
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) == 1) destroy(c);
}

void relay_rpc_call_ref(relay_rpc_call *c) {
    ref(c);
}

void relay_rpc_call_unref(relay_rpc_call *c) {
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    relay_rpc_start_batch(c->call, NULL, 0, &c->destroy_tag);
}

// ---- Writing

// The trailing metadata of the error in c->err.
static void make_trailers(relay_rpc_call *c) {
    if (c->code == RELAY_OK || c->err.retry_after_ms == 0) return;
    relay_buf details;
    relay_buf_init(&details, 2 * RELAY_ERR_MESSAGE_MAX);
    relay_rpc_status_encode(&c->err, &details);
    char pushback[16];
    snprintf(pushback, sizeof pushback, "%u", c->err.retry_after_ms);
    c->trailers[0].key = grpc_slice_from_static_string(RELAY_RPC_STATUS_DETAILS_KEY);
    c->trailers[0].value = grpc_slice_from_copied_buffer(details.data, details.len);
    c->trailers[1].key = grpc_slice_from_static_string(RELAY_RPC_RETRY_PUSHBACK_KEY);
    c->trailers[1].value = grpc_slice_from_copied_string(pushback);
    c->n_trailers = 2;
    relay_buf_fini(&details);
}

// Starts the next write if there is something to write and none is outstanding. Under mu.
static void pump(relay_rpc_call *c) {
    if (c->is_writing || c->has_sent_status) return;
    bool is_over = atomic_load_explicit(&c->is_over, memory_order_relaxed);
    if (relay_rpc_outbox_is_empty(&c->outbox) && !is_over) return;

    grpc_op ops[3];
    memset(ops, 0, sizeof ops);
    size_t n = 0;
    if (!c->has_sent_head) {
        ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
        c->has_sent_head = true;
    }
    grpc_byte_buffer *message = relay_rpc_outbox_pop(&c->outbox);
    bool has_more = !relay_rpc_outbox_is_empty(&c->outbox);
    if (message != NULL) {
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        // The transport may hold it back for the one behind it, so that both share a packet.
        ops[n].flags = has_more ? GRPC_WRITE_BUFFER_HINT : 0;
        ops[n++].data.send_message.send_message = message;
    }
    grpc_slice text = grpc_empty_slice();
    if (is_over && !has_more) {
        make_trailers(c);
        if (c->code != RELAY_OK) text = grpc_slice_from_copied_string(c->err.message);
        ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        ops[n].data.send_status_from_server.status = (grpc_status_code)c->code;
        ops[n].data.send_status_from_server.status_details = c->code == RELAY_OK ? NULL : &text;
        ops[n].data.send_status_from_server.trailing_metadata = c->trailers;
        ops[n++].data.send_status_from_server.trailing_metadata_count = c->n_trailers;
        c->has_sent_status = true;
    }
    c->is_writing = true;
    ref(c);
    relay_rpc_start_batch(c->call, ops, n, &c->write_tag);
    grpc_slice_unref(text);
    if (message != NULL) grpc_byte_buffer_destroy(message);
}

// Ends the call with a status; false if it was over. Under mu.
static bool end(relay_rpc_call *c, relay_code code, const relay_err *e) {
    if (atomic_load_explicit(&c->is_over, memory_order_relaxed)) return false;
    c->code = code;
    if (e != NULL) c->err = *e;
    c->err.code = code;
    atomic_store_explicit(&c->is_over, true, memory_order_release);
    pump(c);
    return true;
}

// Nothing more can be written: the wire is gone. Under mu.
static void give_up_writing(relay_rpc_call *c) {
    c->has_sent_status = true;
    relay_rpc_outbox_clear(&c->outbox);
}

static void write_tag_done(relay_rpc_tag *tag, bool ok) {
    relay_rpc_call *c = RELAY_RPC_HOLDER(tag, relay_rpc_call, write_tag);
    pthread_mutex_lock(&c->mu);
    c->is_writing = false;
    relay_rpc_outbox_sent(&c->outbox);
    if (!ok) give_up_writing(c); // the close follows, and tells the handler
    pump(c);
    bool is_drained = ok && c->outbox.used == 0 && !atomic_load_explicit(&c->is_over, memory_order_relaxed);
    pthread_mutex_unlock(&c->mu);
    if (is_drained && c->served->method.on_drained != NULL) c->served->method.on_drained(c);
    unref(c);
}

relay_code relay_rpc_call_send(relay_rpc_call *c, const ProtobufCMessage *message) {
    if (relay_rpc_call_is_over(c)) return RELAY_CANCELLED;
    grpc_slice bytes;
    relay_code code = relay_rpc_pack(message, relay_rpc_server_get_opts(c->server)->max_response_bytes, &bytes, NULL);
    if (code != RELAY_OK) return code;
    pthread_mutex_lock(&c->mu);
    if (atomic_load_explicit(&c->is_over, memory_order_relaxed)) {
        code = RELAY_CANCELLED;
        grpc_slice_unref(bytes);
    } else if (!relay_rpc_outbox_push(&c->outbox, bytes)) {
        code = RELAY_RESOURCE_EXHAUSTED;
    } else {
        pump(c);
    }
    pthread_mutex_unlock(&c->mu);
    return code;
}

void relay_rpc_call_finish(relay_rpc_call *c, relay_code code, const relay_err *e) {
    pthread_mutex_lock(&c->mu);
    end(c, code, e);
    pthread_mutex_unlock(&c->mu);
}

void relay_rpc_call_reply(relay_rpc_call *c, const ProtobufCMessage *message) {
    grpc_slice bytes;
    relay_err e;
    relay_code code = relay_rpc_pack(message, relay_rpc_server_get_opts(c->server)->max_response_bytes, &bytes, &e);
    if (code != RELAY_OK) {
        relay_rpc_call_finish(c, code, &e);
        return;
    }
    pthread_mutex_lock(&c->mu);
    if (atomic_load_explicit(&c->is_over, memory_order_relaxed)) {
        grpc_slice_unref(bytes);
    } else {
        RELAY_ASSERT(relay_rpc_outbox_push(&c->outbox, bytes)); // the call's only message finds the outbox empty
        end(c, RELAY_OK, NULL);                                 // message and status in one batch
    }
    pthread_mutex_unlock(&c->mu);
}

void relay_rpc_call_abort(relay_rpc_call *c, relay_code code, const relay_err *e) {
    pthread_mutex_lock(&c->mu);
    if (!atomic_load_explicit(&c->is_over, memory_order_relaxed)) {
        relay_rpc_outbox_clear(&c->outbox);
        bool is_stuck = c->is_writing;
        if (is_stuck) c->has_sent_status = true;
        end(c, code, e);
        // A status in order would wait behind the write that the client does not take. The transport's own cancellation
        // does not: it drops that write, and puts code and message on the wire before the reset of the stream.
        if (is_stuck) grpc_call_cancel_with_status(c->call, (grpc_status_code)code, c->err.message, NULL);
    }
    pthread_mutex_unlock(&c->mu);
}

uint64_t relay_rpc_call_outbox_used(const relay_rpc_call *call) {
    relay_rpc_call *c = (relay_rpc_call *)call;
    pthread_mutex_lock(&c->mu);
    uint64_t used = c->outbox.used;
    pthread_mutex_unlock(&c->mu);
    return used;
}

// ---- The close

static void close_tag_done(relay_rpc_tag *tag, bool ok) {
    relay_rpc_call *c = RELAY_RPC_HOLDER(tag, relay_rpc_call, close_tag);
    pthread_mutex_lock(&c->mu);
    bool is_news = !atomic_load_explicit(&c->is_over, memory_order_relaxed);
    if (c->close_cancelled) give_up_writing(c);
    if (is_news) {
        c->code = relay_mono_now() >= c->deadline ? RELAY_DEADLINE_EXCEEDED : RELAY_CANCELLED;
        atomic_store_explicit(&c->is_over, true, memory_order_release);
    }
    relay_code code = c->code;
    pthread_mutex_unlock(&c->mu);
    if (is_news && c->served->method.on_cancel != NULL) c->served->method.on_cancel(c);
    relay_rpc_server_call_closed(c->server, c->served, code, relay_mono_now() - c->started);
    unref(c);
}

// ---- Reading

static void arm_read(relay_rpc_call *c) {
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &c->read_bytes;
    ref(c);
    relay_rpc_start_batch(c->call, &op, 1, &c->read_tag);
}

static void deliver(relay_rpc_call *c, ProtobufCMessage *message) {
    c->message = message;
    c->served->method.on_message(c, message);
    protobuf_c_message_free_unpacked(c->message, NULL);
    c->message = NULL;
}

static void read_tag_done(relay_rpc_tag *tag, bool ok) {
    relay_rpc_call *c = RELAY_RPC_HOLDER(tag, relay_rpc_call, read_tag);
    const relay_rpc_method *method = &c->served->method;
    grpc_byte_buffer *bytes = c->read_bytes;
    c->read_bytes = NULL;
    if (relay_rpc_call_is_over(c)) {
        if (bytes != NULL) grpc_byte_buffer_destroy(bytes);
    } else if (bytes == NULL) {
        // The end of the requests looks the same whether the client half-closed or is gone; the latter is for the
        // close.
        bool is_half_close = ok && !grpc_call_failed_before_recv_message(c->call);
        if (is_half_close && method->on_half_close != NULL) method->on_half_close(c);
    } else {
        ProtobufCMessage *message;
        relay_err e;
        c->request_bytes = grpc_byte_buffer_length(bytes);
        if (relay_rpc_unpack(method->request, bytes, &message, &e) == RELAY_OK) {
            deliver(c, message);
            if (!relay_rpc_call_is_over(c)) arm_read(c);
        } else {
            pthread_mutex_lock(&c->mu);
            bool is_news = end(c, e.code, &e);
            pthread_mutex_unlock(&c->mu);
            if (is_news && method->on_cancel != NULL) method->on_cancel(c);
        }
    }
    unref(c);
}

uint64_t relay_rpc_call_request_bytes(const relay_rpc_call *c) {
    return c->request_bytes;
}

ProtobufCMessage *relay_rpc_call_take_message(relay_rpc_call *c) {
    ProtobufCMessage *message = c->message;
    c->message = NULL;
    return message;
}

// ---- The beginning

// Runs the first callbacks, or refuses the call without any.
static relay_code start(relay_rpc_call *c, relay_rpc_arrival *a, bool is_within_limit, relay_err *e) {
    const relay_rpc_method *method = &c->served->method;
    if (method->path == NULL) {
        return relay_fail(e, RELAY_UNIMPLEMENTED, "unknown method \"%.*s\"", (int)GRPC_SLICE_LENGTH(a->details.method),
                          GRPC_SLICE_START_PTR(a->details.method));
    }
    if (!is_within_limit && !method->is_always_admitted) {
        relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "the server is at its limit of %u calls",
                   relay_rpc_server_get_opts(c->server)->max_calls);
        e->retry_after_ms = BUSY_RETRY_MS;
        return RELAY_RESOURCE_EXHAUSTED;
    }
    if (method->kind == RELAY_RPC_CLIENT_STREAM || method->kind == RELAY_RPC_BIDI) {
        c->has_handler = true;
        if (method->on_start != NULL) method->on_start(c);
        if (!relay_rpc_call_is_over(c)) arm_read(c);
        return RELAY_OK;
    }
    if (a->payload == NULL) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "the call has no request message: a %s is needed",
                          method->request->name);
    }
    ProtobufCMessage *message;
    c->request_bytes = grpc_byte_buffer_length(a->payload);
    relay_code code = relay_rpc_unpack(method->request, a->payload, &message, e);
    a->payload = NULL;
    if (code != RELAY_OK) return code;
    c->has_handler = true;
    if (method->on_start != NULL) method->on_start(c);
    if (relay_rpc_call_is_over(c)) {
        protobuf_c_message_free_unpacked(message, NULL);
    } else {
        deliver(c, message);
    }
    return RELAY_OK;
}

void relay_rpc_call_begin(relay_rpc_arrival *a) {
    relay_rpc_call *c = relay_calloc(1, sizeof *c);
    bool is_within_limit = relay_rpc_server_call_opened(a->server);
    c->server = a->server;
    c->served = a->served;
    c->call = a->call;
    c->peer = grpc_call_get_peer(a->call);
    c->started = relay_mono_now();
    c->deadline = relay_rpc_deadline_from_gpr(a->deadline);
    atomic_init(&c->refs, 1);
    atomic_init(&c->is_over, false);
    c->close_tag.done = close_tag_done;
    c->read_tag.done = read_tag_done;
    c->write_tag.done = write_tag_done;
    c->destroy_tag.done = destroy_tag_done;
    pthread_mutex_init(&c->mu, NULL);
    c->outbox.limit = relay_rpc_server_get_opts(a->server)->outbox_bytes;

    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    op.data.recv_close_on_server.cancelled = &c->close_cancelled;
    ref(c);
    relay_rpc_start_batch(c->call, &op, 1, &c->close_tag);

    relay_err e;
    relay_code code = start(c, a, is_within_limit, &e);
    if (code != RELAY_OK) relay_rpc_call_finish(c, code, &e);
    if (a->payload != NULL) grpc_byte_buffer_destroy(a->payload);
    grpc_metadata_array_destroy(&a->metadata);
    grpc_call_details_destroy(&a->details);
    unref(c);
}

// ---- What a handler may ask

void *relay_rpc_call_service(const relay_rpc_call *c) {
    return c->served->method.service;
}

const relay_rpc_method *relay_rpc_call_method(const relay_rpc_call *c) {
    return &c->served->method;
}

void relay_rpc_call_set_data(relay_rpc_call *c, void *data) {
    c->data = data;
}

void *relay_rpc_call_data(const relay_rpc_call *c) {
    return c->data;
}

relay_mono_us relay_rpc_call_deadline(const relay_rpc_call *c) {
    return c->deadline;
}

const char *relay_rpc_call_peer(const relay_rpc_call *c) {
    return c->peer;
}

bool relay_rpc_call_is_over(const relay_rpc_call *c) {
    return atomic_load_explicit(&c->is_over, memory_order_acquire);
}
