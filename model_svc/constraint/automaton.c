// Rules are made deterministic one by one and numbered through; then what cannot reach an end is taken out, and what a
// state is is noted.
#include "model_svc/constraint/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "model_svc/constraint/nfa.h"

enum { MAX_ROW_WORDS = 1 << 23, MAX_CALLS = 1 << 20 };

// ---- Which rules match the empty text

static bool is_nullable_expr(const relay_grammar *g, const bool *rules, relay_expr expr) {
    const relay_expr_node *x = &g->exprs[expr];
    switch ((relay_expr_kind)x->kind) {
    case RELAY_EXPR_KIND_EMPTY:
        return true;
    case RELAY_EXPR_KIND_SEQ:
        for (uint32_t i = 0; i < x->b; i++) {
            if (!is_nullable_expr(g, rules, g->children[x->a + i])) return false;
        }
        return true;
    case RELAY_EXPR_KIND_ALT:
        for (uint32_t i = 0; i < x->b; i++) {
            if (is_nullable_expr(g, rules, g->children[x->a + i])) return true;
        }
        return false;
    case RELAY_EXPR_KIND_REPEAT:
        return g->children[x->b] == 0 || is_nullable_expr(g, rules, x->a);
    case RELAY_EXPR_KIND_RULE:
        return rules[x->a];
    case RELAY_EXPR_KIND_AND:
        return is_nullable_expr(g, rules, x->a) && is_nullable_expr(g, rules, x->b);
    case RELAY_EXPR_KIND_MINUS:
        return is_nullable_expr(g, rules, x->a) && !is_nullable_expr(g, rules, x->b);
    case RELAY_EXPR_KIND_NOTHING:
    case RELAY_EXPR_KIND_SET:
        return false;
    }
    return false;
}

// A shared expression is looked at once for each use, so the rounds are paid for by the size of the grammar.
static bool *find_nullable(relay_grammar *g) {
    bool *is_nullable = relay_calloc(g->n_rules + 1, sizeof is_nullable[0]);
    bool has_changed = true;
    while (has_changed && relay_grammar_spend(g, g->n_exprs + g->n_children)) {
        has_changed = false;
        for (uint32_t r = 0; r < g->n_rules; r++) {
            if (!is_nullable[r] && is_nullable_expr(g, is_nullable, g->rules[r].expr)) {
                is_nullable[r] = has_changed = true;
            }
        }
    }
    return is_nullable;
}

// ---- From rules to states

typedef struct room {
    uint32_t states, calls;
} room;

static void append_rule(relay_automaton *a, relay_grammar *g, uint32_t rule, const relay_dfa *d, room *cap) {
    uint32_t base = a->n_states;
    uint64_t n_states = (uint64_t)base + d->n_states;
    if (n_states > RELAY_AUTOMATON_MAX_STATES || n_states * a->n_classes > MAX_ROW_WORDS) {
        relay_grammar_pass_limit(g, "more than 65536 states, or 32 MiB of them");
    }
    if ((uint64_t)a->n_calls + d->n_calls > MAX_CALLS) relay_grammar_pass_limit(g, "more than 1048576 uses of rules");
    if (g->code != RELAY_OK || d->n_states == 0) return;
    while (cap->states < n_states)
        cap->states *= 2;
    while (cap->calls < a->n_calls + d->n_calls)
        cap->calls *= 2;
    a->rows = relay_realloc(a->rows, (uint64_t)cap->states * a->n_classes * sizeof a->rows[0]);
    a->states = relay_realloc(a->states, cap->states * sizeof a->states[0]);
    a->calls = relay_realloc(a->calls, cap->calls * sizeof a->calls[0]);
    for (uint32_t s = 0; s < d->n_states; s++) {
        for (uint32_t c = 0; c < a->n_classes; c++) {
            uint32_t to = d->rows[(uint64_t)s * a->n_classes + c];
            a->rows[(uint64_t)(base + s) * a->n_classes + c] = to == RELAY_UNBOUNDED ? RELAY_STATE_DEAD : base + to;
        }
        a->states[base + s] = (relay_automaton_state){
            .first_call = a->n_calls + d->first_call[s],
            .n_calls = d->first_call[s + 1] - d->first_call[s],
            .is_final = d->is_final[s],
        };
    }
    for (uint32_t i = 0; i < d->n_calls; i++)
        a->calls[a->n_calls + i] = (relay_call_edge){.rule = d->calls[i].rule, .to = base + d->calls[i].to};
    a->n_calls += d->n_calls;
    a->n_states += d->n_states;
    a->starts[rule] = base;
    if (rule == a->root) a->root_end = a->n_states;
}

