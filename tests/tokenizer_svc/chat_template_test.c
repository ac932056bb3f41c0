#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tokenizer_svc/jinja_world.h"
#include "tokenizer_svc/chat_template.h"

#define DATA "tests/data/chat_templates/"

static const relay_chat_tokens TOKENS = {.bos_token = "<s>", .eos_token = "</s>"};

// ---- a chat of literals

enum { MOST = 8 };

typedef struct world {
    Relay__V1__Chat chat;
    Relay__V1__ChatMessage messages[MOST];
    Relay__V1__ChatMessage *message_list[MOST];
    Relay__V1__ToolCall calls[MOST];
    Relay__V1__ToolCall *call_list[MOST];
    Relay__V1__ContentPart parts[MOST];
    Relay__V1__ContentPart *part_list[MOST];
} world;

static ProtobufCBinaryData bytes(const char *s) {
    return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)s, .len = strlen(s)};
}

#define SET(message, field, text) ((message)->has_##field = true, (message)->field = bytes(text))

static void setup(world *w) {
    relay__v1__chat__init(&w->chat);
    for (int i = 0; i < MOST; i++) {
        relay__v1__chat_message__init(&w->messages[i]);
        relay__v1__tool_call__init(&w->calls[i]);
        relay__v1__content_part__init(&w->parts[i]);
        w->message_list[i] = &w->messages[i];
        w->call_list[i] = &w->calls[i];
        w->part_list[i] = &w->parts[i];
    }
    w->chat.messages = w->message_list;
}

static Relay__V1__ChatMessage *say(world *w, const char *role, const char *content) {
    Relay__V1__ChatMessage *m = &w->messages[w->chat.n_messages++];
    SET(m, role, role);
    if (content != NULL) SET(m, content, content);
    return m;
}

typedef struct outcome {
    relay_code code;
    relay_err error;
    relay_rendered rendered;
    char text[8192]; // NUL-terminated copy
} outcome;

static outcome render(const char *source, const Relay__V1__Chat *chat) {
    outcome o = {0};
    relay_chat_template *t;
    o.code = relay_chat_template_compile(&t, source, strlen(source), &o.error);
    if (o.code != RELAY_OK) return o;
    o.code = relay_chat_template_render(t, chat, &TOKENS, NULL, &o.rendered, &o.error);
    relay_chat_template_destroy(t);
    if (o.code == RELAY_OK) {
        assert_true(o.rendered.len < sizeof o.text);
        memcpy(o.text, o.rendered.text, o.rendered.len);
    }
    relay_rendered_fini(&o.rendered);
    return o;
}

static void renders(const char *source, const Relay__V1__Chat *chat, const char *expected) {
    outcome o = render(source, chat);
    if (o.code != RELAY_OK) fail_msg("%s", o.error.message);
    assert_string_equal(o.text, expected);
}

static void refuses(const char *source, const Relay__V1__Chat *chat, const char *message) {
    outcome o = render(source, chat);
    assert_int_equal(o.code, RELAY_INVALID_ARGUMENT);
    assert_string_equal(o.error.message, message);
}

// ---- whole templates

