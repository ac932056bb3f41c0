// `relay render`: a conversation to a prompt, with a model's chat template or one that is brought along, of one message
// or, with --jsonl, of one conversation a line.
//
// A line's messages are what HF's apply_chat_template takes, and reach the template as they are: role, content and
// token_ids have fields of their own in the contract, all other keys travel as extra_json.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/jsonl.h"
#include "cli/message_json.h"
#include "cli/text_service.h"
#include "common/arena.h"
#include "common/message.h"
#include "relay/v1/tokenizer.pb-c.h"

static const size_t MAX_LINE_BYTES = 256u << 20; // what a line's request may take, beside the line

typedef struct render_command {
    relay_cli_common common;
    const char *tokenizer, *file, *system_text, *template_file;
    bool as_json, as_lines, as_ids, add_prompt, add_prompt_set, parse_special;
    char *template_text; // owned; NULL without --template
    size_t template_len;
    relay_cli_text *text;
    relay_buf *out; // of a line
} render_command;

// A request and what it points to; freed at once.
typedef struct request {
    Relay__V1__RenderChatRequest message;
    Relay__V1__Chat chat;
    relay_arena arena;
} request;

static void request_init(const render_command *c, request *r) {
    relay__v1__render_chat_request__init(&r->message);
    relay__v1__chat__init(&r->chat);
    relay_arena_init(&r->arena, MAX_LINE_BYTES);
    const char *model = relay_cli_text_model(c->text);
    if (model[0] != 0) RELAY_SET(&r->message, model, relay_message_text(model));
    RELAY_SET(&r->message, want_text, true);
    RELAY_SET(&r->message, parse_special_tokens, c->parse_special);
    if (c->template_text != NULL) {
        RELAY_SET(&r->message, template_, relay_message_bytes(c->template_text, c->template_len));
    }
}

static relay_code ask(render_command *c, const request *r, void (*reply)(void *, const ProtobufCMessage *),
                      relay_err *e) {
    return relay_cli_text_call(c->text, RELAY_CLI_RENDER_CHAT, &r->message.base, reply, c, e);
}

// ---- A line's conversation

static relay_code too_large(relay_err *e) {
    return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "the line's request takes more than %zu bytes", MAX_LINE_BYTES);
}

// A JSON value as text that lives as long as the request.
static relay_code keep_json(request *r, char *json, size_t len, ProtobufCBinaryData *out, relay_err *e) {
    char *copy = json != NULL ? relay_arena_alloc(&r->arena, len) : NULL;
    if (copy != NULL) memcpy(copy, json, len);
    free(json);
    if (copy == NULL) return too_large(e);
    *out = relay_message_bytes(copy, len);
    return RELAY_OK;
}

static relay_code keep_value(request *r, yyjson_val *v, ProtobufCBinaryData *out, relay_err *e) {
    size_t len = 0;
    char *json = yyjson_val_write(v, 0, &len);
    return keep_json(r, json, len, out, e);
}

static relay_code keep_mutable(request *r, yyjson_mut_doc *doc, ProtobufCBinaryData *out, relay_err *e) {
    size_t len = 0;
    char *json = yyjson_mut_write(doc, 0, &len);
    return keep_json(r, json, len, out, e);
}

static ProtobufCBinaryData json_text(yyjson_val *v) {
    return relay_message_bytes(yyjson_get_str(v), yyjson_get_len(v));
}

static yyjson_mut_doc *new_object(yyjson_mut_val **root) {
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    *root = doc != NULL ? yyjson_mut_obj(doc) : NULL;
    if (*root != NULL) yyjson_mut_doc_set_root(doc, *root);
    return doc;
}

static bool add_copy(yyjson_mut_doc *doc, yyjson_mut_val *object, yyjson_val *key, yyjson_val *value) {
    return yyjson_mut_obj_add(object, yyjson_val_mut_copy(doc, key), yyjson_val_mut_copy(doc, value));
}

static relay_code read_token_ids(request *r, yyjson_val *v, size_t index, Relay__V1__ChatMessage *m, relay_err *e) {
    char field[64];
    snprintf(field, sizeof field, "messages[%zu].token_ids", index);
    if (!yyjson_is_arr(v)) return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s must be an array of token ids", field);
    uint32_t *ids;
    relay_code code = relay_jsonl_ids(v, field, &ids, &m->n_token_ids, e);
    if (code != RELAY_OK) return code;
    m->token_ids = relay_arena_alloc(&r->arena, m->n_token_ids * sizeof *ids);
    if (m->token_ids != NULL && m->n_token_ids != 0) memcpy(m->token_ids, ids, m->n_token_ids * sizeof *ids);
    free(ids);
    return m->token_ids != NULL ? RELAY_OK : too_large(e);
}

