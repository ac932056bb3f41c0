// Chat templates: a conversation in, the text of a prompt out, with the origin of every byte.
//
// The language is Jinja as HF's chat templates use it (jinja/: lexer, parser, evaluator). Compiled once, rendered by
// any thread. Bounded in steps, time, depth, memory and output size: a hostile template or message costs an error and
// nothing else.
#ifndef RELAY_TOKENIZER_SVC_CHAT_TEMPLATE_H
#define RELAY_TOKENIZER_SVC_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "relay/v1/chat.pb-c.h"

typedef struct relay_chat_template relay_chat_template;

// Syntax errors: INVALID_ARGUMENT with line and column. `source` is copied.
relay_code relay_chat_template_compile(relay_chat_template **out, const char *source, size_t len,
                                       relay_err *e) RELAY_NODISCARD;
void relay_chat_template_destroy(relay_chat_template *t);

// What the tokenizer gives a template; valid UTF-8, NULL where there is none.
typedef struct relay_chat_tokens {
    const char *bos_token, *eos_token, *unk_token, *pad_token;
} relay_chat_tokens;

// Where the content of a message that has token_ids stands in the text: whole, or with the white space at its ends
// stripped. What else a template makes of a content (a part of it, another case) is text like any other.
typedef struct relay_rendered_turn {
    size_t begin, end; // bytes
    size_t message;    // its index in chat.messages
} relay_rendered_turn;

typedef struct relay_rendered {
    char *text; // owned; valid UTF-8
    size_t len;
    uint8_t *is_template; // owned [len]: 1 where the byte came from the template (or from bos_token and the like), 0
                          // from the caller
    relay_rendered_turn *turns; // owned [n_turns], in the text's order, apart
    size_t n_turns;
} relay_rendered;

void relay_rendered_fini(relay_rendered *r);

// Who waits for a render: it is asked now and then, from the rendering thread.
typedef struct relay_render_watch {
    bool (*is_over)(void *arg); // the text is not wanted any more
    void *arg;
} relay_render_watch;

// Variables: messages, tools, documents, add_generation_prompt, bos_token, eos_token, ..., and the chat's
// template_args_json. A field that is not set is no key of its message, but for the content of a message with tool
// calls, which is empty then. Every text of the chat is checked for UTF-8 and every JSON for syntax and depth; what is
// wrong is INVALID_ARGUMENT naming the field, such as chat.messages[1].tool_calls[0].arguments_json.
// raise_exception(text) is INVALID_ARGUMENT with that text. `watch` NULL: the text is wanted in any case; else the
// render ends with CANCELLED soon after it is over.
relay_code relay_chat_template_render(const relay_chat_template *t, const Relay__V1__Chat *chat,
                                      const relay_chat_tokens *tokens, const relay_render_watch *watch,
                                      relay_rendered *out, relay_err *e) RELAY_NODISCARD;
// The same with all variables as one JSON object, and none beside them. Errors call it context_json. `now` may be NULL:
// strftime_now shows the clock's time.
relay_code relay_chat_template_render_context(const relay_chat_template *t, ProtobufCBinaryData context_json,
                                              const int64_t *now, const relay_render_watch *watch, relay_rendered *out,
                                              relay_err *e) RELAY_NODISCARD;

#endif
