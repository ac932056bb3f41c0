// The client: one channel, one queue thread, and calls as streams.
//
// References to a stream: the caller's, until _release, and one for each outstanding batch:
//   status    {RECV_STATUS_ON_CLIENT}, started first; comes back when everything else is over
//   head      {SEND_INITIAL_METADATA, RECV_INITIAL_METADATA}: without the second the C core holds messages back
//   read      {RECV_MESSAGE}: at most one outstanding
//   write     {[SEND_MESSAGE] [SEND_CLOSE_FROM_CLIENT]}: at most one outstanding
//
// Two ways to receive. With callbacks the queue thread reads on and on; on_done comes when the reads have ended and the
// status is there. Without, a message is read when _next asks for it, so that a caller that stops reading stops the
// server; what has arrived waits in `read_bytes`.
//
// Locks. A stream's `mu` guards all of its changing state and is held while a batch is started, never while a callback
// runs. The client's `mu` guards its count of streams. Neither is taken inside the other.
#include "common/rpc_client.h"

#include <grpc/grpc_security.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc_core.h"
#include "common/rpc_status.h"

enum {
    MAX_RESPONSE_BYTES = 64 << 20,
    OUTBOX_BYTES = 1 << 20,
    KEEPALIVE_TIME_MS = 60000,
    KEEPALIVE_TIMEOUT_MS = 20000,
    RECONNECT_FIRST_MS = 100,
    RECONNECT_MAX_MS = 2000,
};

struct relay_rpc_client {
    relay_rpc_client_opts opts; // defaults filled in; target is a copy
    char *target;
    grpc_channel *channel;
    relay_rpc_queue queue;
    pthread_mutex_t mu;
    pthread_cond_t cond; // n_streams changed, or a watch of the connection came back
    uint64_t n_streams;  // guarded by mu
};

struct relay_rpc_stream {
    // Set by open and constant since.
    relay_rpc_client *client;
    grpc_call *call;
    const ProtobufCMessageDescriptor *response_type;
    relay_rpc_stream_callbacks callbacks;
    void *arg;
    bool has_callbacks;
    relay_rpc_tag status_tag, head_tag, read_tag, write_tag;

    atomic_uint refs;
    atomic_bool is_cancelled; // by us

    // Filled in by the batches, read after their tags.
    grpc_metadata_array head, trailers;
    grpc_status_code status;
    grpc_slice status_text;

    // Of the thread that reads: the queue's, or the caller of _next.
    bool is_bad_response; // a response could not be parsed: bad_response says so
    relay_err bad_response;

    pthread_mutex_t mu;           // guards what follows
    pthread_cond_t cond;          // a message, the end of the reads, or the status has come
    grpc_byte_buffer *read_bytes; // filled in by the read batch
    bool is_reading;              // the read batch is outstanding
    bool is_read_out;             // no more messages will come
    bool has_status;
    relay_rpc_outbox outbox;
    bool is_writing; // the write batch is outstanding
    bool wants_half_close;
    bool is_half_closed; // the half-close was started, or never will be
};

// ---- The channel

static grpc_channel *create_channel(const relay_rpc_client_opts *o) {
    grpc_arg args[] = {
        relay_rpc_int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1u << GRPC_COMPRESS_NONE),
        relay_rpc_int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, o->max_response_bytes),
        relay_rpc_int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, o->keepalive_time_ms),
        relay_rpc_int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, o->keepalive_timeout_ms),
        relay_rpc_int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        // Pods restart: come back soon, and to a pod of its own each (no connection shared between clients).
        relay_rpc_int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_FIRST_MS),
        relay_rpc_int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RECONNECT_MAX_MS),
        relay_rpc_int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        // A proxy variable that is meant for the web must not catch traffic between services.
        relay_rpc_int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
    };
    grpc_channel_args list = {.num_args = sizeof args / sizeof *args, .args = args};
    grpc_channel_credentials *plaintext = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(o->target, plaintext, &list);
    grpc_channel_credentials_release(plaintext);
    return channel;
}