static void renders_smollm2(void **state) {
    size_t len;
    char *source = jinja_world_read_file(DATA "smollm2.jinja", &len);
    world w = {0};
    setup(&w);
    say(&w, "user", "Hi <|im_end|>");
    renders(source, &w.chat,
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n");
    free(source);
}

static void renders_qwen_with_tools(void **state) {
    size_t len;
    char *source = jinja_world_read_file(DATA "qwen2.5.jinja", &len);
    world w = {0};
    setup(&w);
    say(&w, "user", "Weather?");
    Relay__V1__ChatMessage *m = say(&w, "assistant", NULL);
    m->tool_calls = w.call_list;
    m->n_tool_calls = 1;
    SET(&w.calls[0], name, "get_weather");
    SET(&w.calls[0], arguments_json, "{\"place\":\"Z\\u00fcrich\",\"days\":2}");
    say(&w, "tool", "sunny");
    SET(&w.chat, tools_json, "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"limit\":1.0}}]");
    renders(source, &w.chat,
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.\n\n# Tools\n\n"
            "You may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
            "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"limit\": 1.0}}\n</tools>\n\n"
            "For each function call, return a json object with function name and arguments within "
            "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
            "<args-json-object>}\n</tool_call><|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n"
            "<|im_start|>assistant\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Zürich\", "
            "\"days\": 2}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nsunny\n</tool_response>"
            "<|im_end|>\n<|im_start|>assistant\n");
    free(source);
}

// A caller who types control tokens yields bytes of the caller's.
static void knows_who_wrote_each_byte(void **state) {
    size_t len;
    char *source = jinja_world_read_file(DATA "smollm2.jinja", &len);
    world w = {0};
    setup(&w);
    say(&w, "system", "S");
    say(&w, "user", "<|im_end|>");
    relay_chat_template *t;
    relay_rendered r;
    relay_err e = {0};
    assert_int_equal(relay_chat_template_compile(&t, source, len, &e), RELAY_OK);
    assert_int_equal(relay_chat_template_render(t, &w.chat, &TOKENS, NULL, &r, &e), RELAY_OK);
    static const char text[] = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n<|im_end|><|im_end|>\n"
                               "<|im_start|>assistant\n";
    static const char from[] = "111111111111000000101111111111111111111111100001000000000011111111111"
                               "1111111111111111111111";
    assert_int_equal(sizeof text, sizeof from);
    assert_int_equal(r.len, sizeof text - 1);
    for (size_t i = 0; i < r.len; i++)
        assert_int_equal(r.is_template[i], from[i] - '0');
    relay_rendered_fini(&r);
    relay_chat_template_destroy(t);
    free(source);
}

// A compiled template is shared by all workers.
typedef struct sharer {
    const relay_chat_template *t;
    const Relay__V1__Chat *chat;
} sharer;

static void *render_often(void *arg) {
    const sharer *s = arg;
    for (int i = 0; i < 50; i++) {
        relay_rendered r;
        relay_err e = {0};
        assert_int_equal(relay_chat_template_render(s->t, s->chat, &TOKENS, NULL, &r, &e), RELAY_OK);
        assert_memory_equal(r.text, "<|im_start|>system\nYou are Qwen", 31);
        relay_rendered_fini(&r);
    }
    return NULL;
}

static void renders_in_many_threads(void **state) {
    size_t len;
    char *source = jinja_world_read_file(DATA "qwen2.5.jinja", &len);
    world w = {0};
    setup(&w);
    say(&w, "user", "x");
    SET(&w.chat, tools_json,
        "[{\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6, \"g\": 7, \"h\": 8, \"i\": 9}]");
    relay_chat_template *t;
    relay_err e = {0};
    assert_int_equal(relay_chat_template_compile(&t, source, len, &e), RELAY_OK);
    sharer s = {t, &w.chat};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &s), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    relay_chat_template_destroy(t);
    free(source);
}

// ---- the variables

static void gives_messages_their_fields(void **state) {
    world w = {0};
    setup(&w);
    Relay__V1__ChatMessage *m = say(&w, "assistant", "");
    SET(m, name, "n");
    SET(m, tool_call_id, "t");
    SET(m, reasoning_content, "r");
    SET(m, extra_json, "{\"citations\": [1], \"eot\": null}");
    m->tool_calls = w.call_list;
    m->n_tool_calls = 2;
    SET(&w.calls[0], id, "c0");
    SET(&w.calls[0], name, "f");
    SET(&w.calls[0], arguments_json, "{}");
    SET(&w.calls[1], arguments_json, "[1, 2]");
    renders("{{ messages }}", &w.chat,
            "[{'role': 'assistant', 'content': '', 'name': 'n', 'tool_calls': [{'type': 'function', 'id': 'c0', "
            "'function': {'name': 'f', 'arguments': {}}}, {'type': 'function', 'function': {'arguments': '[1, 2]'}}], "
            "'tool_call_id': 't', 'reasoning_content': 'r', 'citations': [1], 'eot': None}]");
}

static void gives_parts_as_a_list(void **state) {
    world w = {0};
    setup(&w);
    Relay__V1__ChatMessage *m = say(&w, "user", NULL);
    m->parts = w.part_list;
    m->n_parts = 2;
    for (int i = 0; i < 2; i++) {
        w.parts[i].part_case = RELAY__V1__CONTENT_PART__PART_TEXT;
        w.parts[i].text = bytes(i == 0 ? "a" : "b");
    }
    renders("{{ messages[0].content }}", &w.chat, "[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]");
}

static void has_no_key_for_a_field_that_is_not_set(void **state) {
    world w = {0};
    setup(&w);
    say(&w, "assistant", NULL);
    renders("{{ messages[0] }}|{{ messages[0].content is defined }}", &w.chat, "{'role': 'assistant'}|False");
}

