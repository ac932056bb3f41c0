#include "model_svc/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"

void relay_lane_init(relay_lane *l, uint32_t max_tokens, uint32_t n_groups) {
    *l = (relay_lane){0};
    l->output = relay_calloc(max_tokens, sizeof l->output[0]);
    uint32_t max_blocks = relay_blocks_for(max_tokens);
    for (uint32_t g = 0; g < n_groups; g++)
        l->tables[g] = relay_calloc(max_blocks, sizeof l->tables[g][0]);
    relay_token_counts_init(&l->counts, max_tokens);
}

void relay_lane_fini(relay_lane *l) {
    free(l->output);
    for (uint32_t g = 0; g < RELAY_MAX_KV_GROUPS; g++)
        free(l->tables[g]);
    relay_token_counts_fini(&l->counts);
    *l = (relay_lane){0};
}

void relay_sequence_begin(relay_sequence *s, relay_request *r, uint64_t arrival) {
    *s = (relay_sequence){
        .prev = s->prev,
        .next = s->next,
        .id = s->id,
        .request = r,
        .arrival = arrival,
        .n_tokens = r->n_tokens,
        .credit = r->initial_credit,
        .admitted_at = RELAY_NEVER_US,
        .first_token_at = RELAY_NEVER_US,
        .last_token_at = RELAY_NEVER_US,
    };
}

// Only the repetition penalty looks at the prompt.
static bool counts_prompt(const relay_request *r) {
    return r->sampling.repetition_penalty != 1.0f;
}

static bool counts_output(const relay_request *r) {
    return counts_prompt(r) || r->sampling.frequency_penalty != 0.0f || r->sampling.presence_penalty != 0.0f;
}

void relay_sequence_enter(relay_sequence *s, relay_lane *lane, relay_mono_us now) {
    const relay_request *r = s->request;
    s->lane = lane;
    s->admitted_at = now;
    if (counts_prompt(r)) {
        for (uint32_t i = 0; i < r->n_prompt; i++)
            relay_token_counts_add_prompt(&lane->counts, r->token_ids[i]);
    }
    if (counts_output(r)) {
        for (uint32_t i = r->n_prompt; i < r->n_tokens; i++) {
            relay_token_counts_add_output(&lane->counts, r->token_ids[i]);
        }
    }
}

relay_lane *relay_sequence_leave(relay_sequence *s) {
    relay_lane *lane = s->lane;
    s->lane = NULL;
    if (lane != NULL) relay_token_counts_clear(&lane->counts);
    return lane;
}

void relay_sequence_add_credit(relay_sequence *s, uint32_t tokens) {
    // RELAY_UNLIMITED_CREDIT is the largest value: what reaches it stays there.
    s->credit = tokens > UINT32_MAX - s->credit ? RELAY_UNLIMITED_CREDIT : s->credit + tokens;
}

void relay_sequence_append(relay_sequence *s, uint32_t token_id, relay_mono_us now) {
    s->lane->output[relay_sequence_drawn(s)] = token_id;
    s->n_tokens++;
    if (counts_output(s->request)) relay_token_counts_add_output(&s->lane->counts, token_id);
    if (s->first_token_at == RELAY_NEVER_US) s->first_token_at = now;
    s->last_token_at = now;
}

static bool contains(const uint32_t *ascending, uint32_t n, uint32_t id) {
    uint32_t lo = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (ascending[lo + half] == id) return true;
        if (ascending[lo + half] < id) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return false;
}

relay_finish relay_sequence_check_end(const relay_sequence *s, uint32_t max_tokens, uint32_t *stop_token_id) {
    const relay_request *r = s->request;
    uint32_t n_output = relay_sequence_output(s);
    if (n_output == 0) return RELAY_FINISH_NONE;
    uint32_t last = relay_sequence_token(s, s->n_tokens - 1);
    *stop_token_id = last;
    if (n_output > r->min_new_tokens) {
        if (contains(r->eos_ids, r->n_eos_ids, last)) return RELAY_FINISH_EOS;
        if (contains(r->stop_ids, r->n_stop_ids, last)) return RELAY_FINISH_STOP_TOKEN;
    }
    *stop_token_id = 0;
    if (n_output >= r->max_new_tokens) return RELAY_FINISH_MAX_NEW_TOKENS;
    if (s->n_tokens >= max_tokens) return RELAY_FINISH_CONTEXT_FULL;
    return RELAY_FINISH_NONE;
}

static void put_masked(relay_step *step, const uint32_t *ids, uint32_t n) {
    RELAY_ASSERT(n <= step->limits.max_masked - step->n_masked);
    if (n != 0) memcpy(relay_step_masked(step) + step->n_masked, ids, n * sizeof ids[0]);
    step->n_masked += n;
}

// What is the same for every draw of the request.
static void put_request_arrays(const relay_request *r, relay_step *step, relay_sample_params *p) {
    RELAY_ASSERT(r->n_logit_bias <= step->limits.max_biases - step->n_biases);
    RELAY_ASSERT(r->n_allowed_words <= step->limits.max_allowed - step->n_allowed);
    RELAY_ASSERT(r->n_wanted_ids <= step->limits.max_wanted - step->n_wanted);
    p->bias_begin = step->n_biases;
    p->n_bias = r->n_logit_bias;
    if (p->n_bias != 0) {
        memcpy(relay_step_biases(step) + p->bias_begin, r->logit_bias, p->n_bias * sizeof r->logit_bias[0]);
    }
    step->n_biases += p->n_bias;
    p->allowed_begin = step->n_allowed;
    p->n_allowed_words = r->n_allowed_words;
    if (p->n_allowed_words != 0) {
        memcpy(relay_step_allowed(step) + p->allowed_begin, r->allowed, p->n_allowed_words * sizeof r->allowed[0]);
    }
    step->n_allowed += p->n_allowed_words;
    p->wanted_begin = step->n_wanted;
    p->n_wanted = r->n_wanted_ids;
    if (p->n_wanted != 0) {
        memcpy(relay_step_wanted(step) + p->wanted_begin, r->wanted_ids, p->n_wanted * sizeof r->wanted_ids[0]);
    }
    step->n_wanted += p->n_wanted;
}

void relay_sequence_put_sample(const relay_sequence *s, relay_step *step, uint32_t row) {
    const relay_request *r = s->request;
    RELAY_ASSERT(step->n_samples < step->limits.max_samples);
    relay_step_sample_rows(step)[step->n_samples] = row;
    relay_sample_params *p = &relay_step_sample_params(step)[step->n_samples++];
    *p = r->sampling;
    // The place of the id that is drawn: with it a draw depends on neither chunks, mates, preemption nor resuming.
    p->position = s->n_tokens;
    p->counts_begin = step->n_counts;
    p->n_counts = 0;
    if (counts_output(r)) {
        p->n_counts = s->lane->counts.n_items;
        RELAY_ASSERT(p->n_counts <= step->limits.max_counts - step->n_counts);
        memcpy(relay_step_counts(step) + step->n_counts, s->lane->counts.items,
               p->n_counts * sizeof s->lane->counts.items[0]);
        step->n_counts += p->n_counts;
    }
    p->masked_begin = step->n_masked;
    if (relay_sequence_output(s) < r->min_new_tokens) {
        put_masked(step, r->eos_ids, r->n_eos_ids);
        put_masked(step, r->stop_ids, r->n_stop_ids);
    }
    p->n_masked = step->n_masked - p->masked_begin;
    put_request_arrays(r, step, p);
}
