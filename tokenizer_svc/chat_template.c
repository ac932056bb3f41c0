// A chat as the variables of its template: the names and shapes are those of HF's apply_chat_template.
//
//   messages[]   role, content (a string, or a list of {"type": "text", "text": ...}), name, tool_calls, tool_call_id,
//                reasoning_content, and the keys of extra_json
//   tool_calls[] {"type": "function", "id": ..., "function": {"name": ..., "arguments": an object}}
//   tools, documents: none where the chat has none; add_generation_prompt; bos_token and the other special tokens;
//   the keys of template_args_json
//
// Texts are borrowed from the chat, and from the JSON documents, which live as long as the run.
#include "tokenizer_svc/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/utf8.h"
#include "tokenizer_svc/jinja/from_json.h"
#include "tokenizer_svc/jinja/jinja.h"
#include "tokenizer_svc/jinja/text.h"

// Names of fields for messages of errors: chat.messages[1], chat.messages[1].tool_calls[0], and what is in those.
enum { MESSAGE_PATH_BYTES = 48, ITEM_PATH_BYTES = 96, FIELD_PATH_BYTES = 144 };
enum { N_MARKS = JINJA_MAX_ORIGIN + 1 - JINJA_MARK };

struct relay_chat_template {
    jinja_template *compiled;
};

relay_code relay_chat_template_compile(relay_chat_template **out, const char *source, size_t len, relay_err *e) {
    *out = NULL;
    jinja_template *compiled;
    relay_code code = jinja_template_compile(&compiled, source, len, e);
    if (code != RELAY_OK) return code;
    *out = relay_calloc(1, sizeof **out);
    (*out)->compiled = compiled;
    return RELAY_OK;
}

void relay_chat_template_destroy(relay_chat_template *t) {
    if (t == NULL) return;
    jinja_template_destroy(t->compiled);
    free(t);
}

void relay_rendered_fini(relay_rendered *r) {
    free(r->text);
    free(r->is_template);
    free(r->turns);
    *r = (relay_rendered){0};
}

// ---- building the variables

typedef struct builder {
    jinja_run *run;
    relay_err *e;
    yyjson_doc **docs; // owned [n_docs]
    size_t n_docs;
    size_t *marked; // owned [n_marked]: the messages with token_ids so far
    size_t n_marked;
} builder;

static void builder_fini(builder *b) {
    for (size_t i = 0; i < b->n_docs; i++)
        yyjson_doc_free(b->docs[i]);
    free(b->docs);
    free(b->marked);
    jinja_run_destroy(b->run);
}

static relay_code text_value(builder *b, ProtobufCBinaryData text, uint8_t origin, const char *path, jinja_value *out) {
    const char *s = (const char *)text.data;
    size_t valid = relay_utf8_valid_prefix(s, text.len);
    if (valid != text.len)
        return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: byte %zu is not valid UTF-8", path, valid);
    if (text.len > UINT32_MAX)
        return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: %zu bytes, at most %u", path, text.len, UINT32_MAX);
    *out = jinja_str(text.len != 0 ? s : "", text.len, origin);
    return RELAY_OK;
}

static relay_code parse_json(builder *b, ProtobufCBinaryData text, const char *path, yyjson_val **root) {
    yyjson_doc *doc;
    if (text.len == 0) return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: is empty; leave it out or give JSON", path);
    relay_code code = relay_json_parse(&doc, (const char *)text.data, text.len, RELAY_JSON_MAX_DEPTH, path, b->e);
    if (code != RELAY_OK) return code;
    b->docs = relay_realloc(b->docs, (b->n_docs + 1) * sizeof *b->docs);
    b->docs[b->n_docs++] = doc;
    *root = yyjson_doc_get_root(doc);
    return RELAY_OK;
}

static relay_code json_value(builder *b, yyjson_val *json, jinja_value *out) {
    return jinja_from_json(b->run, json, out) ? RELAY_OK : jinja_run_error(b->run, b->e);
}

static relay_code new_dict(builder *b, uint32_t cap, jinja_value *out) {
    if (!jinja_dict_make(b->run, JINJA_DICT, cap, out)) return jinja_run_error(b->run, b->e);
    out->origin = JINJA_CALLER;
    return RELAY_OK;
}