static void gives_tool_calls_alone_an_empty_content(void **state) {
    world w = {0};
    setup(&w);
    Relay__V1__ChatMessage *m = say(&w, "assistant", NULL);
    m->tool_calls = w.call_list;
    m->n_tool_calls = 1;
    renders("{{ messages[0].content is string }}{{ messages[0].content | length }}", &w.chat, "True0");
    SET(m, extra_json, "{\"content\": null}");
    renders("{{ messages[0].content }}", &w.chat, "None");
}

static void has_the_variables_of_hf(void **state) {
    world w = {0};
    setup(&w);
    say(&w, "user", "x");
    renders("{{ tools }}|{{ documents }}|{{ add_generation_prompt }}|{{ bos_token }}|{{ eos_token }}|"
            "{{ unk_token is defined }}|{{ enable_thinking is defined }}",
            &w.chat, "None|None|True|<s>|</s>|False|False");
    SET(&w.chat, tools_json, "[]");
    SET(&w.chat, documents_json, "[{\"title\": \"t\"}]");
    SET(&w.chat, template_args_json, "{\"enable_thinking\": false, \"bos_token\": \"B\"}");
    w.chat.has_add_generation_prompt = true;
    renders("{{ tools }}|{{ documents }}|{{ add_generation_prompt }}|{{ bos_token }}|{{ enable_thinking }}", &w.chat,
            "[]|[{'title': 't'}]|False|B|False");
}

static void shows_the_time_that_it_is_given(void **state) {
    world w = {0};
    setup(&w);
    say(&w, "user", "x");
    w.chat.has_now_unix_seconds = true;
    w.chat.now_unix_seconds = 86399;
    renders("{{ strftime_now('%Y-%m-%d %H:%M:%S %B %j%%') }}", &w.chat, "1970-01-01 23:59:59 January 001%");
    w.chat.now_unix_seconds = INT64_MAX;
    outcome o = render("{{ strftime_now('%Y') }}", &w.chat);
    assert_int_equal(o.code, RELAY_INVALID_ARGUMENT);
}

// ---- what is refused

static void names_the_field_that_is_wrong(void **state) {
    world w = {0};
    setup(&w);
    refuses("", &w.chat, "chat.messages is empty");
    say(&w, "system", "x");
    Relay__V1__ChatMessage *m = say(&w, "user", "a\xFFz");
    refuses("", &w.chat, "chat.messages[1].content: byte 1 is not valid UTF-8");
    SET(m, content, "a");
    m->has_role = false;
    refuses("", &w.chat, "chat.messages[1].role is not set");
    m->has_role = true;
    m->tool_calls = w.call_list;
    m->n_tool_calls = 1;
    SET(&w.calls[0], arguments_json, "{\"a\":}");
    refuses("", &w.chat,
            "chat.messages[1].tool_calls[0].arguments_json: byte 5: unexpected character, "
            "expected a valid JSON value");
    SET(&w.calls[0], arguments_json, "{}");
    SET(&w.calls[0], name, "\x80");
    refuses("", &w.chat, "chat.messages[1].tool_calls[0].name: byte 0 is not valid UTF-8");
    SET(&w.calls[0], name, "n");
    SET(m, extra_json, "[]");
    refuses("", &w.chat, "chat.messages[1].extra_json: must be a JSON object");
    SET(m, extra_json, "{\"content\": 1}");
    refuses("", &w.chat, "chat.messages[1].extra_json: \"content\" is set by its own field");
    SET(m, extra_json, "{}");
    m->parts = w.part_list;
    m->n_parts = 1;
    refuses("", &w.chat, "chat.messages[1]: content and parts are both set");
    m->has_content = false;
    refuses("", &w.chat, "chat.messages[1].parts[0]: only text parts are supported");
    m->n_parts = 0;
    SET(&w.chat, tools_json, "{}");
    refuses("", &w.chat, "chat.tools_json: must be a JSON array");
    SET(&w.chat, tools_json, "");
    refuses("", &w.chat, "chat.tools_json: is empty; leave it out or give JSON");
    w.chat.has_tools_json = false;
    SET(&w.chat, template_args_json, "{\"messages\": []}");
    refuses("", &w.chat, "chat.template_args_json: \"messages\" is set by its own field");
    SET(&w.chat, template_args_json, "3");
    refuses("", &w.chat, "chat.template_args_json: must be a JSON object");
}

static void refuses_json_that_nests_too_deep(void **state) {
    char json[200];
    world w = {0};
    setup(&w);
    say(&w, "user", "x");
    memset(json, '[', 65);
    memset(json + 65, ']', 65);
    json[130] = 0;
    SET(&w.chat, tools_json, json);
    refuses("", &w.chat, "chat.tools_json: byte 64: more than 64 levels of nesting");
}

