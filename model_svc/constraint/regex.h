// Regular expressions, read into a grammar.
//
// The syntax that ECMAScript, PCRE2 and RE2 have in common, over Unicode characters: see docs/structured-output.md.
// What is not regular (backreferences, lookaround) and what these dialects read differently is refused by name.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_REGEX_H
#define RELAY_MODEL_SVC_CONSTRAINT_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "model_svc/constraint/grammar.h"

// How characters are written: as UTF-8 (relay_expr_code_points), or as inside a JSON string (relay_json_chars).
typedef relay_expr (*relay_chars_fn)(relay_grammar *g, const relay_code_range *ranges, uint32_t n, bool is_negated);

// `text` is valid UTF-8. The whole text is to match; with `is_search`, a part of it that the anchors do not bind.
relay_code relay_regex_read(relay_expr *out, relay_grammar *g, const char *text, size_t len, relay_chars_fn chars,
                            bool is_search, const char *field, relay_err *e) RELAY_NODISCARD;

#endif
