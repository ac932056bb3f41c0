// A vocabulary for tests of constraints: every byte, a number of longer tokens, and two control tokens.
#ifndef RELAY_TESTS_MODEL_SVC_CONSTRAINT_BYTE_VOCAB_H
#define RELAY_TESTS_MODEL_SVC_CONSTRAINT_BYTE_VOCAB_H

#include "common/vocab.h"

enum {
    BYTE_VOCAB_END = 256,   // <|im_end|>, which ends an answer
    BYTE_VOCAB_THINK = 257, // </think>, a control token that does not
    BYTE_VOCAB_WORDS = 258, // the longer ones from here on; byte b is id b
};

// Aborts on failure; relay_vocab_destroy.
relay_vocab *byte_vocab_create(void);
// Ids that write these bytes, the longest token first; how many.
uint32_t byte_vocab_encode(const relay_vocab *v, const char *text, size_t len, uint32_t *ids);

#endif