static relay_code new_list(builder *b, size_t n, const char *path, jinja_value *out) {
    if (n > UINT32_MAX)
        return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: %zu items, at most %u", path, n, UINT32_MAX);
    if (!jinja_list_make(b->run, JINJA_LIST, (uint32_t)n, out)) return jinja_run_error(b->run, b->e);
    out->origin = JINJA_CALLER;
    return RELAY_OK;
}

static relay_code put(builder *b, jinja_value dict, const char *key, jinja_value v) {
    jinja_value name = jinja_str(key, strlen(key), JINJA_CALLER);
    return jinja_dict_append(b->run, dict.dict, name, v) ? RELAY_OK : jinja_run_error(b->run, b->e);
}

// The text field `key` of the message at `path`, where it is set.
static relay_code put_text(builder *b, jinja_value dict, const char *key, protobuf_c_boolean is_set,
                           ProtobufCBinaryData text, uint8_t origin, const char *path) {
    char field[FIELD_PATH_BYTES];
    jinja_value v;
    if (!is_set) return RELAY_OK;
    snprintf(field, sizeof field, "%s.%s", path, key);
    relay_code code = text_value(b, text, origin, field, &v);
    return code == RELAY_OK ? put(b, dict, key, v) : code;
}

// Messages with token_ids are told apart by their contents' origins, which are few: where there are more such messages
// than origins, those far from each other share one.
static uint8_t mark_message(builder *b, size_t i) {
    if ((b->n_marked & (b->n_marked - 1)) == 0) {
        b->marked = relay_realloc(b->marked, (b->n_marked == 0 ? 1 : 2 * b->n_marked) * sizeof *b->marked);
    }
    b->marked[b->n_marked] = i;
    return (uint8_t)(JINJA_MARK + b->n_marked++ % N_MARKS);
}

static relay_code put_parts(builder *b, const Relay__V1__ChatMessage *m, jinja_value dict, const char *path) {
    if (m->n_parts == 0) return RELAY_OK;
    if (m->has_content) return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: content and parts are both set", path);
    if (m->n_token_ids != 0)
        return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: token_ids and parts are both set", path);
    jinja_value list;
    relay_code code = new_list(b, m->n_parts, path, &list);
    for (size_t i = 0; i < m->n_parts && code == RELAY_OK; i++) {
        const Relay__V1__ContentPart *p = m->parts[i];
        char field[ITEM_PATH_BYTES];
        snprintf(field, sizeof field, "%s.parts[%zu]", path, i);
        if (p->part_case != RELAY__V1__CONTENT_PART__PART_TEXT)
            return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: only text parts are supported", field);
        jinja_value *part = &list.list->items[i];
        code = new_dict(b, 2, part);
        if (code == RELAY_OK) code = put(b, *part, "type", jinja_str("text", 4, JINJA_CALLER));
        if (code == RELAY_OK) code = put_text(b, *part, "text", true, p->text, JINJA_CALLER, field);
    }
    return code == RELAY_OK ? put(b, dict, "content", list) : code;
}

// A JSON object goes to the template as one, any other JSON as its text.
static relay_code put_arguments(builder *b, const Relay__V1__ToolCall *call, jinja_value function, const char *path) {
    char field[FIELD_PATH_BYTES];
    yyjson_val *json;
    jinja_value v;
    if (!call->has_arguments_json) return RELAY_OK;
    snprintf(field, sizeof field, "%s.arguments_json", path);
    relay_code code = parse_json(b, call->arguments_json, field, &json);
    if (code != RELAY_OK) return code;
    code = yyjson_is_obj(json) ? json_value(b, json, &v) : text_value(b, call->arguments_json, JINJA_CALLER, field, &v);
    return code == RELAY_OK ? put(b, function, "arguments", v) : code;
}

