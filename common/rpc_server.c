// The server: its port, its queue, the slots that take calls, and the drain.
//
// Slots. The C core hands a call over only to a slot that was posted for its method; calls without one pile up inside
// it without bound. So each method has SLOTS_PER_METHOD posted, a slot is posted again before its call's
// first callback runs, and refusing (too many calls) is done by answering. One catch-all set of slots takes every path
// that is no method, which would otherwise hang until its deadline.
//
// Lifetimes. `mu` guards the counts on which the end waits: slots posted, calls in memory, and the C core's own
// shutdown tag. Only when all three are done is the queue shut down, since starting an operation on a queue that is
// shut down aborts the process. No lock is held while the C core is called.
#include "common/rpc_server.h"

#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/address.h"
#include "common/rpc_call.h"
#include "common/rpc_core.h"

enum { SLOTS_PER_METHOD = 64 };

enum {
    MAX_CALLS = 1024,
    MAX_REQUEST_BYTES = 16 << 20,
    MAX_RESPONSE_BYTES = 64 << 20,
    OUTBOX_BYTES = 1 << 20,
    KEEPALIVE_TIME_MS = 60000,
    KEEPALIVE_TIMEOUT_MS = 20000,
    // A client may ping every 10 s: half of that, for pings that a slow network pushes together.
    CLIENT_PING_INTERVAL_MS = 5000,
    HANDSHAKE_TIMEOUT_MS = 15000,
    // Streams that one connection may have beyond max_calls, so that a client at the limit is told so instead of left
    // waiting on its own side.
    SPARE_STREAMS = 64,
};

// How long connections without calls have to close by themselves, so that nobody's last bytes are cut off.
#define GOODBYE_US 250000

typedef struct slot {
    relay_rpc_tag tag;
    relay_rpc_arrival arrival;
} slot;

struct relay_rpc_server {
    relay_rpc_server_opts opts; // defaults filled in
    grpc_server *core;
    relay_rpc_queue queue;
    relay_rpc_served **served; // n_served, the catch-all first
    size_t n_served;
    uint16_t port;
    bool is_drained;
    relay_rpc_tag shutdown_tag;

    pthread_mutex_t mu;  // guards what follows
    pthread_cond_t cond; // any of it changed
    uint64_t n_slots;    // posted
    uint64_t n_calls;    // in memory
    uint64_t n_active;   // not over on the wire
    relay_gauge *active; // n_active; NULL without metrics
    bool is_shut_down;   // the shutdown tag is back
    bool is_hurried;
};

// ---- Slots

static void post_slot(slot *s) {
    relay_rpc_arrival *a = &s->arrival;
    grpc_metadata_array_init(&a->metadata);
    grpc_call_details_init(&a->details);
    a->call = NULL;
    a->payload = NULL;
    // From the hand-over on, another thread may be filling the slot: nothing of it is read after that.
    grpc_server *core = a->server->core;
    grpc_completion_queue *cq = a->server->queue.cq;
    void *registration = a->served->registration;
    relay_rpc_kind kind = a->served->method.kind;
    grpc_byte_buffer **payload = kind == RELAY_RPC_UNARY || kind == RELAY_RPC_SERVER_STREAM ? &a->payload : NULL;
    RELAY_RPC_GIVE_TAG(&s->tag);
    grpc_call_error rc = registration == NULL
                             ? grpc_server_request_call(core, &a->call, &a->details, &a->metadata, cq, cq, &s->tag)
                             : grpc_server_request_registered_call(core, registration, &a->call, &a->deadline,
                                                                   &a->metadata, payload, cq, cq, &s->tag);
    RELAY_ASSERT(rc == GRPC_CALL_OK);
}

static void slot_tag_done(relay_rpc_tag *tag, bool ok) {
    slot *s = RELAY_RPC_HOLDER(tag, slot, tag);
    relay_rpc_server *server = s->arrival.server;
    if (ok) {
        relay_rpc_arrival arrival = s->arrival;
        if (arrival.served->registration == NULL) arrival.deadline = arrival.details.deadline;
        // A server that is shutting down takes it as well, and gives it back at once.
        post_slot(s);
        relay_rpc_call_begin(&arrival);
        return;
    }
    grpc_metadata_array_destroy(&s->arrival.metadata);
    grpc_call_details_destroy(&s->arrival.details);
    free(s);
    pthread_mutex_lock(&server->mu);
    server->n_slots--;
    pthread_cond_broadcast(&server->cond);
    pthread_mutex_unlock(&server->mu);
}

// ---- Creation

// A C core of this version never accepts again after it once ran out of file descriptors (CVE-2023-4785).
static void raise_fd_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void fill_defaults(relay_rpc_server_opts *o) {
#define DEFAULT(field, value)                                                                                          \
    if (o->field == 0) o->field = value
    DEFAULT(max_calls, MAX_CALLS);
    DEFAULT(max_request_bytes, MAX_REQUEST_BYTES);
    DEFAULT(max_response_bytes, MAX_RESPONSE_BYTES);
    DEFAULT(outbox_bytes, OUTBOX_BYTES);
    DEFAULT(keepalive_time_ms, KEEPALIVE_TIME_MS);
    DEFAULT(keepalive_timeout_ms, KEEPALIVE_TIMEOUT_MS);
#undef DEFAULT
}

