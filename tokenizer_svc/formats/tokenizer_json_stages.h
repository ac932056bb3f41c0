// The stages of a tokenizer.json: normalizers, pre-tokenizers, post-processors and decoders. Sequences are laid flat.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_TOKENIZER_JSON_STAGES_H
#define RELAY_TOKENIZER_SVC_FORMATS_TOKENIZER_JSON_STAGES_H

#include "common/status.h"
#include "tokenizer_svc/formats/json_fields.h"
#include "tokenizer_svc/tokenizer_spec.h"

// Each adds what the object, which has a type, says to the spec.
relay_code relay_tokenizer_json_normalizer(relay_tokenizer_spec *spec, const relay_json_object *o) RELAY_NODISCARD;
relay_code relay_tokenizer_json_pretokenizer(relay_tokenizer_spec *spec, const relay_json_object *o) RELAY_NODISCARD;
relay_code relay_tokenizer_json_post_processor(relay_tokenizer_spec *spec, const relay_json_object *o) RELAY_NODISCARD;
relay_code relay_tokenizer_json_decoder(relay_tokenizer_spec *spec, const relay_json_object *o) RELAY_NODISCARD;

#endif