// The content is all but found at every byte of the text.
static void a_final_message_is_looked_for_within_the_bounds(void **state) {
    enum { LEN = 500000 };
    world w = {0};
    setup(&w);
    char *content = relay_calloc(LEN + 1, 1);
    memset(content, 'a', LEN);
    content[LEN / 2] = 'b';
    say(&w, "assistant", content);
    w.chat.has_continue_final_message = w.chat.continue_final_message = true;
    outcome o = render("{{ 'a' * 2000000 }}", &w.chat);
    assert_int_equal(o.code, RELAY_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(o.error.message, "takes more than"));
    free(content);
}

static void an_exception_of_the_template_is_the_message(void **state) {
    world w = {0};
    setup(&w);
    say(&w, "user", "x");
    refuses("{{ raise_exception('Conversation roles must ' ~ 'alternate') }}", &w.chat,
            "Conversation roles must alternate");
}

static void names_the_place_in_the_template(void **state) {
    world w = {0};
    setup(&w);
    say(&w, "user", "x");
    refuses("a\n  {{ messages[0].nothing.more }}", &w.chat,
            "chat template: line 2, column 25: 'dict object' has no attribute 'nothing'");
    w.chat.messages[0]->has_content = false;
    refuses("{{ 'x' + messages[0].content }}", &w.chat,
            "chat template: line 1, column 8: 'dict object' has no attribute 'content'; chat.messages[0].content is "
            "not set");
    refuses("ab\n\xC3\xA9\xC3\xA9 {% if %}", &w.chat,
            "chat template: line 2, column 10: Expected an expression, got end of statement block");
}

// ---- continue_final_message

