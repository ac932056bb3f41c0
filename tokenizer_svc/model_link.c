// Threads: the pod's own (opens and closes), the client's (callbacks), and whoever starts or cancels. Everything of a
// pod that more than one of them touches is under pod.lock. Handlers are called without it, and only by the client's
// thread: an entry that is out of the table belongs to whoever took it out.
#include "tokenizer_svc/model_link.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/ident.h"
#include "common/log.h"
#include "common/message.h"
#include "common/rpc_client.h"
#include "common/version.h"
#include "common/vocab.h"

enum { N_BUCKETS = 256, LINK_OUTBOX_BYTES = 64 << 20, RETRY_AFTER_MS = 500 };

static const char SESSION_PATH[] = "/relay.v1.ModelService/Session";
static const int64_t FIRST_PAUSE_US = 50000, LONGEST_PAUSE_US = 5000000;
static const int64_t WELCOME_WITHIN_US = 5000000;
// A session speaks every second; a pod that is silent for longer hangs or is cut off.
static const int64_t SILENCE_US = 10000000;

typedef struct entry {
    uint64_t stream_key;
    relay_link_handler handler;
    void *arg;
    uint32_t n_answers; // that have not ended
    struct entry *next; // in the bucket
} entry;

typedef enum pod_state {
    POD_DOWN,
    POD_GREETING, // the stream is open, the welcome has not come
    POD_READY,
} pod_state;

typedef struct pod {
    relay_model_link *link;
    uint32_t index;
    const char *address;
    uint64_t hash; // of the address
    pthread_t thread;
    relay_rpc_client *client; // the pod's thread's

    pthread_mutex_t lock; // guards what follows
    pthread_cond_t changed;
    pod_state state;
    bool was_ready; // on the connection that is, or was the last
    relay_rpc_stream *stream;
    bool is_over; // the stream's status has come
    relay_err end;
    bool is_mismatched; // the last hello was refused: another vocabulary
    bool is_draining;
    uint32_t waiting; // requests in its queue, as it last said
    uint32_t max_context;
    relay_mono_us heard_at;
    uint64_t last_key;
    uint32_t n_entries;
    entry *buckets[N_BUCKETS];
} pod;

struct relay_model_link {
    relay_model_link_opts opts;
    pthread_mutex_t lock; // guards what follows; may be taken inside pod.lock, not the other way round
    pthread_cond_t stopping;
    bool is_stopping;
    uint32_t n_ready;
    pod pods[];
};

// ---- Entries, under pod.lock

static entry **find_slot(pod *p, uint64_t stream_key) {
    entry **slot = &p->buckets[stream_key % N_BUCKETS];
    while (*slot != NULL && (*slot)->stream_key != stream_key)
        slot = &(*slot)->next;
    return slot;
}

static entry *take_entry(pod *p, uint64_t stream_key) {
    entry **slot = find_slot(p, stream_key);
    entry *found = *slot;
    if (found != NULL) {
        *slot = found->next;
        p->n_entries--;
    }
    return found;
}

static entry *take_all(pod *p) {
    entry *all = NULL;
    for (uint32_t i = 0; i < N_BUCKETS; i++) {
        while (p->buckets[i] != NULL) {
            entry *en = p->buckets[i];
            p->buckets[i] = en->next;
            en->next = all;
            all = en;
        }
    }
    p->n_entries = 0;
    return all;
}

// ---- From the pod: client thread

static void tell_ready(relay_model_link *link, int change) {
    if (change == 0) return;
    pthread_mutex_lock(&link->lock);
    link->n_ready += (uint32_t)change;
    if (link->opts.on_ready_pods != NULL) link->opts.on_ready_pods(link->opts.arg, link->n_ready);
    pthread_mutex_unlock(&link->lock);
}

