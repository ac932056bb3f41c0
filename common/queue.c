// The queue of many producers is a ring whose slots carry a turn number (method: Dmitry Vyukov's bounded queue). A slot
// at position p is free for the producer of p when its turn is p, and holds a record for the consumer when it is p + 1;
// the consumer makes it p + capacity, the turn of the next round. Producers claim positions by compare-and-swap on the
// tail; a slot that is still a round behind means full.
//
// The ring of one producer needs only its two ends. Each side keeps a copy of the other's end and looks at the shared
// one when the copy says that there is nothing to do, so that in a steady stream the two threads seldom touch the same
// cache line.
//
// Sleeping goes through a gate of three states. A producer publishes first and then swaps NOTIFIED in; a consumer that
// found nothing takes NOTIFIED away or else goes from OPEN to ASLEEP and sleeps on it. Both are read-modify-writes of
// one variable, so one comes first: if the producer's, the consumer takes NOTIFIED and does not sleep; if the
// consumer's, the producer sees ASLEEP and wakes it.
#include "common/queue.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CACHE_LINE = 64 };

// ---- The gate

enum { OPEN, NOTIFIED, ASLEEP };

typedef struct gate {
    _Atomic uint32_t state;
} gate;

static void gate_notify(gate *g) {
    if (atomic_exchange_explicit(&g->state, NOTIFIED, memory_order_acq_rel) == ASLEEP)
        syscall(SYS_futex, &g->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void gate_wait(gate *g, relay_mono_us until) {
    uint32_t expected = OPEN;
    if (atomic_compare_exchange_strong_explicit(&g->state, &expected, ASLEEP, memory_order_acq_rel,
                                                memory_order_acquire)) {
        struct timespec t = {.tv_sec = until / 1000000,
                             .tv_nsec = until % 1000000 * 1000}; // RELAY_NEVER_US: 292,000 years
        // This one of the waits takes an absolute time of CLOCK_MONOTONIC. It also returns for a signal, which the
        // caller's loop answers by looking again.
        syscall(SYS_futex, &g->state, FUTEX_WAIT_BITSET_PRIVATE, ASLEEP, &t, NULL, FUTEX_BITSET_MATCH_ANY);
    }
    atomic_exchange_explicit(&g->state, OPEN, memory_order_acq_rel);
}

static void *alloc_lines(size_t size) {
    size = (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    void *p = aligned_alloc(CACHE_LINE, size);
    RELAY_ASSERT(p != NULL);
    return memset(p, 0, size);
}

static void check_shape(uint32_t capacity, uint32_t record_bytes) {
    RELAY_ASSERT(capacity != 0 && capacity <= RELAY_QUEUE_MAX_CAPACITY && (capacity & (capacity - 1)) == 0);
    RELAY_ASSERT(record_bytes != 0);
}

// ---- Many producers, one consumer

typedef struct slot {
    _Atomic uint64_t turn;
    char record[];
} slot;

struct relay_mpsc {
    _Alignas(CACHE_LINE) _Atomic uint64_t tail; // the next position to claim
    _Alignas(CACHE_LINE) _Atomic uint64_t head; // the next position to pop; written by the consumer alone
    _Alignas(CACHE_LINE) gate gate;
    _Alignas(CACHE_LINE) uint32_t capacity;
    uint32_t record_bytes;
    size_t slot_bytes; // whole cache lines
    char *slots;
};

static slot *slot_at(const relay_mpsc *q, uint64_t position) {
    return (slot *)(q->slots + (position & (q->capacity - 1)) * q->slot_bytes);
}

relay_mpsc *relay_mpsc_create(uint32_t capacity, uint32_t record_bytes) {
    check_shape(capacity, record_bytes);
    relay_mpsc *q = alloc_lines(sizeof *q);
    q->capacity = capacity;
    q->record_bytes = record_bytes;
    q->slot_bytes = (sizeof(slot) + record_bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    q->slots = alloc_lines(capacity * q->slot_bytes);
    for (uint32_t i = 0; i < capacity; i++)
        atomic_init(&slot_at(q, i)->turn, i);
    return q;
}

void relay_mpsc_destroy(relay_mpsc *q) {
    if (q == NULL) return;
    free(q->slots);
    free(q);
}

bool relay_mpsc_push(relay_mpsc *q, const void *record) {
    uint64_t position = atomic_load_explicit(&q->tail, memory_order_relaxed);
    slot *s;
    for (;;) {
        s = slot_at(q, position);
        uint64_t turn = atomic_load_explicit(&s->turn, memory_order_acquire);
        if (turn < position) return false; // the record of the last round is still there
        if (turn > position)               // another producer was faster
            position = atomic_load_explicit(&q->tail, memory_order_relaxed);
        else if (atomic_compare_exchange_weak_explicit(&q->tail, &position, position + 1, memory_order_relaxed,
                                                       memory_order_relaxed))
            break;
    }
    memcpy(s->record, record, q->record_bytes);
    atomic_store_explicit(&s->turn, position + 1, memory_order_release);
    gate_notify(&q->gate);
    return true;
}

void relay_mpsc_wake(relay_mpsc *q) {
    gate_notify(&q->gate);
}

static slot *filled_slot(const relay_mpsc *q, uint64_t head) {
    slot *s = slot_at(q, head);
    return atomic_load_explicit(&s->turn, memory_order_acquire) == head + 1 ? s : NULL;
}

bool relay_mpsc_pop(relay_mpsc *q, void *record) {
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    slot *s = filled_slot(q, head);
    if (s == NULL) return false;
    memcpy(record, s->record, q->record_bytes);
    atomic_store_explicit(&s->turn, head + q->capacity, memory_order_release);
    atomic_store_explicit(&q->head, head + 1, memory_order_release);
    return true;
}

void relay_mpsc_wait(relay_mpsc *q, relay_mono_us until) {
    if (filled_slot(q, atomic_load_explicit(&q->head, memory_order_relaxed)) == NULL) gate_wait(&q->gate, until);
}

uint32_t relay_mpsc_count(const relay_mpsc *q) {
    // A head that is seen brings the tail with it that it came after: the difference is no less than zero.
    uint64_t head = atomic_load_explicit(&q->head, memory_order_acquire);
    uint64_t n = atomic_load_explicit(&q->tail, memory_order_relaxed) - head;
    return n < q->capacity ? (uint32_t)n : q->capacity;
}

// ---- One producer, one consumer

struct relay_spsc {
    // The producer's.
    _Alignas(CACHE_LINE) _Atomic uint64_t tail; // records before it are the consumer's
    uint64_t reserved;                          // records before it have been given out to fill
    uint64_t seen_head;
    // The consumer's.
    _Alignas(CACHE_LINE) _Atomic uint64_t head; // slots before it are the producer's again
    uint64_t seen_tail;
    _Alignas(CACHE_LINE) gate gate;
    _Alignas(CACHE_LINE) uint32_t capacity;
    uint32_t record_bytes;
    char *records;
};

relay_spsc *relay_spsc_create(uint32_t capacity, uint32_t record_bytes) {
    check_shape(capacity, record_bytes);
    relay_spsc *q = alloc_lines(sizeof *q);
    q->capacity = capacity;
    q->record_bytes = record_bytes;
    q->records = alloc_lines((size_t)capacity * record_bytes);
    return q;
}

void relay_spsc_destroy(relay_spsc *q) {
    if (q == NULL) return;
    free(q->records);
    free(q);
}

static void *record_at(const relay_spsc *q, uint64_t position) {
    return q->records + (position & (q->capacity - 1)) * q->record_bytes;
}

uint32_t relay_spsc_free(relay_spsc *q) {
    q->seen_head = atomic_load_explicit(&q->head, memory_order_acquire);
    return q->capacity - (uint32_t)(q->reserved - q->seen_head);
}

void *relay_spsc_reserve(relay_spsc *q) {
    if (q->reserved - q->seen_head == q->capacity && relay_spsc_free(q) == 0) return NULL;
    return record_at(q, q->reserved++);
}

void relay_spsc_commit(relay_spsc *q) {
    atomic_store_explicit(&q->tail, q->reserved, memory_order_release);
    gate_notify(&q->gate);
}

void relay_spsc_wake(relay_spsc *q) {
    gate_notify(&q->gate);
}

const void *relay_spsc_peek(relay_spsc *q, uint32_t *n) {
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    if (head == q->seen_tail) q->seen_tail = atomic_load_explicit(&q->tail, memory_order_acquire);
    uint64_t count = q->seen_tail - head;
    uint64_t to_end = q->capacity - (head & (q->capacity - 1));
    *n = (uint32_t)(count < to_end ? count : to_end);
    return *n == 0 ? NULL : record_at(q, head);
}

void relay_spsc_release(relay_spsc *q, uint32_t n) {
    uint64_t head = atomic_load_explicit(&q->head, memory_order_relaxed);
    RELAY_ASSERT(n <= q->seen_tail - head);
    atomic_store_explicit(&q->head, head + n, memory_order_release);
}

void relay_spsc_wait(relay_spsc *q, relay_mono_us until) {
    uint32_t n;
    if (relay_spsc_peek(q, &n) == NULL) gate_wait(&q->gate, until);
}