static relay_code put_tool_calls(builder *b, const Relay__V1__ChatMessage *m, jinja_value dict, const char *path) {
    if (m->n_tool_calls == 0) return RELAY_OK;
    jinja_value list;
    relay_code code = new_list(b, m->n_tool_calls, path, &list);
    for (size_t i = 0; i < m->n_tool_calls && code == RELAY_OK; i++) {
        const Relay__V1__ToolCall *c = m->tool_calls[i];
        char field[ITEM_PATH_BYTES];
        snprintf(field, sizeof field, "%s.tool_calls[%zu]", path, i);
        jinja_value *call = &list.list->items[i], function;
        code = new_dict(b, 3, call);
        if (code == RELAY_OK) code = put(b, *call, "type", jinja_str("function", 8, JINJA_CALLER));
        if (code == RELAY_OK) code = put_text(b, *call, "id", c->has_id, c->id, JINJA_CALLER, field);
        if (code == RELAY_OK) code = new_dict(b, 2, &function);
        if (code == RELAY_OK) code = put_text(b, function, "name", c->has_name, c->name, JINJA_CALLER, field);
        if (code == RELAY_OK) code = put_arguments(b, c, function, field);
        if (code == RELAY_OK) code = put(b, *call, "function", function);
    }
    return code == RELAY_OK ? put(b, dict, "tool_calls", list) : code;
}

static relay_code put_extra(builder *b, const Relay__V1__ChatMessage *m, jinja_value dict, const char *path) {
    char field[FIELD_PATH_BYTES];
    yyjson_val *json, *name, *item;
    size_t i, n;
    if (!m->has_extra_json) return RELAY_OK;
    snprintf(field, sizeof field, "%s.extra_json", path);
    relay_code code = parse_json(b, m->extra_json, field, &json);
    if (code != RELAY_OK) return code;
    if (!yyjson_is_obj(json)) return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: must be a JSON object", field);
    uint32_t own = dict.dict->n; // the keys that fields have set
    yyjson_obj_foreach(json, i, n, name, item) {
        const char *s = yyjson_get_str(name);
        size_t len = yyjson_get_len(name);
        for (uint32_t k = 0; k < own; k++)
            if (jinja_is_str(dict.dict->pairs[k].key, s, len))
                return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: \"%.*s\" is set by its own field", field, (int)len,
                                  s);
        jinja_value v;
        code = json_value(b, item, &v);
        if (code != RELAY_OK) return code;
        if (!jinja_dict_append(b->run, dict.dict, jinja_str(s, len, JINJA_CALLER), v))
            return jinja_run_error(b->run, b->e);
    }
    return RELAY_OK;
}

// A message that is tool calls and nothing else: four templates in five that know tool calls need a content then, and
// the empty one is what they take. Who wants another, such as null, says so in extra_json.
static relay_code put_empty_content(builder *b, const Relay__V1__ChatMessage *m, jinja_value dict) {
    jinja_value *found;
    if (m->n_tool_calls == 0) return RELAY_OK;
    if (!jinja_dict_get_text(b->run, dict.dict, "content", 7, &found)) return jinja_run_error(b->run, b->e);
    return found != NULL ? RELAY_OK : put(b, dict, "content", jinja_str("", 0, JINJA_CALLER));
}

static relay_code message_value(builder *b, const Relay__V1__ChatMessage *m, size_t i, jinja_value *out) {
    char path[MESSAGE_PATH_BYTES];
    snprintf(path, sizeof path, "chat.messages[%zu]", i);
    if (!m->has_role) return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s.role is not set", path);
    if (m->n_token_ids != 0 && !m->has_content && m->n_parts == 0) {
        return relay_fail(b->e, RELAY_INVALID_ARGUMENT,
                          "%s: token_ids is set without content, the text that they stand for", path);
    }
    uint8_t mark = m->n_token_ids != 0 ? mark_message(b, i) : JINJA_CALLER;
    relay_code code = new_dict(b, 4, out);
    if (code == RELAY_OK) code = put_text(b, *out, "role", true, m->role, JINJA_CALLER, path);
    if (code == RELAY_OK) code = put_text(b, *out, "content", m->has_content, m->content, mark, path);
    if (code == RELAY_OK) code = put_parts(b, m, *out, path);
    if (code == RELAY_OK) code = put_text(b, *out, "name", m->has_name, m->name, JINJA_CALLER, path);
    if (code == RELAY_OK) code = put_tool_calls(b, m, *out, path);
    if (code == RELAY_OK)
        code = put_text(b, *out, "tool_call_id", m->has_tool_call_id, m->tool_call_id, JINJA_CALLER, path);
    if (code == RELAY_OK)
        code =
            put_text(b, *out, "reasoning_content", m->has_reasoning_content, m->reasoning_content, JINJA_CALLER, path);
    if (code == RELAY_OK) code = put_extra(b, m, *out, path);
    if (code == RELAY_OK) code = put_empty_content(b, m, *out);
    return code;
}

