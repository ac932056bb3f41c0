#include "tests/model_svc/fake_model.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static bool is_in(const uint32_t *ids, uint32_t n, uint32_t id) {
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

static uint32_t draw(uint64_t hash, uint32_t position, uint64_t seed, const uint32_t *masked, uint32_t n_masked) {
    uint64_t x = mix(mix(hash, seed), position);
    while (x % FAKE_VOCAB == FAKE_POISON || is_in(masked, n_masked, (uint32_t)(x % FAKE_VOCAB)))
        x = mix(x, 1);
    return (uint32_t)(x % FAKE_VOCAB);
}

static void tops_of(uint64_t hash, uint32_t *top_ids, float *top_logprobs) {
    float logprob = 0;
    for (uint32_t k = 0; k < FAKE_TOPS; k++) {
        uint64_t x = mix(hash, k);
        logprob -= 0.02f + (float)(x % 1000) / 2000;
        top_ids[k] = (uint32_t)(hash % 40 + k * 47) % FAKE_POISON;
        top_logprobs[k] = logprob;
    }
}

void fake_tops(const uint32_t *ids, uint32_t n, uint32_t top_ids[FAKE_TOPS], float top_logprobs[FAKE_TOPS]) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < n; i++)
        hash = mix(hash, ids[i]);
    tops_of(hash, top_ids, top_logprobs);
}

uint32_t fake_next(const uint32_t *ids, uint32_t n, uint64_t seed, const uint32_t *masked, uint32_t n_masked) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < n; i++)
        hash = mix(hash, ids[i]);
    return draw(hash, n, seed, masked, n_masked);
}

void fake_continue(uint32_t *ids, uint32_t n, uint32_t n_more, uint64_t seed) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < n; i++)
        hash = mix(hash, ids[i]);
    for (uint32_t i = n; i < n + n_more; i++) {
        ids[i] = draw(hash, i, seed, NULL, 0);
        hash = mix(hash, ids[i]);
    }
}

void fake_model_init(fake_model *m, uint32_t n_groups, const uint32_t *n_blocks) {
    *m = (fake_model){.n_groups = n_groups};
    for (uint32_t g = 0; g < n_groups; g++) {
        m->n_blocks[g] = n_blocks[g];
        m->slots[g] = relay_calloc((uint64_t)n_blocks[g] * RELAY_BLOCK_TOKENS, sizeof(fake_slot));
    }
}

void fake_model_fini(fake_model *m) {
    for (uint32_t g = 0; g < m->n_groups; g++)
        free(m->slots[g]);
    free(m->counts);
}

static void expect(fake_model *m, bool holds, const char *what) {
    if (!holds && m->error == NULL) m->error = what;
}

// The slot of `position` of sequence `s` of the step, through its block table.
static fake_slot *slot_at(fake_model *m, uint32_t g, uint32_t s, uint32_t position) {
    const relay_step *step = m->step;
    uint32_t begin = relay_step_table_begin(step, g)[s];
    uint32_t end = s + 1 < step->n_sequences ? relay_step_table_begin(step, g)[s + 1] : step->n_block_ids[g];
    uint32_t at = begin + position / RELAY_BLOCK_TOKENS;
    expect(m, at < end && end <= step->limits.max_block_ids, "a position lies past its block table");
    uint32_t block = relay_step_block_ids(step, g)[at];
    expect(m, block < m->n_blocks[g], "a block id is past the pool");
    return &m->slots[g][block * RELAY_BLOCK_TOKENS + position % RELAY_BLOCK_TOKENS];
}

static void copy_blocks(fake_model *m, uint32_t g) {
    for (uint32_t i = 0; i < m->step->n_copies[g]; i++) {
        const relay_kv_block_copy *c = &relay_step_copies(m->step, g)[i];
        expect(m, c->from < m->n_blocks[g] && c->to < m->n_blocks[g], "a copied block's id is past the pool");
        memcpy(m->slots[g] + c->to * RELAY_BLOCK_TOKENS, m->slots[g] + c->from * RELAY_BLOCK_TOKENS,
               RELAY_BLOCK_TOKENS * sizeof(fake_slot));
        for (uint32_t j = 0; j < m->step->n_copies[g]; j++) {
            const relay_kv_block_copy *other = &relay_step_copies(m->step, g)[j];
            expect(m, c->to != other->from && (i == j || c->to != other->to),
                   "a block that is copied to is in another copy");
        }
    }
    m->n_copies += m->step->n_copies[g];
}

static void compute_row(fake_model *m, uint32_t row) {
    const relay_step *step = m->step;
    uint32_t s = relay_step_row_sequence(step)[row], position = relay_step_positions(step)[row];
    uint32_t token_id = relay_step_token_ids(step)[row];
    expect(m, s < step->n_sequences, "a row's sequence is past the step's");
    if (row > 0) {
        uint32_t before = relay_step_row_sequence(step)[row - 1];
        expect(m, s == before || s == before + 1, "rows of one sequence are not adjacent and ascending");
        if (s == before) {
            expect(m, position == relay_step_positions(step)[row - 1] + 1, "positions of a sequence do not ascend");
        }
    } else {
        expect(m, s == 0, "the first row is not of the first sequence");
    }
    for (uint32_t g = 0; g < m->n_groups; g++) {
        uint64_t hash = 0;
        if (position > 0) {
            const fake_slot *before = slot_at(m, g, s, position - 1);
            expect(m, before->position == position - 1, "a row's predecessor is not in the cache");
            hash = before->hash;
        }
        *slot_at(m, g, s, position) =
            (fake_slot){.token_id = token_id, .position = position, .hash = mix(hash, token_id)};
    }
}

