// What of a sequence repeats its own end: for DRY and for n-grams that may not come again. Both ask, after every id,
// which ids would make the sequence go on as it did at an earlier place, and how long the stretch before that place
// agrees with the sequence's end.
//
// Kept up as the sequence grows: each position knows the one before that holds the same id, so a new id looks at the
// places of that id alone, and the length of agreement at each is one more than it was at the place before it. Memory
// is set at init; adding allocates nothing.
#ifndef RELAY_MODEL_SVC_TOKEN_REPEATS_H
#define RELAY_MODEL_SVC_TOKEN_REPEATS_H

#include <stdint.h>

#include "kernels/kernels.h"

// DRY ("don't repeat yourself", p-e-w, text-generation-webui #5677).
typedef struct relay_dry {
    float multiplier; // 0: off
    float base;
    uint32_t allowed_length;  // repeats up to one id less cost nothing
    uint32_t window;          // how far back is looked; 0: the whole sequence
    const uint32_t *breakers; // ascending; a repeat neither holds nor reaches over one
    uint32_t n_breakers;
} relay_dry;

typedef struct relay_token_repeats {
    uint32_t max_tokens;
    uint32_t n;        // ids taken in
    uint32_t *ids;     // [n]
    uint32_t *before;  // [n] the position before that holds the same id, + 1; 0: none
    uint32_t *agrees;  // [n] of those that hold the last id: how many ids up to this position are those of the end
    uint32_t *told_at; // [n] of an id's last position: where it is in what was put out, if it is there
    uint32_t *index;   // [1 << index_bits]: open addressing over ids; their last position + 1, or 0
    uint32_t index_bits;
    uint32_t since_breaker; // ids since the last one that breaks a repeat
    const relay_dry *dry;   // borrowed
} relay_token_repeats;

// Room for sequences of `max_tokens` ids. Pages become resident as they are used.
void relay_token_repeats_init(relay_token_repeats *r, uint32_t max_tokens);
void relay_token_repeats_fini(relay_token_repeats *r);
// Takes in the first ids, in time that grows with their number alone; it must be clear. `dry` is borrowed until clear.
void relay_token_repeats_begin(relay_token_repeats *r, const relay_dry *dry, const uint32_t *ids, uint32_t n);
void relay_token_repeats_append(relay_token_repeats *r, uint32_t id);
void relay_token_repeats_clear(relay_token_repeats *r);

// What DRY takes off the logits of ids that would lengthen a repeat, as biases, each id once: multiplier * base ^
// (length of the repeat - allowed_length). At most n are written; gives their number.
uint32_t relay_token_repeats_dry(relay_token_repeats *r, relay_token_bias *out);
// The ids that would complete an n-gram that has been; each once, at most n of them. size >= 1.
uint32_t relay_token_repeats_ngrams(relay_token_repeats *r, uint32_t size, uint32_t *out);

#endif
