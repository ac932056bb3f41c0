// Python's ==, <, in, and sorting. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_COMPARE_H
#define RELAY_TOKENIZER_SVC_JINJA_COMPARE_H

#include "tokenizer_svc/jinja/value.h"

bool jinja_equal(jinja_run *run, jinja_value a, jinja_value b, bool *equal) RELAY_NODISCARD;
// a < b or a == b, where Python orders them; `op` is the operator for the message.
bool jinja_less(jinja_run *run, jinja_value a, jinja_value b, const char *op, bool *less) RELAY_NODISCARD;
bool jinja_less_equal(jinja_run *run, jinja_value a, jinja_value b, const char *op, bool *result) RELAY_NODISCARD;
// item in container
bool jinja_contains(jinja_run *run, jinja_value container, jinja_value item, bool *found) RELAY_NODISCARD;
// Stable: order[0..n) becomes the positions of keys in order; equal ones keep theirs in a reversed sort too.
bool jinja_sort(jinja_run *run, const jinja_value *keys, uint32_t n, bool reverse, uint32_t **order) RELAY_NODISCARD;

#endif