static void take_error(const Relay__V1__SessionError *error, const entry *en) {
    relay_err e = {0};
    relay_code code = error->has_code && error->code != RELAY_OK ? (relay_code)error->code : RELAY_INTERNAL;
    relay_fail(&e, code, "%.*s", (int)error->message.len, (const char *)error->message.data);
    if (error->has_retry_after_ms) e.retry_after_ms = error->retry_after_ms;
    en->handler.on_error(en->arg, code, &e);
}

static void take_delta(pod *p, const Relay__V1__SessionDelta *delta) {
    bool ends_answer = delta->response != NULL && delta->response->finished != NULL;
    pthread_mutex_lock(&p->lock);
    // Only this thread takes entries out, so that one left in the table stays valid without the lock.
    entry *en = *find_slot(p, delta->stream_key);
    bool is_last = en != NULL && (delta->error != NULL || (ends_answer && --en->n_answers == 0));
    if (is_last) take_entry(p, delta->stream_key);
    pthread_mutex_unlock(&p->lock);
    if (en == NULL) return;
    if (delta->response != NULL) en->handler.on_response(en->arg, delta->response);
    if (delta->error != NULL) take_error(delta->error, en);
    if (is_last) free(en);
}

static void on_message(void *arg, ProtobufCMessage *message) {
    pod *p = arg;
    const Relay__V1__SessionResponse *m = (const Relay__V1__SessionResponse *)message;
    int change = 0;
    pthread_mutex_lock(&p->lock);
    p->heard_at = relay_mono_now();
    if (m->welcome != NULL && p->state == POD_GREETING) {
        p->state = POD_READY;
        p->was_ready = true;
        p->max_context = m->welcome->info == NULL ? 0 : m->welcome->info->max_context_tokens;
        change = 1;
        pthread_cond_broadcast(&p->changed);
    }
    if (m->load != NULL) p->waiting = m->load->waiting;
    if (m->has_draining) p->is_draining = m->draining;
    pthread_mutex_unlock(&p->lock);
    if (change != 0) RELAY_LOG(RELAY_LOG_INFO, "model server ready", "address=%s", p->address);
    tell_ready(p->link, change);
    for (size_t i = 0; i < m->n_deltas; i++)
        take_delta(p, m->deltas[i]);
}