relay_code relay_rpc_client_create(relay_rpc_client **out, const relay_rpc_client_opts *opts, relay_err *e) {
    *out = NULL;
    relay_rpc_core_up();
    relay_rpc_client *c = relay_calloc(1, sizeof *c);
    c->opts = *opts;
    c->target = relay_strndup(opts->target, strlen(opts->target));
    c->opts.target = c->target;
    if (c->opts.max_response_bytes == 0) c->opts.max_response_bytes = MAX_RESPONSE_BYTES;
    if (c->opts.keepalive_time_ms == 0) c->opts.keepalive_time_ms = KEEPALIVE_TIME_MS;
    if (c->opts.keepalive_timeout_ms == 0) c->opts.keepalive_timeout_ms = KEEPALIVE_TIMEOUT_MS;
    if (c->opts.outbox_bytes == 0) c->opts.outbox_bytes = OUTBOX_BYTES;
    pthread_mutex_init(&c->mu, NULL);
    relay_rpc_cond_init(&c->cond);
    relay_rpc_queue_init(&c->queue);
    c->channel = create_channel(&c->opts);
    relay_code code = relay_rpc_queue_start(&c->queue, "rpc-client", e);
    if (code != RELAY_OK) {
        relay_rpc_client_destroy(c);
        return code;
    }
    *out = c;
    return RELAY_OK;
}

void relay_rpc_client_destroy(relay_rpc_client *c) {
    if (c == NULL) return;
    RELAY_ASSERT(!relay_rpc_on_queue_thread());
    pthread_mutex_lock(&c->mu);
    while (c->n_streams != 0)
        relay_rpc_cond_wait(&c->cond, &c->mu, RELAY_NEVER_US);
    pthread_mutex_unlock(&c->mu);
    grpc_channel_destroy(c->channel);
    relay_rpc_queue_stop(&c->queue);
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->mu);
    free(c->target);
    free(c);
    relay_rpc_core_down();
}

// One watch of the connection's state; on the stack of the caller, who waits for its tag.
typedef struct state_watch {
    relay_rpc_tag tag;
    relay_rpc_client *client;
    bool is_done; // guarded by the client's mu
} state_watch;

static void state_watch_done(relay_rpc_tag *tag, bool ok) {
    state_watch *w = RELAY_RPC_HOLDER(tag, state_watch, tag);
    relay_rpc_client *c = w->client;
    pthread_mutex_lock(&c->mu);
    w->is_done = true;
    pthread_cond_broadcast(&c->cond);
    pthread_mutex_unlock(&c->mu);
}

relay_code relay_rpc_client_wait_ready(relay_rpc_client *c, relay_mono_us deadline, relay_err *e) {
    RELAY_ASSERT(!relay_rpc_on_queue_thread());
    // A failure from before is waited out: what counts is an attempt that ends while we watch.
    bool is_trying = false;
    for (;;) {
        grpc_connectivity_state state = grpc_channel_check_connectivity_state(c->channel, 1);
        if (state == GRPC_CHANNEL_READY) return RELAY_OK;
        if (state == GRPC_CHANNEL_TRANSIENT_FAILURE && is_trying)
            return relay_fail(e, RELAY_UNAVAILABLE, "cannot connect to %s", c->target);
        is_trying = state != GRPC_CHANNEL_TRANSIENT_FAILURE;
        if (relay_mono_now() >= deadline)
            return relay_fail(e, RELAY_DEADLINE_EXCEEDED, "not connected to %s in time", c->target);
        state_watch w = {.tag.done = state_watch_done, .client = c};
        RELAY_RPC_GIVE_TAG(&w.tag);
        grpc_channel_watch_connectivity_state(c->channel, state, relay_rpc_deadline_to_gpr(deadline), c->queue.cq,
                                              &w.tag);
        pthread_mutex_lock(&c->mu);
        while (!w.is_done)
            relay_rpc_cond_wait(&c->cond, &c->mu, RELAY_NEVER_US);
        pthread_mutex_unlock(&c->mu);
    }
}

// ---- References

