// What the files of the schema reader share: json_schema.c goes through schemas, json_schema_object.c through what is
// in objects and arrays, json_schema_string.c through strings.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_JSON_SCHEMA_INTERNAL_H
#define RELAY_MODEL_SVC_CONSTRAINT_JSON_SCHEMA_INTERNAL_H

#include <stdbool.h>
#include <yyjson.h>

#include "common/buf.h"
#include "model_svc/constraint/json_text.h"

// A schema that is referred to, and its rule.
typedef struct relay_schema_ref {
    yyjson_val *schema;
    uint32_t rule;
    char *path;
} relay_schema_ref;

typedef struct relay_schema_reader {
    relay_json_rules rules;
    relay_grammar *g;
    yyjson_val *root;
    relay_buf path; // JSON pointer of the schema being read
    relay_schema_ref *refs;
    uint32_t n_refs, cap_refs;
    const char *field;
    relay_code code;
    relay_err *e;
} relay_schema_reader;

// Marks the reader as failed, at the schema being read; gives NOTHING.
relay_expr relay_schema_fail(relay_schema_reader *r, const char *fmt, ...) RELAY_PRINTF(2, 3);
// Appends "/name" to the path; gives its length before, for leave.
size_t relay_schema_enter(relay_schema_reader *r, const char *name, size_t len);
void relay_schema_leave(relay_schema_reader *r, size_t path_len);
// A schema below the one being read, at `name` (and `index` or `key` in it, where they are given).
relay_expr relay_schema_below(relay_schema_reader *r, yyjson_val *schema, const char *name, yyjson_val *key,
                              const size_t *index);
// A keyword whose value is a whole number from 0 on; `out` stays as it is where it is unset.
bool relay_schema_count(relay_schema_reader *r, yyjson_val *schema, const char *keyword, uint32_t *out);

relay_expr relay_schema_object(relay_schema_reader *r, yyjson_val *schema);
relay_expr relay_schema_array(relay_schema_reader *r, yyjson_val *schema);
relay_expr relay_schema_string(relay_schema_reader *r, yyjson_val *schema);

#endif