static relay_code read_message(request *r, yyjson_val *v, size_t index, Relay__V1__ChatMessage *m, relay_err *e) {
    relay__v1__chat_message__init(m);
    if (!yyjson_is_obj(v)) return relay_fail(e, RELAY_INVALID_ARGUMENT, "messages[%zu] must be an object", index);
    yyjson_mut_val *extra;
    yyjson_mut_doc *doc = new_object(&extra);
    bool ok = extra != NULL;
    relay_code code = RELAY_OK;
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(v, i, n, key, value) {
        if (yyjson_equals_str(key, "role") && yyjson_is_str(value))
            RELAY_SET(m, role, json_text(value));
        else if (yyjson_equals_str(key, "content") && yyjson_is_str(value))
            RELAY_SET(m, content, json_text(value));
        else if (yyjson_equals_str(key, "token_ids"))
            code = code == RELAY_OK ? read_token_ids(r, value, index, m, e) : code;
        else
            ok = ok && add_copy(doc, extra, key, value);
    }
    if (code == RELAY_OK && !ok) code = too_large(e);
    if (code == RELAY_OK && !m->has_role)
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "messages[%zu].role must be a string", index);
    if (code == RELAY_OK && yyjson_mut_obj_size(extra) != 0) {
        m->has_extra_json = true;
        code = keep_mutable(r, doc, &m->extra_json, e);
    }
    yyjson_mut_doc_free(doc);
    return code;
}

static relay_code read_messages(request *r, yyjson_val *array, relay_err *e) {
    size_t n = yyjson_arr_size(array), i, count;
    yyjson_val *v;
    Relay__V1__ChatMessage *messages = relay_arena_alloc(&r->arena, n * sizeof *messages);
    r->chat.messages = relay_arena_alloc(&r->arena, n * sizeof(Relay__V1__ChatMessage *));
    if (messages == NULL || r->chat.messages == NULL) return too_large(e);
    yyjson_arr_foreach(array, i, count, v) {
        r->chat.messages[i] = &messages[i];
        relay_code code = read_message(r, v, i, &messages[i], e);
        if (code != RELAY_OK) return code;
    }
    r->chat.n_messages = n;
    return RELAY_OK;
}

// With the model's template: what the chat has fields for goes there, the rest of the context beside it.
static relay_code fill_chat(request *r, yyjson_val *line, relay_err *e) {
    static const struct {
        const char *key;
        size_t is_set, field;
    } arrays[] = {
        {"tools", offsetof(Relay__V1__Chat, has_tools_json), offsetof(Relay__V1__Chat, tools_json)},
        {"documents", offsetof(Relay__V1__Chat, has_documents_json), offsetof(Relay__V1__Chat, documents_json)},
    };
    yyjson_val *messages = NULL, *context = yyjson_obj_get(line, "context"), *name;
    relay_code code = relay_jsonl_need(line, "messages", YYJSON_TYPE_ARR, "an array", &messages, e);
    if (code == RELAY_OK) code = read_messages(r, messages, e);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && code == RELAY_OK; i++) {
        yyjson_val *v = yyjson_obj_get(line, arrays[i].key);
        if (v == NULL || yyjson_is_null(v)) continue;
        *(protobuf_c_boolean *)((char *)&r->chat + arrays[i].is_set) = 1;
        code = keep_value(r, v, (ProtobufCBinaryData *)((char *)&r->chat + arrays[i].field), e);
    }
    if (code == RELAY_OK && context != NULL) {
        r->chat.has_template_args_json = true;
        code = keep_value(r, context, &r->chat.template_args_json, e);
    }
    if (code == RELAY_OK) {
        code = relay_jsonl_bool(line, "add_generation_prompt", &r->chat.has_add_generation_prompt,
                                &r->chat.add_generation_prompt, e);
    }
    if (code == RELAY_OK && (name = yyjson_obj_get(line, "template_name")) != NULL) {
        if (!yyjson_is_str(name)) return relay_fail(e, RELAY_INVALID_ARGUMENT, "template_name must be a string");
        RELAY_SET(&r->chat, template_name, json_text(name));
    }
    if (code == RELAY_OK) {
        code = relay_jsonl_int(line, "now_unix_seconds", &r->chat.has_now_unix_seconds, &r->chat.now_unix_seconds, e);
    }
    r->message.chat = &r->chat;
    return code;
}

