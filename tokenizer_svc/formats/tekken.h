// Mistral's tekken.json: tokens in base64 by rank, the pattern, and special tokens, whose ids come first.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_TEKKEN_H
#define RELAY_TOKENIZER_SVC_FORMATS_TEKKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <yyjson.h>

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

// Whether a document is one: an object with a vocab that is an array and a config.
bool relay_tekken_is(yyjson_val *root);

// Fills in *spec, whose arena is ready and whose other fields are zero; copies what it keeps. Errors name the path:
// "vocab[17].token_bytes".
relay_code relay_tekken_read(relay_tokenizer_spec *spec, yyjson_val *root, relay_err *e) RELAY_NODISCARD;

#endif
