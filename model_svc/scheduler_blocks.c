// Which blocks a sequence holds: what is found of it in the prefix index, what its rows need, what its window leaves.
#include <string.h>

#include "model_svc/scheduler_internal.h"

// The first block that the row at `position` sees.
static uint32_t first_seen_block(uint32_t window, uint32_t position) {
    return window != 0 && position >= window ? (position - window + 1) / RELAY_BLOCK_TOKENS : 0;
}

static void copy_block_ids(const relay_sequence *q, uint32_t block, uint32_t ids[RELAY_BLOCK_TOKENS]) {
    for (uint32_t i = 0; i < RELAY_BLOCK_TOKENS; i++)
        ids[i] = relay_sequence_token(q, block * RELAY_BLOCK_TOKENS + i);
}

// ---- The prefix

// Writes the entries' blocks into the tables, as far as the index knows `q`'s ids, and returns behind how many blocks
// `q` can go on: there every group has what the next row sees. The last id is never found: its row makes the logits.
static uint32_t find_prefix(const relay_scheduler *s, const relay_sequence *q, relay_lane *lane) {
    uint32_t max_blocks = (q->n_tokens - 1) / RELAY_BLOCK_TOKENS, n_found = 0;
    uint32_t first_known[RELAY_MAX_KV_GROUPS] = {0}; // of the blocks known without a gap up to here
    uint32_t entry = q->entry;
    for (uint32_t b = 0; b < max_blocks; b++) {
        uint32_t ids[RELAY_BLOCK_TOKENS];
        copy_block_ids(q, b, ids);
        entry = relay_prefix_index_find(s->index, entry, ids);
        if (entry == RELAY_NO_ENTRY) break;
        bool is_complete = true;
        for (uint32_t g = 0; g < s->opts.n_groups; g++) {
            lane->tables[g][b] = relay_prefix_index_block(s->index, entry, g);
            if (lane->tables[g][b] == RELAY_NO_BLOCK) first_known[g] = b + 1;
            if (first_known[g] > first_seen_block(s->opts.window[g], (b + 1) * RELAY_BLOCK_TOKENS)) is_complete = false;
        }
        if (is_complete) n_found = b + 1;
    }
    return n_found;
}

static void hold_prefix(relay_scheduler *s, relay_sequence *q, relay_lane *lane, uint32_t n_blocks) {
    q->n_blocks = q->n_stored = n_blocks;
    q->n_computed = n_blocks * RELAY_BLOCK_TOKENS;
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        uint32_t *table = lane->tables[g];
        q->first_block[g] = first_seen_block(s->opts.window[g], q->n_computed);
        memset(table, 0, q->first_block[g] * sizeof table[0]);
        for (uint32_t b = q->first_block[g]; b < n_blocks; b++)
            relay_block_pool_hold(s->pools[g], table[b]);
    }
    uint32_t entry = q->entry;
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t ids[RELAY_BLOCK_TOKENS];
        copy_block_ids(q, b, ids);
        entry = relay_prefix_index_find(s->index, entry, ids);
    }
    relay_prefix_index_use(s->index, entry);
    relay_prefix_index_leave(s->index, q->entry);
    q->entry = entry;
}

static void forget_entry(relay_scheduler *s, relay_sequence *q) {
    relay_prefix_index_leave(s->index, q->entry);
    q->entry = RELAY_NO_ENTRY;
}

void relay_scheduler_attach(relay_scheduler *s, relay_sequence *q, relay_lane *lane) {
    RELAY_ASSERT(q->n_blocks == 0 && q->n_computed == 0 && q->entry == RELAY_NO_ENTRY);
    const relay_request *r = q->request;
    if (r->bypass_prefix_cache && r->do_not_store) return;
    q->entry = relay_prefix_index_enter(s->index, r->salt);
    if (q->entry == RELAY_NO_ENTRY) return;
    // What is found has no logits to score.
    if (!r->bypass_prefix_cache && !relay_sequence_scores(q)) {
        uint32_t n_found = find_prefix(s, q, lane);
        if (n_found > 0) hold_prefix(s, q, lane, n_found);
    }
    if (r->do_not_store) forget_entry(s, q);
}

void relay_scheduler_detach(relay_scheduler *s, relay_sequence *q, relay_lane *lane) {
    relay_scheduler_end_copies(s, q);
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        for (uint32_t b = q->n_blocks; b-- > q->first_block[g];)
            relay_block_pool_release(s->pools[g], lane->tables[g][b]);
        q->first_block[g] = 0;
    }
    q->n_blocks = q->n_stored = q->n_computed = 0;
    forget_entry(s, q);
}

// ---- Rows

uint32_t relay_scheduler_shared_block(const relay_scheduler *s, const relay_sequence *q, uint32_t g) {
    if (q->n_computed % RELAY_BLOCK_TOKENS == 0) return RELAY_NO_BLOCK;
    uint32_t last = q->lane->tables[g][q->n_blocks - 1];
    return relay_block_pool_holders(s->pools[g], last) > 1 ? last : RELAY_NO_BLOCK;
}

uint32_t relay_scheduler_room_for(const relay_scheduler *s, const relay_sequence *q) {
    uint32_t n = UINT32_MAX;
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        uint32_t available = relay_block_pool_available(s->pools[g]);
        if (relay_scheduler_shared_block(s, q, g) != RELAY_NO_BLOCK) {
            if (available == 0) return 0;
            available--;
        }
        n = relay_min_u32(n, available);
    }
    uint64_t slots = ((uint64_t)q->n_blocks + n) * RELAY_BLOCK_TOKENS - q->n_computed - q->n_scheduled;
    return slots < UINT32_MAX ? (uint32_t)slots : UINT32_MAX;
}