static grpc_server *create_core(const relay_rpc_server_opts *o) {
    grpc_arg args[] = {
        // Two servers on one port would share its connections by chance.
        relay_rpc_int_arg(GRPC_ARG_ALLOW_REUSEPORT, 0),
        // No algorithm but identity: decompression would come before the limit on message sizes.
        relay_rpc_int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1u << GRPC_COMPRESS_NONE),
        relay_rpc_int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, (uint64_t)o->max_calls + SPARE_STREAMS),
        relay_rpc_int_arg(GRPC_ARG_MAX_METADATA_SIZE, RELAY_RPC_MAX_METADATA_BYTES),
        relay_rpc_int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, o->max_request_bytes),
        relay_rpc_int_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, o->max_response_bytes),
        relay_rpc_int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, o->keepalive_time_ms),
        relay_rpc_int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, o->keepalive_timeout_ms),
        relay_rpc_int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        relay_rpc_int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        relay_rpc_int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, CLIENT_PING_INTERVAL_MS),
        relay_rpc_int_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_TIMEOUT_MS),
    };
    grpc_channel_args list = {.num_args = sizeof args / sizeof *args, .args = args};
    return grpc_server_create(&list, NULL);
}

static relay_rpc_served *add_served(relay_rpc_server *s, const relay_rpc_method *method, void *registration) {
    relay_rpc_served *served = relay_calloc(1, sizeof *served);
    if (method != NULL) served->method = *method;
    served->registration = registration;
    s->served = relay_realloc(s->served, (s->n_served + 1) * sizeof *s->served);
    s->served[s->n_served++] = served;
    return served;
}

static void shutdown_tag_done(relay_rpc_tag *tag, bool ok) {
    relay_rpc_server *s = RELAY_RPC_HOLDER(tag, relay_rpc_server, shutdown_tag);
    pthread_mutex_lock(&s->mu);
    s->is_shut_down = true;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mu);
}

relay_code relay_rpc_server_create(relay_rpc_server **out, const relay_rpc_server_opts *opts, relay_err *e) {
    *out = NULL;
    // Checked here, since the C core would take port 99999 for 34463.
    relay_address address;
    if (!relay_address_read(&address, opts->listen)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "listen address \"%s\": must be HOST:PORT, [IPV6]:PORT or :PORT, port 0 to 65535",
                          opts->listen);
    }
    raise_fd_limit();
    relay_rpc_core_up();
    relay_rpc_server *s = relay_calloc(1, sizeof *s);
    s->opts = *opts;
    fill_defaults(&s->opts);
    pthread_mutex_init(&s->mu, NULL);
    relay_rpc_cond_init(&s->cond);
    s->shutdown_tag.done = shutdown_tag_done;
    s->core = create_core(&s->opts);
    relay_rpc_queue_init(&s->queue);
    grpc_server_register_completion_queue(s->core, s->queue.cq, NULL);
    add_served(s, NULL, NULL);
    grpc_server_credentials *plaintext = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(s->core, opts->listen, plaintext);
    grpc_server_credentials_release(plaintext);
    if (port == 0) {
        relay_fail(e, RELAY_UNAVAILABLE, "cannot listen on \"%s\": the address is wrong, or in use", opts->listen);
        relay_rpc_server_destroy(s);
        return RELAY_UNAVAILABLE;
    }
    s->port = (uint16_t)port;
    *out = s;
    return RELAY_OK;
}

void relay_rpc_server_add(relay_rpc_server *s, const relay_rpc_method *methods, size_t n_methods) {
    for (size_t i = 0; i < n_methods; i++) {
        const relay_rpc_method *m = &methods[i];
        bool has_payload = m->kind == RELAY_RPC_UNARY || m->kind == RELAY_RPC_SERVER_STREAM;
        void *registration = grpc_server_register_method(
            s->core, m->path, NULL, has_payload ? GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER : GRPC_SRM_PAYLOAD_NONE, 0);
        RELAY_ASSERT(registration != NULL); // NULL: the path was added before
        add_served(s, m, registration);
    }
}

static void make_metrics(relay_rpc_server *s) {
    relay_metrics *m = s->opts.metrics;
    if (m == NULL) return;
    s->active = relay_metrics_gauge(m, "relay_rpc_active", "Calls that are running.", NULL);
    for (size_t i = 0; i < s->n_served; i++) {
        relay_rpc_served *served = s->served[i];
        const char *path = served->method.path != NULL ? served->method.path : "unknown";
        char labels[256];
        snprintf(labels, sizeof labels, "method=\"%s\"", path);
        served->seconds = relay_metrics_histogram(m, "relay_rpc_seconds", "How long calls took, streams to their end.",
                                                  labels, relay_latency_bounds, relay_latency_bounds_count);
        for (int code = 0; code < RELAY_RPC_N_CODES; code++) {
            snprintf(labels, sizeof labels, "code=\"%s\",method=\"%s\"", relay_code_name((relay_code)code), path);
            served->ended[code] =
                relay_metrics_counter(m, "relay_rpc_requests_total", "Calls that ended, by status code.", labels);
        }
    }
}

