// A step is made in two goes. First rows are granted, in the order that scheduler.h tells: a grant takes the blocks and
// notes the rows in the sequence (n_scheduled), and a preemption takes both back, so that an earlier grant of the same
// step is undone without a trace. Then what was granted is written into the step, sequence by sequence in rank order.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_svc/scheduler_internal.h"

// ---- Lists

// From the end: who comes in is most often the last in rank.
static void list_insert(relay_sequence_list *l, relay_sequence *q) {
    relay_sequence *before = l->tail;
    while (before != NULL && relay_sequence_ranks_before(q, before))
        before = before->prev;
    q->prev = before;
    q->next = before != NULL ? before->next : l->head;
    *(q->prev != NULL ? &q->prev->next : &l->head) = q;
    *(q->next != NULL ? &q->next->prev : &l->tail) = q;
    l->n++;
}

static void list_remove(relay_sequence_list *l, relay_sequence *q) {
    *(q->prev != NULL ? &q->prev->next : &l->head) = q->next;
    *(q->next != NULL ? &q->next->prev : &l->tail) = q->prev;
    q->prev = q->next = NULL;
    l->n--;
}

static void enter_waiting(relay_scheduler *s, relay_sequence *q) {
    q->state = RELAY_SEQUENCE_WAITING;
    list_insert(&s->waiting, q);
    s->waiting_tokens += q->n_tokens;
}

static void leave_waiting(relay_scheduler *s, relay_sequence *q) {
    list_remove(&s->waiting, q);
    s->waiting_tokens -= q->n_tokens;
}

// ---- Create

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

relay_scheduler *relay_scheduler_create(const relay_scheduler_opts *o) {
    RELAY_ASSERT(o->n_groups >= 1 && o->n_groups <= RELAY_MAX_KV_GROUPS);
    RELAY_ASSERT(o->max_running >= 1 && o->token_budget >= o->max_running && o->max_sequences >= o->max_running);
    relay_scheduler *s = relay_calloc(1, sizeof *s);
    s->opts = *o;
    if (s->opts.prompt_chunk == 0) s->opts.prompt_chunk = UINT32_MAX;
    s->max_tokens = o->max_context;
    for (uint32_t g = 0; g < o->n_groups; g++) {
        s->pools[g] = relay_block_pool_create(o->n_blocks[g]);
        if (o->n_blocks[g] < relay_blocks_for(s->max_tokens)) s->max_tokens = o->n_blocks[g] * RELAY_BLOCK_TOKENS;
    }
    RELAY_ASSERT(s->max_tokens >= 2);
    s->sequences = relay_calloc(o->max_sequences, sizeof s->sequences[0]);
    for (uint32_t i = 0; i < o->max_sequences; i++)
        s->sequences[i].id = i;
    s->lanes = relay_calloc(o->max_running, sizeof s->lanes[0]);
    for (uint32_t i = o->max_running; i-- > 0;) {
        relay_lane_init(&s->lanes[i], s->max_tokens, o->n_groups);
        s->lanes[i].next = s->free_lanes;
        s->free_lanes = &s->lanes[i];
    }
    s->batch = relay_calloc(o->max_running, sizeof(relay_sequence *));
    s->next_expiry = RELAY_NEVER_US;
    return s;
}

void relay_scheduler_destroy(relay_scheduler *s) {
    if (s == NULL) return;
    for (uint32_t g = 0; g < s->opts.n_groups; g++)
        relay_block_pool_destroy(s->pools[g]);
    for (uint32_t i = 0; i < s->opts.max_running; i++)
        relay_lane_fini(&s->lanes[i]);
    free(s->lanes);
    free(s->sequences);
    free(s->batch);
    free(s);
}

