#include "model_svc/sequence_constraint.h"

#include <stdio.h>
#include <string.h>

#include "common/status.h"

enum { MAX_TRIES = 2 };

static relay_constraint *constraint_of(const relay_sequence *s) {
    return relay_constraint_handle_get(s->request->constraint);
}

// Reads the output as far as it is not read. False where the constraint's memory does not hold what it needs for this
// output alone.
static bool read_output(relay_sequence *s) {
    relay_constraint *c = constraint_of(s);
    relay_matcher *m = &s->lane->matcher;
    for (int i = 0; i < MAX_TRIES; i++) {
        if (relay_matcher_is_stale(c, m)) relay_matcher_begin(c, m);
        while (!relay_matcher_is_dead(m) && m->n_read < relay_sequence_output(s)) {
            uint32_t id = relay_sequence_token(s, s->request->n_prompt + m->n_read);
            if (!relay_matcher_read(c, m, id) && relay_matcher_is_stale(c, m)) break;
        }
        if (!relay_matcher_is_stale(c, m)) return true;
    }
    return false;
}

static bool get_mask(relay_sequence *s, uint32_t *words, uint32_t n_words) {
    for (int i = 0; i < MAX_TRIES; i++) {
        if (!read_output(s)) return false;
        if (relay_matcher_is_dead(&s->lane->matcher)) {
            memset(words, 0, n_words * sizeof words[0]);
            return true;
        }
        if (relay_matcher_mask(constraint_of(s), &s->lane->matcher, words)) return true;
    }
    return false;
}

static void set_ids(uint32_t *words, const uint32_t *ids, uint32_t n, bool is_set) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bit = 1u << ids[i] % 32;
        words[ids[i] / 32] = is_set ? words[ids[i] / 32] | bit : words[ids[i] / 32] & ~bit;
    }
}

static bool is_zero(const uint32_t *words, uint32_t n_words) {
    for (uint32_t w = 0; w < n_words; w++) {
        if (words[w] != 0) return false;
    }
    return true;
}

void relay_sequence_constrain(relay_sequence *s, uint32_t *words, uint32_t n_words, const uint32_t *masked,
                              uint32_t n_masked) {
    const relay_request *r = s->request;
    relay_lane *lane = s->lane;
    lane->constraint_fits = get_mask(s, words, n_words);
    if (!lane->constraint_fits) memset(words, 0, n_words * sizeof words[0]);
    lane->is_complete = lane->constraint_fits && relay_matcher_is_complete(constraint_of(s), &lane->matcher);
    set_ids(words, r->eos_ids, r->n_eos_ids, lane->is_complete);
    set_ids(words, r->stop_ids, r->n_stop_ids, lane->is_complete);
    set_ids(words, masked, n_masked, false);
    for (uint32_t w = 0; w < r->n_allowed_words; w++)
        words[w] &= r->allowed[w];
    lane->is_cornered = is_zero(words, n_words);
}

bool relay_sequence_constraint_is_over(relay_sequence *s) {
    return read_output(s) && relay_matcher_is_over(constraint_of(s), &s->lane->matcher);
}

void relay_sequence_restrict(relay_sequence *s, uint32_t *words, const uint32_t *masked, uint32_t n_masked) {
    const relay_request *r = s->request;
    memcpy(words, r->allowed, r->n_allowed_words * sizeof words[0]);
    set_ids(words, masked, n_masked, false);
    s->lane->is_cornered = is_zero(words, r->n_allowed_words);
}

static relay_code tell_masks(const relay_sequence *s, char *message, size_t size) {
    const relay_request *r = s->request;
    uint32_t n = relay_sequence_output(s);
    bool masks_ends = n < r->min_new_tokens && r->n_eos_ids + r->n_stop_ids > 0;
    int at = snprintf(message, size, "after %u tokens of output no id is left that may come next, because of", n);
    const char *names[] = {
        r->n_allowed_words != 0 ? " sampling.allowed_token_ids less sampling.banned_token_ids" : NULL,
        r->no_repeat_ngram_size != 0 ? " sampling.no_repeat_ngram_size" : NULL,
        masks_ends ? " stop.min_new_tokens" : NULL,
    };
    const char *before = "";
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i] == NULL || (size_t)at >= size) continue;
        at += snprintf(message + at, size - (size_t)at, "%s%s", before, names[i]);
        before = " and";
    }
    return RELAY_FAILED_PRECONDITION;
}

relay_code relay_sequence_why_cornered(const relay_sequence *s, char *message, size_t size) {
    const relay_lane *lane = s->lane;
    if (s->request->constraint == NULL) return tell_masks(s, message, size);
    if (lane->is_complete) return RELAY_OK;
    uint32_t n = relay_sequence_output(s);
    if (!lane->constraint_fits) {
        snprintf(message, size, "sampling.constraint needs more memory than is allowed, after %u tokens of output", n);
        return RELAY_RESOURCE_EXHAUSTED;
    }
    if (relay_matcher_is_dead(&lane->matcher)) {
        uint32_t at = lane->matcher.n_read - 1;
        bool is_resumed = at < s->request->n_tokens - s->request->n_prompt;
        snprintf(message, size, "%s[%u] is not what sampling.constraint allows there",
                 is_resumed ? "resume.generated_token_ids" : "the output", at);
        return is_resumed ? RELAY_INVALID_ARGUMENT : RELAY_RESOURCE_EXHAUSTED;
    }
    snprintf(message, size,
             "after %u tokens of output no id is left that sampling.constraint and the request's other settings allow",
             n);
    return RELAY_FAILED_PRECONDITION;
}

bool relay_sequence_constraint_has_failed(const relay_sequence *s) {
    const relay_constraint_handle *h = s->request->constraint;
    return h != NULL && relay_constraint_handle_state(h) == RELAY_CONSTRAINT_FAILED;
}
