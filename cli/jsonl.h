// One JSON object a line in, one a line out, in the same order, with the memory of one line.
#ifndef RELAY_CLI_JSONL_H
#define RELAY_CLI_JSONL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/json.h"
#include "common/status.h"

// Appends the answer to one line, an object, to *out. What a failed one has appended is dropped.
typedef relay_code (*relay_jsonl_answer)(void *arg, yyjson_val *line, relay_buf *out, relay_err *e);

// From standard input to standard output until the one ends or the other fails. A line that fails is answered with
// {"error": "..."} and the rest go on. Returns the exit code: RELAY_EXIT_FAILED where a line failed. Answers are
// written out whenever no more input is there to read, so that a program may wait for each.
int relay_jsonl_run(relay_jsonl_answer answer, void *arg);

// ---- Reading a line's object. Errors are INVALID_ARGUMENT naming the key.

// No key but those in known[0..n), so that one misspelt is told and not skipped.
relay_code relay_jsonl_check_keys(yyjson_val *object, const char *const *known, size_t n, relay_err *e) RELAY_NODISCARD;
// *is_set false where the key is absent or null.
relay_code relay_jsonl_bool(yyjson_val *object, const char *key, int *is_set, int *value, relay_err *e) RELAY_NODISCARD;
relay_code relay_jsonl_int(yyjson_val *object, const char *key, int *is_set, int64_t *value,
                           relay_err *e) RELAY_NODISCARD;
// The value of a key that must be there and have the type; `type_name` is for the error: "a string".
relay_code relay_jsonl_need(yyjson_val *object, const char *key, yyjson_type type, const char *type_name,
                            yyjson_val **value, relay_err *e) RELAY_NODISCARD;
// An array of token ids; the caller frees *ids. `key` is what errors call it.
relay_code relay_jsonl_ids(yyjson_val *array, const char *key, uint32_t **ids, size_t *n, relay_err *e) RELAY_NODISCARD;

// ---- Writing

void relay_jsonl_put_ids(relay_buf *out, const uint32_t *ids, size_t n);

#endif
