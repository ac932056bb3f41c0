#define _GNU_SOURCE
// Text stays text, on every template there is: whoever writes a message, a tool's description or an argument cannot
// write a control token.
//
// Each template gets a vocabulary in which everything in its source that looks like a control token is one, and
// conversations whose texts are those names. Two things are held: a caller's text that is found in the prompt is the
// caller's, byte by byte; and the prompt has as many control tokens as the template's own bytes have.
//
//   forgery_test    the templates of tests/data, and those of current models where the cache has them
//                   (tests/peer/fetch)
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/json.h"
#include "common/message.h"
#include "tests/tokenizer_svc/jinja_world.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/text_model.h"

#define DATA "tests/data/chat_templates/"

enum { MAX_NAMES = 256, NAME_MAX_BYTES = 64, MAX_TURNS = 6, ALL_MAX_BYTES = 4096 };

// ---- The names of a template

typedef struct names {
    char text[MAX_NAMES][NAME_MAX_BYTES];
    const char *list[MAX_NAMES + 1];
    uint32_t n;
} names;

static void add_name(names *found, const char *s, size_t len) {
    if (len >= NAME_MAX_BYTES || found->n == MAX_NAMES) return;
    for (uint32_t i = 0; i < found->n; i++)
        if (strlen(found->text[i]) == len && memcmp(found->text[i], s, len) == 0) return;
    memcpy(found->text[found->n], s, len);
    found->text[found->n][len] = '\0';
    found->list[found->n] = found->text[found->n];
    found->n++;
}

// <...> and [...] without white space or what Jinja and quotes are written with; [...] in capitals only.
static void find_names(names *found, const char *source, size_t len) {
    *found = (names){0};
    static const char *const always[] = {"<s>", "</s>", "<unk>", "<pad>", "<|im_end|>", "[INST]", "[/INST]"};
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        add_name(found, always[i], strlen(always[i]));
    for (size_t i = 0; i < len; i++) {
        if (source[i] != '<' && source[i] != '[') continue;
        char close = source[i] == '<' ? '>' : ']';
        size_t end = i + 1;
        while (end < len && source[end] != close && strchr(" \t\r\n'\"{}()%\\=,+<", source[end]) == NULL &&
               (close == '>' || (source[end] >= 'A' && source[end] <= 'Z') || strchr("_/", source[end]) != NULL))
            end++;
        if (end < len && source[end] == close && end > i + 1) add_name(found, source + i, end + 1 - i);
    }
}

// ---- A model with a template

static relay_text_model *make_model(const names *control, const char *source) {
    static int number;
    gguf_writer *g = small_vocab_write(&(small_vocab_spec){.pre = "smollm", .control = control->list});
    gguf_writer_string(g, "general.name", "forgery");
    gguf_writer_u32(g, "tokenizer.ggml.bos_token_id", 256);
    gguf_writer_u32(g, "tokenizer.ggml.eos_token_id", 257);
    gguf_writer_string(g, "tokenizer.chat_template", source);
    char path[512];
    const char *folder = getenv("TEST_TMPDIR");
    snprintf(path, sizeof path, "%s/forgery_%d_%d.gguf", folder == NULL ? "/tmp" : folder, (int)getpid(), number++);
    assert_true(gguf_writer_save(g, path));
    gguf_writer_destroy(g);
    relay_text_model *m;
    relay_err e;
    if (relay_text_model_load(&m, path, "", &e) != RELAY_OK) fail_msg("%s", e.message);
    unlink(path);
    return m;
}

// ---- Conversations of a text

typedef struct conversation {
    Relay__V1__Chat chat;
    Relay__V1__ChatMessage messages[MAX_TURNS], *list[MAX_TURNS];
    Relay__V1__ToolCall call, *calls;
    char tools[6 * ALL_MAX_BYTES], arguments[3 * ALL_MAX_BYTES], answer[ALL_MAX_BYTES];
} conversation;

enum { PLAIN, WITH_SYSTEM, WITH_FUNCTIONS, WITH_FLAT_TOOLS, WITH_TOOLS, N_SHAPES };

static Relay__V1__ChatMessage *say(conversation *c, const char *role, const char *text) {
    Relay__V1__ChatMessage *m = &c->messages[c->chat.n_messages];
    relay__v1__chat_message__init(m);
    RELAY_SET(m, role, relay_message_text(role));
    RELAY_SET(m, content, relay_message_text(text));
    c->list[c->chat.n_messages++] = m;
    return m;
}

