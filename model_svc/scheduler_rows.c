// Who gets rows of a step, and how many.
//
// Those that decode get theirs first, in rank order. What the step's time leaves (pace.h) is for prompts: the first in
// rank gets a block's worth, so that somebody always gets on, and then the tenant that has been served least has the
// turn (tenants.h), of its sequences the first in rank, running or waiting alike.
#include "model_svc/scheduler_internal.h"

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

// Rows that `q` could be given yet; 0 also where it must wait until more may be scored.
static uint32_t chunk(const relay_scheduler *s, const relay_sequence *q) {
    uint32_t most = relay_min_u32(relay_sequence_pending(q), s->opts.prompt_chunk);
    uint32_t n = relay_min_u32(most - q->n_scheduled, s->budget);
    if (!relay_sequence_scores(q)) return n;
    uint32_t n_scored = relay_sequence_scored_rows(q, q->n_scheduled);
    if (relay_sequence_scored_rows(q, q->n_scheduled + n) - n_scored <= s->score_budget) return n;
    uint32_t first = q->n_scored - 1; // row that is scored: those before it were, before a preemption
    uint32_t n_before = first > q->n_computed ? first - q->n_computed : 0;
    return n_before + n_scored + s->score_budget - q->n_scheduled;
}

// As many of its pending rows as there is room for, at most `max_rows`. One is made room for where there is none. False
// where it gets none.
static bool schedule_running(relay_scheduler *s, relay_sequence *q, uint32_t max_rows) {
    uint32_t n_rows = relay_min_u32(chunk(s, q), max_rows), room;
    if (n_rows == 0) return false;
    while ((room = relay_scheduler_room_for(s, q)) == 0) {
        if (relay_leases_remove_oldest(s->leases)) continue;
        relay_sequence *victim = find_victim(s, q);
        if (victim == NULL) return false;
        relay_scheduler_preempt(s, victim);
    }
    relay_scheduler_grant(s, q, relay_min_u32(n_rows, room));
    return true;
}

static relay_sequence *last_paused(const relay_scheduler *s) {
    relay_sequence *q = s->running.tail;
    while (q != NULL && !relay_sequence_is_paused(q))
        q = q->prev;
    return q;
}

// Sees to it that `n_tokens` of `q`, which does not run yet, fit, at the cost of leases and of paused ones if need be:
// who is not served for want of credit must not keep out who could be. Does nothing where that is not enough.
static bool make_room(relay_scheduler *s, const relay_sequence *q, uint32_t n_tokens) {
    static const uint32_t none[RELAY_MAX_KV_GROUPS];
    uint32_t of_paused[RELAY_MAX_KV_GROUPS] = {0}; // at most: some may be shared with others
    for (const relay_sequence *p = s->running.head; p != NULL; p = p->next) {
        if (!relay_sequence_is_paused(p)) continue;
        for (uint32_t g = 0; g < s->opts.n_groups; g++)
            of_paused[g] += p->n_blocks - p->first_block[g];
    }
    while (!relay_scheduler_has_room(s, q, n_tokens, none) && relay_leases_remove_oldest(s->leases)) {
    }
    if (!relay_scheduler_has_room(s, q, n_tokens, of_paused)) return false;
    relay_sequence *paused;
    while (!relay_scheduler_has_room(s, q, n_tokens, none) && (paused = last_paused(s)) != NULL)
        relay_scheduler_preempt(s, paused);
    return relay_scheduler_has_room(s, q, n_tokens, none);
}

void relay_scheduler_emit_start(relay_scheduler *s, const relay_sequence *q) {
    relay_event ev = {.kind = RELAY_EVENT_STARTED, .step = s->step + 1};
    ev.cached_tokens = relay_min_u32(q->n_computed, q->request->n_prompt);
    relay_scheduler_emit(s, q, &ev);
}

static void admit(relay_scheduler *s, relay_sequence *q, relay_mono_us now) {
    relay_scheduler_leave_waiting(s, q);
    q->state = RELAY_SEQUENCE_RUNNING;
    q->had_its_turn = true;
    relay_sequence_list_insert(&s->running, q);
    s->cached_tokens += q->n_computed;
    if (q->lane == NULL) {
        relay_lane *lane = relay_scheduler_take_lane(s);
        if (q->request->beams != NULL) {
            q->n_promised = relay_beam_search_beams(q->request->beams) - 1;
            s->n_promised_lanes += q->n_promised;
        }
        relay_sequence_enter(q, lane, now);
        relay_scheduler_emit_start(s, q);
    }
    relay_scheduler_grant(s, q, relay_min_u32(chunk(s, q), relay_scheduler_room_for(s, q)));
}

