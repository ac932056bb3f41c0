// A place's word, from the lowest bit: credit (32), listed, new, cancelled, generation (29). Everything that is asked
// is a compare-and-swap of the whole word, so what was meant for a request that has ended cannot reach the next one in
// its place: the generation has moved on and the swap fails. It is odd while the place has a request. Whoever sets
// `listed` puts the place into the queue; the engine clears it, with all that gathered, when it has taken the place
// out.
//
// A key is generation << 32 | place. Submitters exclude each other by a mutex, which the engine never takes: it only
// lowers the counts and returns places through a ring.
#include "model_svc/inbox.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/queue.h"

#define CREDIT_MASK UINT64_C(0xffffffff)
#define LISTED      (UINT64_C(1) << 32)
#define NEW         (UINT64_C(1) << 33)
#define CANCELLED   (UINT64_C(1) << 34)
#define GENERATION  35 // its lowest bit; the highest generation, which is odd, is followed by 0

typedef struct place {
    _Atomic uint64_t word;
    // Written by the submitter before NEW is set, read by the engine after it has seen NEW.
    relay_request *request;
    uint64_t arrival;
    // The engine's, from NEW on: its shares of the counts while it waits.
    uint32_t queued_tokens;
    uint32_t queued_requests; // one for each answer
} place;

struct relay_inbox {
    relay_inbox_opts opts;
    place *places;      // [max_sequences]
    relay_mpsc *listed; // of uint32_t: places to look at, each at most once
    relay_spsc *unused; // of uint32_t: places without a request; from the engine to who holds the mutex
    pthread_mutex_t submitting;
    uint64_t n_arrivals; // guarded by `submitting`
    // Raised by who holds the mutex, lowered by the engine: a check under the mutex holds until the rise.
    _Atomic uint32_t queued_requests;
    _Atomic uint64_t queued_tokens;
    _Atomic uint32_t retry_after_ms;
    _Atomic bool is_closed;    // written under the mutex
    _Atomic int64_t listed_at; // when the queue was last found empty and is so no more
};

static uint32_t round_up_to_power_of_two(uint32_t n) {
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

relay_inbox *relay_inbox_create(const relay_inbox_opts *o) {
    relay_inbox *b = relay_calloc(1, sizeof *b);
    b->opts = *o;
    b->places = relay_calloc(o->max_sequences, sizeof b->places[0]);
    uint32_t capacity = round_up_to_power_of_two(o->max_sequences);
    b->listed = relay_mpsc_create(capacity, sizeof(uint32_t));
    b->unused = relay_spsc_create(capacity, sizeof(uint32_t));
    for (uint32_t id = 0; id < o->max_sequences; id++) {
        *(uint32_t *)relay_spsc_reserve(b->unused) = id;
    }
    relay_spsc_commit(b->unused);
    pthread_mutex_init(&b->submitting, NULL);
    atomic_init(&b->retry_after_ms, 100);
    return b;
}

void relay_inbox_destroy(relay_inbox *b) {
    if (b == NULL) return;
    pthread_mutex_destroy(&b->submitting);
    relay_mpsc_destroy(b->listed);
    relay_spsc_destroy(b->unused);
    free(b->places);
    free(b);
}

// ---- Any thread

// Puts the place into the queue where its word, as it was before `listed` was set, says that it is not there.
static void list(relay_inbox *b, uint32_t id, uint64_t word_before) {
    if ((word_before & LISTED) != 0) return;
    if (relay_mpsc_count(b->listed) == 0) atomic_store(&b->listed_at, relay_mono_now());
    bool has_room = relay_mpsc_push(b->listed, &id);
    RELAY_ASSERT(has_room);
}

static relay_code refuse(relay_inbox *b, relay_err *e, const char *what, uint64_t n, const char *limit_name,
                         uint64_t limit) {
    relay_fail(e, RELAY_RESOURCE_EXHAUSTED,
               "the queue is full: with this request %" PRIu64 " %s would wait (%s is %" PRIu64 ")", n, what,
               limit_name, limit);
    if (e != NULL) e->retry_after_ms = atomic_load_explicit(&b->retry_after_ms, memory_order_relaxed);
    return RELAY_RESOURCE_EXHAUSTED;
}

// With the mutex.
static relay_code check_room(relay_inbox *b, const relay_request *r, relay_err *e) {
    if (atomic_load(&b->is_closed)) return relay_fail(e, RELAY_UNAVAILABLE, "the model service is draining");
    uint32_t requests = atomic_load_explicit(&b->queued_requests, memory_order_acquire);
    if (r->n_sequences > b->opts.max_queued_requests - requests) {
        return refuse(b, e, "requests", (uint64_t)requests + r->n_sequences, "max_queued_requests",
                      b->opts.max_queued_requests);
    }
    uint64_t tokens = atomic_load_explicit(&b->queued_tokens, memory_order_acquire);
    if (r->n_tokens > b->opts.max_queued_tokens - tokens) {
        return refuse(b, e, "tokens", tokens + r->n_tokens, "max_queued_tokens", b->opts.max_queued_tokens);
    }
    return RELAY_OK;
}

// With the mutex, and with room: as many places are unused as requests may still wait.
static uint32_t take_unused(relay_inbox *b) {
    uint32_t n;
    const uint32_t *id = relay_spsc_peek(b->unused, &n);
    RELAY_ASSERT(id != NULL);
    uint32_t taken = *id;
    relay_spsc_release(b->unused, 1);
    return taken;
}

relay_code relay_inbox_submit(relay_inbox *b, relay_request *r, uint64_t *key, relay_err *e) {
    if (r->n_tokens > b->opts.max_queued_tokens) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "prompt_token_ids has %u ids; more than the whole queue takes (max_queued_tokens is %" PRIu64
                          ")",
                          r->n_tokens, b->opts.max_queued_tokens);
    }
    if (r->n_sequences > b->opts.max_queued_requests) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "num_sequences is %u; more than the whole queue takes (max_queued_requests is %u)",
                          r->n_sequences, b->opts.max_queued_requests);
    }
    pthread_mutex_lock(&b->submitting);
    relay_code code = check_room(b, r, e);
    if (code == RELAY_OK) {
        atomic_fetch_add_explicit(&b->queued_requests, r->n_sequences, memory_order_relaxed);
        atomic_fetch_add_explicit(&b->queued_tokens, r->n_tokens, memory_order_relaxed);
        uint32_t id = take_unused(b);
        place *p = &b->places[id];
        p->request = r;
        p->arrival = b->n_arrivals++;
        uint64_t word = atomic_load(&p->word);
        uint64_t generation = (word >> GENERATION) + 1; // stays: nobody else moves it while the place is unused
        *key = generation << 32 | id;
        while (!atomic_compare_exchange_weak(&p->word, &word, generation << GENERATION | NEW | LISTED)) {
        }
        list(b, id, word);
    }
    pthread_mutex_unlock(&b->submitting);
    return code;
}

