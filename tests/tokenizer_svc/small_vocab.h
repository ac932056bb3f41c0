// A byte-level vocabulary of a test's own making, in a GGUF file in memory.
#ifndef RELAY_TESTS_TOKENIZER_SVC_SMALL_VOCAB_H
#define RELAY_TESTS_TOKENIZER_SVC_SMALL_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/gguf.h"
#include "common/vocab.h"
#include "tests/common/gguf_writer.h"
#include "tokenizer_svc/tokenizer.h"

// Ids: a token for each byte (0..255), then the merges' results, pieces, control and user tokens, padding, in that
// order. Lists end with NULL; a NULL list is empty.
typedef struct small_vocab_spec {
    const char *pre;            // NULL: the key is left out
    const char *const *merges;  // in the byte alphabet, "a b"
    const char *const *pieces;  // more NORMAL tokens, as raw bytes
    const char *const *control; // names
    const char *const *user;
    uint32_t n_padding;
    const uint8_t *missing_bytes; // bytes whose token is something else
    uint32_t n_missing_bytes;
} small_vocab_spec;

typedef struct small_vocab {
    gguf_writer *writer;
    relay_gguf *gguf;
    relay_vocab *vocab;
} small_vocab;

// The keys of the vocabulary, for a test that adds its own.
gguf_writer *small_vocab_write(const small_vocab_spec *spec);
// Opens what the writer wrote; the writer is taken. Fails the test if that fails.
small_vocab small_vocab_open(gguf_writer *w);
small_vocab small_vocab_make(const small_vocab_spec *spec);
// A tokenizer of a GGUF file.
relay_code small_vocab_tokenizer(relay_tokenizer **out, const relay_gguf *g, relay_err *e);
void small_vocab_fini(small_vocab *v);
// The id of a token by its bytes or name.
uint32_t small_vocab_id(const small_vocab *v, const char *bytes);

// A small generator of numbers that are the same on every machine (splitmix64, Steele, Lea and Flood 2014).
typedef struct test_random {
    uint64_t state;
} test_random;
uint32_t test_random_below(test_random *r, uint32_t n);

#endif