static void on_done(void *arg, relay_code code, const relay_err *e) {
    pod *p = arg;
    pthread_mutex_lock(&p->lock);
    int change = p->state == POD_READY ? -1 : 0;
    entry *lost = take_all(p);
    p->state = POD_DOWN;
    p->end = *e;
    p->end.code = code;
    p->is_mismatched = code == RELAY_FAILED_PRECONDITION; // how a hello with another fingerprint is answered
    pthread_mutex_unlock(&p->lock);
    tell_ready(p->link, change);

    relay_err lost_error;
    relay_fail(&lost_error, RELAY_UNAVAILABLE, "the model server at %s was lost: %s", p->address,
               code == RELAY_OK ? "it closed its session" : e->message);
    for (entry *next; lost != NULL; lost = next) {
        next = lost->next;
        lost->handler.on_error(lost->arg, lost_error.code, &lost_error);
        free(lost);
    }
    // Last: from here on the pod's thread may let go of the stream.
    pthread_mutex_lock(&p->lock);
    p->is_over = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

// ---- The pod's thread

static struct timespec at_time(relay_mono_us t) {
    return (struct timespec){.tv_sec = t / 1000000, .tv_nsec = t % 1000000 * 1000};
}

static bool is_stopping(relay_model_link *link) {
    pthread_mutex_lock(&link->lock);
    bool stopping = link->is_stopping;
    pthread_mutex_unlock(&link->lock);
    return stopping;
}

static void pause_or_stop(relay_model_link *link, int64_t pause_us) {
    // Up to half as much again, so that many clients of one pod do not come back in step.
    uint32_t random;
    relay_ident_random(&random, sizeof random);
    struct timespec until = at_time(relay_mono_now() + pause_us + (int64_t)(random % 1024) * pause_us / 2048);
    pthread_mutex_lock(&link->lock);
    while (!link->is_stopping && pthread_cond_timedwait(&link->stopping, &link->lock, &until) == 0) {
    }
    pthread_mutex_unlock(&link->lock);
}

static relay_code say_hello(pod *p) {
    Relay__V1__SessionHello hello = RELAY__V1__SESSION_HELLO__INIT;
    RELAY_SET(&hello, client, relay_message_text(p->link->opts.client));
    RELAY_SET(&hello, build, relay_message_text(RELAY_VERSION));
    RELAY_SET(&hello, tokenizer_fingerprint, relay_message_bytes(p->link->opts.fingerprint, RELAY_FINGERPRINT_BYTES));
    Relay__V1__SessionRequest request = RELAY__V1__SESSION_REQUEST__INIT;
    request.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_HELLO;
    request.hello = &hello;
    return relay_rpc_stream_send(p->stream, &request.base);
}

// Until the stream's end, which it brings about where the pod is silent or the link stops. Under pod.lock.
static void watch_stream(pod *p) {
    bool is_cancelled = false;
    while (!p->is_over) {
        relay_mono_us now = relay_mono_now();
        int64_t limit = p->state == POD_READY ? SILENCE_US : WELCOME_WITHIN_US;
        if (!is_cancelled && (now - p->heard_at >= limit || is_stopping(p->link))) {
            relay_rpc_stream_cancel(p->stream);
            is_cancelled = true;
        }
        struct timespec until = at_time(now + 500000);
        pthread_cond_timedwait(&p->changed, &p->lock, &until);
    }
}

// One connection from its beginning to its end. True if it had become ready.
static bool run_connection(pod *p, relay_err *e) {
    static const relay_rpc_stream_callbacks callbacks = {.on_message = on_message, .on_done = on_done};
    relay_rpc_client_opts client_opts = {
        .target = p->address, .outbox_bytes = LINK_OUTBOX_BYTES, .keepalive_time_ms = p->link->opts.keepalive_ms};
    if (relay_rpc_client_create(&p->client, &client_opts, e) != RELAY_OK) return false;
    pthread_mutex_lock(&p->lock);
    p->is_over = false;
    p->is_draining = false;
    p->waiting = 0;
    p->was_ready = false;
    p->state = POD_GREETING;
    p->heard_at = relay_mono_now();
    relay_code code =
        relay_rpc_stream_open(&p->stream, p->client, SESSION_PATH, &relay__v1__session_response__descriptor, NULL, 0,
                              RELAY_NEVER_US, &callbacks, p, e);
    if (code == RELAY_OK) {
        if (say_hello(p) != RELAY_OK) relay_rpc_stream_cancel(p->stream);
        watch_stream(p);
        relay_rpc_stream_release(p->stream);
        p->stream = NULL;
        *e = p->end;
    }
    p->state = POD_DOWN;
    bool was_ready = p->was_ready;
    pthread_mutex_unlock(&p->lock);
    relay_rpc_client_destroy(p->client);
    p->client = NULL;
    return was_ready;
}

static void *run_pod(void *arg) {
    pod *p = arg;
    int64_t pause_us = FIRST_PAUSE_US;
    relay_code last_code = RELAY_OK;
    while (!is_stopping(p->link)) {
        relay_err e = {0};
        bool was_ready = run_connection(p, &e);
        if (is_stopping(p->link)) break;
        // Trying again and again is silent; what is new is said.
        if (was_ready || e.code != last_code) {
            bool is_mismatch = e.code == RELAY_FAILED_PRECONDITION;
            RELAY_LOG(RELAY_LOG_WARN, is_mismatch ? "model server has another vocabulary" : "no model server",
                      "address=%s code=%s error=%s", p->address, relay_code_name(e.code), e.message);
        }
        last_code = e.code;
        if (was_ready) pause_us = FIRST_PAUSE_US;
        pause_or_stop(p->link, pause_us);
        pause_us = pause_us * 2 < LONGEST_PAUSE_US ? pause_us * 2 : LONGEST_PAUSE_US;
    }
    return NULL;
}

relay_model_link *relay_model_link_create(const relay_model_link_opts *opts) {
    RELAY_ASSERT(opts->n_addresses != 0 && opts->n_addresses <= RELAY_MAX_MODEL_SERVERS);
    relay_model_link *link = relay_calloc(1, sizeof *link + opts->n_addresses * sizeof link->pods[0]);
    link->opts = *opts;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&link->lock, NULL);
    pthread_cond_init(&link->stopping, &attr);
    for (uint32_t i = 0; i < opts->n_addresses; i++) {
        pod *p = &link->pods[i];
        p->link = link;
        p->index = i;
        p->address = opts->addresses[i];
        p->hash = XXH3_64bits(p->address, strlen(p->address));
        pthread_mutex_init(&p->lock, NULL);
        pthread_cond_init(&p->changed, &attr);
        RELAY_ASSERT(pthread_create(&p->thread, NULL, run_pod, p) == 0);
    }
    pthread_condattr_destroy(&attr);
    return link;
}

