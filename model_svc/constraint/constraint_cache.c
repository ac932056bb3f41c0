// Handles are in a list, the one asked for last first. The cache holds a reference of each; those that nobody else
// holds are dropped from the end when there are too many. The lock is held for looking through the list and never while
// compiling.
#define _GNU_SOURCE // pthread_setname_np
#include "model_svc/constraint/constraint_cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_BYTES = 16 << 20 }; // for expressions of RELAY_GRAMMAR_MAX_DEPTH, sanitizers included

// What handles and the cache share: it goes with the last of them.
typedef struct shared {
    atomic_uint n_refs;
    relay_token_table *tokens;
} shared;

struct relay_constraint_handle {
    relay_constraint_handle *next; // under the cache's lock
    shared *shared;
    atomic_uint n_refs;
    _Atomic relay_constraint_state state; // the fields below are written before it
    relay_constraint *constraint;
    relay_err err;
    char *key; // its kind and texts
    size_t key_len;
    relay_constraint_spec spec; // of texts in the key
};

struct relay_constraint_cache {
    shared *shared;
    void (*on_settled)(void *arg);
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock; // of what follows
    pthread_cond_t wake;
    relay_constraint_handle *first;
    uint32_t n_waiting;
    uint64_t n_compiled;
    bool is_stopping;
};

static void release_shared(shared *s) {
    if (atomic_fetch_sub(&s->n_refs, 1) != 1) return;
    relay_token_table_destroy(s->tokens);
    free(s);
}

void relay_constraint_handle_release(relay_constraint_handle *h) {
    if (h == NULL || atomic_fetch_sub(&h->n_refs, 1) != 1) return;
    relay_constraint_destroy(h->constraint);
    release_shared(h->shared);
    free((void *)(uintptr_t)h->spec.choices);
    free(h->key);
    free(h);
}

relay_constraint_state relay_constraint_handle_state(const relay_constraint_handle *h) {
    return atomic_load(&((relay_constraint_handle *)(uintptr_t)h)->state);
}

relay_constraint *relay_constraint_handle_get(const relay_constraint_handle *h) {
    RELAY_ASSERT(relay_constraint_handle_state(h) == RELAY_CONSTRAINT_READY);
    return h->constraint;
}

const relay_err *relay_constraint_handle_error(const relay_constraint_handle *h) {
    RELAY_ASSERT(relay_constraint_handle_state(h) == RELAY_CONSTRAINT_FAILED);
    return &h->err;
}

// ---- Keys

static size_t text_size(relay_constraint_text t) {
    return sizeof t.len + t.len;
}

static char *put_text(char *out, relay_constraint_text *t) {
    memcpy(out, &t->len, sizeof t->len);
    if (t->len > 0) memcpy(out + sizeof t->len, t->bytes, t->len);
    t->bytes = out + sizeof t->len;
    return out + text_size(*t);
}

static size_t key_size(const relay_constraint_spec *spec) {
    size_t size = sizeof spec->kind + text_size(spec->text) + text_size(spec->start_after);
    for (uint32_t i = 0; i < spec->n_choices; i++)
        size += text_size(spec->choices[i]);
    return size;
}

// Texts are each behind their length, so that different specs are different keys.
static relay_constraint_handle *create_handle(shared *s, const relay_constraint_spec *spec) {
    relay_constraint_handle *h = relay_calloc(1, sizeof *h);
    h->shared = s;
    atomic_init(&h->n_refs, 1);
    atomic_init(&h->state, RELAY_CONSTRAINT_COMPILING);
    h->key_len = key_size(spec);
    h->key = relay_calloc(1, h->key_len);
    h->spec = *spec;
    memcpy(h->key, &spec->kind, sizeof spec->kind);
    char *at = put_text(h->key + sizeof spec->kind, &h->spec.text);
    at = put_text(at, &h->spec.start_after);
    relay_constraint_text *choices = relay_calloc(spec->n_choices + 1, sizeof choices[0]);
    for (uint32_t i = 0; i < spec->n_choices; i++) {
        choices[i] = spec->choices[i];
        at = put_text(at, &choices[i]);
    }
    h->spec.choices = choices;
    atomic_fetch_add(&s->n_refs, 1);
    return h;
}

// ---- The thread

static void settle(relay_constraint_cache *c, relay_constraint_handle *h, relay_code code) {
    atomic_store(&h->state, code == RELAY_OK ? RELAY_CONSTRAINT_READY : RELAY_CONSTRAINT_FAILED);
    c->on_settled(c->arg);
    relay_constraint_handle_release(h);
}

// The one that has waited longest, with a reference of its own.
static relay_constraint_handle *next_waiting(relay_constraint_cache *c) {
    relay_constraint_handle *found = NULL;
    for (relay_constraint_handle *h = c->first; h != NULL; h = h->next) {
        if (atomic_load(&h->state) == RELAY_CONSTRAINT_COMPILING) found = h;
    }
    if (found != NULL) {
        atomic_fetch_add(&found->n_refs, 1);
        c->n_waiting--;
    }
    return found;
}

