// What a constraint needs to know of a vocabulary: which bytes each id writes, as a trie and one by one.
//
// Text is what NORMAL, USER and BYTE tokens write. CONTROL tokens are never text; they take part only while a
// constraint has not begun (start_after), by their names. Built once for a model; immutable; any thread.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_TOKEN_TABLE_H
#define RELAY_MODEL_SVC_CONSTRAINT_TOKEN_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/vocab.h"
#include "model_svc/constraint/token_trie.h"

typedef struct relay_token_table {
    uint32_t n_vocab;         // ids are below it; those past the vocabulary are never text
    uint32_t n_words;         // of a mask: 32 ids each
    relay_token_trie text;    // of every id that is text
    relay_token_trie named;   // of every CONTROL token, by its name
    const relay_vocab *vocab; // borrowed
} relay_token_table;

// For a model of `n_vocab` ids. `v` is borrowed and must outlive it.
relay_token_table *relay_token_table_create(const relay_vocab *v, uint32_t n_vocab);
void relay_token_table_destroy(relay_token_table *t);

static inline bool relay_token_is_text(const relay_token *t) {
    return t->len > 0 && (t->kind == RELAY_TOKEN_NORMAL || t->kind == RELAY_TOKEN_USER || t->kind == RELAY_TOKEN_BYTE);
}

#endif