relay_step_limits relay_scheduler_step_limits(const relay_scheduler *s) {
    // Each block is in one table, and a row that is sampled has the KV of all its ids in blocks: the pools bound both
    // tables and counts.
    uint64_t max_blocks = 0, max_counts = (uint64_t)s->opts.max_running * s->max_tokens;
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        uint64_t n = s->opts.n_blocks[g];
        if (n > max_blocks) max_blocks = n;
        if (n * RELAY_BLOCK_TOKENS < max_counts) max_counts = n * RELAY_BLOCK_TOKENS;
    }
    uint64_t all_tables = (uint64_t)s->opts.max_running * relay_blocks_for(s->max_tokens);
    return (relay_step_limits){
        .max_rows = s->opts.token_budget,
        .max_sequences = s->opts.max_running,
        .max_samples = s->opts.max_running,
        .max_block_ids = (uint32_t)(all_tables < max_blocks ? all_tables : max_blocks),
        .n_groups = s->opts.n_groups,
        .max_counts = (uint32_t)max_counts,
        .max_biases = s->opts.max_running * RELAY_MAX_LOGIT_BIAS,
        .max_masked = s->opts.max_running * 2 * RELAY_MAX_STOP_TOKEN_IDS,
        .max_allowed = s->opts.max_running * relay_mask_words(s->opts.vocab_size),
        .max_wanted = s->opts.max_running * RELAY_MAX_WANTED_LOGPROBS,
    };
}

// ---- Requests in and out

relay_code relay_scheduler_check_request(const relay_scheduler *s, const relay_request *r, relay_err *e) {
    if (r->n_prompt == 0) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "prompt_token_ids is empty; at least 1 id is needed");
    }
    bool is_context = s->max_tokens == s->opts.max_context;
    const char *limit = is_context ? "max_context" : "size of the KV pool";
    if (r->n_prompt >= s->max_tokens) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "prompt_token_ids has %u ids; at most %u leave room for one more token (%s %u)", r->n_prompt,
                          s->max_tokens - 1, limit, s->max_tokens);
    }
    if (r->n_tokens > s->max_tokens) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "prompt_token_ids and resume.generated_token_ids have %u ids together; at most %u fit (%s)",
                          r->n_tokens, s->max_tokens, limit);
    }
    if (r->n_eos_ids > RELAY_MAX_STOP_TOKEN_IDS || r->n_stop_ids > RELAY_MAX_STOP_TOKEN_IDS) {
        bool is_eos = r->n_eos_ids > RELAY_MAX_STOP_TOKEN_IDS;
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s has %u ids; at most %u are taken",
                          is_eos ? "the model's end-of-answer set" : "stop_token_ids",
                          is_eos ? r->n_eos_ids : r->n_stop_ids, (unsigned)RELAY_MAX_STOP_TOKEN_IDS);
    }
    return RELAY_OK;
}

static void release_blocks(relay_scheduler *s, relay_sequence *q) {
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        for (uint32_t i = 0; i < q->n_blocks; i++)
            relay_block_pool_release(s->pools[g], q->lane->tables[g][i]);
    }
    q->n_blocks = 0;
}

static void emit(relay_scheduler *s, const relay_sequence *q, relay_event *ev) {
    ev->request = q->request;
    s->opts.emit(s->opts.emit_arg, q, ev);
}

// Takes everything from `q`, says its last event, and frees its place.
static void end(relay_scheduler *s, relay_sequence *q, relay_event *last) {
    release_blocks(s, q);
    if (q->state == RELAY_SEQUENCE_WAITING) leave_waiting(s, q);
    if (q->state == RELAY_SEQUENCE_RUNNING) list_remove(&s->running, q);
    relay_lane *lane = relay_sequence_leave(q);
    if (lane != NULL) {
        lane->next = s->free_lanes;
        s->free_lanes = lane;
    }
    q->state = RELAY_SEQUENCE_NONE;
    emit(s, q, last);
    q->request = NULL;
}

static uint64_t between(relay_mono_us from, relay_mono_us to) {
    return to > from ? (uint64_t)(to - from) : 0;
}

static void finish(relay_scheduler *s, relay_sequence *q, relay_finish why, uint32_t stop_token_id, uint64_t step,
                   relay_mono_us now) {
    relay_mono_us admitted = q->admitted_at < now ? q->admitted_at : now;
    relay_mono_us first = q->first_token_at < now ? q->first_token_at : now;
    end(s, q,
        &(relay_event){
            .kind = RELAY_EVENT_FINISHED,
            .step = step,
            .finish = why,
            .stop_token_id = stop_token_id,
            .output_tokens = relay_sequence_output(q),
            .preemptions = q->n_preemptions,
            .queue_us = between(q->request->received_at, admitted),
            .prefill_us = between(admitted, first),
            .decode_us = between(first, now),
        });
}

