// What was chosen is kept as a trellis: for each length and slot the id and the slot that it follows. Beams and
// hypotheses are places in it, and their ids are read by going back.
#include "model_svc/beam_search.h"

#include <math.h>
#include <string.h>

#include "common/status.h"

typedef struct node {
    uint32_t token_id;
    uint32_t from; // slot
} node;

// The ids up to length `n` of slot `slot`, then `last` where it has ended.
typedef struct hypothesis {
    double score;
    uint32_t n, slot, last;
    bool has_ended;
} hypothesis;

struct relay_beam_search {
    uint32_t n_beams;
    float length_penalty;
    bool early_stopping;
    uint32_t max_new_tokens;
    uint32_t n;                      // ids of each beam
    node *trellis;                   // [max_new_tokens][n_beams]
    uint32_t *best;                  // [max_new_tokens] ids of the best hypothesis
    float scores[RELAY_MAX_BEAMS];   // by slot
    uint32_t order[RELAY_MAX_BEAMS]; // slots, by the place that transformers gives the beam
    relay_beam_candidate offers[RELAY_MAX_BEAMS][RELAY_BEAM_CANDIDATES];
    bool has_offer[RELAY_MAX_BEAMS];
    hypothesis hypotheses[RELAY_MAX_BEAMS + 1];
    uint32_t n_hypotheses;
};

relay_beam_search *relay_beam_search_create(relay_arena *arena, uint32_t n_beams, float length_penalty,
                                            bool early_stopping, uint32_t max_new_tokens) {
    RELAY_ASSERT(n_beams >= 1 && n_beams <= RELAY_MAX_BEAMS && max_new_tokens >= 1);
    relay_beam_search *b = relay_arena_alloc(arena, sizeof *b);
    if (b == NULL) return NULL;
    memset(b, 0, sizeof *b);
    b->n_beams = n_beams;
    b->length_penalty = length_penalty;
    b->early_stopping = early_stopping;
    b->max_new_tokens = max_new_tokens;
    b->trellis = relay_arena_alloc(arena, (size_t)max_new_tokens * n_beams * sizeof b->trellis[0]);
    b->best = relay_arena_alloc(arena, (size_t)max_new_tokens * sizeof b->best[0]);
    if (b->trellis == NULL || b->best == NULL) return NULL;
    for (uint32_t i = 0; i < n_beams; i++)
        b->order[i] = i;
    return b;
}

uint32_t relay_beam_search_beams(const relay_beam_search *b) {
    return b->n_beams;
}

static node *nodes_at(const relay_beam_search *b, uint32_t length) {
    return b->trellis + (size_t)length * b->n_beams;
}

// ---- Hypotheses

static double worth(const relay_beam_search *b, double sum, uint32_t length) {
    return sum / pow(length, (double)b->length_penalty);
}

static uint32_t worst(const relay_beam_search *b) {
    uint32_t at = 0;
    for (uint32_t i = 1; i < b->n_hypotheses; i++) {
        if (b->hypotheses[i].score < b->hypotheses[at].score) at = i;
    }
    return at;
}

static void add_hypothesis(relay_beam_search *b, hypothesis h) {
    if (b->n_hypotheses == b->n_beams && h.score <= b->hypotheses[worst(b)].score) return;
    b->hypotheses[b->n_hypotheses++] = h;
    if (b->n_hypotheses <= b->n_beams) return;
    uint32_t at = worst(b);
    memmove(&b->hypotheses[at], &b->hypotheses[at + 1], (b->n_hypotheses - at - 1) * sizeof b->hypotheses[0]);
    b->n_hypotheses--;
}

// Whether no beam can become better than what there is; `best_sum` is the best score of the candidates.
static bool is_decided(const relay_beam_search *b, float best_sum, uint32_t length) {
    if (b->n_hypotheses < b->n_beams) return false;
    return b->early_stopping || b->hypotheses[worst(b)].score >= worth(b, best_sum, length);
}

// ---- The search

bool relay_beam_search_has_offer(const relay_beam_search *b, uint32_t slot) {
    return b->has_offer[slot];
}

bool relay_beam_search_offer(relay_beam_search *b, uint32_t slot, const relay_beam_candidate *candidates) {
    memcpy(b->offers[slot], candidates, RELAY_BEAM_CANDIDATES * sizeof candidates[0]);
    b->has_offer[slot] = true;
    for (uint32_t i = 0; i < b->n_beams; i++) {
        if (!b->has_offer[i]) return false;
    }
    return true;
}

typedef struct continuation {
    float score;
    uint32_t place, slot; // the beam's place in order
    relay_beam_candidate c;
} continuation;

static bool comes_before(const continuation *a, const continuation *b) {
    if (a->score != b->score) return a->score > b->score;
    return a->place != b->place ? a->place < b->place : a->c.token_id < b->c.token_id;
}