// The counts of a sampled row are those of its history, which `m->seen` holds.
static void check_counts(fake_model *m, const relay_sample_params *p) {
    if (p->n_counts == 0) return;
    expect(m, p->counts_begin + p->n_counts <= m->n_counts, "counts lie past the resident ones");
    const relay_token_count *counts = m->counts + p->counts_begin;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_counts; i++) {
        n += counts[i].in_prompt + counts[i].in_output;
        if (p->repetition_penalty == 1.0f) {
            expect(m, counts[i].in_output <= m->seen[counts[i].token_id], "an id is counted too often in the output");
        } else {
            expect(m, counts[i].in_prompt + counts[i].in_output == m->seen[counts[i].token_id],
                   "an id's count is not how often it occurs");
        }
    }
    if (p->repetition_penalty != 1.0f) expect(m, n == p->position, "not every id is counted");
}

static void sample_row(fake_model *m, uint32_t i, relay_sample_result *result) {
    const relay_step *step = m->step;
    const relay_sample_params *p = &relay_step_sample_params(step)[i];
    uint32_t row = relay_step_sample_rows(step)[i];
    expect(m, row < step->n_rows && (i == 0 || row >= relay_step_sample_rows(step)[i - 1]),
           "sample rows do not ascend");
    uint32_t s = relay_step_row_sequence(step)[row], position = relay_step_positions(step)[row];
    bool is_last = row + 1 == step->n_rows || relay_step_row_sequence(step)[row + 1] != s;
    expect(m, is_last || p->is_score_only, "a row is drawn from in mid-chunk");
    if (p->is_score_only && !is_last) {
        expect(m, p->scored_id == relay_step_token_ids(step)[row + 1], "the id that is scored is not the next one");
    }
    expect(m, p->position == position + 1, "the draw's position is not that of the id drawn");
    uint64_t hash = 0;
    bool sees_all = false;
    for (uint32_t g = 0; g < m->n_groups; g++) {
        uint32_t begin = m->window[g] != 0 && position >= m->window[g] ? position - m->window[g] + 1 : 0;
        bool counts = m->window[g] == 0 && !sees_all;
        if (counts) memset(m->seen, 0, sizeof m->seen);
        for (uint32_t k = begin; k <= position; k++) {
            const fake_slot *slot = slot_at(m, g, s, k);
            hash = k == begin && k > 0 ? slot->hash : mix(k == 0 ? 0 : hash, slot->token_id);
            expect(m, slot->position == k && slot->hash == hash, "a row does not find its own history");
            if (counts) m->seen[slot->token_id]++;
        }
        sees_all = sees_all || counts;
    }
    if (sees_all) check_counts(m, p);
    expect(m, p->masked_begin + p->n_masked <= step->n_masked, "masked ids lie past the step's");
    *result = (relay_sample_result){
        .token_id = draw(hash, p->position, fake_seed(p->seed, p->sequence_index),
                         relay_step_masked(step) + p->masked_begin, p->n_masked),
        .is_finite = !sees_all || m->seen[FAKE_POISON] == 0,
        .n_top = p->n_top,
    };
    if (p->is_score_only) result->token_id = p->scored_id;
    if (p->n_top == FAKE_TOPS) {
        tops_of(hash, result->top_ids, result->top_logprobs);
        return;
    }
    for (uint32_t k = 0; k < p->n_top; k++) {
        result->top_ids[k] = k;
        result->top_logprobs[k] = -1.0f - (float)k;
    }
}

static void prepare(void *model, const relay_step *step) {
    fake_model *m = model;
    m->step_bytes = step->size_bytes;
    free(m->counts);
    m->n_counts = step->limits.n_resident_counts;
    m->counts = relay_calloc(m->n_counts + 1, sizeof m->counts[0]);
}

static void submit(void *model, const relay_step *step) {
    fake_model *m = model;
    expect(m, m->step == NULL, "a step was submitted before the last one was complete");
    expect(m, step->size_bytes <= m->step_bytes, "a step is larger than what was prepared for");
    m->step = step;
}

static void complete(void *model, relay_sample_result *results) {
    fake_model *m = model;
    const relay_step *step = m->step;
    if (m->on_step != NULL) m->on_step(m->on_step_arg, step);
    expect(m, step->n_rows > 0 && step->n_rows <= step->limits.max_rows, "a step's rows are not within the budget");
    expect(m, step->n_sequences <= step->limits.max_sequences, "a step has too many sequences");
    for (uint32_t g = 0; g < m->n_groups; g++)
        copy_blocks(m, g);
    for (uint32_t row = 0; row < step->n_rows; row++)
        compute_row(m, row);
    for (uint32_t i = 0; i < step->n_count_updates; i++) {
        const relay_count_update *u = &relay_step_count_updates(step)[i];
        expect(m, u->at < m->n_counts, "a count is past the resident ones");
        if (u->at < m->n_counts) m->counts[u->at] = u->count;
    }
    for (uint32_t i = 0; i < step->n_samples; i++)
        sample_row(m, i, &results[i]);
    m->n_rows += step->n_rows;
    if (step->n_rows > m->max_rows) m->max_rows = step->n_rows;
    m->step = NULL;
}

const relay_model_ops fake_model_ops = {.prepare = prepare, .submit = submit, .complete = complete};
