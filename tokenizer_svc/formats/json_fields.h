// Fields of a JSON object, with errors that name their path: "pre_tokenizer.pretokenizers[1].behavior".
#ifndef RELAY_TOKENIZER_SVC_FORMATS_JSON_FIELDS_H
#define RELAY_TOKENIZER_SVC_FORMATS_JSON_FIELDS_H

#include <stdbool.h>
#include <stdint.h>
#include <yyjson.h>

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

enum { RELAY_JSON_PATH_MAX = 128 };

// An object on the way through a file. Errors go to `e`.
typedef struct relay_json_object {
    yyjson_val *v;
    char path[RELAY_JSON_PATH_MAX];
    relay_err *e;
} relay_json_object;

// "path: what is wrong".
relay_code relay_json_refuse(const relay_json_object *o, relay_code code, const char *field, const char *fmt, ...)
    RELAY_PRINTF(4, 5);

// INVALID_ARGUMENT where the field is not of the type. A field that is missing or null leaves *out as it is where it is
// optional.
relay_code relay_json_bool(const relay_json_object *o, const char *field, bool is_optional, bool *out) RELAY_NODISCARD;
relay_code relay_json_u32(const relay_json_object *o, const char *field, bool is_optional,
                          uint32_t *out) RELAY_NODISCARD;
// The string stays in the document.
relay_code relay_json_str(const relay_json_object *o, const char *field, bool is_optional,
                          relay_spec_str *out) RELAY_NODISCARD;
// The object's field as an object with its path. *found is false where it is missing or null.
relay_code relay_json_child(const relay_json_object *o, const char *field, relay_json_object *out,
                            bool *found) RELAY_NODISCARD;
// Element i of an array, which must be an object.
relay_code relay_json_element(const relay_json_object *o, const char *field, size_t i, yyjson_val *element,
                              relay_json_object *out) RELAY_NODISCARD;
// An array; required.
relay_code relay_json_array(const relay_json_object *o, const char *field, yyjson_val **out) RELAY_NODISCARD;
// The place in a list of names ended by NULL. UNIMPLEMENTED naming one that is not there.
relay_code relay_json_choice(const relay_json_object *o, const char *field, const char *const *names, bool is_optional,
                             uint32_t *out) RELAY_NODISCARD;

#endif