void relay_model_link_destroy(relay_model_link *link) {
    if (link == NULL) return;
    pthread_mutex_lock(&link->lock);
    link->is_stopping = true;
    pthread_cond_broadcast(&link->stopping);
    pthread_mutex_unlock(&link->lock);
    for (uint32_t i = 0; i < link->opts.n_addresses; i++) {
        pod *p = &link->pods[i];
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
        RELAY_ASSERT(p->n_entries == 0);
        pthread_cond_destroy(&p->changed);
        pthread_mutex_destroy(&p->lock);
    }
    pthread_cond_destroy(&link->stopping);
    pthread_mutex_destroy(&link->lock);
    free(link);
}

// ---- Generations

// Lower is better; false where the pod cannot take one.
static bool rate_pod(pod *p, ProtobufCBinaryData sequence_id, uint64_t *rating) {
    pthread_mutex_lock(&p->lock);
    bool is_ready = p->state == POD_READY && !p->is_draining;
    *rating = (uint64_t)p->n_entries + p->waiting;
    pthread_mutex_unlock(&p->lock);
    if (sequence_id.len != 0) *rating = XXH3_64bits_withSeed(sequence_id.data, sequence_id.len, p->hash);
    return is_ready;
}

static relay_code no_pod(relay_model_link *link, relay_err *e) {
    for (uint32_t i = 0; i < link->opts.n_addresses; i++) {
        pod *p = &link->pods[i];
        pthread_mutex_lock(&p->lock);
        bool is_mismatched = p->is_mismatched;
        relay_err end = p->end;
        pthread_mutex_unlock(&p->lock);
        if (is_mismatched) {
            return relay_fail(e, RELAY_FAILED_PRECONDITION, "the model server at %s has another vocabulary: %s",
                              p->address, end.message);
        }
    }
    relay_fail(e, RELAY_UNAVAILABLE, "none of %u model servers is ready", link->opts.n_addresses);
    e->retry_after_ms = RETRY_AFTER_MS;
    return RELAY_UNAVAILABLE;
}

