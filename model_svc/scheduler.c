// Requests in and out: what is taken, how it ends, and the lists in which sequences are meanwhile.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "model_svc/scheduler_internal.h"
#include "model_svc/sequence_constraint.h"

// ---- Lists

// From the end: who comes in is most often the last in rank.
void relay_sequence_list_insert(relay_sequence_list *l, relay_sequence *q) {
    relay_sequence *before = l->tail;
    while (before != NULL && relay_sequence_ranks_before(q, before))
        before = before->prev;
    q->prev = before;
    q->next = before != NULL ? before->next : l->head;
    *(q->prev != NULL ? &q->prev->next : &l->head) = q;
    *(q->next != NULL ? &q->next->prev : &l->tail) = q;
    l->n++;
}

void relay_sequence_list_remove(relay_sequence_list *l, relay_sequence *q) {
    *(q->prev != NULL ? &q->prev->next : &l->head) = q->next;
    *(q->next != NULL ? &q->next->prev : &l->tail) = q->prev;
    q->prev = q->next = NULL;
    l->n--;
}

void relay_scheduler_enter_waiting(relay_scheduler *s, relay_sequence *q) {
    q->state = RELAY_SEQUENCE_WAITING;
    relay_sequence_list_insert(&s->waiting, q);
    s->waiting_tokens += q->n_tokens;
}

void relay_scheduler_leave_waiting(relay_scheduler *s, relay_sequence *q) {
    relay_sequence_list_remove(&s->waiting, q);
    s->waiting_tokens -= q->n_tokens;
}

// ---- Create

// An entry for each block, and one for the salt of each sequence. Where all groups have a window, entries whose blocks
// have left it lead to those that still have theirs: those of the sequences that run.
uint32_t relay_scheduler_max_entries(const relay_scheduler *s) {
    uint64_t n = s->opts.max_running + s->opts.max_leases;
    bool has_window_only = true;
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        n += s->opts.n_blocks[g];
        if (s->opts.window[g] == 0) has_window_only = false;
    }
    if (has_window_only) n += (uint64_t)s->opts.max_running * relay_blocks_for(s->max_tokens);
    return n < UINT32_MAX / 2 ? (uint32_t)n : UINT32_MAX / 2 - 1;
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
        // With a window, any length fits where the window does.
        bool fits_any = o->window[g] != 0 && o->n_blocks[g] >= relay_window_blocks(o->window[g]);
        if (!fits_any && o->n_blocks[g] < relay_blocks_for(s->max_tokens)) {
            s->max_tokens = o->n_blocks[g] * RELAY_BLOCK_TOKENS;
        }
    }
    RELAY_ASSERT(s->max_tokens >= 2);
    s->index = relay_prefix_index_create(s->pools, o->n_groups, relay_scheduler_max_entries(s), o->hash_seed);
    s->sequences = relay_calloc(2ULL * o->max_sequences, sizeof s->sequences[0]);
    for (uint32_t i = o->max_sequences; i-- > 0;) {
        s->sequences[i].id = i;
        relay_sequence *further = &s->sequences[o->max_sequences + i];
        further->next = s->free_sequences;
        s->free_sequences = further;
    }
    s->leases = relay_leases_create(s->index, s->pools, o->n_groups, o->max_leases);
    s->tenants = relay_tenants_create(o->max_sequences);
    relay_pace_init(&s->pace, o->step_target);
    s->answers = relay_calloc(o->max_sequences, sizeof(relay_sequence *));
    s->lanes = relay_calloc(o->max_running, sizeof s->lanes[0]);
    for (uint32_t i = o->max_running; i-- > 0;) {
        relay_lane_init(&s->lanes[i], i, s->max_tokens, relay_min_u32(s->max_tokens, o->vocab_size), o->n_groups);
        s->lanes[i].next = s->free_lanes;
        s->free_lanes = &s->lanes[i];
        s->n_free_lanes++;
    }
    s->batch = relay_calloc(o->max_running, sizeof(relay_sequence *));
    s->sampled = relay_calloc(o->max_running + RELAY_MAX_SCORED_ROWS, sizeof(relay_sequence *));
    s->tail_copies = relay_calloc(2ULL * o->max_running, sizeof *s->tail_copies);
    s->next_expiry = RELAY_NEVER_US;
    return s;
}

