// A step is made in two goes. First rows are granted (scheduler_rows.c): a grant takes the blocks and notes the rows in
// the sequence (n_scheduled), and a preemption takes both back, so that an earlier grant of the same step is undone
// without a trace. Then what was granted is written into the step, sequence by sequence in rank order.
#include <stdio.h>
#include <string.h>

#include "model_svc/scheduler_internal.h"
#include "model_svc/sequence_constraint.h"

static void put_sample(relay_scheduler *s, relay_step *step, relay_sequence *q) {
    s->sampled[step->n_samples] = q;
    relay_sequence_put_sample(q, step, step->n_rows - 1);
}

// The other answers of the request whose prompt `leader` completes in this step begin with a draw from the same row,
// those for which there is a lane; the rest waits for one, as anybody does.
static void put_followers(relay_scheduler *s, relay_step *step, relay_sequence *leader, relay_mono_us now) {
    for (relay_sequence *q = s->answers[leader->id]; q != NULL; q = q->sibling) {
        if (q->leader != leader) continue;
        bool has_lane = leader->n_promised > 0 || s->n_free_lanes > s->n_promised_lanes;
        if (!has_lane || relay_sequence_is_paused(q)) {
            q->leader = NULL;
            continue;
        }
        relay_lane *lane = relay_scheduler_take_lane(s);
        if (leader->n_promised > 0) {
            leader->n_promised--;
            s->n_promised_lanes--;
        }
        relay_scheduler_leave_waiting(s, q);
        q->state = RELAY_SEQUENCE_RUNNING;
        relay_sequence_list_insert(&s->running, q);
        relay_sequence_enter(q, lane, now);
        relay_scheduler_emit_start(s, q);
        put_sample(s, step, q);
    }
}

// Writes the rows of `q`, its block tables, and the sample where these rows are its last pending ones.
static void put_rows(relay_scheduler *s, relay_step *step, relay_sequence *q, relay_mono_us now) {
    uint32_t index = step->n_sequences++;
    const bool scores = relay_sequence_scores(q);
    s->batch[index] = q;
    relay_step_tails(step)[index] = (uint32_t)(q->lane - s->lanes);
    for (uint32_t i = 0; i < q->n_scheduled; i++) {
        uint32_t row = step->n_rows++;
        relay_step_token_ids(step)[row] = relay_sequence_token(q, q->n_computed + i);
        relay_step_positions(step)[row] = q->n_computed + i;
        relay_step_row_sequence(step)[row] = index;
        uint32_t next = q->n_computed + i + 1;
        if (!scores || next < q->n_scored || next >= q->request->n_prompt) continue;
        s->sampled[step->n_samples] = q;
        relay_sequence_put_score(q, step, row, q->n_computed + i);
    }
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        RELAY_ASSERT(q->n_blocks <= step->limits.max_block_ids - step->n_block_ids[g]);
        relay_step_table_begin(step, g)[index] = step->n_block_ids[g];
        memcpy(relay_step_block_ids(step, g) + step->n_block_ids[g], q->lane->tables[g],
               q->n_blocks * sizeof(uint32_t));
        step->n_block_ids[g] += q->n_blocks;
        if (q->copy_from[g] != RELAY_NO_BLOCK) {
            uint32_t to = q->lane->tables[g][q->n_computed / RELAY_BLOCK_TOKENS];
            relay_step_copies(step, g)[step->n_copies[g]++] = (relay_kv_block_copy){q->copy_from[g], to};
        }
    }
    if (q->n_scheduled < relay_sequence_pending(q)) return;
    put_sample(s, step, q);
    put_followers(s, step, q, now);
}

bool relay_scheduler_fill(relay_scheduler *s, relay_step *step, relay_mono_us now) {
    relay_step_clear(step);
    relay_scheduler_tell(s, now);
    relay_scheduler_grant_rows(s, now);
    for (relay_sequence *q = s->running.head; q != NULL; q = q->next) {
        if (q->n_scheduled > 0) put_rows(s, step, q, now);
    }
    if (step->n_rows == 0) return false;
    memcpy(relay_step_tail_copies(step), s->tail_copies, s->n_tail_copies * sizeof *s->tail_copies);
    step->n_tail_copies = s->n_tail_copies;
    s->n_tail_copies = 0;
    step->number = ++s->step;
    s->began_at = now;
    return true;
}

