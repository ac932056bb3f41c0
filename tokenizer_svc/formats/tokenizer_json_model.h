// The model of a tokenizer.json: BPE, Unigram, WordPiece, WordLevel.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_TOKENIZER_JSON_MODEL_H
#define RELAY_TOKENIZER_SVC_FORMATS_TOKENIZER_JSON_MODEL_H

#include "common/status.h"
#include "tokenizer_svc/formats/json_fields.h"
#include "tokenizer_svc/formats/piece_index.h"
#include "tokenizer_svc/tokenizer_spec.h"

// Fills in spec->model, behind the pre-tokenizers, and enters its pieces in *index, which is initialized and the
// caller's to end where *has_index. *n_pieces is how many there are.
relay_code relay_tokenizer_json_model(relay_tokenizer_spec *spec, const relay_json_object *model,
                                      relay_piece_index *index, bool *has_index, uint32_t *n_pieces) RELAY_NODISCARD;

#endif
