// The turn is odd while the words are written. The words are atomics, so that the race that a sequence lock lives on is
// none to the language (H. Boehm, "Can seqlocks get along with programming language memory models?", 2012): each word
// is stored with release and loaded with acquire, so that who reads a word of a write sees that write's odd turn as
// well.
#include "model_svc/snapshot.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"

struct relay_snapshot {
    uint32_t n_bytes;
    _Atomic uint64_t turn;
    _Atomic uint64_t words[];
};

relay_snapshot *relay_snapshot_create(uint32_t n_bytes) {
    uint64_t n_words = ((uint64_t)n_bytes + 7) / 8;
    relay_snapshot *s = relay_calloc(1, sizeof *s + n_words * sizeof s->words[0]);
    s->n_bytes = n_bytes;
    return s;
}

void relay_snapshot_destroy(relay_snapshot *s) {
    free(s);
}

// Bytes of the data that word `i` holds.
static uint32_t bytes_of_word(const relay_snapshot *s, uint32_t i) {
    return s->n_bytes - 8 * i < 8 ? s->n_bytes - 8 * i : 8;
}

void relay_snapshot_write(relay_snapshot *s, const void *data) {
    uint64_t turn = atomic_load_explicit(&s->turn, memory_order_relaxed);
    atomic_store_explicit(&s->turn, turn + 1, memory_order_relaxed);
    for (uint32_t i = 0; 8 * i < s->n_bytes; i++) {
        uint64_t word = 0;
        memcpy(&word, (const char *)data + 8 * i, bytes_of_word(s, i));
        atomic_store_explicit(&s->words[i], word, memory_order_release);
    }
    atomic_store_explicit(&s->turn, turn + 2, memory_order_release);
}

void relay_snapshot_read(const relay_snapshot *s, void *data) {
    uint64_t before, after;
    do {
        before = atomic_load_explicit(&s->turn, memory_order_acquire);
        for (uint32_t i = 0; 8 * i < s->n_bytes; i++) {
            uint64_t word = atomic_load_explicit(&s->words[i], memory_order_acquire);
            memcpy((char *)data + 8 * i, &word, bytes_of_word(s, i));
        }
        after = atomic_load_explicit(&s->turn, memory_order_relaxed);
    } while (before != after || before % 2 != 0);
}
