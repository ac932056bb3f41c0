// A rule as a nondeterministic automaton, by Thompson's construction (1968), and its subsets as a deterministic one.
//
// Used while a grammar is compiled, by automaton.c alone.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_NFA_H
#define RELAY_MODEL_SVC_CONSTRAINT_NFA_H

#include "model_svc/constraint/automaton.h"
#include "model_svc/constraint/grammar.h"

typedef struct relay_nfa relay_nfa;

// What a subset construction gives: states from 0, the start, with RELAY_UNBOUNDED as "no edge".
typedef struct relay_dfa {
    uint32_t n_classes, n_states, n_calls;
    uint32_t *rows;       // [n_states, n_classes]
    bool *is_final;       // [n_states]
    uint32_t *first_call; // [n_states + 1], ascending
    relay_call_edge *calls;
} relay_dfa;

// For the rules of `g`, whose work it spends; `is_nullable` of each rule. Both are borrowed.
relay_nfa *relay_nfa_create(relay_grammar *g, const bool *is_nullable);
void relay_nfa_destroy(relay_nfa *n);
// Groups bytes that no set of the grammar tells apart; gives how many groups there are.
uint32_t relay_nfa_classes(const relay_nfa *n, uint8_t classes[256]);
// False, and the grammar has failed, past a limit. `out` is to be freed in any case.
bool relay_nfa_determinize(relay_nfa *n, relay_expr x, relay_dfa *out);
void relay_dfa_fini(relay_dfa *d);

#endif
