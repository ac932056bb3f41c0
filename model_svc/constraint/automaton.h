// A grammar compiled: each rule a deterministic automaton over classes of bytes whose edges may also call rules.
//
// Bytes that no set of the grammar tells apart are one class. A state has at most one edge for a class and one for a
// rule; what is left to decide at run time is whether to read a byte here or inside a rule (pushdown.h). A rule that
// matches the empty text is called and passed over both. Every state can reach the end of its rule, so a text that
// leads somewhere can always be completed. Immutable once compiled; any thread.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_AUTOMATON_H
#define RELAY_MODEL_SVC_CONSTRAINT_AUTOMATON_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "model_svc/constraint/grammar.h"

enum {
    RELAY_STATE_DEAD = 0,   // no edge
    RELAY_STATE_ACCEPT = 1, // the whole text is complete here
    RELAY_STATE_LEAK = 2,   // past the end of what is looked at on its own (mask.h)
    RELAY_FIRST_STATE = 3,
    RELAY_AUTOMATON_MAX_STATES = 1 << 16,
};

typedef struct relay_call_edge {
    uint32_t rule, to;
} relay_call_edge;

typedef struct relay_automaton_state {
    uint32_t first_call, n_calls; // among the automaton's calls
    bool is_final;                // its rule may end here
    bool has_bytes;               // there are edges for bytes
    bool is_end;                  // final and without any edge
} relay_automaton_state;

typedef struct relay_automaton {
    uint8_t classes[256]; // of each byte
    uint32_t n_classes;
    uint32_t n_states, n_rules, n_calls;
    uint32_t *rows; // [n_states, n_classes]: the next state of the same rule
    relay_automaton_state *states;
    relay_call_edge *calls;
    uint32_t *starts; // [n_rules]; RELAY_STATE_DEAD of a rule that matches nothing
    uint32_t *alike;  // [n_states]: the first state that reads the same texts of up to `horizon` bytes the same way
    uint32_t *order;  // [n_rules]: a rule comes before those it may call before it has read a byte
    uint32_t root;
    uint32_t root_end; // its states are from starts[root] to before this one
} relay_automaton;

// INVALID_ARGUMENT naming `field`: past the limits of `g`, a rule that calls itself before it reads a byte (left
// recursion), nothing that would match. `g` is only read but for its work. `horizon`: the longest token's bytes.
relay_code relay_automaton_compile(relay_automaton *out, relay_grammar *g, uint32_t horizon, const char *field,
                                   relay_err *e) RELAY_NODISCARD;
void relay_automaton_fini(relay_automaton *a);

#endif
