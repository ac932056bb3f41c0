// Beam search (beam_search.h) over sequences: each beam is an answer of the request, which waits when it has offered
// its continuations until all have; then each goes on as itself or as another one, whose blocks it gets.
//
// A beam may be preempted like anybody, waiting or not: what it has offered is kept. All beams have a lane from the
// begin, so that none waits for one that others hold. In the end the first answer tells the best hypothesis, some ids a
// step.
#include "model_svc/scheduler_internal.h"

enum { MAX_TOLD = 64 }; // ids a step, of all that tell

static bool holds(const uint32_t *ids, uint32_t n, uint32_t id) {
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

// `to` goes on as `from`.
static void follow(relay_scheduler *s, const relay_sequence *from, relay_sequence *to) {
    if (to->state == RELAY_SEQUENCE_RUNNING) relay_scheduler_detach(s, to, to->lane);
    if (from->state == RELAY_SEQUENCE_RUNNING) {
        if (to->state == RELAY_SEQUENCE_WAITING) {
            relay_scheduler_leave_waiting(s, to);
            to->state = RELAY_SEQUENCE_RUNNING;
            relay_sequence_list_insert(&s->running, to);
        }
        relay_scheduler_share(s, from, to);
    } else if (to->state == RELAY_SEQUENCE_RUNNING) {
        to->n_preemptions++;
        relay_sequence_list_remove(&s->running, to);
        relay_scheduler_enter_waiting(s, to);
    }
}

static void go_on(relay_scheduler *s, const relay_request *r, relay_sequence *const *beams, const uint32_t *from) {
    uint32_t n_beams = relay_beam_search_beams(r->beams);
    for (uint32_t i = 0; i < n_beams; i++) {
        if (from[i] != i) follow(s, beams[from[i]], beams[i]);
    }
    for (uint32_t i = 0; i < n_beams; i++) {
        relay_sequence *q = beams[i];
        relay_beam_search_read(r->beams, i, q->lane->output);
        q->waits_for_beams = false;
        if (q->state == RELAY_SEQUENCE_WAITING) s->waiting_tokens++;
        q->n_tokens++;
        s->decode_tokens++;
    }
}

// The first answer is all that is left, and has the best hypothesis to tell.
static void begin_telling(relay_scheduler *s, relay_sequence *q) {
    relay_scheduler_drop_others(s, q);
    relay_scheduler_let_go(s, q);
    bool has_ended;
    double score;
    uint32_t n;
    relay_beam_search_best(q->request->beams, &n, &has_ended, &score);
    q->n_tokens = q->request->n_prompt + n;
    q->n_told = 0;
    q->waits_for_beams = false;
    q->state = RELAY_SEQUENCE_TELLING;
    relay_sequence_list_insert(&s->telling, q);
}

void relay_scheduler_take_beam(relay_scheduler *s, relay_sequence *q, const relay_sample_result *result) {
    const relay_request *r = q->request;
    relay_beam_candidate candidates[RELAY_BEAM_CANDIDATES];
    for (uint32_t i = 0; i < RELAY_BEAM_CANDIDATES; i++) {
        uint32_t id = result->top_ids[i];
        bool ends = holds(r->eos_ids, r->n_eos_ids, id) || holds(r->stop_ids, r->n_stop_ids, id);
        candidates[i] = (relay_beam_candidate){.token_id = id, .logprob = result->top_logprobs[i], .ends = ends};
    }
    q->waits_for_beams = true;
    if (!relay_beam_search_offer(r->beams, q->index, candidates)) return;
    relay_sequence *beams[RELAY_MAX_BEAMS];
    for (relay_sequence *a = s->answers[q->id]; a != NULL; a = a->sibling)
        beams[a->index] = a;
    bool is_last = relay_sequence_output(q) + 1 >= r->max_new_tokens || q->n_tokens + 1 >= s->max_tokens;
    uint32_t from[RELAY_MAX_BEAMS], token_ids[RELAY_MAX_BEAMS];
    if (relay_beam_search_choose(r->beams, is_last, from, token_ids)) {
        begin_telling(s, beams[0]);
    } else {
        go_on(s, r, beams, from);
    }
}

static bool may_tell(const relay_sequence *q) {
    return q->credit == RELAY_UNLIMITED_CREDIT || q->n_told < q->credit;
}

bool relay_scheduler_stop_search(relay_scheduler *s, relay_sequence *q) {
    relay_sequence *first = s->answers[q->id];
    if (q->state == RELAY_SEQUENCE_TELLING) return may_tell(q);
    if (!relay_beam_search_stop(q->request->beams)) return false;
    begin_telling(s, first);
    first->was_stopped = true;
    return may_tell(first);
}

// ---- Telling

static void end_telling(relay_scheduler *s, relay_sequence *q, const uint32_t *ids, uint32_t n, bool has_ended,
                        relay_mono_us now) {
    const relay_request *r = q->request;
    uint32_t last = ids[n - 1];
    if (q->was_stopped) {
        relay_scheduler_finish(s, q, RELAY_FINISH_TIME_LIMIT, 0, s->step + 1, now);
    } else if (has_ended) {
        bool is_eos = holds(r->eos_ids, r->n_eos_ids, last);
        relay_scheduler_finish(s, q, is_eos ? RELAY_FINISH_EOS : RELAY_FINISH_STOP_TOKEN, last, s->step + 1, now);
    } else {
        bool is_cut = n >= r->max_new_tokens;
        relay_scheduler_finish(s, q, is_cut ? RELAY_FINISH_MAX_NEW_TOKENS : RELAY_FINISH_CONTEXT_FULL, 0, s->step + 1,
                               now);
    }
}

void relay_scheduler_tell(relay_scheduler *s, relay_mono_us now) {
    uint32_t left = MAX_TOLD;
    for (relay_sequence *q = s->telling.head, *next; q != NULL && left > 0; q = next) {
        next = q->next;
        bool has_ended;
        double score;
        uint32_t n;
        const uint32_t *ids = relay_beam_search_best(q->request->beams, &n, &has_ended, &score);
        for (; q->n_told < n && left > 0 && may_tell(q); left--) {
            relay_event ev = {.kind = RELAY_EVENT_TOKEN, .step = s->step + 1};
            ev.sample = (relay_sample_result){.token_id = ids[q->n_told++], .is_finite = true};
            relay_scheduler_emit(s, q, &ev);
            if (q->first_token_at == RELAY_NEVER_US) q->first_token_at = now;
            q->last_token_at = now;
        }
        if (q->n_told == n) end_telling(s, q, ids, n, has_ended, now);
    }
}

bool relay_scheduler_has_more(const relay_scheduler *s) {
    for (const relay_sequence *q = s->telling.head; q != NULL; q = q->next) {
        if (may_tell(q)) return true;
    }
    return false;
}