static void put_rules(relay_automaton *a, relay_grammar *g) {
    bool *is_nullable = find_nullable(g);
    relay_nfa *n = relay_nfa_create(g, is_nullable);
    a->n_classes = relay_nfa_classes(n, a->classes);
    a->n_rules = g->n_rules;
    a->starts = relay_calloc(a->n_rules + 1, sizeof a->starts[0]);
    a->root = g->root;
    room cap = {.states = 64, .calls = 64};
    a->rows = relay_calloc((uint64_t)cap.states * a->n_classes, sizeof a->rows[0]);
    a->states = relay_calloc(cap.states, sizeof a->states[0]);
    a->calls = relay_calloc(cap.calls, sizeof a->calls[0]);
    a->n_states = RELAY_FIRST_STATE;
    for (uint32_t r = 0; r < g->n_rules && g->code == RELAY_OK; r++) {
        relay_dfa d = {0};
        if (relay_nfa_determinize(n, g->rules[r].expr, &d)) append_rule(a, g, r, &d, &cap);
        relay_dfa_fini(&d);
    }
    relay_nfa_destroy(n);
    free(is_nullable);
}

// ---- What can be completed

static bool find_live(const relay_automaton *a, relay_grammar *g, bool *is_live) {
    bool has_changed = true;
    while (has_changed) {
        if (!relay_grammar_spend(g, (uint64_t)a->n_states * a->n_classes / 8 + a->n_calls)) return false;
        has_changed = false;
        for (uint32_t s = a->n_states; s-- > RELAY_FIRST_STATE;) {
            if (is_live[s]) continue;
            const relay_automaton_state *state = &a->states[s];
            bool live = state->is_final;
            const uint32_t *row = a->rows + (uint64_t)s * a->n_classes;
            for (uint32_t c = 0; c < a->n_classes && !live; c++)
                live = is_live[row[c]];
            for (uint32_t i = 0; i < state->n_calls && !live; i++) {
                const relay_call_edge *call = &a->calls[state->first_call + i];
                live = is_live[a->starts[call->rule]] && is_live[call->to];
            }
            if (live) is_live[s] = has_changed = true;
        }
    }
    return true;
}

// Takes out every edge to what cannot be completed, and notes what is left of each state.
static void trim(relay_automaton *a, relay_grammar *g) {
    bool *is_live = relay_calloc(a->n_states, sizeof is_live[0]);
    if (find_live(a, g, is_live)) {
        for (uint32_t s = RELAY_FIRST_STATE; s < a->n_states; s++) {
            relay_automaton_state *state = &a->states[s];
            uint32_t *row = a->rows + (uint64_t)s * a->n_classes;
            for (uint32_t c = 0; c < a->n_classes; c++) {
                if (!is_live[row[c]]) row[c] = RELAY_STATE_DEAD;
                if (row[c] != RELAY_STATE_DEAD) state->has_bytes = true;
            }
            uint32_t n = 0;
            for (uint32_t i = 0; i < state->n_calls; i++) {
                relay_call_edge call = a->calls[state->first_call + i];
                if (is_live[a->starts[call.rule]] && is_live[call.to]) a->calls[state->first_call + n++] = call;
            }
            state->n_calls = n;
            state->is_end = state->is_final && !state->has_bytes && n == 0;
        }
        for (uint32_t r = 0; r < a->n_rules; r++) {
            if (!is_live[a->starts[r]]) a->starts[r] = RELAY_STATE_DEAD;
        }
    }
    free(is_live);
}

// ---- Which states are alike

static bool is_alike(const relay_automaton *a, const uint32_t *classes, uint32_t s, uint32_t t) {
    const relay_automaton_state *x = &a->states[s], *y = &a->states[t];
    if (x->is_final != y->is_final || x->n_calls != y->n_calls) return false;
    const uint32_t *row_x = a->rows + (uint64_t)s * a->n_classes, *row_y = a->rows + (uint64_t)t * a->n_classes;
    for (uint32_t c = 0; c < a->n_classes; c++) {
        if (classes[row_x[c]] != classes[row_y[c]]) return false;
    }
    for (uint32_t i = 0; i < x->n_calls; i++) {
        const relay_call_edge *e = &a->calls[x->first_call + i], *f = &a->calls[y->first_call + i];
        if (e->rule != f->rule || classes[e->to] != classes[f->to]) return false;
    }
    return true;
}

static uint32_t hash_state(const relay_automaton *a, const uint32_t *classes, uint32_t s) {
    const uint32_t *row = a->rows + (uint64_t)s * a->n_classes;
    uint64_t h = a->states[s].is_final;
    for (uint32_t c = 0; c < a->n_classes; c++)
        h = (h ^ classes[row[c]]) * 0xFF51AFD7ED558CCDull, h ^= h >> 32;
    return (uint32_t)h;
}