bool relay_scheduler_has_room(const relay_scheduler *s, const relay_sequence *q, uint32_t n_tokens,
                              const uint32_t *extra) {
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        uint32_t need = relay_blocks_for(n_tokens) - q->n_blocks, window = s->opts.window[g];
        // With a window the chunk may be cut to what there is: blocks come back as it goes on.
        uint32_t held = q->n_blocks - q->first_block[g];
        if (window != 0) need = relay_min_u32(need, relay_window_blocks(window) - held);
        if ((uint64_t)relay_block_pool_available(s->pools[g]) + extra[g] < need) return false;
    }
    return true;
}

void relay_scheduler_grant(relay_scheduler *s, relay_sequence *q, uint32_t n_rows) {
    uint32_t n_blocks = relay_blocks_for(q->n_computed + q->n_scheduled + n_rows);
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        uint32_t shared = relay_scheduler_shared_block(s, q, g), *table = q->lane->tables[g];
        if (shared != RELAY_NO_BLOCK) {
            // Held to the end of the step: nobody may get it before it is copied.
            q->copy_from[g] = shared;
            table[q->n_blocks - 1] = relay_prefix_index_take(s->index, g);
        }
        for (uint32_t b = q->n_blocks; b < n_blocks; b++)
            table[b] = relay_prefix_index_take(s->index, g);
    }
    q->n_blocks = n_blocks;
    s->score_budget += relay_sequence_scored_rows(q, q->n_scheduled);
    q->n_scheduled += n_rows;
    s->score_budget -= relay_sequence_scored_rows(q, q->n_scheduled);
    s->budget -= n_rows;
}

void relay_scheduler_preempt(relay_scheduler *s, relay_sequence *q) {
    s->score_budget += relay_sequence_scored_rows(q, q->n_scheduled);
    relay_scheduler_detach(s, q, q->lane);
    s->budget += q->n_scheduled;
    q->n_scheduled = 0;
    q->n_preemptions++;
    s->preemptions++;
    relay_sequence_list_remove(&s->running, q);
    relay_scheduler_enter_waiting(s, q);
}

// ---- After a step

void relay_scheduler_end_copies(relay_scheduler *s, relay_sequence *q) {
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        if (q->copy_from[g] != RELAY_NO_BLOCK) relay_block_pool_release(s->pools[g], q->copy_from[g]);
        q->copy_from[g] = RELAY_NO_BLOCK;
    }
}

void relay_scheduler_share(relay_scheduler *s, const relay_sequence *from, relay_sequence *to) {
    RELAY_ASSERT(to->n_blocks == 0 && to->entry == RELAY_NO_ENTRY);
    to->n_blocks = from->n_blocks;
    to->n_computed = from->n_computed;
    to->n_stored = from->n_stored;
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        to->first_block[g] = from->first_block[g];
        memcpy(to->lane->tables[g], from->lane->tables[g], from->n_blocks * sizeof to->lane->tables[g][0]);
        for (uint32_t b = to->first_block[g]; b < to->n_blocks; b++)
            relay_block_pool_hold(s->pools[g], to->lane->tables[g][b]);
    }
    if (from->entry != RELAY_NO_ENTRY) relay_prefix_index_use(s->index, from->entry);
    to->entry = from->entry;
    // Before `from` writes on: in the next step, whoever is in it.
    RELAY_ASSERT(s->n_tail_copies < 2 * s->opts.max_running);
    s->tail_copies[s->n_tail_copies++] =
        (relay_kv_block_copy){(uint32_t)(from->lane - s->lanes), (uint32_t)(to->lane - s->lanes)};
}

static void store_full_blocks(relay_scheduler *s, relay_sequence *q) {
    while (q->entry != RELAY_NO_ENTRY && (q->n_stored + 1) * RELAY_BLOCK_TOKENS <= q->n_computed) {
        uint32_t b = q->n_stored, ids[RELAY_BLOCK_TOKENS], blocks[RELAY_MAX_KV_GROUPS];
        copy_block_ids(q, b, ids);
        for (uint32_t g = 0; g < s->opts.n_groups; g++)
            blocks[g] = q->lane->tables[g][b];
        q->entry = relay_prefix_index_store(s->index, q->entry, ids, blocks);
        for (uint32_t g = 0; g < s->opts.n_groups; g++)
            q->lane->tables[g][b] = blocks[g];
        q->n_stored++;
    }
}

static void leave_window(relay_scheduler *s, relay_sequence *q) {
    for (uint32_t g = 0; g < s->opts.n_groups; g++) {
        uint32_t first = first_seen_block(s->opts.window[g], q->n_computed);
        for (; q->first_block[g] < first; q->first_block[g]++) {
            uint32_t *block = &q->lane->tables[g][q->first_block[g]];
            relay_block_pool_release(s->pools[g], *block);
            *block = 0; // a table holds ids of blocks throughout; nobody reads this one
        }
    }
}

void relay_scheduler_settle(relay_scheduler *s, relay_sequence *q) {
    relay_scheduler_end_copies(s, q);
    store_full_blocks(s, q);
    leave_window(s, q);
}
