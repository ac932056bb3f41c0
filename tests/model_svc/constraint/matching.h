// What tests of constraints do with one: feed it texts, and walk through it at random.
#ifndef RELAY_TESTS_MODEL_SVC_CONSTRAINT_MATCHING_H
#define RELAY_TESTS_MODEL_SVC_CONSTRAINT_MATCHING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "model_svc/constraint/constraint.h"

typedef struct matching {
    relay_vocab *vocab;
    relay_token_table *tokens;
    uint32_t *words; // a mask
    uint64_t seed;
} matching;

void matching_init(matching *m);
void matching_fini(matching *m);
uint32_t matching_random(matching *m, uint32_t n); // below n

relay_constraint_spec matching_spec(relay_constraint_kind kind, const char *text);
// NULL, with the error in *e, where it is refused.
relay_constraint *matching_compile(matching *m, relay_constraint_kind kind, const char *text, relay_err *e);
// Fails the test where the mask of what `at` has read is not what reading each id says.
void matching_check_mask(matching *m, relay_constraint *c, const relay_matcher *at);

typedef enum verdict {
    REJECTED, // an id on the way is not allowed
    OPEN,     // allowed so far, not complete
    COMPLETE,
} verdict;

// `text` in tokens, the longest ones or one for each byte. Each id must be allowed by the mask exactly if it can be
// read.
verdict matching_feed(matching *m, relay_constraint *c, const char *text, bool by_bytes);
// Draws ids that masks allow until the text is complete and a coin says so; false after `max_ids`. Fails the test at a
// dead end.
bool matching_walk(matching *m, relay_constraint *c, uint32_t max_ids, relay_buf *text);

#endif