// One byte further: states are alike that were, and lead with each byte to states that were. How many there are.
static uint32_t refine(const relay_automaton *a, const uint32_t *from, uint32_t *to, uint32_t *table, uint32_t mask) {
    uint32_t n = 0;
    memset(table, 0, (mask + 1ull) * sizeof table[0]);
    for (uint32_t s = RELAY_FIRST_STATE; s < a->n_states; s++) {
        uint32_t at = hash_state(a, from, s) & mask;
        while (table[at] != 0 && !is_alike(a, from, table[at], s))
            at = (at + 1) & mask;
        if (table[at] == 0) {
            table[at] = s;
            n++;
        }
        to[s] = table[at];
    }
    return n;
}

// Moore's partition refinement (1956), ended after `horizon` rounds: what differs later no token tells apart. A call
// reads at least one byte, because what reads none goes past it. Where that is too much work all stay different.
static void find_alike(relay_automaton *a, relay_grammar *g, uint32_t horizon) {
    uint32_t mask = 1;
    while (mask < 2 * a->n_states)
        mask = 2 * mask + 1;
    uint32_t *table = relay_calloc(mask + 1ull, sizeof table[0]);
    uint32_t *now = relay_calloc(a->n_states, sizeof now[0]), *next = relay_calloc(a->n_states, sizeof next[0]);
    for (uint32_t s = RELAY_FIRST_STATE; s < a->n_states; s++)
        now[s] = RELAY_FIRST_STATE;
    uint64_t round_work = (uint64_t)a->n_states * a->n_classes / 4 + a->n_calls;
    uint32_t n_before = 1, round = 0;
    bool is_paid = true;
    for (; round < horizon && is_paid; round++) {
        is_paid = g->work > round_work && relay_grammar_spend(g, round_work);
        uint32_t n = refine(a, now, next, table, mask);
        uint32_t *last = now;
        now = next;
        next = last;
        if (n == n_before) break;
        n_before = n;
    }
    for (uint32_t s = 0; s < a->n_states; s++)
        a->alike[s] = is_paid && s >= RELAY_FIRST_STATE ? now[s] : s;
    free(table);
    free(now);
    free(next);
}

// ---- Which rules begin with which

typedef struct visit {
    uint32_t rule, next_call;
} visit;

// Depth first over the calls of start states; `order` is filled from its end. A rule met again on the way down calls
// itself before it reads anything: its number, else RELAY_UNBOUNDED.
static uint32_t order_rules(relay_automaton *a) {
    enum { NEW, OPEN, DONE };
    uint8_t *marks = relay_calloc(a->n_rules + 1, sizeof marks[0]);
    visit *path = relay_calloc(a->n_rules + 1, sizeof path[0]);
    uint32_t place = a->n_rules, culprit = RELAY_UNBOUNDED;
    for (uint32_t r = 0; r < a->n_rules && culprit == RELAY_UNBOUNDED; r++) {
        uint32_t depth = 0;
        if (marks[r] == NEW) {
            path[depth++] = (visit){.rule = r};
            marks[r] = OPEN;
        }
        while (depth > 0 && culprit == RELAY_UNBOUNDED) {
            visit *v = &path[depth - 1];
            const relay_automaton_state *start = &a->states[a->starts[v->rule]];
            if (a->starts[v->rule] == RELAY_STATE_DEAD || v->next_call == start->n_calls) {
                marks[v->rule] = DONE;
                a->order[v->rule] = --place;
                depth--;
                continue;
            }
            uint32_t called = a->calls[start->first_call + v->next_call++].rule;
            if (marks[called] == OPEN) culprit = called;
            if (marks[called] == NEW) {
                path[depth++] = (visit){.rule = called};
                marks[called] = OPEN;
            }
        }
    }
    free(marks);
    free(path);
    return culprit;
}

relay_code relay_automaton_compile(relay_automaton *a, relay_grammar *g, uint32_t horizon, const char *field,
                                   relay_err *e) {
    *a = (relay_automaton){0};
    relay_code code = relay_grammar_check(g, field, e);
    if (code != RELAY_OK) return code;
    put_rules(a, g);
    if (g->code == RELAY_OK) trim(a, g);
    code = relay_grammar_check(g, field, e);
    if (code != RELAY_OK) goto done;
    if (a->starts[a->root] == RELAY_STATE_DEAD) {
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s matches no text at all", field);
        goto done;
    }
    a->order = relay_calloc(a->n_rules + 1, sizeof a->order[0]);
    uint32_t culprit = order_rules(a);
    if (culprit != RELAY_UNBOUNDED) {
        code = relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "%s: %.200s calls itself before it has matched anything (left recursion); write it as a "
                          "repeat",
                          field, g->rules[culprit].name);
    }
    a->alike = relay_calloc(a->n_states, sizeof a->alike[0]);
    if (code == RELAY_OK) find_alike(a, g, horizon);
done:
    if (code != RELAY_OK) relay_automaton_fini(a);
    return code;
}

void relay_automaton_fini(relay_automaton *a) {
    free(a->rows);
    free(a->states);
    free(a->calls);
    free(a->starts);
    free(a->order);
    free(a->alike);
    *a = (relay_automaton){0};
}