static relay_code set_messages(builder *b, const Relay__V1__Chat *chat) {
    jinja_value list;
    if (chat->n_messages == 0) return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "chat.messages is empty");
    relay_code code = new_list(b, chat->n_messages, "chat.messages", &list);
    for (size_t i = 0; i < chat->n_messages && code == RELAY_OK; i++)
        code = message_value(b, chat->messages[i], i, &list.list->items[i]);
    return code == RELAY_OK ? jinja_run_set(b->run, "messages", 8, list, b->e) : code;
}

static relay_code set_json_array(builder *b, const char *name, protobuf_c_boolean is_set, ProtobufCBinaryData text,
                                 const char *path) {
    yyjson_val *json;
    jinja_value v = jinja_none();
    if (!is_set) return jinja_run_set(b->run, name, strlen(name), v, b->e);
    relay_code code = parse_json(b, text, path, &json);
    if (code != RELAY_OK) return code;
    if (!yyjson_is_arr(json)) return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: must be a JSON array", path);
    code = json_value(b, json, &v);
    return code == RELAY_OK ? jinja_run_set(b->run, name, strlen(name), v, b->e) : code;
}

static relay_code set_token(builder *b, const char *name, const char *text) {
    if (text == NULL) return RELAY_OK;
    return jinja_run_set(b->run, name, strlen(name), jinja_str(text, strlen(text), JINJA_TEMPLATE), b->e);
}

// Whoever calls may say what the special tokens are: they are control tokens then as the tokenizer's own would be.
static bool is_special_token(const char *name) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",  "pad_token",
                                        "sep_token", "cls_token", "mask_token", "image_token"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

