// What others may know of the scheduler, and what must always be true of it.
#include <stdlib.h>

#include "model_svc/scheduler_internal.h"

void relay_scheduler_get_state(const relay_scheduler *s, relay_scheduler_state *out) {
    *out = (relay_scheduler_state){
        .step = s->step,
        .n_waiting = s->waiting.n,
        .n_running = s->running.n + s->telling.n,
        .waiting_tokens = s->waiting_tokens,
        .prefill_tokens = s->prefill_tokens,
        .decode_tokens = s->decode_tokens,
        .preemptions = s->preemptions,
        .n_leases = relay_leases_count(s->leases),
        .cached_tokens = s->cached_tokens,
    };
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        uint32_t total = relay_block_pool_total(s->pools[g]);
        out->total_blocks += total;
        out->used_blocks += total - relay_block_pool_available(s->pools[g]);
        out->cached_blocks += relay_block_pool_cached(s->pools[g]);
        out->group_touched_blocks[g] = relay_block_pool_touched(s->pools[g]);
    }
    for (const relay_sequence *q = s->running.head; q != NULL; q = q->next) {
        uint64_t n_unused = (uint64_t)q->n_blocks * RELAY_BLOCK_TOKENS - q->n_computed - q->n_scheduled;
        out->unused_slots += n_unused * s->opts.n_groups;
    }
}

const relay_sequence *relay_scheduler_sequence(const relay_scheduler *s, uint32_t id) {
    return &s->sequences[id];
}

void relay_scheduler_preempt_request(relay_scheduler *s, uint32_t id) {
    relay_sequence *q = &s->sequences[id];
    if (q->state == RELAY_SEQUENCE_RUNNING) relay_scheduler_preempt(s, q);
}

static const char *check_list(const relay_sequence_list *l, relay_sequence_state state) {
    uint32_t n = 0;
    const relay_sequence *prev = NULL;
    for (const relay_sequence *q = l->head; q != NULL; prev = q, q = q->next) {
        if (q->prev != prev) return "a list's links do not agree";
        if (prev != NULL && relay_sequence_ranks_before(q, prev)) return "a list is not in rank order";
        if (q->state != state) return "a sequence is in the list of another state";
        if (++n > l->n) return "a list is longer than its count";
    }
    if (l->tail != prev) return "a list's tail is not its last";
    return n == l->n ? NULL : "a list is shorter than its count";
}

static const char *check_sequence(const relay_scheduler *s, const relay_sequence *q) {
    if (q->state == RELAY_SEQUENCE_NONE) {
        if (q->lane != NULL || q->n_blocks != 0) return "a free place holds a lane or blocks";
        return NULL;
    }
    if (q->n_scheduled != 0) return "rows are scheduled between steps";
    const relay_sequence *a = s->answers[q->id];
    while (a != NULL && a != q)
        a = a->sibling;
    if (a == NULL) return "an answer is not among those of its request";
    if (q->n_tokens >= s->max_tokens && q->state != RELAY_SEQUENCE_TELLING)
        return "a sequence goes on though it is full";
    if (q->state == RELAY_SEQUENCE_WAITING) {
        if (q->n_blocks != 0 || q->n_computed != 0 || q->entry != RELAY_NO_ENTRY)
            return "a waiting sequence holds blocks";
        if ((q->lane != NULL) != (q->n_preemptions > 0)) return "a waiting sequence has a lane only if preempted";
        return NULL;
    }
    if (q->state == RELAY_SEQUENCE_TELLING)
        return q->lane == NULL && q->n_blocks == 0 ? NULL : "a sequence that tells holds a lane or blocks";
    if (q->lane == NULL) return "a running sequence has no lane";
    if (q->n_computed == 0 || q->n_computed > q->n_tokens || (q->n_computed == q->n_tokens && !q->waits_for_beams))
        return "a running sequence has nothing done or nothing to do";
    if (q->n_blocks != relay_blocks_for(q->n_computed)) return "a sequence holds blocks that it does not need";
    if (q->entry != RELAY_NO_ENTRY && q->n_stored != q->n_computed / RELAY_BLOCK_TOKENS)
        return "a full block is not in the index";
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        uint32_t window = s->opts.window[g];
        if (window == 0 ? q->first_block[g] != 0 : q->n_blocks - q->first_block[g] > relay_window_blocks(window))
            return "a sequence holds blocks that have left the window";
    }
    return NULL;
}

// Blocks and entries have as many holders and users as there are sequences and leases that hold them.
static const char *check_holds(const relay_scheduler *s) {
    uint32_t *holders[RELAY_MAX_KV_GROUPS] = {0};
    uint32_t *users = relay_calloc(relay_scheduler_max_entries(s), sizeof users[0]);
    for (uint32_t g = 0; g < s->opts.n_groups; g++)
        holders[g] = relay_calloc(s->opts.n_blocks[g], sizeof holders[g][0]);
    for (const relay_sequence *q = s->running.head; q != NULL; q = q->next) {
        if (q->entry != RELAY_NO_ENTRY) users[q->entry]++;
        for (uint32_t g = 0; g < s->opts.n_groups; g++) {
            for (uint32_t i = q->first_block[g]; i < q->n_blocks; i++)
                holders[g][q->lane->tables[g][i]]++;
        }
    }
    relay_leases_count_holds(s->leases, holders, users);
    const char *why = relay_prefix_index_check(s->index, users);
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        if (why == NULL) why = relay_block_pool_check(s->pools[g], holders[g]);
        free(holders[g]);
    }
    free(users);
    return why;
}

const char *relay_scheduler_check(const relay_scheduler *s) {
    const char *why = check_list(&s->waiting, RELAY_SEQUENCE_WAITING);
    if (why == NULL) why = check_list(&s->running, RELAY_SEQUENCE_RUNNING);
    if (why == NULL) why = check_list(&s->telling, RELAY_SEQUENCE_TELLING);
    uint32_t n_live = 0, n_lanes = 0;
    uint64_t waiting_tokens = 0;
    for (uint32_t i = 0; why == NULL && i < 2 * s->opts.max_sequences; i++) {
        const relay_sequence *q = &s->sequences[i];
        why = check_sequence(s, q);
        if (q->state != RELAY_SEQUENCE_NONE) n_live++;
        if (q->state == RELAY_SEQUENCE_WAITING) waiting_tokens += q->n_tokens;
        if (q->lane != NULL) n_lanes++;
    }
    if (why != NULL) return why;
    if (n_live != s->waiting.n + s->running.n + s->telling.n) return "a sequence is in no list";
    if (waiting_tokens != s->waiting_tokens) return "the count of waiting ids is wrong";
    for (const relay_lane *l = s->free_lanes; l != NULL; l = l->next) {
        if (++n_lanes > s->opts.max_running) break;
        if (l->counts.n_items != 0 || l->repeats.n != 0) return "a free lane is not clean";
    }
    if (n_lanes != s->opts.max_running) return "a lane is neither free nor held once";
    return check_holds(s);
}