// False where it does not fit.
static bool schedule_waiting(relay_scheduler *s, relay_sequence *q, relay_mono_us now) {
    relay_lane *lane = q->lane != NULL ? q->lane : s->free_lanes;
    relay_scheduler_attach(s, q, lane);
    // Who was preempted comes back when all it has fits: it would else be preempted again half-way.
    if (!make_room(s, q, q->n_preemptions > 0 ? q->n_tokens : q->n_computed + chunk(s, q))) {
        relay_scheduler_detach(s, q, lane);
        return false;
    }
    admit(s, q, now);
    return true;
}

// ---- In which order

// Among those of one priority that want rows of a prompt: who has been served least, then rank.
static bool comes_before(const relay_scheduler *s, const relay_sequence *a, const relay_sequence *b) {
    if (b == NULL) return true;
    if (a->tenant != b->tenant) {
        uint64_t time_a = relay_tenants_time(s->tenants, a->tenant), time_b = relay_tenants_time(s->tenants, b->tenant);
        if (time_a != time_b) return time_a < time_b;
    }
    return relay_sequence_ranks_before(a, b);
}

static bool is_prompt(const relay_sequence *q) {
    return relay_sequence_pending(q) > 1 && !relay_sequence_is_paused(q);
}

// Neither credit nor a lane nor a prompt that another one computes comes from letting others wait: who lacks one is
// passed over. A preempted one has its lane, and may be the one that frees others.
static bool may_be_admitted(const relay_scheduler *s, const relay_sequence *q) {
    if (relay_sequence_is_paused(q) || q->leader != NULL || chunk(s, q) == 0) return false;
    return q->lane != NULL || s->n_free_lanes > s->n_promised_lanes;
}

// A beam search needs lanes for all its beams at once: with some of them it would wait for the others for ever.
static bool has_lanes(const relay_scheduler *s, const relay_sequence *q) {
    uint32_t need = q->request->beams != NULL ? relay_beam_search_beams(q->request->beams) : 1;
    return q->lane != NULL || s->n_free_lanes - s->n_promised_lanes >= need;
}

// Who is admitted yet in this step: all, those that have a lane, or nobody.
typedef enum admission { ADMITS_ALL, ADMITS_LANES, ADMITS_NONE } admission;

static bool wants_more(const relay_scheduler *s, const relay_sequence *q, admission admits) {
    if (q->state == RELAY_SEQUENCE_RUNNING) return is_prompt(q) && !q->had_its_turn && chunk(s, q) > 0;
    return admits != ADMITS_NONE && (admits == ADMITS_ALL || q->lane != NULL) && may_be_admitted(s, q);
}

// The next to get rows of a prompt; NULL where nobody is left that could get more. Whose rank is first has its priority
// served; which of that priority it is, is between the tenants.
static relay_sequence *find_next(const relay_scheduler *s, admission admits) {
    const relay_sequence_list *lists[] = {&s->running, &s->waiting};
    const relay_sequence *top = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        const relay_sequence *q = lists[i]->head;
        while (q != NULL && !wants_more(s, q, admits))
            q = q->next;
        if (q != NULL && (top == NULL || relay_sequence_ranks_before(q, top))) top = q;
    }
    if (top == NULL) return NULL;
    relay_sequence *first = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        for (relay_sequence *q = lists[i]->head; q != NULL; q = q->next) {
            if (q->request->priority != top->request->priority || !wants_more(s, q, admits)) continue;
            if (comes_before(s, q, first)) first = q;
        }
    }
    return first;
}

void relay_scheduler_grant_rows(relay_scheduler *s, relay_mono_us now) {
    s->budget = s->opts.token_budget;
    s->score_budget = RELAY_MAX_SCORED_ROWS;
    // Whom a grant preempts is below the one that asks or paused, so `next` is read after it.
    for (relay_sequence *q = s->running.head; q != NULL; q = q->next) {
        q->had_its_turn = false;
        if (relay_sequence_pending(q) == 1 && !relay_sequence_is_paused(q)) schedule_running(s, q, 1);
    }
    uint32_t n_decode = s->opts.token_budget - s->budget;
    if (n_decode > 0) s->budget = relay_min_u32(s->budget, relay_pace_prompt_rows(&s->pace, n_decode));
    // Whatever the others' turn, the first of the prompts gets on.
    relay_sequence *first = s->running.head;
    while (first != NULL && !is_prompt(first))
        first = first->next;
    if (first != NULL) schedule_running(s, first, RELAY_PACE_MIN_ROWS);
    admission admits = ADMITS_ALL;
    for (relay_sequence *q; s->budget > 0 && (q = find_next(s, admits)) != NULL;) {
        if (q->state == RELAY_SEQUENCE_RUNNING) {
            q->had_its_turn = !schedule_running(s, q, UINT32_MAX) || chunk(s, q) > 0;
        } else if (!has_lanes(s, q)) {
            admits = ADMITS_LANES; // those who come after it must not take the lanes that it waits for
        } else if (!schedule_waiting(s, q, now)) {
            admits =
                ADMITS_NONE; // who does not fit is waited for, or small requests would keep a large one out for ever
        }
    }
}