static void ref(relay_rpc_stream *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

static void unref(relay_rpc_stream *s) {
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
    relay_rpc_client *c = s->client;
    if (s->read_bytes != NULL) grpc_byte_buffer_destroy(s->read_bytes);
    relay_rpc_outbox_clear(&s->outbox);
    grpc_metadata_array_destroy(&s->head);
    grpc_metadata_array_destroy(&s->trailers);
    grpc_slice_unref(s->status_text);
    grpc_call_unref(s->call);
    pthread_cond_destroy(&s->cond);
    pthread_mutex_destroy(&s->mu);
    free(s);
    pthread_mutex_lock(&c->mu);
    c->n_streams--;
    pthread_cond_broadcast(&c->cond);
    pthread_mutex_unlock(&c->mu);
}

// ---- Writing

// Starts the next write if there is something to write and none is outstanding. Under mu.
static void pump(relay_rpc_stream *s) {
    if (s->is_writing || s->is_half_closed) return;
    if (relay_rpc_outbox_is_empty(&s->outbox) && !s->wants_half_close) return;
    grpc_op ops[2];
    memset(ops, 0, sizeof ops);
    size_t n = 0;
    grpc_byte_buffer *message = relay_rpc_outbox_pop(&s->outbox);
    bool has_more = !relay_rpc_outbox_is_empty(&s->outbox);
    if (message != NULL) {
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n].flags = has_more ? GRPC_WRITE_BUFFER_HINT : 0;
        ops[n++].data.send_message.send_message = message;
    }
    if (s->wants_half_close && !has_more) {
        ops[n++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
        s->is_half_closed = true;
    }
    s->is_writing = true;
    ref(s);
    relay_rpc_start_batch(s->call, ops, n, &s->write_tag);
    if (message != NULL) grpc_byte_buffer_destroy(message);
}

static void write_tag_done(relay_rpc_tag *tag, bool ok) {
    relay_rpc_stream *s = RELAY_RPC_HOLDER(tag, relay_rpc_stream, write_tag);
    pthread_mutex_lock(&s->mu);
    s->is_writing = false;
    relay_rpc_outbox_sent(&s->outbox);
    if (!ok) {
        s->is_half_closed = true;
        relay_rpc_outbox_clear(&s->outbox);
    }
    pump(s);
    pthread_mutex_unlock(&s->mu);
    unref(s);
}

relay_code relay_rpc_stream_send(relay_rpc_stream *s, const ProtobufCMessage *message) {
    grpc_slice bytes;
    relay_code code = relay_rpc_pack(message, UINT32_MAX, &bytes, NULL);
    if (code != RELAY_OK) return code;
    pthread_mutex_lock(&s->mu);
    if (s->has_status || s->wants_half_close || s->is_half_closed) {
        code = RELAY_CANCELLED;
        grpc_slice_unref(bytes);
    } else if (!relay_rpc_outbox_push(&s->outbox, bytes)) {
        code = RELAY_RESOURCE_EXHAUSTED;
    } else {
        pump(s);
    }
    pthread_mutex_unlock(&s->mu);
    return code;
}

void relay_rpc_stream_half_close(relay_rpc_stream *s) {
    pthread_mutex_lock(&s->mu);
    s->wants_half_close = true;
    pump(s);
    pthread_mutex_unlock(&s->mu);
}

void relay_rpc_stream_cancel(relay_rpc_stream *s) {
    atomic_store_explicit(&s->is_cancelled, true, memory_order_relaxed);
    grpc_call_cancel(s->call, NULL);
}

// ---- Reading

// Under mu.
static void start_read(relay_rpc_stream *s) {
    grpc_op op;
    memset(&op, 0, sizeof op);
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &s->read_bytes;
    s->is_reading = true;
    ref(s);
    relay_rpc_start_batch(s->call, &op, 1, &s->read_tag);
}

// The response in `bytes`, which it takes. NULL when it cannot be parsed, which ends the call, and for all that follow.
// On the thread that reads, without mu.
static ProtobufCMessage *parse_response(relay_rpc_stream *s, grpc_byte_buffer *bytes) {
    if (s->is_bad_response) {
        grpc_byte_buffer_destroy(bytes);
        return NULL;
    }
    ProtobufCMessage *message;
    relay_err e;
    if (relay_rpc_unpack(s->response_type, bytes, &message, &e) == RELAY_OK) return message;
    s->is_bad_response = true;
    relay_fail(&s->bad_response, RELAY_INTERNAL, "the server's answer: %s", e.message);
    relay_rpc_stream_cancel(s);
    return NULL;
}

// The call's status, after both the reads and the status batch are over.
static relay_code final_status(relay_rpc_stream *s, relay_err *e) {
    if (s->is_bad_response) {
        if (e != NULL) *e = s->bad_response;
        return RELAY_INTERNAL;
    }
    if (s->status == GRPC_STATUS_OK) return RELAY_OK;
    relay_code code = s->status > 0 && s->status <= GRPC_STATUS_UNAUTHENTICATED ? (relay_code)s->status : RELAY_UNKNOWN;
    // A C core server that shuts down gives a call that crosses its GOAWAY this status. Nobody here cancelled: the call
    // may be tried elsewhere.
    if (code == RELAY_CANCELLED && !atomic_load_explicit(&s->is_cancelled, memory_order_relaxed)) {
        return relay_fail(e, RELAY_UNAVAILABLE, "the server cancelled the call");
    }
    relay_fail(e, code, "%.*s", (int)GRPC_SLICE_LENGTH(s->status_text), GRPC_SLICE_START_PTR(s->status_text));
    for (size_t i = 0; i < s->trailers.count && e != NULL; i++) {
        const grpc_metadata *m = &s->trailers.metadata[i];
        if (!relay_rpc_slice_equals(m->key, RELAY_RPC_STATUS_DETAILS_KEY)) continue;
        e->retry_after_ms = relay_rpc_status_retry_ms(GRPC_SLICE_START_PTR(m->value), GRPC_SLICE_LENGTH(m->value));
    }
    return code;
}

// Tells the caller that the call is over if it is: once, since the last of the two events calls it. `is_over` was found
// under mu.
static void report_end(relay_rpc_stream *s, bool is_over) {
    if (!is_over || !s->has_callbacks) return;
    relay_err e = {0};
    relay_code code = final_status(s, &e);
    s->callbacks.on_done(s->arg, code, &e);
}

static void read_tag_done(relay_rpc_tag *tag, bool ok) {
    relay_rpc_stream *s = RELAY_RPC_HOLDER(tag, relay_rpc_stream, read_tag);
    pthread_mutex_lock(&s->mu);
    s->is_reading = false;
    grpc_byte_buffer *bytes = NULL;
    if (s->read_bytes == NULL) {
        s->is_read_out = true;
    } else if (s->has_callbacks) {
        bytes = s->read_bytes;
        s->read_bytes = NULL;
    }
    bool is_over = s->is_read_out && s->has_status;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mu);
    if (bytes != NULL) {
        ProtobufCMessage *message = parse_response(s, bytes);
        if (message != NULL) {
            s->callbacks.on_message(s->arg, message);
            protobuf_c_message_free_unpacked(message, NULL);
        }
        pthread_mutex_lock(&s->mu);
        start_read(s);
        pthread_mutex_unlock(&s->mu);
    }
    report_end(s, is_over);
    unref(s);
}