static relay_code start_at(pod *p, const Relay__V1__GenerateTokensRequest *request, relay_mono_us deadline,
                           const relay_link_handler *handler, void *arg, relay_link_ticket *ticket) {
    Relay__V1__SessionStart start = RELAY__V1__SESSION_START__INIT;
    start.request = (Relay__V1__GenerateTokensRequest *)(uintptr_t)request;
    if (deadline != RELAY_NEVER_US) {
        int64_t left_ms = (deadline - relay_mono_now()) / 1000;
        RELAY_SET(&start, deadline_ms, left_ms <= 0 ? 0 : left_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)left_ms);
    }
    Relay__V1__SessionRequest command = RELAY__V1__SESSION_REQUEST__INIT;
    command.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_START;
    command.start = &start;

    entry *en = relay_calloc(1, sizeof *en);
    en->handler = *handler;
    en->arg = arg;
    // Who goes on with an answer has one.
    bool has_several = request->has_num_sequences && request->num_sequences > 1 && request->resume == NULL;
    en->n_answers = has_several ? request->num_sequences : 1;
    relay_code code = RELAY_UNAVAILABLE;
    pthread_mutex_lock(&p->lock);
    if (p->state == POD_READY) {
        en->stream_key = ++p->last_key;
        RELAY_SET(&start, stream_key, en->stream_key);
        *ticket = (relay_link_ticket){p->index, en->stream_key};
        *find_slot(p, en->stream_key) = en;
        p->n_entries++;
        code = relay_rpc_stream_send(p->stream, &command.base);
        if (code != RELAY_OK) {
            take_entry(p, en->stream_key);
            *ticket = (relay_link_ticket){0};
        }
    }
    pthread_mutex_unlock(&p->lock);
    if (code != RELAY_OK) free(en);
    return code;
}

relay_code relay_model_link_start(relay_model_link *link, const Relay__V1__GenerateTokensRequest *request,
                                  relay_mono_us deadline, const relay_link_handler *handler, void *arg,
                                  relay_link_ticket *ticket, relay_err *e) {
    ProtobufCBinaryData sequence_id = request->has_sequence_id ? request->sequence_id : (ProtobufCBinaryData){0};
    uint64_t tried = 0; // a bit a pod: one whose stream has just gone is passed over
    for (uint32_t n = 0; n < link->opts.n_addresses; n++) {
        pod *best = NULL;
        uint64_t best_rating = 0;
        for (uint32_t i = 0; i < link->opts.n_addresses; i++) {
            uint64_t rating;
            if ((tried >> i & 1) != 0 || !rate_pod(&link->pods[i], sequence_id, &rating)) continue;
            if (best != NULL && rating >= best_rating) continue;
            best = &link->pods[i];
            best_rating = rating;
        }
        if (best == NULL) break;
        if (start_at(best, request, deadline, handler, arg, ticket) == RELAY_OK) return RELAY_OK;
        tried |= 1ull << best->index;
    }
    return no_pod(link, e);
}

void relay_model_link_cancel(relay_model_link *link, relay_link_ticket ticket) {
    if (ticket.stream_key == 0) return;
    pod *p = &link->pods[ticket.pod];
    Relay__V1__SessionCancel cancel = RELAY__V1__SESSION_CANCEL__INIT;
    RELAY_SET(&cancel, stream_key, ticket.stream_key);
    Relay__V1__SessionRequest command = RELAY__V1__SESSION_REQUEST__INIT;
    command.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_CANCEL;
    command.cancel = &cancel;
    pthread_mutex_lock(&p->lock);
    if (p->state == POD_READY && *find_slot(p, ticket.stream_key) != NULL) {
        // A cancel that cannot be sent would leave the model working for nobody.
        if (relay_rpc_stream_send(p->stream, &command.base) == RELAY_RESOURCE_EXHAUSTED) {
            relay_rpc_stream_cancel(p->stream);
        }
    }
    pthread_mutex_unlock(&p->lock);
}

void relay_model_link_get_summary(relay_model_link *link, relay_link_summary *out) {
    *out = (relay_link_summary){0};
    for (uint32_t i = 0; i < link->opts.n_addresses; i++) {
        pod *p = &link->pods[i];
        pthread_mutex_lock(&p->lock);
        if (p->state == POD_READY) {
            if (out->ready_pods == 0 || p->max_context < out->max_context) out->max_context = p->max_context;
            out->ready_pods++;
        }
        pthread_mutex_unlock(&p->lock);
    }
}