// With a template of its own: its variables are those that the line has, and no others.
static relay_code fill_context(request *r, yyjson_val *line, relay_err *e) {
    static const char *const variables[] = {"messages", "tools", "documents", "add_generation_prompt"};
    yyjson_val *context = yyjson_obj_get(line, "context"), *key, *value;
    size_t i, n;
    if (yyjson_obj_get(line, "template_name") != NULL)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "template and template_name are both set");
    yyjson_mut_val *root;
    yyjson_mut_doc *doc = new_object(&root);
    bool ok = root != NULL;
    relay_code code = RELAY_OK;
    yyjson_obj_foreach(context, i, n, key, value) ok = ok && add_copy(doc, root, key, value);
    for (size_t k = 0; k < sizeof variables / sizeof variables[0] && code == RELAY_OK; k++) {
        value = yyjson_obj_get(line, variables[k]);
        if (value == NULL) continue;
        if (yyjson_obj_get(context, variables[k]) != NULL)
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is set, and in context too", variables[k]);
        ok = ok && yyjson_mut_obj_add_val(doc, root, variables[k], yyjson_val_mut_copy(doc, value));
    }
    if (code == RELAY_OK && !ok) code = too_large(e);
    if (code == RELAY_OK) {
        code = relay_jsonl_int(line, "now_unix_seconds", &r->message.has_now_unix_seconds, &r->message.now_unix_seconds,
                               e);
    }
    if (code == RELAY_OK) {
        r->message.has_context_json = true;
        code = keep_mutable(r, doc, &r->message.context_json, e);
    }
    yyjson_mut_doc_free(doc);
    return code;
}

static relay_code fill_line(const render_command *c, request *r, yyjson_val *line, relay_err *e) {
    static const char *const keys[] = {"messages",
                                       "tools",
                                       "documents",
                                       "template",
                                       "template_name",
                                       "context",
                                       "add_generation_prompt",
                                       "parse_special_tokens",
                                       "now_unix_seconds"};
    relay_code code = relay_jsonl_check_keys(line, keys, sizeof keys / sizeof keys[0], e);
    if (code == RELAY_OK) {
        code = relay_jsonl_bool(line, "parse_special_tokens", &r->message.has_parse_special_tokens,
                                &r->message.parse_special_tokens, e);
    }
    yyjson_val *context = yyjson_obj_get(line, "context"), *source = yyjson_obj_get(line, "template");
    if (code == RELAY_OK && context != NULL && !yyjson_is_obj(context))
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "context must be an object");
    if (code != RELAY_OK) return code;
    if (source != NULL && !yyjson_is_null(source)) {
        if (!yyjson_is_str(source)) return relay_fail(e, RELAY_INVALID_ARGUMENT, "template must be a string");
        RELAY_SET(&r->message, template_, json_text(source));
    }
    return r->message.has_template_ ? fill_context(r, line, e) : fill_chat(r, line, e);
}

// {"text": "...", "ids": [..]}, without ids where there is no tokenizer.
static void put_answer(void *arg, const ProtobufCMessage *response) {
    const render_command *c = arg;
    const Relay__V1__RenderChatResponse *r = (const Relay__V1__RenderChatResponse *)response;
    relay_buf_puts(c->out, "{\"text\": ");
    relay_buf_put_json_string(c->out, r->text.len != 0 ? (const char *)r->text.data : "", r->text.len);
    if (r->encoding != NULL) {
        relay_buf_puts(c->out, ", \"ids\": ");
        relay_jsonl_put_ids(c->out, r->encoding->token_ids, r->encoding->n_token_ids);
    }
    relay_buf_putc(c->out, '}');
}

static relay_code render_line(void *arg, yyjson_val *line, relay_buf *out, relay_err *e) {
    render_command *c = arg;
    c->out = out;
    request r;
    request_init(c, &r);
    relay_code code = fill_line(c, &r, line, e);
    if (code == RELAY_OK) code = ask(c, &r, put_answer, e);
    relay_arena_fini(&r.arena);
    return code;
}

// ---- One message

static void print_answer(void *arg, const ProtobufCMessage *response) {
    const render_command *c = arg;
    const Relay__V1__RenderChatResponse *r = (const Relay__V1__RenderChatResponse *)response;
    if (c->as_json) {
        relay_buf line;
        relay_buf_init(&line, 1u << 30);
        relay_message_json(response, &line);
        fwrite(line.data, 1, line.len, stdout);
        putchar('\n');
        relay_buf_fini(&line);
    } else if (c->as_ids) {
        for (size_t i = 0; r->encoding != NULL && i < r->encoding->n_token_ids; i++)
            printf("%u\n", r->encoding->token_ids[i]);
    } else {
        fwrite(r->text.data, 1, r->text.len, stdout);
    }
}

