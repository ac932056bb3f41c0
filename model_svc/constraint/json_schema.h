// JSON Schema (2020-12, and what drafts 4 to 2019-09 spell the same), read into a grammar.
//
// Every text of the grammar is a valid instance; not every valid instance is a text of it: objects have their
// properties in the order of the schema, and no others where additionalProperties is unset. What cannot be kept is
// refused by the keyword's name and the place of its schema as a JSON pointer. docs/structured-output.md lists both.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_JSON_SCHEMA_H
#define RELAY_MODEL_SVC_CONSTRAINT_JSON_SCHEMA_H

#include <stddef.h>

#include "model_svc/constraint/grammar.h"

relay_code relay_json_schema_read(relay_grammar *g, const char *text, size_t len, const char *field,
                                  relay_err *e) RELAY_NODISCARD;

#endif
