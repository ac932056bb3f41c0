// The two bounded queues between threads: many producers to one consumer (commands to the engine) and one producer to
// one consumer (events from it).
//
// Both hold records of one size, copied or written in place, in a ring allocated once. Neither ever blocks its
// producers, takes a lock or allocates: a full queue refuses. Only an idle consumer sleeps, on a futex.
//
// Order: what a producer wrote before its push (or commit) is visible to the consumer that pops (or peeks) the record,
// and what the consumer did before it gave a slot back is visible to the producer that fills the slot again
// (release/acquire on the slot's turn, or on the ring's ends). Records of one producer come out in the order in which
// they went in; between producers the order is that in which they claimed their slots.
#ifndef RELAY_COMMON_QUEUE_H
#define RELAY_COMMON_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/status.h"

enum { RELAY_QUEUE_MAX_CAPACITY = 1 << 24 };

// ---- Many producers, one consumer

typedef struct relay_mpsc relay_mpsc;

// Holds at most `capacity` records of `record_bytes` (the bound): a power of two up to RELAY_QUEUE_MAX_CAPACITY.
relay_mpsc *relay_mpsc_create(uint32_t capacity, uint32_t record_bytes) RELAY_NODISCARD;
// When no other thread uses it any more; records left in it are dropped.
void relay_mpsc_destroy(relay_mpsc *q);

// Any thread. Copies the record in and wakes the consumer; false if the queue is full.
bool relay_mpsc_push(relay_mpsc *q, const void *record) RELAY_NODISCARD;
// Any thread. The consumer's wait that runs, or else its next one, returns.
void relay_mpsc_wake(relay_mpsc *q);

// The consumer. Copies the oldest record out; false if there is none. A record whose producer has claimed its slot and
// not filled it yet hides those behind it until it has.
bool relay_mpsc_pop(relay_mpsc *q, void *record) RELAY_NODISCARD;
// The consumer. Sleeps until there is a record, relay_mpsc_wake or the time `until`. It may return early: look at the
// queue.
void relay_mpsc_wait(relay_mpsc *q, relay_mono_us until);

// Any thread: how many records were in it a moment ago.
uint32_t relay_mpsc_count(const relay_mpsc *q);

// ---- One producer, one consumer

typedef struct relay_spsc relay_spsc;

// Holds at most `capacity` records of `record_bytes` (the bound): a power of two up to RELAY_QUEUE_MAX_CAPACITY.
// Records lie next to each other, so that the consumer may read them as an array; record_bytes must be a multiple of
// their alignment.
relay_spsc *relay_spsc_create(uint32_t capacity, uint32_t record_bytes) RELAY_NODISCARD;
// When no other thread uses it any more; records left in it are dropped.
void relay_spsc_destroy(relay_spsc *q);

// The producer. How many records can be reserved now.
uint32_t relay_spsc_free(relay_spsc *q);
// The producer. The next slot, to be filled in place; NULL if the ring is full. The consumer sees it after the next
// commit.
void *relay_spsc_reserve(relay_spsc *q) RELAY_NODISCARD;
// The producer. Hands over all that was reserved, at once, and wakes the consumer.
void relay_spsc_commit(relay_spsc *q);
// Any thread. The consumer's wait that runs, or else its next one, returns.
void relay_spsc_wake(relay_spsc *q);

// The consumer. The oldest records, *n of them as an array, NULL and 0 if there are none; up to the ring's end, so what
// follows may need a second call. Valid until released.
const void *relay_spsc_peek(relay_spsc *q, uint32_t *n) RELAY_NODISCARD;
// The consumer. Gives the oldest n of what peek showed back to the producer.
void relay_spsc_release(relay_spsc *q, uint32_t n);
// The consumer. Sleeps until there is a record, relay_spsc_wake or the time `until`. It may return early: look at the
// ring.
void relay_spsc_wait(relay_spsc *q, relay_mono_us until);

#endif
