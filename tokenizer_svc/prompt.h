// The prompt of a GenerateRequest, whichever form it came in, as token ids.
#ifndef RELAY_TOKENIZER_SVC_PROMPT_H
#define RELAY_TOKENIZER_SVC_PROMPT_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "relay/v1/generation.pb-c.h"
#include "tokenizer_svc/text_model.h"

typedef struct relay_prompt {
    relay_encoding encoding; // its ids, at least one
    char *text;              // owned; what `echo` tells, NULL where it is not asked for
    size_t text_len;
    const relay_turn_end *turn_end; // of a chat's template: belongs to the model; NULL where the prompt is no chat
} relay_prompt;

// *out is zeroed before and needs relay_prompt_fini in any case. `watch`: whose chat it is. Errors name the field:
// prompt, chat, token_ids.
relay_code relay_prompt_make(relay_prompt *out, const relay_text_model *model, const Relay__V1__GenerateRequest *m,
                             uint64_t max_text_bytes, const relay_render_watch *watch, relay_err *e) RELAY_NODISCARD;
void relay_prompt_fini(relay_prompt *p);

#endif