// Whether `word` is that of the place while it has the request that `key` names.
static bool is_for(uint64_t word, uint64_t key) {
    uint64_t generation = key >> 32;
    return generation % 2 == 1 && word >> GENERATION == generation;
}

void relay_inbox_cancel(relay_inbox *b, uint64_t key) {
    uint32_t id = (uint32_t)key;
    if (id >= b->opts.max_sequences) return;
    _Atomic uint64_t *word = &b->places[id].word;
    uint64_t before = atomic_load(word);
    do {
        if (!is_for(before, key) || (before & CANCELLED) != 0) return;
    } while (!atomic_compare_exchange_weak(word, &before, before | CANCELLED | LISTED));
    list(b, id, before);
}

void relay_inbox_add_credit(relay_inbox *b, uint64_t key, uint32_t tokens) {
    uint32_t id = (uint32_t)key;
    if (id >= b->opts.max_sequences || tokens == 0) return;
    _Atomic uint64_t *word = &b->places[id].word;
    uint64_t before = atomic_load(word), credit;
    do {
        if (!is_for(before, key)) return;
        credit = (before & CREDIT_MASK) + tokens;
        if (credit > CREDIT_MASK) credit = CREDIT_MASK;
    } while (!atomic_compare_exchange_weak(word, &before, (before & ~CREDIT_MASK) | credit | LISTED));
    list(b, id, before);
}

void relay_inbox_close(relay_inbox *b) {
    pthread_mutex_lock(&b->submitting);
    atomic_store(&b->is_closed, true);
    pthread_mutex_unlock(&b->submitting);
}

bool relay_inbox_is_closed(const relay_inbox *b) {
    return atomic_load(&b->is_closed);
}

void relay_inbox_wake(relay_inbox *b) {
    relay_mpsc_wake(b->listed);
}

relay_mono_us relay_inbox_pending_since(const relay_inbox *b) {
    return relay_mpsc_count(b->listed) == 0 ? RELAY_NEVER_US : atomic_load(&b->listed_at);
}

// ---- The engine's thread

bool relay_inbox_take(relay_inbox *b, relay_inbox_command *out) {
    uint32_t id;
    if (!relay_mpsc_pop(b->listed, &id)) return false;
    place *p = &b->places[id];
    uint64_t word = atomic_load(&p->word);
    while (!atomic_compare_exchange_weak(&p->word, &word, word >> GENERATION << GENERATION)) {
    }
    *out = (relay_inbox_command){
        .id = id,
        .is_cancelled = (word & CANCELLED) != 0,
        .credit = (uint32_t)(word & CREDIT_MASK),
    };
    if ((word & NEW) != 0) {
        out->request = p->request;
        out->arrival = p->arrival;
        p->queued_tokens = p->request->n_tokens;
        p->queued_requests = p->request->n_sequences;
    }
    return true;
}

void relay_inbox_wait(relay_inbox *b, relay_mono_us until) {
    relay_mpsc_wait(b->listed, until);
}

// The ids are shared by all answers: they are counted out with the first.
static void lower_counts(relay_inbox *b, place *p, uint32_t n_answers) {
    atomic_fetch_sub_explicit(&b->queued_tokens, p->queued_tokens, memory_order_release);
    atomic_fetch_sub_explicit(&b->queued_requests, n_answers, memory_order_release);
    p->queued_tokens = 0;
    p->queued_requests -= n_answers;
}

void relay_inbox_admit(relay_inbox *b, uint32_t id) {
    place *p = &b->places[id];
    if (p->queued_requests > 0) lower_counts(b, p, 1);
}

void relay_inbox_free(relay_inbox *b, uint32_t id) {
    place *p = &b->places[id];
    uint64_t word = atomic_load(&p->word), next;
    do {
        next = ((word >> GENERATION) + 1) << GENERATION | (word & LISTED);
    } while (!atomic_compare_exchange_weak(&p->word, &word, next));
    *(uint32_t *)relay_spsc_reserve(b->unused) = id;
    relay_spsc_commit(b->unused);
    // After the place is back: who finds the count low enough finds a place too.
    lower_counts(b, p, p->queued_requests);
}

void relay_inbox_set_retry_hint(relay_inbox *b, uint32_t retry_after_ms) {
    atomic_store_explicit(&b->retry_after_ms, retry_after_ms, memory_order_relaxed);
}