void relay_scheduler_add(relay_scheduler *s, uint32_t id, relay_request *r, uint64_t arrival, relay_mono_us now) {
    RELAY_ASSERT(id < s->opts.max_sequences && s->sequences[id].state == RELAY_SEQUENCE_NONE);
    relay_sequence *q = &s->sequences[id];
    relay_sequence_begin(q, r, arrival);
    uint32_t stop_token_id = 0;
    relay_finish why = relay_sequence_check_end(q, s->max_tokens, &stop_token_id);
    if (why != RELAY_FINISH_NONE) {
        finish(s, q, why, stop_token_id, s->step + 1, now);
        return;
    }
    enter_waiting(s, q);
    if (r->deadline < s->next_expiry) s->next_expiry = r->deadline;
    if (r->time_limit_at < s->next_expiry) s->next_expiry = r->time_limit_at;
}

void relay_scheduler_cancel(relay_scheduler *s, uint32_t id, relay_mono_us now) {
    RELAY_ASSERT(id < s->opts.max_sequences);
    relay_sequence *q = &s->sequences[id];
    if (q->state != RELAY_SEQUENCE_NONE) finish(s, q, RELAY_FINISH_CANCELLED, 0, s->step + 1, now);
}

void relay_scheduler_add_credit(relay_scheduler *s, uint32_t id, uint32_t tokens) {
    RELAY_ASSERT(id < s->opts.max_sequences);
    relay_sequence *q = &s->sequences[id];
    if (q->state != RELAY_SEQUENCE_NONE) relay_sequence_add_credit(q, tokens);
}

static void fail_late(relay_scheduler *s, relay_sequence *q) {
    relay_event ev = {.kind = RELAY_EVENT_FAILED, .step = s->step + 1, .code = RELAY_DEADLINE_EXCEEDED};
    snprintf(ev.message, sizeof ev.message,
             "the deadline passed while the request was %s, after %u of at most %u tokens",
             q->state == RELAY_SEQUENCE_RUNNING ? "running" : "waiting", relay_sequence_output(q),
             q->request->max_new_tokens);
    end(s, q, &ev);
}

// Ends those of `l` that are late; gives the earliest time at which one of the others will be.
static relay_mono_us expire_list(relay_scheduler *s, relay_sequence_list *l, relay_mono_us now) {
    relay_mono_us next_expiry = RELAY_NEVER_US;
    for (relay_sequence *q = l->head, *next; q != NULL; q = next) {
        next = q->next;
        const relay_request *r = q->request;
        relay_mono_us first = r->deadline < r->time_limit_at ? r->deadline : r->time_limit_at;
        if (now < first) {
            if (first < next_expiry) next_expiry = first;
        } else if (r->time_limit_at <= r->deadline) {
            finish(s, q, RELAY_FINISH_TIME_LIMIT, 0, s->step + 1, now);
        } else {
            fail_late(s, q);
        }
    }
    return next_expiry;
}

void relay_scheduler_expire(relay_scheduler *s, relay_mono_us now) {
    if (now < s->next_expiry) return;
    relay_mono_us running = expire_list(s, &s->running, now);
    relay_mono_us waiting = expire_list(s, &s->waiting, now);
    s->next_expiry = running < waiting ? running : waiting;
}

relay_mono_us relay_scheduler_next_expiry(const relay_scheduler *s) {
    return s->next_expiry;
}

void relay_scheduler_end_all(relay_scheduler *s, relay_mono_us now) {
    while (s->running.head != NULL)
        finish(s, s->running.head, RELAY_FINISH_DRAINED, 0, s->step + 1, now);
    while (s->waiting.head != NULL)
        finish(s, s->waiting.head, RELAY_FINISH_DRAINED, 0, s->step + 1, now);
}

// ---- Blocks

// The blocks that every pool still has.
static uint32_t free_blocks(const relay_scheduler *s) {
    uint32_t n = UINT32_MAX;
    for (uint32_t g = 0; g < s->opts.n_groups; g++)
        n = min_u32(n, relay_block_pool_free(s->pools[g]));
    return n;
}