static void make_conversation(conversation *c, int shape, const char *text) {
    *c = (conversation){0};
    // An assistant's text is another: templates take it apart where its thoughts end, and write that token themselves.
    snprintf(c->answer, sizeof c->answer, "Aq%s", text + (text[0] == 'Z'));
    relay__v1__chat__init(&c->chat);
    c->chat.messages = c->list;
    RELAY_SET(&c->chat, now_unix_seconds, 0);
    if (shape == WITH_SYSTEM) say(c, "system", text);
    if (shape == WITH_FUNCTIONS) say(c, "functions", text);
    say(c, "user", text);
    if (shape == WITH_TOOLS) {
        Relay__V1__ChatMessage *m = say(c, "assistant", c->answer);
        relay__v1__tool_call__init(&c->call);
        c->calls = &c->call;
        m->tool_calls = &c->calls;
        m->n_tool_calls = 1;
        RELAY_SET(&c->call, id, relay_message_text("call12345"));
        RELAY_SET(&c->call, name, relay_message_text(text));
        snprintf(c->arguments, sizeof c->arguments, "{\"%s\": \"%s\"}", text, text);
        RELAY_SET(&c->call, arguments_json, relay_message_text(c->arguments));
        m = say(c, "tool", text);
        RELAY_SET(m, tool_call_id, relay_message_text("call12345"));
        RELAY_SET(m, name, relay_message_text(text));
        snprintf(c->tools, sizeof c->tools,
                 "[{\"type\": \"function\", \"function\": {\"name\": \"%s\", \"description\": \"%s\", \"parameters\": "
                 "{\"type\": \"object\", \"properties\": {\"%s\": {\"type\": \"string\", \"description\": \"%s\"}}, "
                 "\"required\": [\"%s\"]}}}]",
                 text, text, text, text, text);
        RELAY_SET(&c->chat, tools_json, relay_message_text(c->tools));
    }
    if (shape == WITH_FLAT_TOOLS) {
        snprintf(c->tools, sizeof c->tools,
                 "[{\"name\": \"%s\", \"description\": \"%s\", \"parameter_definitions\": {\"%s\": {\"type\": \"str\", "
                 "\"description\": \"%s\", \"required\": true}}}]",
                 text, text, text, text);
        RELAY_SET(&c->chat, tools_json, relay_message_text(c->tools));
    }
    say(c, "assistant", c->answer);
    say(c, "user", text);
    static const char args[] = "{\"functions\": \"[]\", \"datetime\": \"now\"}"; // what one template must have
    RELAY_SET(&c->chat, template_args_json, relay_message_text(args));
}

// ---- What is held

static uint32_t count_control(const relay_text_model *m, const relay_encoding *enc) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < enc->n; i++)
        n += relay_vocab_token(relay_text_model_vocab(m), enc->ids[i])->kind == RELAY_TOKEN_CONTROL;
    return n;
}

// Of the template's own stretches, each for itself: nothing of the caller's can play a part.
static uint32_t count_own_control(const relay_text_model *m, const relay_rendered *r) {
    uint32_t n = 0;
    for (size_t begin = 0, end; begin < r->len; begin = end) {
        for (end = begin; end < r->len && r->is_template[end] == r->is_template[begin];)
            end++;
        if (!r->is_template[begin]) continue;
        relay_text_span span = {.text = r->text + begin, .len = end - begin, .parse_special = true};
        relay_encode_opts opts = {0};
        relay_encoding enc = {0};
        assert_int_equal(relay_tokenizer_encode(relay_text_model_tokenizer(m), &span, 1, &opts, &enc, NULL), RELAY_OK);
        n += count_control(m, &enc);
        relay_encoding_fini(&enc);
    }
    return n;
}

typedef struct tally {
    uint32_t n_templates, n_rendered, n_texts_found, n_would_forge;
} tally;

static relay_err refusal; // the last one