// Each key of the JSON object as a variable, but the keys in taken[0..n_taken).
static relay_code set_json_variables(builder *b, ProtobufCBinaryData text, const char *field, const char *const *taken,
                                     size_t n_taken) {
    yyjson_val *json, *name, *item;
    size_t i, n;
    relay_code code = parse_json(b, text, field, &json);
    if (code != RELAY_OK) return code;
    if (!yyjson_is_obj(json)) return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: must be a JSON object", field);
    yyjson_obj_foreach(json, i, n, name, item) {
        const char *s = yyjson_get_str(name);
        jinja_value v;
        for (size_t k = 0; k < n_taken; k++)
            if (yyjson_equals_str(name, taken[k]))
                return relay_fail(b->e, RELAY_INVALID_ARGUMENT, "%s: \"%s\" is set by its own field", field, s);
        code = json_value(b, item, &v);
        if (code == RELAY_OK && v.kind == JINJA_STR && is_special_token(s)) v.origin = JINJA_TEMPLATE;
        if (code == RELAY_OK) code = jinja_run_set(b->run, s, yyjson_get_len(name), v, b->e);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

// The caller's own variables. They may replace special tokens, not what the chat has fields for.
static relay_code set_template_args(builder *b, const Relay__V1__Chat *chat) {
    static const char *const taken[] = {"messages", "tools", "documents", "add_generation_prompt"};
    if (!chat->has_template_args_json) return RELAY_OK;
    return set_json_variables(b, chat->template_args_json, "chat.template_args_json", taken,
                              sizeof taken / sizeof taken[0]);
}

static relay_code set_tokens(builder *b, const relay_chat_tokens *tokens) {
    relay_code code = set_token(b, "bos_token", tokens->bos_token);
    if (code == RELAY_OK) code = set_token(b, "eos_token", tokens->eos_token);
    if (code == RELAY_OK) code = set_token(b, "unk_token", tokens->unk_token);
    if (code == RELAY_OK) code = set_token(b, "pad_token", tokens->pad_token);
    return code;
}

static relay_code set_variables(builder *b, const Relay__V1__Chat *chat, const relay_chat_tokens *tokens) {
    bool continues = chat->has_continue_final_message && chat->continue_final_message;
    bool prompts = chat->has_add_generation_prompt ? chat->add_generation_prompt : !continues;
    if (continues && prompts)
        return relay_fail(b->e, RELAY_INVALID_ARGUMENT,
                          "chat.continue_final_message and chat.add_generation_prompt are both true");
    if (chat->has_now_unix_seconds) jinja_run_set_time(b->run, chat->now_unix_seconds);
    relay_code code = set_tokens(b, tokens);
    if (code == RELAY_OK) code = set_template_args(b, chat);
    if (code == RELAY_OK) code = set_messages(b, chat);
    if (code == RELAY_OK) code = set_json_array(b, "tools", chat->has_tools_json, chat->tools_json, "chat.tools_json");
    if (code == RELAY_OK)
        code = set_json_array(b, "documents", chat->has_documents_json, chat->documents_json, "chat.documents_json");
    if (code == RELAY_OK) code = jinja_run_set(b->run, "add_generation_prompt", 21, jinja_bool(prompts), b->e);
    return code;
}

// ---- the result

// continue_final_message: the text ends where the last message's content ends, so that the model goes on with it. The
// template may have trimmed the content.
static relay_code cut_behind_final_message(builder *b, const Relay__V1__Chat *chat, jinja_value *text) {
    size_t last = chat->n_messages - 1;
    const Relay__V1__ChatMessage *m = chat->messages[last];
    ProtobufCBinaryData content = m->n_parts > 0 ? m->parts[m->n_parts - 1]->text : m->content;
    if (m->n_parts == 0 && !m->has_content)
        return relay_fail(b->e, RELAY_INVALID_ARGUMENT,
                          "chat.continue_final_message: chat.messages[%zu].content is not set", last);
    jinja_value whole = jinja_str(content.len != 0 ? (const char *)content.data : "", content.len, JINJA_CALLER);
    jinja_value from_left = jinja_str_strip(whole, jinja_none(), JINJA_STRIP_LEFT);
    jinja_value stripped = jinja_str_strip(from_left, jinja_none(), JINJA_STRIP_RIGHT);
    size_t at;
    if (!jinja_str_rfind_spending(b->run, *text, stripped, &at)) return jinja_run_error(b->run, b->e);
    if (at == SIZE_MAX)
        return relay_fail(b->e, RELAY_INVALID_ARGUMENT,
                          "chat.continue_final_message: the template does not show the content of "
                          "chat.messages[%zu] as it is",
                          last);
    bool is_kept = from_left.len <= text->len - at && memcmp(text->s + at, from_left.s, from_left.len) == 0;
    *text = jinja_str_part(*text, 0, at + (is_kept ? from_left.len : stripped.len));
    return RELAY_OK;
}

// A template that needs a content fails far from the message that has none: the error names that one too.
static void name_message_without_content(const Relay__V1__Chat *chat, relay_err *e) {
    if (e == NULL || strstr(e->message, "has no attribute 'content'") == NULL) return;
    for (size_t i = 0; i < chat->n_messages; i++) {
        const Relay__V1__ChatMessage *m = chat->messages[i];
        if (m->has_content || m->n_parts != 0 || m->n_tool_calls != 0 || m->has_extra_json) continue;
        size_t len = strlen(e->message);
        snprintf(e->message + len, sizeof e->message - len, "; chat.messages[%zu].content is not set", i);
        return;
    }
}

static void give(jinja_value text, relay_rendered *out) {
    out->text = relay_strndup(text.s, text.len);
    out->len = text.len;
    out->is_template = relay_calloc(text.len != 0 ? text.len : 1, 1);
    if (text.origin != JINJA_MIXED) {
        if (text.len != 0) memset(out->is_template, text.origin == JINJA_TEMPLATE, text.len);
        return;
    }
    for (size_t i = 0; i < text.len; i++)
        out->is_template[i] = text.from[i] == jinja_origin_byte(JINJA_TEMPLATE);
}

// The bytes of `text` are the content, perhaps stripped at either end.
static bool is_content(jinja_value text, ProtobufCBinaryData content) {
    if (content.len < text.len) return false;
    jinja_value whole = jinja_str((const char *)content.data, content.len, JINJA_CALLER);
    static const int sides[] = {0, JINJA_STRIP_LEFT, JINJA_STRIP_RIGHT, JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT};
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++) {
        jinja_value part = sides[i] != 0 ? jinja_str_strip(whole, jinja_none(), sides[i]) : whole;
        if (jinja_is_str(text, part.s, part.len)) return true;
    }
    return false;
}

// The message whose content has the mark and is the text; SIZE_MAX where it is none of those that may come now. Of the
// messages that share a mark, `next` is the first that was not found yet, as an index of `marked`: it, the one before
// it (shown again), or the one behind it (this one is not shown).
static size_t find_marked(const builder *b, const Relay__V1__Chat *chat, jinja_value text, size_t *next) {
    const size_t tries[] = {*next, *next - N_MARKS, *next + N_MARKS};
    for (size_t t = 0; t < sizeof tries / sizeof tries[0]; t++) {
        if (tries[t] >= b->n_marked) continue; // before the first one, too: it wraps around
        size_t message = b->marked[tries[t]];
        if (!is_content(text, chat->messages[message]->content)) continue;
        if (tries[t] >= *next) *next = tries[t] + N_MARKS;
        return message;
    }
    return SIZE_MAX;
}

// Where contents of messages with token_ids stand in the text.
static void find_turns(const builder *b, const Relay__V1__Chat *chat, jinja_value text, relay_rendered *out) {
    if (b->n_marked == 0) return;
    size_t next[N_MARKS];
    for (size_t i = 0; i < N_MARKS; i++)
        next[i] = i;
    for (size_t begin = 0, end; begin < text.len; begin = end) {
        uint8_t origin = jinja_origin_at(text, begin);
        for (end = begin + 1; end < text.len && jinja_origin_at(text, end) == origin;)
            end++;
        if (origin < JINJA_MARK) continue;
        jinja_value run = jinja_str_part(text, begin, end - begin);
        size_t i = find_marked(b, chat, run, &next[origin - JINJA_MARK]);
        if (i == SIZE_MAX) continue;
        if ((out->n_turns & (out->n_turns - 1)) == 0)
            out->turns = relay_realloc(out->turns, (out->n_turns == 0 ? 1 : 2 * out->n_turns) * sizeof *out->turns);
        out->turns[out->n_turns++] = (relay_rendered_turn){.begin = begin, .end = end, .message = i};
    }
}

static jinja_run *create_run(const relay_render_watch *watch) {
    jinja_limits limits = JINJA_LIMITS_DEFAULT;
    if (watch != NULL) {
        limits.is_over = watch->is_over;
        limits.arg = watch->arg;
    }
    return jinja_run_create(&limits);
}

relay_code relay_chat_template_render(const relay_chat_template *t, const Relay__V1__Chat *chat,
                                      const relay_chat_tokens *tokens, const relay_render_watch *watch,
                                      relay_rendered *out, relay_err *e) {
    jinja_value text;
    *out = (relay_rendered){0};
    builder b = {.run = create_run(watch), .e = e};
    relay_code code = set_variables(&b, chat, tokens);
    if (code == RELAY_OK) {
        code = jinja_run_render(b.run, t->compiled, &text, e);
        if (code == RELAY_INVALID_ARGUMENT) name_message_without_content(chat, e);
    }
    if (code == RELAY_OK && chat->has_continue_final_message && chat->continue_final_message)
        code = cut_behind_final_message(&b, chat, &text);
    if (code == RELAY_OK) {
        give(text, out);
        find_turns(&b, chat, text, out);
    }
    builder_fini(&b);
    return code;
}

relay_code relay_chat_template_render_context(const relay_chat_template *t, ProtobufCBinaryData context_json,
                                              const int64_t *now, const relay_render_watch *watch, relay_rendered *out,
                                              relay_err *e) {
    jinja_value text;
    *out = (relay_rendered){0};
    builder b = {.run = create_run(watch), .e = e};
    if (now != NULL) jinja_run_set_time(b.run, *now);
    relay_code code = set_json_variables(&b, context_json, "context_json", NULL, 0);
    if (code == RELAY_OK) code = jinja_run_render(b.run, t->compiled, &text, e);
    if (code == RELAY_OK) give(text, out);
    builder_fini(&b);
    return code;
}
