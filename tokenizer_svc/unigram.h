// The Unigram model: of all ways to cut a text into pieces, the one with the highest sum of log probabilities.
//
// Method: Kudo 2018, by Viterbi's algorithm over bytes as in sentencepiece's EncodeOptimized. A character that no piece
// stands for alone may be an unknown one at min(score) - 10; neighbouring unknown ones become one token, or the tokens
// of their bytes where the model falls back to bytes. Time is linear in the text.
#ifndef RELAY_TOKENIZER_SVC_UNIGRAM_H
#define RELAY_TOKENIZER_SVC_UNIGRAM_H

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"
#include "tokenizer_svc/word_model.h"

// See word_model.h. INVALID_ARGUMENT for an unknown id out of range.
relay_code relay_unigram_create(relay_word_model **out, const relay_tokenizer_spec *spec, relay_err *e) RELAY_NODISCARD;

#endif
