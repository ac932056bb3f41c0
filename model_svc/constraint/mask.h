// Which ids may come next: a bit an id, from a configuration and a vocabulary.
//
// The plain way is a walk over the trie of all tokens, step by step through the automaton: a millisecond where much is
// possible, as inside a string. Most of that does not depend on what lies below the rule that is being read. So the
// walk is done once for the local configuration, and kept: the ids that it settles, and those that leave the rule,
// grouped by where they leave it and shared by what they go on with (what Dong et al. call context-dependent tokens in
// XGrammar, 2024). Each mask is then a copy and a short walk over the few that leave. Where too many leave, the mask is
// kept for the configuration as a whole.
//
// One thread at a time; no allocation after create.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_MASK_H
#define RELAY_MODEL_SVC_CONSTRAINT_MASK_H

#include <stdint.h>

#include "model_svc/constraint/pushdown.h"
#include "model_svc/constraint/token_table.h"

typedef struct relay_mask_maker relay_mask_maker;

// Both are borrowed.
relay_mask_maker *relay_mask_maker_create(relay_pushdown *p, const relay_token_table *tokens);
void relay_mask_maker_destroy(relay_mask_maker *m);
// With relay_pushdown_reset: forgets what is kept.
void relay_mask_maker_reset(relay_mask_maker *m);

// bits [n_words of the tokens], bit i % 32 of word i / 32. Where the automaton or what is kept becomes full on the way,
// the mask means nothing and p->is_full is set.
void relay_mask_fill(relay_mask_maker *m, uint32_t config, uint32_t *bits);
// Works out beforehand what is slow and needed often: the states in which many bytes may come, until `max_visits` nodes
// of the trie were visited.
void relay_mask_warm(relay_mask_maker *m, uint64_t max_visits);
// Trie nodes visited since create: what masks have cost.
uint64_t relay_mask_visits(const relay_mask_maker *m);

#endif