static void status_tag_done(relay_rpc_tag *tag, bool ok) {
    relay_rpc_stream *s = RELAY_RPC_HOLDER(tag, relay_rpc_stream, status_tag);
    pthread_mutex_lock(&s->mu);
    s->has_status = true;
    s->is_half_closed = true;
    relay_rpc_outbox_clear(&s->outbox);
    bool is_over = s->is_read_out;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mu);
    report_end(s, is_over);
    unref(s);
}

relay_code relay_rpc_stream_next(relay_rpc_stream *s, relay_mono_us until, ProtobufCMessage **message, bool *timed_out,
                                 relay_err *e) {
    RELAY_ASSERT(!s->has_callbacks && !relay_rpc_on_queue_thread());
    *message = NULL;
    if (timed_out != NULL) *timed_out = false;
    pthread_mutex_lock(&s->mu);
    for (;;) {
        if (!s->is_reading && s->read_bytes != NULL) {
            grpc_byte_buffer *bytes = s->read_bytes;
            s->read_bytes = NULL;
            pthread_mutex_unlock(&s->mu);
            *message = parse_response(s, bytes);
            if (*message != NULL) return RELAY_OK;
            pthread_mutex_lock(&s->mu);
        } else if (s->is_read_out && s->has_status) {
            pthread_mutex_unlock(&s->mu);
            return final_status(s, e);
        } else {
            if (!s->is_reading && !s->is_read_out) start_read(s);
            if (relay_rpc_cond_wait(&s->cond, &s->mu, until)) continue;
            pthread_mutex_unlock(&s->mu);
            if (timed_out != NULL) *timed_out = true;
            return relay_fail(e, RELAY_DEADLINE_EXCEEDED, "no message in time");
        }
    }
}

// ---- Beginning and end

static void head_tag_done(relay_rpc_tag *tag, bool ok) {
    unref(RELAY_RPC_HOLDER(tag, relay_rpc_stream, head_tag)); // a failure shows in the status
}

static relay_code check_metadata(const relay_rpc_metadata *metadata, size_t n_metadata, relay_err *e) {
    for (size_t i = 0; i < n_metadata; i++) {
        grpc_slice key = grpc_slice_from_static_string(metadata[i].key);
        grpc_slice value = grpc_slice_from_static_string(metadata[i].value);
        if (!grpc_header_key_is_legal(key) || grpc_is_binary_header(key)) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "metadata key \"%s\" is not a legal text key",
                              metadata[i].key);
        }
        if (!grpc_header_nonbin_value_is_legal(value)) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "the value of metadata \"%s\" is not printable ASCII",
                              metadata[i].key);
        }
    }
    return RELAY_OK;
}