static int render_text(render_command *c, const char *const *words, int n_words) {
    char *text;
    size_t len;
    if (!relay_cli_input(words, n_words, c->file, &text, &len)) return RELAY_EXIT_USAGE;
    request r;
    request_init(c, &r);
    Relay__V1__ChatMessage messages[2], *list[2] = {&messages[0], &messages[1]};
    r.chat.messages = list;
    if (c->system_text[0] != 0) {
        Relay__V1__ChatMessage *m = &messages[r.chat.n_messages++];
        relay__v1__chat_message__init(m);
        RELAY_SET(m, role, relay_message_text("system"));
        RELAY_SET(m, content, relay_message_text(c->system_text));
    }
    Relay__V1__ChatMessage *m = &messages[r.chat.n_messages++];
    relay__v1__chat_message__init(m);
    RELAY_SET(m, role, relay_message_text("user"));
    RELAY_SET(m, content, relay_message_bytes(text, len));
    if (c->add_prompt_set) RELAY_SET(&r.chat, add_generation_prompt, c->add_prompt);
    r.message.chat = &r.chat;
    relay_err e = {0};
    relay_code code = ask(c, &r, print_answer, &e);
    relay_arena_fini(&r.arena);
    free(text);
    return code == RELAY_OK ? RELAY_EXIT_OK : relay_cli_error(code, &e);
}

static int render(render_command *c, const char *const *words, int n_words) {
    if (c->as_lines &&
        (n_words != 0 || c->file[0] != 0 || c->as_json || c->as_ids || c->system_text[0] != 0 || c->add_prompt_set)) {
        fprintf(stderr, "relay: --jsonl reads standard input and goes without words, --file, --system, --ids, --json "
                        "and --add-generation-prompt: a line says it all\n");
        return RELAY_EXIT_USAGE;
    }
    if (c->template_file[0] != 0 && !relay_cli_read(c->template_file, &c->template_text, &c->template_len))
        return RELAY_EXIT_USAGE;
    // A line may bring its template, and then nothing else is needed.
    bool needs_none = c->as_lines || c->template_text != NULL;
    int exit_code = relay_cli_text_open(&c->text, c->tokenizer, &c->common, needs_none);
    if (exit_code == RELAY_EXIT_OK) {
        exit_code = c->as_lines ? relay_jsonl_run(render_line, c) : render_text(c, words, n_words);
    }
    relay_cli_text_close(c->text);
    free(c->template_text);
    return exit_code;
}

int relay_cli_render(int argc, char **argv) {
    render_command c = {.tokenizer = "", .file = "", .system_text = "", .template_file = ""};
    relay_config_entry entries[RELAY_CLI_COMMON_FLAGS + 9] = {0};
    relay_cli_common_flags(&c.common, entries);
    relay_config_entry *own = entries + RELAY_CLI_COMMON_FLAGS;
    own[0] = relay_cli_text_flag(&c.tokenizer);
    own[1] = (relay_config_entry){.name = "file",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &c.file,
                                  .metavar = "FILE",
                                  .help = "the user's message is this file; - for standard input"};
    own[2] = (relay_config_entry){.name = "system",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &c.system_text,
                                  .metavar = "TEXT",
                                  .help = "the system message"};
    own[3] = (relay_config_entry){.name = "template",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &c.template_file,
                                  .metavar = "FILE",
                                  .help = "a chat template instead of the tokenizer's own"};
    own[4] = (relay_config_entry){.name = "add-generation-prompt",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &c.add_prompt,
                                  .help = "end where the assistant's answer begins; unset: yes",
                                  .was_set = &c.add_prompt_set,
                                  .has_no_default = true};
    own[5] = (relay_config_entry){.name = "parse-special-tokens",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &c.parse_special,
                                  .help = "names of control tokens in messages are those tokens"};
    own[6] = (relay_config_entry){
        .name = "ids", .kind = RELAY_CONFIG_BOOL, .value = &c.as_ids, .help = "the token ids, one a line, and no text"};
    own[7] = (relay_config_entry){
        .name = "json", .kind = RELAY_CONFIG_BOOL, .value = &c.as_json, .help = "the whole answer as one JSON object"};
    own[8] = (relay_config_entry){.name = "jsonl",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &c.as_lines,
                                  .help = "one JSON object a line, from standard input to standard output"};
    const relay_config config = {
        .program = "relay render",
        .env_prefix = "RELAY",
        .usage = "[flags] [TEXT ...]",
        .summary =
            "Prints the prompt that a user's message becomes. With --jsonl lines of {\"messages\": [..], \"tools\": "
            "[..], \"documents\": [..], \"template\": ..., \"template_name\": ..., \"context\": {..}, "
            "\"add_generation_prompt\": ..., \"parse_special_tokens\": ..., \"now_unix_seconds\": ...} become lines of "
            "{\"text\": ..., \"ids\": "
            "[..]}; with a template, context holds its variables and no tokenizer is needed.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    const char **words = relay_calloc((uint64_t)argc, sizeof *words);
    int n_words = 0, exit_code;
    if (relay_cli_parse(&config, argc, argv, words, &n_words, &exit_code)) exit_code = render(&c, words, n_words);
    free(words);
    return exit_code;
}
