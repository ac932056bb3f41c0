// The automaton at work: what of a text has been read, as a number.
//
// A configuration is a set of pairs (state, frame): the states in which a rule may be, each with the frame to which it
// returns when it ends. A frame is again a set of such pairs: where the rules that called it go on, and to what they
// return in turn. Both are kept once for each content and never changed, so that a configuration is a number, equal
// numbers mean equal futures, and the step from one to the next is remembered in a table: after the first time, reading
// a byte is one look-up (the lazy subset construction of regular expression matchers, with stacks). Frames are shared
// as in Tomita's graph-structured stack (1987), so what is ambiguous does not multiply. A call that is the last of its
// rule returns to where the rule itself would: lists written as right recursion do not grow.
//
// Memory is set when it is made. A step that finds it full says so (is_full); who holds numbers then resets it and
// reads its text again. One thread at a time; no allocation after create.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_PUSHDOWN_H
#define RELAY_MODEL_SVC_CONSTRAINT_PUSHDOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model_svc/constraint/automaton.h"

enum {
    RELAY_CONFIG_UNKNOWN = 0, // of a step that was not taken yet
    RELAY_CONFIG_DEAD = 1,    // nothing that matches begins so
    RELAY_FIRST_CONFIG = 2,
    RELAY_MAX_FRAME_DEPTH = 1024, // rules inside one another; what would go deeper is dead
};

typedef struct relay_pair {
    uint32_t state, frame;
} relay_pair;

typedef struct relay_config {
    uint32_t list;             // its pairs
    uint32_t first, n_readers; // those of them, and of the rules they call, that read bytes
    uint32_t local;            // the configuration without what is below it; 0: not known, DEAD: none
    uint32_t mask, entry;      // mask.c's
    uint32_t scanned;          // 1 + bytes of start_after seen, while that has not come; else 0
    uint16_t depth;            // of its deepest frame
    bool is_complete;          // the text may end here
    bool is_leaking;           // a frame whose content is not known was returned to
} relay_config;

typedef struct relay_pushdown {
    const relay_automaton *a;
    uint32_t *rows; // [max_configs, n_classes]
    relay_config *configs;
    uint32_t n_configs;
    uint32_t epoch; // counts resets; from 1
    bool is_full;
    bool is_ambiguous; // somewhere a configuration would have had too many pairs; it counts as dead
    struct relay_pushdown_memory *memory;
} relay_pushdown;

// `start_after`: what must have been read before the automaton begins; its bytes must be sets of the grammar, one each.
// "" for none. `a` and the text are borrowed.
relay_pushdown *relay_pushdown_create(const relay_automaton *a, const char *start_after, size_t start_after_len);
void relay_pushdown_destroy(relay_pushdown *p);
// Forgets everything; numbers given out before mean nothing.
void relay_pushdown_reset(relay_pushdown *p);

// Before anything was read.
uint32_t relay_pushdown_begin(relay_pushdown *p);
uint32_t relay_pushdown_step_slow(relay_pushdown *p, uint32_t config, uint8_t byte);
// DEAD from DEAD, and where it is full.
static inline uint32_t relay_pushdown_step(relay_pushdown *p, uint32_t config, uint8_t byte) {
    uint32_t to = p->rows[(size_t)config * p->a->n_classes + p->a->classes[byte]];
    return to != RELAY_CONFIG_UNKNOWN ? to : relay_pushdown_step_slow(p, config, byte);
}
// States that are alike for the length of a token, with frames of which nothing is known: what many configurations have
// in common. DEAD where there are too many frames for that. Whether a token can be read from it is whether it can from
// `config`, until it is_leaking.
uint32_t relay_pushdown_local(relay_pushdown *p, uint32_t config);
// The local configuration of a state of a rule, whoever called it.
uint32_t relay_pushdown_local_state(relay_pushdown *p, uint32_t state);
// The text is complete, and nothing may follow.
static inline bool relay_pushdown_is_over(const relay_pushdown *p, uint32_t config) {
    const relay_config *c = &p->configs[config];
    return c->is_complete && c->n_readers == 0;
}

#endif