// How many more ids of `q` could be computed with `n_free` more blocks.
static uint32_t room_for(const relay_sequence *q, uint32_t n_free) {
    uint64_t slots = ((uint64_t)q->n_blocks + n_free) * RELAY_BLOCK_TOKENS - q->n_computed;
    return slots < UINT32_MAX ? (uint32_t)slots : UINT32_MAX;
}

// Gives `q` `n_rows` of the step, for which there is room.
static void grant(relay_scheduler *s, relay_sequence *q, uint32_t n_rows) {
    uint32_t n_blocks = relay_blocks_for(q->n_computed + n_rows);
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        for (uint32_t i = q->n_blocks; i < n_blocks; i++)
            q->lane->tables[g][i] = relay_block_pool_take(s->pools[g]);
    }
    q->n_blocks = n_blocks;
    q->n_scheduled = n_rows;
    s->budget -= n_rows;
}

static void preempt(relay_scheduler *s, relay_sequence *q) {
    release_blocks(s, q);
    s->budget += q->n_scheduled;
    q->n_scheduled = 0;
    q->n_computed = 0;
    q->n_preemptions++;
    s->preemptions++;
    list_remove(&s->running, q);
    enter_waiting(s, q);
}

// Whose blocks `asking` may take: the lowest in rank of those below it and of the paused ones. NULL if none.
static relay_sequence *find_victim(const relay_scheduler *s, const relay_sequence *asking) {
    bool is_below = true;
    for (relay_sequence *q = s->running.tail; q != NULL; q = q->prev) {
        if (q == asking) {
            is_below = false;
        } else if (is_below || relay_sequence_is_paused(q)) {
            return q;
        }
    }
    return NULL;
}

// ---- The step

static uint32_t chunk(const relay_scheduler *s, const relay_sequence *q) {
    return min_u32(min_u32(relay_sequence_pending(q), s->opts.prompt_chunk), s->budget);
}

// As many of its pending rows as there is room for. One is made room for where there is none.
static void schedule_running(relay_scheduler *s, relay_sequence *q) {
    if (s->budget == 0) return;
    uint32_t room;
    while ((room = room_for(q, free_blocks(s))) == 0) {
        relay_sequence *victim = find_victim(s, q);
        if (victim == NULL) return;
        preempt(s, victim);
    }
    grant(s, q, min_u32(chunk(s, q), room));
}

static relay_sequence *last_paused(const relay_scheduler *s) {
    relay_sequence *q = s->running.tail;
    while (q != NULL && !relay_sequence_is_paused(q))
        q = q->prev;
    return q;
}

// Sees to it that `n_tokens` of a sequence without blocks fit, at the cost of paused ones if need be: who is not served
// for want of credit must not keep out who could be. Does nothing where that is not enough.
static bool make_room(relay_scheduler *s, uint32_t n_tokens) {
    uint32_t need = relay_blocks_for(n_tokens);
    uint64_t available = free_blocks(s);
    if (available < need) {
        for (const relay_sequence *q = s->running.head; q != NULL; q = q->next) {
            if (relay_sequence_is_paused(q)) available += q->n_blocks;
        }
        if (available < need) return false;
    }
    while (free_blocks(s) < need)
        preempt(s, last_paused(s));
    return true;
}

static void admit(relay_scheduler *s, relay_sequence *q, uint32_t n_rows, relay_mono_us now) {
    leave_waiting(s, q);
    q->state = RELAY_SEQUENCE_RUNNING;
    list_insert(&s->running, q);
    if (q->lane == NULL) {
        relay_lane *lane = s->free_lanes;
        s->free_lanes = lane->next;
        relay_sequence_enter(q, lane, now);
        emit(s, q, &(relay_event){.kind = RELAY_EVENT_STARTED, .step = s->step + 1, .cached_tokens = q->n_computed});
    }
    grant(s, q, n_rows);
}