// There was no id to draw.
static void end_cornered(relay_scheduler *s, relay_sequence *q, relay_mono_us now) {
    relay_event ev = {.kind = RELAY_EVENT_FAILED, .step = s->step};
    ev.code = relay_sequence_why_cornered(q, ev.message, sizeof ev.message);
    if (ev.code == RELAY_OK) {
        relay_scheduler_finish(s, q, RELAY_FINISH_CONSTRAINT_DONE, 0, s->step, now);
    } else {
        relay_scheduler_fail(s, q, &ev);
    }
}

static void fail_not_finite(relay_scheduler *s, relay_sequence *q, uint32_t position) {
    relay_event ev = {.kind = RELAY_EVENT_FAILED, .step = s->step, .code = RELAY_INTERNAL};
    snprintf(ev.message, sizeof ev.message, "the model gave no finite logits for position %u", position);
    relay_scheduler_fail(s, q, &ev);
}

static void take_score(relay_scheduler *s, relay_sequence *q, const relay_sample_result *result) {
    if (!result->is_finite) {
        fail_not_finite(s, q, q->n_scored);
        return;
    }
    relay_event ev = {.kind = RELAY_EVENT_SCORE, .step = s->step, .position = q->n_scored++, .sample = *result};
    relay_scheduler_emit(s, q, &ev);
}

// `q` has its next id, or none that means anything.
static void take_sample(relay_scheduler *s, relay_sequence *q, const relay_sample_params *p,
                        const relay_sample_result *result, relay_mono_us now) {
    // Ids masked one by one may be all there are too, in a small vocabulary.
    if (q->lane->is_cornered || (!result->is_finite && p->n_masked >= s->opts.vocab_size)) {
        end_cornered(s, q, now);
        return;
    }
    if (!result->is_finite) {
        fail_not_finite(s, q, q->n_tokens);
        return;
    }
    if (q->request->beams != NULL) {
        relay_scheduler_take_beam(s, q, result);
        return;
    }
    relay_scheduler_emit(s, q, &(relay_event){.kind = RELAY_EVENT_TOKEN, .step = s->step, .sample = *result});
    q->mirostat_mu = result->mirostat_mu;
    relay_sequence_append(q, result->token_id, now);
    s->decode_tokens++;
    uint32_t stop_cause = 0;
    relay_finish why = relay_sequence_check_end(q, s->max_tokens, &stop_cause);
    if (why != RELAY_FINISH_NONE) relay_scheduler_finish(s, q, why, stop_cause, s->step, now);
}

void relay_scheduler_take(relay_scheduler *s, const relay_step *step, const relay_sample_result *results,
                          relay_mono_us now) {
    relay_pace_note(&s->pace, step->n_rows, now - s->began_at);
    for (uint32_t i = 0; i < step->n_sequences; i++) {
        relay_sequence *q = s->batch[i];
        relay_tenants_charge(s->tenants, q->tenant, q->n_scheduled);
        bool is_decode = relay_sequence_pending(q) == 1 && relay_sequence_drawn(q) > 0;
        if (!is_decode) s->prefill_tokens += q->n_scheduled;
        q->n_computed += q->n_scheduled;
        q->n_scheduled = 0;
        relay_scheduler_settle(s, q);
    }
    for (uint32_t i = 0; i < step->n_samples; i++) {
        relay_sequence *q = s->sampled[i];
        if (q->leader == NULL) continue;
        relay_scheduler_share(s, q->leader, q);
        q->leader = NULL;
    }
    for (uint32_t i = 0; i < step->n_samples; i++) {
        relay_sequence *q = s->sampled[i];
        bool has_failed = q->state == RELAY_SEQUENCE_NONE; // with another answer of its request
        if (has_failed) continue;
        const relay_sample_params *p = &relay_step_sample_params(step)[i];
        if (p->is_score_only) {
            take_score(s, q, &results[i]);
        } else {
            take_sample(s, q, p, &results[i], now);
        }
    }
}
