// JSON as text: what the rules for JSON values and for schemas are made of.
//
// Whitespace is where a reader of pretty-printed JSON expects it, and bounded, because a model that may write blanks
// for ever sometimes does: behind { [ and , and before ] and } nothing, one space, or a line break with up to 20 spaces
// or tabs; behind a colon nothing or one space. Numbers have at most 20 digits before the point, 20 behind it and 3 in
// the exponent.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_JSON_TEXT_H
#define RELAY_MODEL_SVC_CONSTRAINT_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

#include "model_svc/constraint/grammar.h"

enum { RELAY_JSON_MAX_DIGITS = 20 };

// Rules that many values share.
typedef struct relay_json_rules {
    relay_grammar *g;
    uint32_t space, string, number, value, object, array;
    relay_expr char_any; // of a string in its one canonical spelling
} relay_json_rules;

// Adds the rules to `g`.
void relay_json_rules_init(relay_json_rules *r, relay_grammar *g);

// Characters as they stand in a JSON string in their canonical spelling: as themselves but for quote, backslash and
// control characters, which have their short escape or \u00xx. Equal strings are spelled by equal bytes.
relay_expr relay_json_chars(relay_grammar *g, const relay_code_range *ranges, uint32_t n, bool is_negated);
// A string with its quotes, in its canonical spelling. Valid UTF-8.
relay_expr relay_json_literal(relay_grammar *g, const char *s, size_t len);
// A value as it is written without whitespace. Its depth is bounded by who parsed it.
relay_expr relay_json_constant(relay_grammar *g, yyjson_val *value);

relay_expr relay_json_space(const relay_json_rules *r);
relay_expr relay_json_colon(const relay_json_rules *r);
// open (item (, item)*)? close, with whitespace; min <= max.
relay_expr relay_json_list(const relay_json_rules *r, const char *open, relay_expr item, uint32_t min, uint32_t max,
                           const char *close);
// [0-9] from min to max times.
relay_expr relay_json_digits(relay_grammar *g, uint32_t min, uint32_t max);

#endif
