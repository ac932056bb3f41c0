// JSON as values of a run; every byte of them is the caller's.
#ifndef RELAY_TOKENIZER_SVC_JINJA_FROM_JSON_H
#define RELAY_TOKENIZER_SVC_JINJA_FROM_JSON_H

#include "common/json.h"
#include "tokenizer_svc/jinja/value.h"

// The strings are borrowed from the document, which must outlive the run. Recurses as deep as the document nests:
// RELAY_JSON_MAX_DEPTH. False when the run's memory is out.
bool jinja_from_json(jinja_run *run, yyjson_val *json, jinja_value *out) RELAY_NODISCARD;

#endif
