#include "tokenizer_svc/turn_end.h"

#include <stdlib.h>
#include <string.h>

#include "common/message.h"

// Words that no template has, so that none says something of its own about them.
static const char *const turns[3][2] = {{"user", "Aq"}, {"assistant", "Bq"}, {"user", "Cq"}};

// The template's bytes behind the answer, up to the next of the caller's. False where the answer is not in the text.
static bool find_end(const relay_rendered *r, size_t *begin, size_t *end) {
    if (r->n_turns != 1) return false;
    *begin = *end = r->turns[0].end;
    while (*end < r->len && r->is_template[*end])
        ++*end;
    return true;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void set_string(relay_turn_end *out, const char *s, size_t len) {
    while (len > 0 && is_space(s[len - 1]))
        len--;
    if (len == 0 || len > RELAY_MAX_STOP_STRING_BYTES) return;
    out->string = relay_strndup(s, len);
    out->string_len = len;
}

static void read_end(relay_turn_end *out, const char *text, size_t len, const relay_tokenizer *tokenizer,
                     const relay_vocab *vocab) {
    relay_text_span span = {.text = text, .len = len, .parse_special = true};
    relay_encode_opts opts = {.want_offsets = true};
    relay_encoding enc = {.has_offsets = true};
    size_t head = len; // what stands before the first control token
    if (relay_tokenizer_encode(tokenizer, &span, 1, &opts, &enc, NULL) != RELAY_OK) enc.n = 0;
    for (uint32_t i = 0; i < enc.n && head == len; i++) {
        if (relay_vocab_token(vocab, enc.ids[i])->kind != RELAY_TOKEN_CONTROL) continue;
        head = enc.offset_begin[i];
        out->has_id = true;
        out->id = enc.ids[i];
    }
    set_string(out, text, head);
    out->has_id = out->has_id && out->string == NULL;
    relay_encoding_fini(&enc);
}

// The first n turns; the answer has an id, so that its place in the text is told.
static bool render(relay_rendered *out, const relay_chat_template *t, const relay_chat_tokens *tokens, size_t n,
                   const relay_render_watch *watch) {
    Relay__V1__ChatMessage messages[3], *list[3];
    uint32_t any_id = 0;
    for (size_t i = 0; i < 3; i++) {
        relay__v1__chat_message__init(&messages[i]);
        RELAY_SET(&messages[i], role, relay_message_text(turns[i][0]));
        RELAY_SET(&messages[i], content, relay_message_text(turns[i][1]));
        list[i] = &messages[i];
    }
    messages[1].n_token_ids = 1;
    messages[1].token_ids = &any_id;
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    chat.n_messages = n;
    chat.messages = list;
    RELAY_SET(&chat, add_generation_prompt, n == 1);
    RELAY_SET(&chat, now_unix_seconds, 0);
    return relay_chat_template_render(t, &chat, tokens, watch, out, NULL) == RELAY_OK;
}

// Whether the generation prompt leaves control tokens before the content to the model.
static bool opens_content(const relay_rendered *r, const relay_rendered *prompt, const relay_tokenizer *tokenizer,
                          const relay_vocab *vocab) {
    size_t begin = r->turns[0].begin;
    if (prompt->len >= begin || memcmp(prompt->text, r->text, prompt->len) != 0) return false;
    relay_text_span span = {.text = r->text + prompt->len, .len = begin - prompt->len, .parse_special = true};
    relay_encode_opts opts = {0};
    relay_encoding enc = {0};
    if (relay_tokenizer_encode(tokenizer, &span, 1, &opts, &enc, NULL) != RELAY_OK) enc.n = 0;
    bool found = false;
    for (uint32_t i = 0; i < enc.n && !found; i++)
        found = relay_vocab_token(vocab, enc.ids[i])->kind == RELAY_TOKEN_CONTROL;
    relay_encoding_fini(&enc);
    return found;
}

void relay_turn_end_find(relay_turn_end *out, const relay_chat_template *t, const relay_chat_tokens *tokens,
                         const relay_tokenizer *tokenizer, const relay_vocab *vocab, const relay_render_watch *watch) {
    *out = (relay_turn_end){0};
    relay_rendered r = {0}, prompt = {0};
    size_t begin, end;
    if (render(&r, t, tokens, 3, watch) && find_end(&r, &begin, &end)) {
        bool has_prompt = render(&prompt, t, tokens, 1, watch);
        if (!has_prompt || !opens_content(&r, &prompt, tokenizer, vocab)) {
            read_end(out, r.text + begin, end - begin, tokenizer, vocab);
        }
    }
    relay_rendered_fini(&r);
    relay_rendered_fini(&prompt);
}

void relay_turn_end_fini(relay_turn_end *end) {
    free(end->string);
    *end = (relay_turn_end){0};
}
