// The length of agreement needs no search: position p holds the last id, so what agrees up to p is p's id and what
// agreed up to p - 1 when the id before the last one came; and that was written down then, because p - 1 held that id.
//
// Of a prompt that would be square in the worst case, so its lengths come at once from the Z algorithm (Gusfield,
// "Algorithms on Strings, Trees and Sequences", 1997, 1.3) over the ids read backwards.
#include "model_svc/token_repeats.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "common/status.h"

void relay_token_repeats_init(relay_token_repeats *r, uint32_t max_tokens) {
    RELAY_ASSERT(max_tokens >= 1 && max_tokens <= UINT32_MAX / 4);
    *r = (relay_token_repeats){.max_tokens = max_tokens, .index_bits = 1};
    while ((1U << r->index_bits) < 2 * max_tokens)
        r->index_bits++;
    r->ids = relay_calloc(max_tokens, sizeof r->ids[0]);
    r->before = relay_calloc(max_tokens, sizeof r->before[0]);
    r->agrees = relay_calloc(max_tokens, sizeof r->agrees[0]);
    r->told_at = relay_calloc(max_tokens, sizeof r->told_at[0]);
    r->index = relay_calloc(1U << r->index_bits, sizeof r->index[0]);
}

void relay_token_repeats_fini(relay_token_repeats *r) {
    free(r->ids);
    free(r->before);
    free(r->agrees);
    free(r->told_at);
    free(r->index);
    *r = (relay_token_repeats){0};
}

// Where `id` is in the index, or the empty place where it belongs.
static uint32_t *find(const relay_token_repeats *r, uint32_t id) {
    uint32_t mask = (1U << r->index_bits) - 1;
    uint32_t at = (id * 2654435769U) >> (32 - r->index_bits);
    while (r->index[at] != 0 && r->ids[r->index[at] - 1] != id)
        at = (at + 1) & mask;
    return &r->index[at];
}

static bool is_breaker(const relay_token_repeats *r, uint32_t id) {
    uint32_t lo = 0, n = r->dry->n_breakers;
    while (n > 0) {
        uint32_t half = n / 2;
        if (r->dry->breakers[lo + half] == id) return true;
        if (r->dry->breakers[lo + half] < id) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return false;
}

static void put(relay_token_repeats *r, uint32_t id) {
    RELAY_ASSERT(r->n < r->max_tokens);
    uint32_t *last = find(r, id);
    r->ids[r->n] = id;
    r->before[r->n] = *last;
    *last = ++r->n;
    r->since_breaker = is_breaker(r, id) ? 0 : r->since_breaker + 1;
}

// agrees[p] of every position but the last: how many ids that end at p are those that the sequence ends with.
static void measure_all(relay_token_repeats *r) {
    const uint32_t *ids = r->ids;
    const uint32_t n = r->n;
    uint32_t begin = 0, end = 0; // of the stretch found so far that reaches furthest, counted from the back
    for (uint32_t k = 1; k < n; k++) {
        uint32_t z = 0;
        if (k < end) {
            z = r->agrees[n - 1 - (k - begin)];
            if (z > end - k) z = end - k;
        }
        while (k + z < n && ids[n - 1 - z] == ids[n - 1 - k - z])
            z++;
        r->agrees[n - 1 - k] = z;
        if (k + z > end) {
            begin = k;
            end = k + z;
        }
    }
}

void relay_token_repeats_begin(relay_token_repeats *r, const relay_dry *dry, const uint32_t *ids, uint32_t n) {
    RELAY_ASSERT(r->n == 0);
    r->dry = dry;
    r->since_breaker = 0;
    for (uint32_t i = 0; i < n; i++)
        put(r, ids[i]);
    measure_all(r);
}

void relay_token_repeats_append(relay_token_repeats *r, uint32_t id) {
    put(r, id);
    // From the latest place back, so that agrees[p - 1] is still that of the last id but one.
    const uint32_t n = r->n;
    for (uint32_t p = r->before[n - 1]; p != 0; p = r->before[p - 1]) {
        const uint32_t at = p - 1;
        bool goes_on = at > 0 && r->ids[at - 1] == r->ids[n - 2];
        r->agrees[at] = goes_on ? r->agrees[at - 1] + 1 : 1;
    }
}

// Ids leave the index newest first: what was passed over when one came in is then still there to lead to it.
void relay_token_repeats_clear(relay_token_repeats *r) {
    while (r->n > 0) {
        uint32_t *last = find(r, r->ids[r->n - 1]);
        *last = r->before[r->n - 1];
        r->n--;
    }
    r->dry = NULL;
}

// How many ids that end at `at` agree with the end, of those not before `begin`.
static uint32_t agreement(const relay_token_repeats *r, uint32_t at, uint32_t begin) {
    uint32_t length = r->agrees[at], room = at - begin + 1;
    return length < room ? length : room;
}

uint32_t relay_token_repeats_dry(relay_token_repeats *r, relay_token_bias *out) {
    const relay_dry *d = r->dry;
    const uint32_t begin = d->window != 0 && d->window < r->n ? r->n - d->window : 0;
    uint32_t n_out = 0;
    if (d->multiplier == 0 || r->since_breaker == 0) return 0;
    for (uint32_t p = r->before[r->n - 1]; p > begin; p = r->before[p - 1]) {
        uint32_t length = agreement(r, p - 1, begin), next = r->ids[p];
        if (length > r->since_breaker) length = r->since_breaker;
        if (length < d->allowed_length || is_breaker(r, next)) continue;
        uint32_t *place = &r->told_at[*find(r, next) - 1];
        if (*place >= n_out || out[*place].token_id != next) {
            *place = n_out++;
            out[*place] = (relay_token_bias){next, 0};
        }
        // The longest repeat counts; the bias is only now and then a length, which float32 holds exactly.
        if ((float)length > out[*place].bias) out[*place].bias = (float)length;
    }
    for (uint32_t i = 0; i < n_out; i++) {
        double penalty = d->multiplier * pow(d->base, (double)out[i].bias - d->allowed_length);
        out[i].bias = -(float)fmin(penalty, FLT_MAX);
    }
    return n_out;
}

uint32_t relay_token_repeats_ngrams(relay_token_repeats *r, uint32_t size, uint32_t *out) {
    uint32_t n_out = 0;
    // Every id there is completes a 1-gram, also the last one; else the places that the last id leads to.
    for (uint32_t p = size == 1 ? r->n : r->before[r->n - 1]; p > 0; p = size == 1 ? p - 1 : r->before[p - 1]) {
        if (size > 1 && r->agrees[p - 1] < size - 1) continue;
        uint32_t next = size == 1 ? r->ids[p - 1] : r->ids[p];
        uint32_t *place = &r->told_at[*find(r, next) - 1];
        if (*place < n_out && out[*place] == next) continue;
        *place = n_out;
        out[n_out++] = next;
    }
    return n_out;
}