static void ends_behind_the_final_message(void **state) {
    static const char source[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
                                 "{% if add_generation_prompt %}<assistant>{% endif %}";
    world w = {0};
    setup(&w);
    say(&w, "user", "one");
    Relay__V1__ChatMessage *m = say(&w, "assistant", "  one two ");
    w.chat.has_continue_final_message = w.chat.continue_final_message = true;
    renders(source, &w.chat, "<user>one<end><assistant>  one two ");
    // a template that trims
    renders("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", &w.chat, "[one][one two");
    refuses("{{ messages[0].content }}", &w.chat,
            "chat.continue_final_message: the template does not show the content of chat.messages[1] as it is");
    m->has_content = false;
    refuses(source, &w.chat, "chat.continue_final_message: chat.messages[1].content is not set");
    w.chat.has_add_generation_prompt = w.chat.add_generation_prompt = true;
    refuses(source, &w.chat, "chat.continue_final_message and chat.add_generation_prompt are both true");
}

// ---- turns that have ids

static uint32_t some_ids[] = {1, 2, 3};

static void give_ids(Relay__V1__ChatMessage *m) {
    m->token_ids = some_ids;
    m->n_token_ids = 3;
}

// The places of the turns in the text: "[begin,end)=message ..."
static void finds_turns(const char *source, const Relay__V1__Chat *chat, const char *expected) {
    relay_chat_template *t;
    relay_rendered r;
    relay_err e;
    char found[256] = "";
    if (relay_chat_template_compile(&t, source, strlen(source), &e) != RELAY_OK) fail_msg("%s", e.message);
    if (relay_chat_template_render(t, chat, &TOKENS, NULL, &r, &e) != RELAY_OK) fail_msg("%s", e.message);
    for (size_t i = 0, at = 0; i < r.n_turns; i++) {
        at += (size_t)snprintf(found + at, sizeof found - at, "%s[%zu,%zu)=%zu", i == 0 ? "" : " ", r.turns[i].begin,
                               r.turns[i].end, r.turns[i].message);
        for (size_t k = r.turns[i].begin; k < r.turns[i].end; k++)
            assert_int_equal(r.is_template[k], 0);
    }
    assert_string_equal(found, expected);
    relay_rendered_fini(&r);
    relay_chat_template_destroy(t);
}

static void a_turn_with_ids_is_found_where_its_content_is(void **state) {
    static const char whole[] = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
    static const char trimmed[] = "{% for m in messages %}{{ '<' + m.content | trim + '>' }}{% endfor %}";
    world w = {0};
    setup(&w);
    say(&w, "user", "yes");
    give_ids(say(&w, "assistant", " yes\n"));
    say(&w, "user", " yes\n");
    give_ids(say(&w, "assistant", "\xC3\xA9"));
    // <yes>< yes\n>< yes\n><e'>
    finds_turns(whole, &w.chat, "[6,11)=1 [20,22)=3");
    finds_turns(trimmed, &w.chat, "[6,9)=1 [16,18)=3");
    // Through a variable, a macro, a list of both and a block; not where it is changed or only a part.
    finds_turns("{% set a %}{{ messages[1].content }}{% endset %}{{ a }}", &w.chat, "[0,5)=1");
    finds_turns("{% macro f(x) %}{{ x }}{% endmacro %}({{ f(messages[1].content) }}", &w.chat, "[1,6)=1");
    finds_turns("{{ messages | map(attribute='content') | join('|') }}", &w.chat, "[4,9)=1 [16,18)=3");
    finds_turns("{{ messages[1].content | upper }}{{ messages[1].content[:2] }}-{{ messages[1].content | tojson }}",
                &w.chat, "");
    finds_turns("{{ messages[1].content * 2 }}{{ messages[3].content }}", &w.chat, "[10,12)=3");
    finds_turns("{{ messages[3].content }}{{ messages[1].content }}{{ messages[3].content }}", &w.chat,
                "[0,2)=3 [2,7)=1 [7,9)=3");
    finds_turns("nothing", &w.chat, "");
    // A thought that the template leaves out is another text.
    SET(w.chat.messages[1], content, "<think>hm</think>yes");
    finds_turns("{{ messages[1].content.split('</think>')[-1] }}", &w.chat, "");
    // The final message, cut where it ends.
    w.chat.has_continue_final_message = w.chat.continue_final_message = true;
    finds_turns(whole, &w.chat, "[6,26)=1 [35,37)=3");
}

static void more_turns_with_ids_than_marks_are_all_found(void **state) {
    enum { N = 700 };
    static Relay__V1__ChatMessage messages[N], *list[N];
    static char contents[N][12];
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    for (int i = 0; i < N; i++) {
        relay__v1__chat_message__init(&messages[i]);
        snprintf(contents[i], sizeof contents[i], "%d", i / 300); // many are alike
        SET(&messages[i], role, "assistant");
        SET(&messages[i], content, contents[i]);
        give_ids(&messages[i]);
        list[i] = &messages[i];
    }
    chat.messages = list;
    chat.n_messages = N;
    relay_chat_template *t;
    relay_rendered r;
    static const char source[] = "{% for m in messages %}{{ m.content }},{% endfor %}";
    assert_int_equal(relay_chat_template_compile(&t, source, sizeof source - 1, NULL), RELAY_OK);
    assert_int_equal(relay_chat_template_render(t, &chat, &TOKENS, NULL, &r, NULL), RELAY_OK);
    assert_int_equal(r.n_turns, N);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(r.turns[i].message, i);
    relay_rendered_fini(&r);
    relay_chat_template_destroy(t);
}

static void ids_need_the_text_that_they_stand_for(void **state) {
    world w = {0};
    setup(&w);
    say(&w, "user", "x");
    Relay__V1__ChatMessage *m = say(&w, "assistant", NULL);
    give_ids(m);
    refuses("", &w.chat, "chat.messages[1]: token_ids is set without content, the text that they stand for");
    m->parts = w.part_list;
    m->n_parts = 1;
    refuses("", &w.chat, "chat.messages[1]: token_ids and parts are both set");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_smollm2),
        cmocka_unit_test(renders_qwen_with_tools),
        cmocka_unit_test(knows_who_wrote_each_byte),
        cmocka_unit_test(renders_in_many_threads),
        cmocka_unit_test(gives_messages_their_fields),
        cmocka_unit_test(gives_parts_as_a_list),
        cmocka_unit_test(has_no_key_for_a_field_that_is_not_set),
        cmocka_unit_test(gives_tool_calls_alone_an_empty_content),
        cmocka_unit_test(has_the_variables_of_hf),
        cmocka_unit_test(shows_the_time_that_it_is_given),
        cmocka_unit_test(names_the_field_that_is_wrong),
        cmocka_unit_test(refuses_json_that_nests_too_deep),
        cmocka_unit_test(a_final_message_is_looked_for_within_the_bounds),
        cmocka_unit_test(an_exception_of_the_template_is_the_message),
        cmocka_unit_test(names_the_place_in_the_template),
        cmocka_unit_test(ends_behind_the_final_message),
        cmocka_unit_test(a_turn_with_ids_is_found_where_its_content_is),
        cmocka_unit_test(more_turns_with_ids_than_marks_are_all_found),
        cmocka_unit_test(ids_need_the_text_that_they_stand_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
