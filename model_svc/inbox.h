// The engine's inbox: how other threads hand in requests, cancel them and give them credit, without a lock, a wait or
// an allocation on the engine's side and without a queue that could overflow.
//
// Each request that is accepted gets one of max_sequences places until it ends. A place has one word, in which whatever
// is asked of its request gathers (it is new, cancelled, has so much more credit), and stands at most once in the
// queue of places to look at. So cancelling never fails, and a thousand cancels of one request are one.
//
// How many requests and ids wait is counted here, at the door: what would pass a bound is refused at once, whatever the
// engine is doing.
#ifndef RELAY_MODEL_SVC_INBOX_H
#define RELAY_MODEL_SVC_INBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/status.h"
#include "model_svc/request.h"

typedef struct relay_inbox relay_inbox;

typedef struct relay_inbox_opts {
    uint32_t max_sequences;       // places: those waiting and those running
    uint32_t max_queued_requests; // answers that were not admitted yet
    uint64_t max_queued_tokens;   // ids of those
} relay_inbox_opts;

// What gathered at one place.
typedef struct relay_inbox_command {
    uint32_t id;            // the place
    relay_request *request; // a new one, or NULL
    uint64_t arrival;       // of the new one: its number in order of submission
    bool is_cancelled;
    uint32_t credit; // to be added
} relay_inbox_command;

relay_inbox *relay_inbox_create(const relay_inbox_opts *opts);
void relay_inbox_destroy(relay_inbox *b);

// ---- Any thread

// Takes the request when it returns OK. *key is set before the engine can see the request. RESOURCE_EXHAUSTED with a
// retry hint, UNAVAILABLE once closed, INVALID_ARGUMENT for one that is larger than the whole queue.
relay_code relay_inbox_submit(relay_inbox *b, relay_request *r, uint64_t *key, relay_err *e) RELAY_NODISCARD;
// Nothing where the key is unknown or its request has ended.
void relay_inbox_cancel(relay_inbox *b, uint64_t key);
void relay_inbox_add_credit(relay_inbox *b, uint64_t key, uint32_t tokens);
// Submit says UNAVAILABLE from here on; what it accepted before can be taken when this returns.
void relay_inbox_close(relay_inbox *b);
bool relay_inbox_is_closed(const relay_inbox *b);
// The engine's wait returns.
void relay_inbox_wake(relay_inbox *b);
// How long there has been something to take without a pause; RELAY_NEVER_US if there is nothing.
relay_mono_us relay_inbox_pending_since(const relay_inbox *b);

// ---- The engine's thread

// The next place to look at; false if there is none.
bool relay_inbox_take(relay_inbox *b, relay_inbox_command *out);
// Sleeps until there is something to take, a wake, or the time `until`; may return early.
void relay_inbox_wait(relay_inbox *b, relay_mono_us until);
// One of its request's answers was admitted: it counts as waiting no longer.
void relay_inbox_admit(relay_inbox *b, uint32_t id);
// Its request has ended: the key is void and the place free.
void relay_inbox_free(relay_inbox *b, uint32_t id);
// What refused callers are told.
void relay_inbox_set_retry_hint(relay_inbox *b, uint32_t retry_after_ms);

#endif
