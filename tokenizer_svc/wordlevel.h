// The WordLevel model: a word is one token, or the unknown one.
#ifndef RELAY_TOKENIZER_SVC_WORDLEVEL_H
#define RELAY_TOKENIZER_SVC_WORDLEVEL_H

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"
#include "tokenizer_svc/word_model.h"

// See word_model.h. INVALID_ARGUMENT for an unknown id out of range.
relay_code relay_wordlevel_create(relay_word_model **out, const relay_tokenizer_spec *spec,
                                  relay_err *e) RELAY_NODISCARD;

#endif
