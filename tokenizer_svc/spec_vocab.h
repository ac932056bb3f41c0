// The canonical vocabulary (common/vocab) of a tokenizer file of any format.
#ifndef RELAY_TOKENIZER_SVC_SPEC_VOCAB_H
#define RELAY_TOKENIZER_SVC_SPEC_VOCAB_H

#include "common/status.h"
#include "common/vocab.h"
#include "tokenizer_svc/tokenizer_spec.h"

// Ids are those of the model and of the added tokens, and up to spec->n_ids padding. The spec may be freed afterwards.
// INVALID_ARGUMENT naming the id that is out of range.
relay_code relay_vocab_create_from_spec(relay_vocab **out, const relay_tokenizer_spec *spec,
                                        relay_err *e) RELAY_NODISCARD;

#endif
