// A constraint on what may be generated: compiled once, followed by any number of sequences.
//
// Every kind (JSON Schema, regular expression, choices, any JSON, GBNF) becomes one automaton over bytes. Compiling is
// for any thread. After it one thread follows: the automaton's memory of what it has met is shared by all sequences of
// a constraint and has no lock.
//
// What a sequence has read is a relay_matcher, a few bytes to be copied at will. It is a function of the ids read
// alone: after is_stale, or whenever it is convenient, it begins again and reads them once more.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_CONSTRAINT_H
#define RELAY_MODEL_SVC_CONSTRAINT_CONSTRAINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model_svc/constraint/token_table.h"

typedef struct relay_constraint relay_constraint;

typedef enum relay_constraint_kind {
    RELAY_CONSTRAINT_JSON_SCHEMA,
    RELAY_CONSTRAINT_REGEX,
    RELAY_CONSTRAINT_GRAMMAR,
    RELAY_CONSTRAINT_CHOICES,
    RELAY_CONSTRAINT_ANY_JSON,
} relay_constraint_kind;

typedef struct relay_constraint_text {
    const char *bytes;
    size_t len;
} relay_constraint_text;

typedef struct relay_constraint_spec {
    relay_constraint_kind kind;
    relay_constraint_text text;           // of JSON_SCHEMA, REGEX, GRAMMAR
    const relay_constraint_text *choices; // [n_choices]
    uint32_t n_choices;
    relay_constraint_text start_after; // empty: from the first id on
} relay_constraint_spec;

enum {
    RELAY_CONSTRAINT_MAX_TEXT = 1 << 20, // bytes of a constraint
    RELAY_CONSTRAINT_MAX_START_AFTER = 1024,
};

// INVALID_ARGUMENT naming the field and what is wrong: syntax, what is not supported, what is too complex. `tokens` is
// borrowed and must outlive it.
relay_code relay_constraint_compile(relay_constraint **out, const relay_constraint_spec *spec,
                                    const relay_token_table *tokens, relay_err *e) RELAY_NODISCARD;
void relay_constraint_destroy(relay_constraint *c);
// Forgets what was met; every matcher is stale. Done on its own where memory is full.
void relay_constraint_reset(relay_constraint *c);

typedef struct relay_matcher {
    uint32_t config, epoch;
    uint32_t n_read; // ids
} relay_matcher;

// Before any id was read.
void relay_matcher_begin(relay_constraint *c, relay_matcher *m);
// What the constraint remembers was thrown away since: begin again.
bool relay_matcher_is_stale(const relay_constraint *c, const relay_matcher *m);
// Reads one id. False where the constraint does not allow it: the matcher is dead then. May make matchers stale.
bool relay_matcher_read(relay_constraint *c, relay_matcher *m, uint32_t id);
// The ids that may come next, as a bit an id: bit i % 32 of word i / 32. Ids that end an answer are as others, text or
// not: who knows them sets their bits by is_complete. False where it became stale: begin again, and ask again; where
// that fails too the constraint does not fit in its memory.
bool relay_matcher_mask(relay_constraint *c, const relay_matcher *m, uint32_t *bits) RELAY_NODISCARD;
bool relay_matcher_is_dead(const relay_matcher *m);
// The output may end here.
bool relay_matcher_is_complete(const relay_constraint *c, const relay_matcher *m);
// The output is complete and nothing may follow.
bool relay_matcher_is_over(const relay_constraint *c, const relay_matcher *m);

// Words of a mask.
uint32_t relay_constraint_n_words(const relay_constraint *c);
// What masks have cost, in visited nodes of the vocabulary's trie.
uint64_t relay_constraint_visits(const relay_constraint *c);

#endif