// The best of all beams, best first.
static void rank(const relay_beam_search *b, continuation *out) {
    const uint32_t max = RELAY_BEAM_CANDIDATES;
    uint32_t n = 0;
    uint32_t n_places = b->n == 0 ? 1 : b->n_beams; // at first they are all the same
    for (uint32_t place = 0; place < n_places; place++) {
        uint32_t slot = b->order[place];
        for (uint32_t i = 0; i < max; i++) {
            continuation x = {.place = place, .slot = slot, .c = b->offers[slot][i]};
            x.score = b->scores[slot] + x.c.logprob;
            uint32_t at = n;
            while (at > 0 && comes_before(&x, &out[at - 1]))
                at--;
            if (at == max) break; // those behind it are no better
            if (n < max) n++;
            memmove(&out[at + 1], &out[at], (n - 1 - at) * sizeof out[0]);
            out[at] = x;
        }
    }
}

// The first continuation of a beam keeps its slot; further ones get those of beams that end here.
static void place_beams(relay_beam_search *b, const continuation *chosen, uint32_t *from, uint32_t *token_ids) {
    bool is_taken[RELAY_MAX_BEAMS] = {false}, has_slot[RELAY_MAX_BEAMS] = {false};
    float scores[RELAY_MAX_BEAMS];
    for (uint32_t pass = 0; pass < 2; pass++) {
        uint32_t next_free = 0;
        for (uint32_t i = 0; i < b->n_beams; i++) {
            if (has_slot[i]) continue;
            uint32_t slot = chosen[i].slot;
            if (pass == 0 && is_taken[slot]) continue;
            if (pass == 1) {
                while (is_taken[next_free])
                    next_free++;
                slot = next_free;
            }
            is_taken[slot] = has_slot[i] = true;
            from[slot] = chosen[i].slot;
            token_ids[slot] = chosen[i].c.token_id;
            scores[slot] = chosen[i].score;
            b->order[i] = slot;
        }
    }
    memcpy(b->scores, scores, b->n_beams * sizeof scores[0]);
    node *nodes = nodes_at(b, b->n);
    for (uint32_t i = 0; i < b->n_beams; i++)
        nodes[i] = (node){.token_id = token_ids[i], .from = from[i]};
    b->n++;
}

static void read_ids(const relay_beam_search *b, uint32_t n, uint32_t slot, uint32_t *out) {
    while (n-- > 0) {
        const node *x = &nodes_at(b, n)[slot];
        out[n] = x->token_id;
        slot = x->from;
    }
}

bool relay_beam_search_choose(relay_beam_search *b, bool is_last, uint32_t *from, uint32_t *token_ids) {
    continuation ranked[RELAY_BEAM_CANDIDATES + 1], chosen[RELAY_MAX_BEAMS];
    rank(b, ranked);
    memset(b->has_offer, 0, sizeof b->has_offer);
    uint32_t length = b->n + 1, n_chosen = 0;
    for (uint32_t i = 0; n_chosen < b->n_beams; i++) {
        RELAY_ASSERT(i < RELAY_BEAM_CANDIDATES);
        const continuation *x = &ranked[i];
        if (!x->c.ends) {
            chosen[n_chosen++] = *x;
        } else if (i < b->n_beams) {
            add_hypothesis(b, (hypothesis){.score = worth(b, x->score, length),
                                           .n = b->n,
                                           .slot = x->slot,
                                           .last = x->c.token_id,
                                           .has_ended = true});
        }
    }
    bool is_over = is_decided(b, ranked[0].score, length);
    if (is_over) return true;
    place_beams(b, chosen, from, token_ids);
    return is_last && relay_beam_search_stop(b);
}

bool relay_beam_search_stop(relay_beam_search *b) {
    for (uint32_t i = 0; i < b->n_beams && b->n > 0; i++) {
        uint32_t slot = b->order[i];
        add_hypothesis(b, (hypothesis){.score = worth(b, b->scores[slot], b->n), .n = b->n, .slot = slot});
    }
    return b->n_hypotheses > 0;
}

void relay_beam_search_read(const relay_beam_search *b, uint32_t slot, uint32_t *out) {
    read_ids(b, b->n, slot, out);
}

const uint32_t *relay_beam_search_best(const relay_beam_search *b, uint32_t *n, bool *has_ended, double *score) {
    const hypothesis *best = &b->hypotheses[0];
    for (uint32_t i = 1; i < b->n_hypotheses; i++) {
        if (b->hypotheses[i].score > best->score) best = &b->hypotheses[i];
    }
    read_ids(b, best->n, best->slot, b->best);
    *n = best->n;
    if (best->has_ended) b->best[(*n)++] = best->last;
    *has_ended = best->has_ended;
    *score = best->score;
    return b->best;
}