static void *run(void *arg) {
    relay_constraint_cache *c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->n_waiting == 0 && !c->is_stopping)
            pthread_cond_wait(&c->wake, &c->lock);
        relay_constraint_handle *h = next_waiting(c);
        if (h == NULL) break;
        bool is_stopping = c->is_stopping;
        c->n_compiled += !is_stopping;
        pthread_mutex_unlock(&c->lock);
        relay_code code = is_stopping ? relay_fail(&h->err, RELAY_UNAVAILABLE, "the server is stopping")
                                      : relay_constraint_compile(&h->constraint, &h->spec, c->shared->tokens, &h->err);
        settle(c, h, code);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

// ---- The cache

relay_constraint_cache *relay_constraint_cache_create(const relay_vocab *vocab, uint32_t n_vocab,
                                                      void (*on_settled)(void *arg), void *arg) {
    relay_constraint_cache *c = relay_calloc(1, sizeof *c);
    c->shared = relay_calloc(1, sizeof *c->shared);
    atomic_init(&c->shared->n_refs, 1);
    c->shared->tokens = relay_token_table_create(vocab, n_vocab);
    c->on_settled = on_settled;
    c->arg = arg;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    RELAY_ASSERT(pthread_create(&c->thread, &attr, run, c) == 0);
    pthread_attr_destroy(&attr);
    pthread_setname_np(c->thread, "relay-compile");
    return c;
}

void relay_constraint_cache_destroy(relay_constraint_cache *c) {
    if (c == NULL) return;
    pthread_mutex_lock(&c->lock);
    c->is_stopping = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    for (relay_constraint_handle *h = c->first, *next; h != NULL; h = next) {
        next = h->next;
        relay_constraint_handle_release(h);
    }
    release_shared(c->shared);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static relay_constraint_handle *find(relay_constraint_cache *c, const relay_constraint_handle *like) {
    for (relay_constraint_handle **at = &c->first, *h; (h = *at) != NULL; at = &h->next) {
        if (h->key_len != like->key_len || memcmp(h->key, like->key, h->key_len) != 0) continue;
        *at = h->next; // to the front
        h->next = c->first;
        c->first = h;
        return h;
    }
    return NULL;
}

// Takes those past RELAY_CONSTRAINT_MAX_KEPT that nobody else holds out of the list; they are to be released.
static relay_constraint_handle *take_surplus(relay_constraint_cache *c) {
    relay_constraint_handle *surplus = NULL;
    uint32_t n = 0;
    for (relay_constraint_handle **at = &c->first, *h; (h = *at) != NULL;) {
        bool is_idle = atomic_load(&h->n_refs) == 1 && atomic_load(&h->state) != RELAY_CONSTRAINT_COMPILING;
        if (is_idle && ++n > RELAY_CONSTRAINT_MAX_KEPT) {
            *at = h->next;
            h->next = surplus;
            surplus = h;
        } else {
            at = &h->next;
        }
    }
    return surplus;
}

relay_code relay_constraint_cache_get(relay_constraint_cache *c, const relay_constraint_spec *spec,
                                      relay_constraint_handle **out, relay_err *e) {
    *out = NULL;
    if (key_size(spec) > 2 * RELAY_CONSTRAINT_MAX_TEXT) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.constraint has more than %d bytes",
                          RELAY_CONSTRAINT_MAX_TEXT);
    }
    relay_constraint_handle *own = create_handle(c->shared, spec);
    pthread_mutex_lock(&c->lock);
    relay_constraint_handle *h = find(c, own);
    bool has_room = c->n_waiting < RELAY_CONSTRAINT_MAX_WAITING;
    if (h == NULL && has_room && !c->is_stopping) {
        h = own;
        own = NULL;
        h->next = c->first;
        c->first = h;
        c->n_waiting++;
        pthread_cond_signal(&c->wake);
    }
    if (h != NULL) atomic_fetch_add(&h->n_refs, 1);
    relay_constraint_handle *surplus = take_surplus(c);
    pthread_mutex_unlock(&c->lock);
    relay_constraint_handle_release(own);
    for (relay_constraint_handle *next; surplus != NULL; surplus = next) {
        next = surplus->next;
        relay_constraint_handle_release(surplus);
    }
    if (h == NULL) {
        return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "%d constraints wait to be compiled",
                          RELAY_CONSTRAINT_MAX_WAITING);
    }
    *out = h;
    return RELAY_OK;
}

uint64_t relay_constraint_cache_compiled(relay_constraint_cache *c) {
    pthread_mutex_lock(&c->lock);
    uint64_t n = c->n_compiled;
    pthread_mutex_unlock(&c->lock);
    return n;
}
