// A BPE model behind the seams of word_model.h: the words' tokens by the cache, the tree of pieces and the rules; all
// options of relay_model_spec. Working memory is kept between texts, as much of it as there were texts at a time.
#ifndef RELAY_TOKENIZER_SVC_BPE_MODEL_H
#define RELAY_TOKENIZER_SVC_BPE_MODEL_H

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"
#include "tokenizer_svc/word_model.h"

// INVALID_ARGUMENT for merges that name no tokens or repeat one another.
relay_code relay_bpe_create(relay_word_model **out, const relay_tokenizer_spec *spec, relay_err *e) RELAY_NODISCARD;

// For a BPE model whose pre-tokenizers a scanner knows (scan.h), or that has none; else NULL and OK.
relay_code relay_bpe_stretch_create(relay_stretch_encoder **out, const relay_tokenizer_spec *spec,
                                    relay_err *e) RELAY_NODISCARD;

#endif