static void schedule_waiting(relay_scheduler *s, relay_mono_us now) {
    for (relay_sequence *q = s->waiting.head, *next; q != NULL && s->budget > 0; q = next) {
        next = q->next;
        // Passed over, not waited for: neither credit nor a lane comes from letting the ones behind wait too, and a
        // preempted one that has its lane may be the one that frees others.
        if (relay_sequence_is_paused(q) || (q->lane == NULL && s->free_lanes == NULL)) continue;
        uint32_t n_rows = chunk(s, q);
        // Who was preempted comes back when all it has fits: it would else be preempted again half-way. Who does not
        // fit is waited for, or small requests would keep a large one out for ever.
        if (!make_room(s, q->n_preemptions > 0 ? q->n_tokens : n_rows)) return;
        next = q->next; // a paused one may have come in behind it
        admit(s, q, n_rows, now);
    }
}

// Writes the rows of `q`, its block tables, and the sample where these rows are its last pending ones.
static void put_rows(relay_scheduler *s, relay_step *step, relay_sequence *q) {
    uint32_t index = step->n_sequences++;
    s->batch[index] = q;
    for (uint32_t i = 0; i < q->n_scheduled; i++) {
        uint32_t row = step->n_rows++;
        relay_step_token_ids(step)[row] = relay_sequence_token(q, q->n_computed + i);
        relay_step_positions(step)[row] = q->n_computed + i;
        relay_step_row_sequence(step)[row] = index;
    }
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        RELAY_ASSERT(q->n_blocks <= step->limits.max_block_ids - step->n_block_ids[g]);
        relay_step_table_begin(step, g)[index] = step->n_block_ids[g];
        memcpy(relay_step_block_ids(step, g) + step->n_block_ids[g], q->lane->tables[g],
               q->n_blocks * sizeof(uint32_t));
        step->n_block_ids[g] += q->n_blocks;
    }
    if (q->n_scheduled == relay_sequence_pending(q)) relay_sequence_put_sample(q, step, step->n_rows - 1);
}

bool relay_scheduler_fill(relay_scheduler *s, relay_step *step, relay_mono_us now) {
    relay_step_clear(step);
    s->budget = s->opts.token_budget;
    // Whom a grant preempts is below the one that asks or paused, so `next` is read after it.
    for (relay_sequence *q = s->running.head; q != NULL; q = q->next) {
        if (relay_sequence_pending(q) == 1 && !relay_sequence_is_paused(q)) schedule_running(s, q);
    }
    for (relay_sequence *q = s->running.head; q != NULL; q = q->next) {
        if (relay_sequence_pending(q) > 1 && !relay_sequence_is_paused(q)) schedule_running(s, q);
    }
    schedule_waiting(s, now);
    for (relay_sequence *q = s->running.head; q != NULL; q = q->next) {
        if (q->n_scheduled > 0) put_rows(s, step, q);
    }
    if (step->n_rows == 0) return false;
    step->number = ++s->step;
    return true;
}

// `q` has its next id, or none that means anything.
static void take_sample(relay_scheduler *s, relay_sequence *q, const relay_sample_result *result, relay_mono_us now) {
    if (!result->is_finite) {
        relay_event ev = {.kind = RELAY_EVENT_FAILED, .step = s->step, .code = RELAY_INTERNAL};
        snprintf(ev.message, sizeof ev.message, "the model gave no finite logits for position %u", q->n_tokens);
        end(s, q, &ev);
        return;
    }
    emit(s, q, &(relay_event){.kind = RELAY_EVENT_TOKEN, .step = s->step, .sample = *result});
    relay_sequence_append(q, result->token_id, now);
    s->decode_tokens++;
    uint32_t stop_token_id = 0;
    relay_finish why = relay_sequence_check_end(q, s->max_tokens, &stop_token_id);
    if (why != RELAY_FINISH_NONE) finish(s, q, why, stop_token_id, s->step, now);
}

void relay_scheduler_take(relay_scheduler *s, const relay_step *step, const relay_sample_result *results,
                          relay_mono_us now) {
    uint32_t sample = 0;
    for (uint32_t i = 0; i < step->n_sequences; i++) {
        relay_sequence *q = s->batch[i];
        bool is_decode = relay_sequence_pending(q) == 1 && relay_sequence_drawn(q) > 0;
        if (!is_decode) s->prefill_tokens += q->n_scheduled;
        q->n_computed += q->n_scheduled;
        q->n_scheduled = 0;
        if (relay_sequence_pending(q) == 0) take_sample(s, q, &results[sample++], now);
    }
    RELAY_ASSERT(sample == step->n_samples);
}