relay_code relay_rpc_stream_open(relay_rpc_stream **out, relay_rpc_client *c, const char *path,
                                 const ProtobufCMessageDescriptor *response_type, const relay_rpc_metadata *metadata,
                                 size_t n_metadata, relay_mono_us deadline, const relay_rpc_stream_callbacks *callbacks,
                                 void *arg, relay_err *e) {
    *out = NULL;
    relay_code code = check_metadata(metadata, n_metadata, e);
    if (code != RELAY_OK) return code;

    pthread_mutex_lock(&c->mu);
    c->n_streams++;
    pthread_mutex_unlock(&c->mu);
    relay_rpc_stream *s = relay_calloc(1, sizeof *s);
    s->client = c;
    s->response_type = response_type;
    s->has_callbacks = callbacks != NULL;
    if (callbacks != NULL) s->callbacks = *callbacks;
    s->arg = arg;
    s->status_tag.done = status_tag_done;
    s->head_tag.done = head_tag_done;
    s->read_tag.done = read_tag_done;
    s->write_tag.done = write_tag_done;
    grpc_metadata_array_init(&s->head);
    grpc_metadata_array_init(&s->trailers);
    s->status_text = grpc_empty_slice();
    s->outbox.limit = c->opts.outbox_bytes;
    pthread_mutex_init(&s->mu, NULL);
    relay_rpc_cond_init(&s->cond);
    grpc_slice method = grpc_slice_from_copied_string(path);
    s->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue.cq, method, NULL,
                                       relay_rpc_deadline_to_gpr(deadline), NULL);
    grpc_slice_unref(method);

    grpc_metadata *head = relay_calloc(n_metadata, sizeof *head);
    for (size_t i = 0; i < n_metadata; i++) {
        head[i].key = grpc_slice_from_copied_string(metadata[i].key);
        head[i].value = grpc_slice_from_copied_string(metadata[i].value);
    }
    grpc_op ops[2];
    memset(ops, 0, sizeof ops);
    // The caller's, status, head.
    atomic_init(&s->refs, 3);
    pthread_mutex_lock(&s->mu);
    ops[0].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[0].data.recv_status_on_client.trailing_metadata = &s->trailers;
    ops[0].data.recv_status_on_client.status = &s->status;
    ops[0].data.recv_status_on_client.status_details = &s->status_text;
    relay_rpc_start_batch(s->call, ops, 1, &s->status_tag);
    memset(ops, 0, sizeof ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[0].data.send_initial_metadata.count = n_metadata;
    ops[0].data.send_initial_metadata.metadata = head;
    ops[1].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &s->head;
    relay_rpc_start_batch(s->call, ops, 2, &s->head_tag);
    *out = s; // before the first callback can come
    if (s->has_callbacks) start_read(s);
    pthread_mutex_unlock(&s->mu);
    for (size_t i = 0; i < n_metadata; i++) {
        grpc_slice_unref(head[i].key);
        grpc_slice_unref(head[i].value);
    }
    free(head);
    return RELAY_OK;
}

void relay_rpc_stream_release(relay_rpc_stream *s) {
    if (s == NULL) return;
    // Nobody will read what is left, and without that the call would not end.
    if (!s->has_callbacks) relay_rpc_stream_cancel(s);
    unref(s);
}

// ---- Unary

relay_code relay_rpc_client_unary(relay_rpc_client *c, const char *path, const ProtobufCMessage *request,
                                  const ProtobufCMessageDescriptor *response_type, const relay_rpc_metadata *metadata,
                                  size_t n_metadata, relay_mono_us deadline, ProtobufCMessage **response,
                                  relay_err *e) {
    *response = NULL;
    relay_rpc_stream *s;
    relay_code code = relay_rpc_stream_open(&s, c, path, response_type, metadata, n_metadata, deadline, NULL, NULL, e);
    if (code != RELAY_OK) return code;
    // A request that is not taken belongs to a call that has failed already: its status says why.
    if (relay_rpc_stream_send(s, request) == RELAY_OK) relay_rpc_stream_half_close(s);
    ProtobufCMessage *second = NULL;
    code = relay_rpc_stream_next(s, RELAY_NEVER_US, response, NULL, e);
    if (code == RELAY_OK && *response == NULL) code = relay_fail(e, RELAY_INTERNAL, "the server sent no answer");
    if (code == RELAY_OK) code = relay_rpc_stream_next(s, RELAY_NEVER_US, &second, NULL, e);
    if (code == RELAY_OK && second != NULL) {
        protobuf_c_message_free_unpacked(second, NULL);
        code = relay_fail(e, RELAY_INTERNAL, "the server sent more than one answer");
    }
    if (code != RELAY_OK && *response != NULL) {
        protobuf_c_message_free_unpacked(*response, NULL);
        *response = NULL;
    }
    relay_rpc_stream_release(s);
    return code;
}