relay_code relay_rpc_server_start(relay_rpc_server *s, relay_err *e) {
    make_metrics(s);
    relay_code code = relay_rpc_queue_start(&s->queue, "rpc-server", e);
    if (code != RELAY_OK) return code;
    s->n_slots = s->n_served * SLOTS_PER_METHOD;
    grpc_server_start(s->core);
    for (size_t m = 0; m < s->n_served; m++) {
        for (int i = 0; i < SLOTS_PER_METHOD; i++) {
            slot *new_slot = relay_calloc(1, sizeof *new_slot);
            new_slot->tag.done = slot_tag_done;
            new_slot->arrival.server = s;
            new_slot->arrival.served = s->served[m];
            post_slot(new_slot);
        }
    }
    return RELAY_OK;
}

uint16_t relay_rpc_server_port(const relay_rpc_server *s) {
    return s->port;
}

// ---- What calls report

const relay_rpc_server_opts *relay_rpc_server_get_opts(const relay_rpc_server *s) {
    return &s->opts;
}

// Under mu.
static void count_active(relay_rpc_server *s, int64_t change) {
    s->n_active += (uint64_t)change;
    if (s->active != NULL) relay_gauge_set(s->active, (double)s->n_active);
}

bool relay_rpc_server_call_opened(relay_rpc_server *s) {
    pthread_mutex_lock(&s->mu);
    s->n_calls++;
    bool is_within_limit = s->n_active < s->opts.max_calls;
    count_active(s, 1);
    pthread_mutex_unlock(&s->mu);
    return is_within_limit;
}

void relay_rpc_server_call_closed(relay_rpc_server *s, relay_rpc_served *served, relay_code code,
                                  relay_mono_us elapsed) {
    if (served->seconds != NULL) {
        relay_counter_add(served->ended[code], 1);
        relay_histogram_observe(served->seconds, (double)elapsed / 1e6);
    }
    pthread_mutex_lock(&s->mu);
    count_active(s, -1);
    pthread_mutex_unlock(&s->mu);
}

void relay_rpc_server_call_destroyed(relay_rpc_server *s) {
    pthread_mutex_lock(&s->mu);
    s->n_calls--;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mu);
}

// ---- The end

void relay_rpc_server_drain(relay_rpc_server *s, relay_mono_us grace_us) {
    RELAY_ASSERT(!s->is_drained && !relay_rpc_on_queue_thread());
    s->is_drained = true;
    relay_mono_us now = relay_mono_now();
    relay_mono_us until = grace_us > RELAY_NEVER_US - now ? RELAY_NEVER_US : now + grace_us;
    relay_mono_us goodbye_until = RELAY_NEVER_US;
    RELAY_RPC_GIVE_TAG(&s->shutdown_tag);
    grpc_server_shutdown_and_notify(s->core, s->queue.cq, &s->shutdown_tag);

    pthread_mutex_lock(&s->mu);
    while (!s->is_shut_down && !s->is_hurried) {
        if (s->n_calls != 0) {
            goodbye_until = RELAY_NEVER_US;
        } else if (goodbye_until == RELAY_NEVER_US) {
            goodbye_until = relay_mono_now() + GOODBYE_US;
        }
        if (!relay_rpc_cond_wait(&s->cond, &s->mu, goodbye_until < until ? goodbye_until : until)) break;
    }
    pthread_mutex_unlock(&s->mu);
    grpc_server_cancel_all_calls(s->core); // and closes the connections

    pthread_mutex_lock(&s->mu);
    while (!s->is_shut_down || s->n_slots != 0 || s->n_calls != 0)
        relay_rpc_cond_wait(&s->cond, &s->mu, RELAY_NEVER_US);
    pthread_mutex_unlock(&s->mu);
    relay_rpc_queue_stop(&s->queue);
}

void relay_rpc_server_hurry(relay_rpc_server *s) {
    pthread_mutex_lock(&s->mu);
    s->is_hurried = true;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mu);
}

void relay_rpc_server_destroy(relay_rpc_server *s) {
    if (s == NULL) return;
    if (!s->is_drained) {
        // Never started. The C core wants its shutdown all the same.
        RELAY_RPC_GIVE_TAG(&s->shutdown_tag);
        grpc_server_shutdown_and_notify(s->core, s->queue.cq, &s->shutdown_tag);
        relay_rpc_queue_stop(&s->queue);
    }
    grpc_server_destroy(s->core);
    for (size_t i = 0; i < s->n_served; i++)
        free(s->served[i]);
    free(s->served);
    pthread_cond_destroy(&s->cond);
    pthread_mutex_destroy(&s->mu);
    free(s);
    relay_rpc_core_down();
}
