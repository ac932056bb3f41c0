// Constraints by their text: compiled on a thread of its own, once, and kept while there is room.
//
// A handle is given at once; whoever waits for it looks at its state. The engine thread is the one that follows the
// constraint behind a handle; all others only hold handles. A handle keeps what it needs alive, the cache's vocabulary
// table included, so that it may outlive the cache.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_CONSTRAINT_CACHE_H
#define RELAY_MODEL_SVC_CONSTRAINT_CONSTRAINT_CACHE_H

#include <stdbool.h>

#include "common/status.h"
#include "model_svc/constraint/constraint.h"

typedef struct relay_constraint_cache relay_constraint_cache;
typedef struct relay_constraint_handle relay_constraint_handle;

typedef enum relay_constraint_state {
    RELAY_CONSTRAINT_COMPILING,
    RELAY_CONSTRAINT_READY,
    RELAY_CONSTRAINT_FAILED,
} relay_constraint_state;

enum {
    RELAY_CONSTRAINT_MAX_KEPT = 32,    // ready ones that nobody holds
    RELAY_CONSTRAINT_MAX_WAITING = 64, // to be compiled; past it get() says RESOURCE_EXHAUSTED
};

// `on_settled` is called, on the cache's thread, when a handle's state has changed. The vocabulary, of a model of
// `n_vocab` ids, is borrowed and must outlive every handle.
relay_constraint_cache *relay_constraint_cache_create(const relay_vocab *vocab, uint32_t n_vocab,
                                                      void (*on_settled)(void *arg), void *arg);
// Waits for the one being compiled; those that wait fail with UNAVAILABLE. No on_settled comes after it.
void relay_constraint_cache_destroy(relay_constraint_cache *c);
// Any thread. The handle must be released. INVALID_ARGUMENT for what is too long, RESOURCE_EXHAUSTED where too many
// wait.
relay_code relay_constraint_cache_get(relay_constraint_cache *c, const relay_constraint_spec *spec,
                                      relay_constraint_handle **out, relay_err *e) RELAY_NODISCARD;
// Constraints that were compiled, or tried, since create.
uint64_t relay_constraint_cache_compiled(relay_constraint_cache *c);

void relay_constraint_handle_release(relay_constraint_handle *h); // NULL is fine
relay_constraint_state relay_constraint_handle_state(const relay_constraint_handle *h);
// READY: the constraint, for the one thread that follows it.
relay_constraint *relay_constraint_handle_get(const relay_constraint_handle *h);
// FAILED: why.
const relay_err *relay_constraint_handle_error(const relay_constraint_handle *h);

#endif