void relay_scheduler_destroy(relay_scheduler *s) {
    if (s == NULL) return;
    relay_leases_destroy(s->leases);
    relay_prefix_index_destroy(s->index);
    relay_tenants_destroy(s->tenants);
    for (uint32_t g = 0; g < s->opts.n_groups; g++)
        relay_block_pool_destroy(s->pools[g]);
    for (uint32_t i = 0; i < s->opts.max_running; i++)
        relay_lane_fini(&s->lanes[i]);
    free(s->lanes);
    free(s->sequences);
    free(s->answers);
    free(s->batch);
    free(s->sampled);
    free(s->tail_copies);
    free(s);
}

relay_step_limits relay_scheduler_step_limits(const relay_scheduler *s) {
    // Blocks may be shared, so that the pools do not bound the tables. What is said of single ids (counts that changed,
    // biases and masks of those that would repeat) is bounded by how many different ones a sequence can have.
    uint64_t max_tables = (uint64_t)s->opts.max_running * relay_blocks_for(s->max_tokens);
    uint64_t max_ids = (uint64_t)s->opts.max_running * relay_min_u32(s->max_tokens, s->opts.vocab_size);
    RELAY_ASSERT(max_tables <= UINT32_MAX && max_ids <= UINT32_MAX / 2);
    return (relay_step_limits){
        .max_rows = s->opts.token_budget,
        .max_sequences = s->opts.max_running,
        .max_samples = s->opts.max_running + RELAY_MAX_SCORED_ROWS,
        .max_block_ids = (uint32_t)max_tables,
        .max_copies = s->opts.max_running,
        .max_tail_copies = 2 * s->opts.max_running,
        .n_groups = s->opts.n_groups,
        .n_resident_counts = max_ids,
        .max_count_updates = (uint32_t)max_ids,
        .max_biases = s->opts.max_running * RELAY_MAX_LOGIT_BIAS + (uint32_t)max_ids,
        .max_masked = s->opts.max_running * 2 * RELAY_MAX_STOP_TOKEN_IDS + (uint32_t)max_ids,
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
    if (r->n_sequences > s->opts.max_running) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is %u; at most %u are computed at a time",
                          r->beams != NULL ? "sampling.beam_search.num_beams" : "num_sequences", r->n_sequences,
                          s->opts.max_running);
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

void relay_scheduler_emit(relay_scheduler *s, const relay_sequence *q, relay_event *ev) {
    ev->request = q->request;
    // What becomes of a beam search is told as of its first answer.
    bool is_of_all = q->request->beams != NULL && ev->kind == RELAY_EVENT_FINISHED;
    ev->index = is_of_all ? 0 : q->index;
    s->opts.emit(s->opts.emit_arg, q, ev);
}

relay_lane *relay_scheduler_take_lane(relay_scheduler *s) {
    relay_lane *lane = s->free_lanes;
    if (lane == NULL) return NULL;
    s->free_lanes = lane->next;
    s->n_free_lanes--;
    return lane;
}

void relay_scheduler_let_go(relay_scheduler *s, relay_sequence *q) {
    if (q->lane != NULL) relay_scheduler_detach(s, q, q->lane);
    if (q->state == RELAY_SEQUENCE_WAITING) relay_scheduler_leave_waiting(s, q);
    if (q->state == RELAY_SEQUENCE_RUNNING) relay_sequence_list_remove(&s->running, q);
    if (q->state == RELAY_SEQUENCE_TELLING) relay_sequence_list_remove(&s->telling, q);
    q->state = RELAY_SEQUENCE_NONE;
    s->n_promised_lanes -= q->n_promised;
    q->n_promised = 0;
    relay_lane *lane = relay_sequence_leave(q);
    if (lane == NULL) return;
    lane->next = s->free_lanes;
    s->free_lanes = lane;
    s->n_free_lanes++;
}

// Takes everything from `q` and frees it. Where it was the last answer of its request, the place is free too.
static void leave(relay_scheduler *s, relay_sequence *q) {
    relay_scheduler_let_go(s, q);
    relay_tenants_leave(s->tenants, q->tenant);
    relay_sequence **link = &s->answers[q->id];
    while (*link != q)
        link = &(*link)->sibling;
    *link = q->sibling;
}

static void free_sequence(relay_scheduler *s, relay_sequence *q) {
    q->request = NULL;
    if (q < s->sequences + s->opts.max_sequences) return;
    q->next = s->free_sequences;
    s->free_sequences = q;
}

static void end(relay_scheduler *s, relay_sequence *q, relay_event *last) {
    leave(s, q);
    last->is_last = s->answers[q->id] == NULL;
    relay_scheduler_emit(s, q, last);
    free_sequence(s, q);
}

void relay_scheduler_drop_others(relay_scheduler *s, relay_sequence *q) {
    for (relay_sequence *a = s->answers[q->id], *next; a != NULL; a = next) {
        next = a->sibling;
        if (a == q) continue;
        leave(s, a);
        free_sequence(s, a);
    }
}

void relay_scheduler_fail(relay_scheduler *s, relay_sequence *q, relay_event *failed) {
    relay_scheduler_drop_others(s, q);
    end(s, q, failed);
}

static uint64_t between(relay_mono_us from, relay_mono_us to) {
    return to > from ? (uint64_t)(to - from) : 0;
}

void relay_scheduler_finish(relay_scheduler *s, relay_sequence *q, relay_finish why, uint32_t stop_cause, uint64_t step,
                            relay_mono_us now) {
    relay_mono_us admitted = q->admitted_at < now ? q->admitted_at : now;
    relay_mono_us first = q->first_token_at < now ? q->first_token_at : now;
    if (q->request->beams != NULL) relay_scheduler_drop_others(s, q);
    if (why != RELAY_FINISH_CANCELLED && why != RELAY_FINISH_DRAINED) relay_scheduler_lease(s, q, now);
    end(s, q,
        &(relay_event){
            .kind = RELAY_EVENT_FINISHED,
            .step = step,
            .finish = why,
            .stop_cause = stop_cause,
            .output_tokens = q->request->beams != NULL ? q->n_told : relay_sequence_output(q),
            .preemptions = q->n_preemptions,
            .queue_us = between(q->request->received_at, admitted),
            .prefill_us = between(admitted, first),
            .decode_us = between(first, now),
        });
}

// Answer `i` of those that `r` asks for.
static relay_sequence *add_answer(relay_scheduler *s, uint32_t id, relay_request *r, uint32_t i, uint64_t arrival,
                                  relay_mono_us now) {
    relay_sequence *q = &s->sequences[id];
    if (i > 0) {
        q = s->free_sequences;
        RELAY_ASSERT(q != NULL);
        s->free_sequences = q->next;
        q->id = id;
        q->next = NULL;
    }
    relay_sequence_begin(q, r, r->sampling.sequence_index + i, arrival, now);
    q->entry = RELAY_NO_ENTRY;
    q->tenant = relay_tenants_enter(s->tenants, XXH3_64bits(r->tenant, strlen(r->tenant)));
    memset(q->copy_from, 0xff, sizeof q->copy_from);
    relay_sequence **link = &s->answers[id];
    while (*link != NULL)
        link = &(*link)->sibling;
    *link = q;
    return q;
}

// Its constraint could not be compiled.
static void end_unconstrained(relay_scheduler *s, relay_sequence *q) {
    const relay_err *why = relay_constraint_handle_error(q->request->constraint);
    relay_event ev = {.kind = RELAY_EVENT_FAILED, .step = s->step + 1, .code = why->code};
    memcpy(ev.message, why->message, sizeof ev.message);
    relay_scheduler_fail(s, q, &ev);
}

void relay_scheduler_settle_constraints(relay_scheduler *s) {
    for (relay_sequence *q = s->waiting.head, *next; q != NULL; q = next) {
        next = q->next;
        if (!relay_sequence_constraint_has_failed(q)) continue;
        end_unconstrained(s, q);
        next = s->waiting.head; // those that ended with it may have been the next
    }
}

void relay_scheduler_add(relay_scheduler *s, uint32_t id, relay_request *r, uint64_t arrival, relay_mono_us now) {
    RELAY_ASSERT(id < s->opts.max_sequences && s->answers[id] == NULL);
    relay_sequence *first = add_answer(s, id, r, 0, arrival, now);
    uint32_t stop_cause = 0;
    relay_finish why = relay_sequence_check_end(first, s->max_tokens, &stop_cause);
    if (why != RELAY_FINISH_NONE) {
        relay_scheduler_finish(s, first, why, stop_cause, s->step + 1, now);
        return;
    }
    relay_scheduler_enter_waiting(s, first);
    if (relay_sequence_constraint_has_failed(first)) {
        end_unconstrained(s, first);
        return;
    }
    for (uint32_t i = 1; i < r->n_sequences; i++) {
        relay_sequence *q = add_answer(s, id, r, i, arrival, now);
        q->leader = first;
        relay_scheduler_enter_waiting(s, q);
    }
    if (r->deadline < s->next_expiry) s->next_expiry = r->deadline;
    if (r->time_limit_at < s->next_expiry) s->next_expiry = r->time_limit_at;
}

void relay_scheduler_cancel(relay_scheduler *s, uint32_t id, relay_mono_us now) {
    RELAY_ASSERT(id < s->opts.max_sequences);
    while (s->answers[id] != NULL)
        relay_scheduler_finish(s, s->answers[id], RELAY_FINISH_CANCELLED, 0, s->step + 1, now);
}

void relay_scheduler_add_credit(relay_scheduler *s, uint32_t id, uint32_t tokens) {
    RELAY_ASSERT(id < s->opts.max_sequences);
    for (relay_sequence *q = s->answers[id]; q != NULL; q = q->sibling)
        relay_sequence_add_credit(q, tokens);
}

static void fail_late(relay_scheduler *s, relay_sequence *q) {
    relay_event ev = {.kind = RELAY_EVENT_FAILED, .step = s->step + 1, .code = RELAY_DEADLINE_EXCEEDED};
    snprintf(ev.message, sizeof ev.message,
             "the deadline passed while the request was %s, after %u of at most %u tokens",
             q->state == RELAY_SEQUENCE_RUNNING ? "running" : "waiting", relay_sequence_output(q),
             q->request->max_new_tokens);
    relay_scheduler_fail(s, q, &ev);
}

// Ends those of `l` that are late; gives the earliest time at which one of the others will be.
static relay_mono_us expire_list(relay_scheduler *s, relay_sequence_list *l, relay_mono_us now) {
    relay_mono_us next_expiry = RELAY_NEVER_US;
    for (relay_sequence *q = l->head, *next; q != NULL; q = next) {
        next = q->next;
        const relay_request *r = q->request;
        bool is_search = r->beams != NULL;
        relay_mono_us first = r->deadline < r->time_limit_at ? r->deadline : r->time_limit_at;
        if (now < first) {
            if (first < next_expiry) next_expiry = first;
        } else if (r->time_limit_at <= r->deadline && is_search && relay_scheduler_stop_search(s, q)) {
            // It is told in the steps to come, as far as there is credit; looked at again in each.
            next_expiry = now;
            if (l != &s->telling) next = l->head; // the other beams are gone
        } else if (r->time_limit_at <= r->deadline) {
            relay_scheduler_finish(s, q, RELAY_FINISH_TIME_LIMIT, 0, s->step + 1, now);
            if (is_search) next = l->head; // the other beams have ended with it
        } else {
            fail_late(s, q);
            next = l->head; // those that ended with it may have been the next
        }
    }
    return next_expiry;
}

void relay_scheduler_expire(relay_scheduler *s, relay_mono_us now) {
    if (now < s->next_expiry) return;
    relay_mono_us running = expire_list(s, &s->running, now);
    relay_mono_us waiting = expire_list(s, &s->waiting, now);
    relay_mono_us telling = expire_list(s, &s->telling, now);
    relay_mono_us leases = relay_leases_expire(s->leases, now);
    s->next_expiry = running < waiting ? running : waiting;
    if (telling < s->next_expiry) s->next_expiry = telling;
    if (leases < s->next_expiry) s->next_expiry = leases;
}

relay_mono_us relay_scheduler_next_expiry(const relay_scheduler *s) {
    return s->next_expiry;
}

void relay_scheduler_end_all(relay_scheduler *s, relay_mono_us now) {
    while (s->running.head != NULL)
        relay_scheduler_finish(s, s->running.head, RELAY_FINISH_DRAINED, 0, s->step + 1, now);
    while (s->telling.head != NULL)
        relay_scheduler_finish(s, s->telling.head, RELAY_FINISH_DRAINED, 0, s->step + 1, now);
    while (s->waiting.head != NULL)
        relay_scheduler_finish(s, s->waiting.head, RELAY_FINISH_DRAINED, 0, s->step + 1, now);
}