// False: the template does not take such a conversation.
static bool hold(const char *name, const relay_text_model *m, int shape, const char *text, tally *t) {
    static conversation c;
    make_conversation(&c, shape, text);
    relay_rendered r;
    const relay_turn_end *end;
    if (relay_text_model_render(m, &c.chat, NULL, &r, &end, &refusal) != RELAY_OK) return false;
    // What no template has can be looked for.
    size_t len = strncmp(text, "Zq", 2) == 0 ? strlen(text) : 0;
    for (const char *at = r.text; len != 0 && (at = memmem(at, (size_t)(r.text + r.len - at), text, len)) != NULL;
         at += len) {
        t->n_texts_found++;
        for (size_t i = 0; i < len; i++) {
            if (r.is_template[(size_t)(at - r.text) + i])
                fail_msg("%s: byte %zu of \"%s\" counts as the template's", name, i, text);
        }
    }
    relay_encoding closed = {0}, open = {0};
    assert_int_equal(relay_text_model_encode_rendered(m, &r, &c.chat, false, &closed, NULL), RELAY_OK);
    assert_int_equal(relay_text_model_encode_rendered(m, &r, &c.chat, true, &open, NULL), RELAY_OK);
    uint32_t own = count_own_control(m, &r), n = count_control(m, &closed);
    if (n != own) fail_msg("%s: \"%s\" makes %u control tokens; the template writes %u", name, text, n, own);
    t->n_would_forge += count_control(m, &open) > own;
    t->n_rendered++;
    relay_encoding_fini(&closed);
    relay_encoding_fini(&open);
    relay_rendered_fini(&r);
    return true;
}

static void hold_template(const char *name, const char *source, size_t len, tally *t) {
    names found;
    find_names(&found, source, len);
    relay_text_model *m = make_model(&found, source);
    bool takes_any = false;
    char all[ALL_MAX_BYTES] = "Zq";
    for (uint32_t i = 0; i < found.n && strlen(all) + NAME_MAX_BYTES + 8 < sizeof all; i++)
        strcat(all, found.text[i]);
    strcat(all, "Qz");
    for (int shape = 0; shape < N_SHAPES; shape++) {
        takes_any = hold(name, m, shape, all, t) || takes_any;
        // Halves of a name in two messages, with whatever the template puts between.
        hold(name, m, shape, "<|im_", t);
    }
    for (uint32_t i = 0; i < found.n; i++) {
        char text[NAME_MAX_BYTES + 8];
        snprintf(text, sizeof text, "Zq%sQz", found.text[i]);
        hold(name, m, PLAIN, text, t);
        hold(name, m, WITH_TOOLS, text, t);
    }
    if (!takes_any) fail_msg("%s takes none of the conversations: %s", name, refusal.message);
    t->n_templates++;
    relay_text_model_destroy(m);
}

static void hold_folder(const char *folder, tally *t) {
    DIR *d = opendir(folder);
    if (d == NULL) return;
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        if (strstr(entry->d_name, ".jinja") == NULL) continue;
        char path[4096 + 300];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        size_t len;
        char *source = jinja_world_read_file(path, &len);
        hold_template(entry->d_name, source, len, t);
        free(source);
    }
    closedir(d);
}

static void no_text_of_a_caller_s_becomes_a_control_token(void **state) {
    tally t = {0};
    yyjson_doc *cases = jinja_world_read_json(DATA "rendered.json");
    size_t i, n;
    yyjson_val *c;
    yyjson_arr_foreach(yyjson_doc_get_root(cases), i, n, c) {
        yyjson_val *source = yyjson_obj_get(c, "chat_template");
        hold_template(yyjson_get_str(yyjson_obj_get(c, "name")), yyjson_get_str(source), yyjson_get_len(source), &t);
    }
    yyjson_doc_free(cases);
    hold_folder(DATA, &t);
    assert_true(t.n_templates >= 36);
    const char *cache = getenv("RELAY_CACHE"), *home = getenv("HOME");
    char folder[4096];
    snprintf(folder, sizeof folder, "%s%s/peer/llama.cpp-3.22.1/templates",
             cache != NULL && cache[0] != '\0' ? cache
             : home != NULL                    ? home
                                               : "",
             cache != NULL && cache[0] != '\0' ? "" : "/.cache/relay");
    hold_folder(folder, &t);
    // The test sees something: texts are found as they were written, and a server that parsed them would be fooled.
    assert_true(t.n_texts_found > t.n_rendered);
    assert_true(t.n_would_forge > t.n_rendered * 3 / 4);
    print_message("%u templates, %u prompts, %u texts found in them; parsing names would forge %u\n", t.n_templates,
                  t.n_rendered, t.n_texts_found, t.n_would_forge);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_of_a_caller_s_becomes_a_control_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
