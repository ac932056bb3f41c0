// What a chat template ends an assistant's turn with: found by rendering a small conversation and looking what stands
// behind its answer.
//
// A control token there ends the answer: its id. Where the template goes on in plain text (no control token before the
// next turn's own text), that text does, without the white space at its end.
//
// Some models write more than a content in their turn: the template opens the content with control tokens that the
// generation prompt leaves to the model (<|channel|>final<|message|>), and thoughts before it end as it does. There
// what stands behind a content ends only a part of the answer, and nothing is implied.
#ifndef RELAY_TOKENIZER_SVC_TURN_END_H
#define RELAY_TOKENIZER_SVC_TURN_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/vocab.h"
#include "tokenizer_svc/chat_template.h"
#include "tokenizer_svc/stop_matcher.h"
#include "tokenizer_svc/tokenizer.h"

typedef struct relay_turn_end {
    bool has_id;
    uint32_t id;
    char *string; // owned; NULL where there is none; at most RELAY_MAX_STOP_STRING_BYTES
    size_t string_len;
} relay_turn_end;

// Neither, for a template that fails on such a conversation or writes nothing behind an answer.
void relay_turn_end_find(relay_turn_end *out, const relay_chat_template *t, const relay_chat_tokens *tokens,
                         const relay_tokenizer *tokenizer, const relay_vocab *vocab, const relay_render_watch *watch);
void relay_turn_end_fini(relay_turn_end *end);

#endif
