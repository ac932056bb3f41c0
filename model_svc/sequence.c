#include "model_svc/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "model_svc/sequence_constraint.h"

void relay_lane_init(relay_lane *l, uint32_t index, uint32_t max_tokens, uint32_t max_different, uint32_t n_groups) {
    *l = (relay_lane){.counts_begin = (uint64_t)index * max_different};
    l->output = relay_calloc(max_tokens, sizeof l->output[0]);
    uint32_t max_blocks = relay_blocks_for(max_tokens);
    for (uint32_t g = 0; g < n_groups; g++)
        l->tables[g] = relay_calloc(max_blocks, sizeof l->tables[g][0]);
    relay_token_counts_init(&l->counts, max_different);
    relay_token_repeats_init(&l->repeats, max_tokens);
}

void relay_lane_fini(relay_lane *l) {
    free(l->output);
    for (uint32_t g = 0; g < RELAY_MAX_KV_GROUPS; g++)
        free(l->tables[g]);
    relay_token_counts_fini(&l->counts);
    relay_token_repeats_fini(&l->repeats);
    *l = (relay_lane){0};
}

void relay_sequence_begin(relay_sequence *s, relay_request *r, uint32_t index, uint64_t arrival, relay_mono_us now) {
    *s = (relay_sequence){
        .prev = s->prev,
        .next = s->next,
        .id = s->id,
        .index = index,
        .request = r,
        .arrival = arrival,
        .ranks_from = now - (int64_t)r->priority * RELAY_HEAD_START,
        .n_tokens = r->n_tokens,
        .credit = r->initial_credit,
        .mirostat_mu = r->sampling.mirostat_mu,
        .n_scored = 1,
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

static bool watches_repeats(const relay_request *r) {
    return r->dry.multiplier != 0 || r->no_repeat_ngram_size != 0;
}

// Position i comes into the window that penalties count, and what it pushes out leaves.
static void count_position(relay_sequence *s, uint32_t i) {
    const relay_request *r = s->request;
    relay_token_counts *c = &s->lane->counts;
    if (i >= r->n_prompt) {
        relay_token_counts_add_output(c, relay_sequence_token(s, i));
    } else if (counts_prompt(r)) {
        relay_token_counts_add_prompt(c, relay_sequence_token(s, i));
    }
    if (r->penalty_window == 0 || i < r->penalty_window) return;
    uint32_t left = i - r->penalty_window;
    if (left >= r->n_prompt) {
        relay_token_counts_remove_output(c, relay_sequence_token(s, left));
    } else if (counts_prompt(r)) {
        relay_token_counts_remove_prompt(c, relay_sequence_token(s, left));
    }
}

void relay_sequence_enter(relay_sequence *s, relay_lane *lane, relay_mono_us now) {
    const relay_request *r = s->request;
    s->lane = lane;
    s->admitted_at = now;
    for (uint32_t i = 0; i < r->n_tokens && counts_output(r); i++)
        count_position(s, i);
    if (watches_repeats(r)) relay_token_repeats_begin(&lane->repeats, &r->dry, r->token_ids, r->n_tokens);
}

relay_lane *relay_sequence_leave(relay_sequence *s) {
    relay_lane *lane = s->lane;
    s->lane = NULL;
    if (lane != NULL) {
        relay_token_counts_clear(&lane->counts);
        relay_token_repeats_clear(&lane->repeats);
        lane->matcher = (relay_matcher){0};
    }
    return lane;
}

void relay_sequence_add_credit(relay_sequence *s, uint32_t tokens) {
    // RELAY_UNLIMITED_CREDIT is the largest value: what reaches it stays there.
    s->credit = tokens > UINT32_MAX - s->credit ? RELAY_UNLIMITED_CREDIT : s->credit + tokens;
}

void relay_sequence_append(relay_sequence *s, uint32_t token_id, relay_mono_us now) {
    s->lane->output[relay_sequence_drawn(s)] = token_id;
    s->n_tokens++;
    if (counts_output(s->request)) count_position(s, s->n_tokens - 1);
    if (watches_repeats(s->request)) relay_token_repeats_append(&s->lane->repeats, token_id);
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

// Whether the output ends with one of the request's sequences; *index is the first such.
static bool ends_with_stop_sequence(const relay_sequence *s, uint32_t *index) {
    const relay_request *r = s->request;
    for (*index = 0; *index < r->n_stop_sequences; ++*index) {
        const relay_stop_sequence *q = &r->stop_sequences[*index];
        uint32_t n = 0;
        while (n < q->n && n < relay_sequence_output(s) &&
               relay_sequence_token(s, s->n_tokens - 1 - n) == q->ids[q->n - 1 - n])
            n++;
        if (n == q->n) return true;
    }
    return false;
}

relay_finish relay_sequence_check_end(relay_sequence *s, uint32_t max_tokens, uint32_t *cause) {
    const relay_request *r = s->request;
    uint32_t n_output = relay_sequence_output(s);
    if (n_output == 0) return RELAY_FINISH_NONE;
    uint32_t last = relay_sequence_token(s, s->n_tokens - 1);
    *cause = last;
    if (n_output > r->min_new_tokens) {
        if (contains(r->eos_ids, r->n_eos_ids, last)) return RELAY_FINISH_EOS;
        if (contains(r->stop_ids, r->n_stop_ids, last)) return RELAY_FINISH_STOP_TOKEN;
        if (ends_with_stop_sequence(s, cause)) return RELAY_FINISH_STOP_SEQUENCE;
    }
    *cause = 0;
    if (r->constraint != NULL && s->lane != NULL && relay_sequence_constraint_is_over(s)) {
        return RELAY_FINISH_CONSTRAINT_DONE;
    }
    if (n_output >= r->max_new_tokens) return RELAY_FINISH_MAX_NEW_TOKENS;
    if (s->n_tokens >= max_tokens) return RELAY_FINISH_CONTEXT_FULL;
    return RELAY_FINISH_NONE;
}

static void put_masked(relay_step *step, const uint32_t *ids, uint32_t n) {
    RELAY_ASSERT(n <= step->limits.max_masked - step->n_masked);
    if (n != 0) memcpy(relay_step_masked(step) + step->n_masked, ids, n * sizeof ids[0]);
    step->n_masked += n;
}

static void put_counts(relay_sequence *s, relay_step *step, relay_sample_params *p) {
    relay_token_counts *c = &s->lane->counts;
    p->counts_begin = s->lane->counts_begin;
    p->n_counts = c->n_items;
    uint32_t n = c->n_changed;
    RELAY_ASSERT(n <= step->limits.max_count_updates - step->n_count_updates);
    relay_token_counts_carry(c, relay_step_count_updates(step) + step->n_count_updates, p->counts_begin);
    step->n_count_updates += n;
}

static void put_biases(relay_sequence *s, relay_step *step, relay_sample_params *p) {
    const relay_request *r = s->request;
    p->bias_begin = step->n_biases;
    if (r->dry.multiplier != 0) {
        step->n_biases += relay_token_repeats_dry(&s->lane->repeats, relay_step_biases(step) + step->n_biases);
    }
    RELAY_ASSERT(step->n_biases + r->n_logit_bias <= step->limits.max_biases);
    if (r->n_logit_bias != 0) {
        memcpy(relay_step_biases(step) + step->n_biases, r->logit_bias, r->n_logit_bias * sizeof r->logit_bias[0]);
    }
    step->n_biases += r->n_logit_bias;
    p->n_bias = step->n_biases - p->bias_begin;
}

static void put_all_masked(relay_sequence *s, relay_step *step, relay_sample_params *p) {
    const relay_request *r = s->request;
    p->masked_begin = step->n_masked;
    if (relay_sequence_output(s) < r->min_new_tokens) {
        put_masked(step, r->eos_ids, r->n_eos_ids);
        put_masked(step, r->stop_ids, r->n_stop_ids);
    }
    if (r->no_repeat_ngram_size != 0) {
        step->n_masked += relay_token_repeats_ngrams(&s->lane->repeats, r->no_repeat_ngram_size,
                                                     relay_step_masked(step) + step->n_masked);
    }
    RELAY_ASSERT(step->n_masked <= step->limits.max_masked);
    p->n_masked = step->n_masked - p->masked_begin;
    p->allowed_begin = step->n_allowed;
    s->lane->is_cornered = false;
    p->n_allowed_words = r->constraint == NULL ? r->n_allowed_words
                                               : relay_constraint_n_words(relay_constraint_handle_get(r->constraint));
    RELAY_ASSERT(p->n_allowed_words <= step->limits.max_allowed - step->n_allowed);
    if (r->constraint != NULL) {
        relay_sequence_constrain(s, relay_step_allowed(step) + step->n_allowed, p->n_allowed_words,
                                 relay_step_masked(step) + p->masked_begin, p->n_masked);
    } else if (r->n_allowed_words != 0) {
        relay_sequence_restrict(s, relay_step_allowed(step) + step->n_allowed,
                                relay_step_masked(step) + p->masked_begin, p->n_masked);
    }
    step->n_allowed += p->n_allowed_words;
}

static void put_wanted(const relay_request *r, relay_step *step, relay_sample_params *p) {
    p->wanted_begin = step->n_wanted;
    p->n_wanted = r->n_wanted_ids;
    RELAY_ASSERT(r->n_wanted_ids <= step->limits.max_wanted - step->n_wanted);
    if (r->n_wanted_ids != 0) {
        memcpy(relay_step_wanted(step) + step->n_wanted, r->wanted_ids, r->n_wanted_ids * sizeof r->wanted_ids[0]);
    }
    step->n_wanted += r->n_wanted_ids;
}

uint32_t relay_sequence_scored_rows(const relay_sequence *s, uint32_t n_rows) {
    if (!relay_sequence_scores(s)) return 0;
    uint32_t first = s->n_scored - 1, last = s->request->n_prompt - 1; // rows that have the ids before them
    uint32_t begin = s->n_computed > first ? s->n_computed : first;
    uint32_t end = s->n_computed + n_rows < last ? s->n_computed + n_rows : last;
    return end > begin ? end - begin : 0;
}

void relay_sequence_put_score(const relay_sequence *s, relay_step *step, uint32_t row, uint32_t position) {
    RELAY_ASSERT(step->n_samples < step->limits.max_samples);
    relay_step_sample_rows(step)[step->n_samples] = row;
    relay_step_sample_params(step)[step->n_samples++] = (relay_sample_params){
        .position = position + 1,
        .logprob_mode = RELAY_LOGPROB_RAW,
        .n_top = s->request->n_prompt_top,
        .is_score_only = 1,
        .scored_id = relay_sequence_token(s, position + 1),
    };
}

void relay_sequence_put_sample(relay_sequence *s, relay_step *step, uint32_t row) {
    const relay_request *r = s->request;
    RELAY_ASSERT(step->n_samples < step->limits.max_samples);
    relay_step_sample_rows(step)[step->n_samples] = row;
    relay_sample_params *p = &relay_step_sample_params(step)[step->n_samples++];
    *p = r->sampling;
    // The place of the id that is drawn: with it a draw depends on neither chunks, mates, preemption nor resuming.
    p->position = s->n_tokens;
    p->sequence_index = s->index;
    if (r->beams != NULL) {
        p->logprob_mode = RELAY_LOGPROB_RAW;
        p->n_top = RELAY_BEAM_CANDIDATES;
    }
    p->mirostat_mu = s->mirostat_mu;
    if (counts_output(r)) put_counts(s, step, p);
    put_biases(s, step, p);
    put_all_masked(s, step, p);
    put_wanted(r, step, p);
}
