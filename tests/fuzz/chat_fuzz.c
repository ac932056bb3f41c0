// Reads the input as a relay.v1.Chat message and renders it with a template that looks at all of it.
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer_svc/chat_template.h"

static const char source[] =
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m.content | trim }}"
    "{% elif m.content %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name ~ ' ' ~ (c.function.arguments | tojson) }}{% endfor %}"
    "{{ m }}{{ m.reasoning_content }}\n{% endfor %}{{ tools | tojson(indent=1) }}{{ documents }}{{ enable_thinking }}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}{{ strftime_now('%Y') if messages | length > 2 }}";

static ProtobufCBinaryData bytes(const char *s) {
    return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)s, .len = strlen(s)};
}

#define SET(message, field, text) ((message)->has_##field = true, (message)->field = bytes(text))

// A chat with every field; the number of the seed says which are left out.
size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    if (i >= 6) return 0;
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    Relay__V1__ChatMessage a = RELAY__V1__CHAT_MESSAGE__INIT, b = RELAY__V1__CHAT_MESSAGE__INIT;
    Relay__V1__ContentPart part = RELAY__V1__CONTENT_PART__INIT;
    Relay__V1__ToolCall call = RELAY__V1__TOOL_CALL__INIT;
    Relay__V1__ChatMessage *messages[] = {&a, &b, &a};
    Relay__V1__ContentPart *parts[] = {&part};
    Relay__V1__ToolCall *calls[] = {&call};
    SET(&a, role, "user");
    SET(&b, role, "assistant");
    part.part_case = RELAY__V1__CONTENT_PART__PART_TEXT;
    part.text = bytes("text");
    SET(&call, name, "f");
    SET(&call, arguments_json, "{\"a\": [1, {\"b\": null}], \"c\": 1e3}");
    SET(&a, content, "Hello <|im_end|>");
    if (i % 2 == 1) {
        a.has_content = false;
        a.parts = parts;
        a.n_parts = 1;
    }
    b.tool_calls = calls;
    b.n_tool_calls = 1;
    SET(&b, reasoning_content, "hm");
    static uint32_t ids[] = {1, 2};
    if (i % 2 == 0) {
        a.token_ids = ids;
        a.n_token_ids = 2;
    }
    SET(&b, extra_json, "{\"x\": [true, 12345678901234567890]}");
    SET(&chat, tools_json, "[{\"name\": \"f\"}]");
    SET(&chat, template_args_json, "{\"enable_thinking\": false}");
    chat.messages = messages;
    chat.n_messages = 1 + i % 3;
    chat.has_continue_final_message = true;
    chat.continue_final_message = i == 0;
    chat.has_now_unix_seconds = true;
    chat.now_unix_seconds = (int64_t)i << 40;
    size_t size = relay__v1__chat__get_packed_size(&chat);
    return size > cap ? 0 : relay__v1__chat__pack(&chat, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static relay_chat_template *t;
    static const relay_chat_tokens tokens = {.bos_token = "<s>"};
    relay_err e = {0};
    if (t == NULL) RELAY_ASSERT(relay_chat_template_compile(&t, source, sizeof source - 1, &e) == RELAY_OK);
    Relay__V1__Chat *chat = relay__v1__chat__unpack(NULL, size, data);
    if (chat == NULL) return 0;
    relay_rendered rendered;
    relay_code code = relay_chat_template_render(t, chat, &tokens, NULL, &rendered, &e);
    if (code == RELAY_OK) {
        RELAY_ASSERT(relay_utf8_is_valid(rendered.text, rendered.len));
        for (size_t i = 0; i < rendered.len; i++)
            RELAY_ASSERT(rendered.is_template[i] <= 1);
        for (size_t i = 0, at = 0; i < rendered.n_turns; at = rendered.turns[i++].end) {
            const relay_rendered_turn *turn = &rendered.turns[i];
            RELAY_ASSERT(at <= turn->begin && turn->begin < turn->end && turn->end <= rendered.len);
            RELAY_ASSERT(turn->message < chat->n_messages && chat->messages[turn->message]->n_token_ids != 0);
        }
    } else {
        RELAY_ASSERT(code == RELAY_INVALID_ARGUMENT || code == RELAY_RESOURCE_EXHAUSTED);
        RELAY_ASSERT(relay_utf8_is_valid(e.message, strlen(e.message)) && e.message[0] != 0);
    }
    relay_rendered_fini(&rendered);
    relay__v1__chat__free_unpacked(chat, NULL);
    return 0;
}
