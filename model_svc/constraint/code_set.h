// A set of characters being collected: the ranges of a class in a regular expression or grammar.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_CODE_SET_H
#define RELAY_MODEL_SVC_CONSTRAINT_CODE_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "model_svc/constraint/grammar.h"

typedef struct relay_code_set {
    relay_code_range *ranges; // owned; neither sorted nor apart
    uint32_t n, cap;
} relay_code_set;

void relay_code_set_fini(relay_code_set *s);
void relay_code_set_add(relay_code_set *s, uint32_t first, uint32_t last);
// Everything that is in none of `ranges`.
void relay_code_set_add_others(relay_code_set *s, const relay_code_range *ranges, uint32_t n);
// \d \w \s (ECMAScript's) and their capitals. False for any other letter.
bool relay_code_set_add_class(relay_code_set *s, char letter);
// A general category of Unicode by its short name, "Lu", or "L" for all that begin with it. False where
// there is none of this name.
bool relay_code_set_add_category(relay_code_set *s, const char *name, size_t len, bool is_negated);

#endif
