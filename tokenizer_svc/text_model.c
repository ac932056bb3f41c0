#include "tokenizer_svc/text_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fingerprint.h"
#include "common/log.h"
#include "common/utf8.h"
#include "tokenizer_svc/formats/formats.h"
#include "tokenizer_svc/spec_vocab.h"

typedef struct named_template {
    char *name;                    // "" for the default one
    relay_chat_template *compiled; // NULL: see `error`
    relay_turn_end turn_end;
    char error[RELAY_ERR_MESSAGE_MAX];
} named_template;

struct relay_text_model {
    char *name;
    relay_vocab *vocab;
    relay_tokenizer *tokenizer;
    relay_text_decoder *decoder;
    named_template *templates; // [n_templates]; the default one first, where there is one
    uint32_t n_templates;
    bool has_default;
    // Owned texts of the special tokens, NULL where there is none.
    char *bos_token, *eos_token, *unk_token, *pad_token;
};

// ---- Load

static void load_name(relay_text_model *m, const relay_tokenizer_spec *spec, const char *path, const char *name) {
    size_t len = strlen(name);
    if (len == 0 && spec->name.len != 0) {
        name = spec->name.s;
        len = spec->name.len;
    } else if (len == 0) {
        const char *slash = strrchr(path, '/');
        name = slash == NULL ? path : slash + 1;
        len = strlen(name);
    }
    m->name = relay_strndup(name, len);
    relay_utf8_repair(m->name, strlen(m->name));
}

// What templates write for a special token. Names that are no text cannot stand in one.
static char *special_text(const relay_text_model *m, relay_special_id special) {
    if (!special.is_set || special.id >= relay_vocab_size(m->vocab)) return NULL;
    const relay_token *t = relay_vocab_token(m->vocab, special.id);
    return relay_utf8_is_valid(t->bytes, t->len) ? relay_strndup(t->bytes, t->len) : NULL;
}

static void load_template(named_template *t, const relay_named_template *from) {
    bool is_default = from->name.len == strlen("default") && memcmp(from->name.s, "default", from->name.len) == 0;
    // A name goes to clients.
    t->name = is_default ? relay_strndup("", 0) : relay_strndup(from->name.s, from->name.len);
    relay_utf8_repair(t->name, strlen(t->name));
    relay_err compile_error;
    if (relay_chat_template_compile(&t->compiled, from->source.s, from->source.len, &compile_error) == RELAY_OK) return;
    snprintf(t->error, sizeof t->error, "%s", compile_error.message);
    RELAY_LOG(RELAY_LOG_WARN, "chat template does not compile", "template=%.*s error=%s", (int)from->name.len,
              from->name.s, t->error);
}

// The default one first. Behind everything else of the model.
static void load_templates(relay_text_model *m, const relay_tokenizer_spec *spec) {
    m->templates = relay_calloc(spec->n_templates == 0 ? 1 : spec->n_templates, sizeof *m->templates);
    for (uint32_t i = 0; i < spec->n_templates; i++) {
        load_template(&m->templates[i], &spec->templates[i]);
        if (m->templates[i].name[0] != '\0' || i == 0) continue;
        named_template first = m->templates[i];
        memmove(m->templates + 1, m->templates, i * sizeof first);
        m->templates[0] = first;
    }
    m->n_templates = spec->n_templates;
    m->has_default = m->n_templates != 0 && m->templates[0].name[0] == '\0';
    relay_chat_tokens tokens = relay_text_model_chat_tokens(m);
    for (uint32_t i = 0; i < m->n_templates; i++) {
        named_template *t = &m->templates[i];
        if (t->compiled == NULL) continue;
        relay_turn_end_find(&t->turn_end, t->compiled, &tokens, m->tokenizer, m->vocab, NULL);
    }
}

// What a stage refuses is of this file.
static relay_code build(relay_text_model *m, const relay_tokenizer_spec *spec, const char *path, relay_err *e) {
    relay_err why;
    relay_code code = relay_vocab_create_from_spec(&m->vocab, spec, &why);
    if (code == RELAY_OK) code = relay_tokenizer_create(&m->tokenizer, spec, &why);
    if (code == RELAY_OK) code = relay_text_decoder_create(&m->decoder, spec, &why);
    return code == RELAY_OK ? RELAY_OK : relay_fail(e, code, "%s: %s", path, why.message);
}

relay_code relay_text_model_load(relay_text_model **out, const char *path, const char *name, relay_err *e) {
    *out = NULL;
    relay_tokenizer_spec spec = {0};
    relay_text_model *m = relay_calloc(1, sizeof *m);
    relay_code code = relay_tokenizer_spec_read(&spec, path, e);
    if (code == RELAY_OK) code = build(m, &spec, path, e);
    if (code == RELAY_OK) {
        load_name(m, &spec, path, name);
        m->bos_token = special_text(m, spec.bos);
        m->eos_token = special_text(m, spec.eos);
        m->unk_token = special_text(m, spec.unk);
        m->pad_token = special_text(m, spec.pad);
        load_templates(m, &spec);
        *out = m;
    } else {
        relay_text_model_destroy(m);
    }
    relay_tokenizer_spec_fini(&spec);
    return code;
}

void relay_text_model_destroy(relay_text_model *m) {
    if (m == NULL) return;
    for (uint32_t i = 0; i < m->n_templates; i++) {
        free(m->templates[i].name);
        relay_chat_template_destroy(m->templates[i].compiled);
        relay_turn_end_fini(&m->templates[i].turn_end);
    }
    free(m->templates);
    relay_text_decoder_destroy(m->decoder);
    relay_tokenizer_destroy(m->tokenizer);
    relay_vocab_destroy(m->vocab);
    free(m->name);
    free(m->bos_token);
    free(m->eos_token);
    free(m->unk_token);
    free(m->pad_token);
    free(m);
}

// ---- What it is

const char *relay_text_model_name(const relay_text_model *m) {
    return m->name;
}

const relay_vocab *relay_text_model_vocab(const relay_text_model *m) {
    return m->vocab;
}

const relay_tokenizer *relay_text_model_tokenizer(const relay_text_model *m) {
    return m->tokenizer;
}

const relay_text_decoder *relay_text_model_decoder(const relay_text_model *m) {
    return m->decoder;
}

bool relay_text_model_has_chat_template(const relay_text_model *m) {
    return m->has_default;
}

uint32_t relay_text_model_template_count(const relay_text_model *m) {
    return m->n_templates - (m->has_default ? 1 : 0);
}

const char *relay_text_model_template_name(const relay_text_model *m, uint32_t i) {
    return m->templates[i + (m->has_default ? 1 : 0)].name;
}

// ---- Checks

relay_code relay_text_model_check_name(const relay_text_model *m, protobuf_c_boolean is_set, ProtobufCBinaryData name,
                                       relay_err *e) {
    if (!is_set || (name.len == strlen(m->name) && memcmp(name.data, m->name, name.len) == 0)) return RELAY_OK;
    int shown = name.len > 128 ? 128 : (int)name.len;
    return relay_fail(e, RELAY_NOT_FOUND, "model \"%.*s\" is not served here; \"%s\" is", shown,
                      (const char *)name.data, m->name);
}

relay_code relay_text_model_check_fingerprint(const relay_text_model *m, protobuf_c_boolean is_set,
                                              ProtobufCBinaryData fingerprint, relay_err *e) {
    if (!is_set) return RELAY_OK;
    return relay_fingerprint_check(fingerprint.data, fingerprint.len, relay_vocab_fingerprint(m->vocab), e);
}

relay_code relay_text_model_check_ids(const relay_text_model *m, const uint32_t *ids, size_t n, const char *field,
                                      relay_err *e) {
    uint32_t size = relay_vocab_size(m->vocab);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= size) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s[%zu] is %u; ids are below %u, the size of the vocabulary",
                              field, i, ids[i], size);
        }
    }
    return RELAY_OK;
}

// ---- Chats

static relay_code find_template(const relay_text_model *m, const Relay__V1__Chat *chat, const named_template **out,
                                relay_err *e) {
    ProtobufCBinaryData name = chat->has_template_name ? chat->template_name : (ProtobufCBinaryData){0};
    for (uint32_t i = 0; i < m->n_templates; i++) {
        const named_template *t = &m->templates[i];
        if (name.len != strlen(t->name) || (name.len != 0 && memcmp(name.data, t->name, name.len) != 0)) continue;
        *out = t;
        if (t->compiled != NULL) return RELAY_OK;
        return relay_fail(e, RELAY_FAILED_PRECONDITION, "the chat template of model \"%s\" does not compile: %s",
                          m->name, t->error);
    }
    if (name.len == 0) {
        return relay_fail(e, RELAY_FAILED_PRECONDITION, "model \"%s\" has no chat template; send a prompt instead",
                          m->name);
    }
    int shown = name.len > 128 ? 128 : (int)name.len;
    return relay_fail(e, RELAY_NOT_FOUND, "chat.template_name: model \"%s\" has no template \"%.*s\"", m->name, shown,
                      (const char *)name.data);
}

relay_chat_tokens relay_text_model_chat_tokens(const relay_text_model *m) {
    return (relay_chat_tokens){
        .bos_token = m->bos_token,
        .eos_token = m->eos_token,
        .unk_token = m->unk_token,
        .pad_token = m->pad_token,
    };
}

relay_code relay_text_model_check_chat_ids(const relay_text_model *m, const Relay__V1__Chat *chat, relay_err *e) {
    for (size_t i = 0; i < chat->n_messages; i++) {
        char field[64];
        snprintf(field, sizeof field, "chat.messages[%zu].token_ids", i);
        const Relay__V1__ChatMessage *message = chat->messages[i];
        relay_code code = relay_text_model_check_ids(m, message->token_ids, message->n_token_ids, field, e);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

relay_code relay_text_model_render(const relay_text_model *m, const Relay__V1__Chat *chat,
                                   const relay_render_watch *watch, relay_rendered *out,
                                   const relay_turn_end **turn_end, relay_err *e) {
    const named_template *t = NULL;
    relay_code code = find_template(m, chat, &t, e);
    if (code == RELAY_OK) code = relay_text_model_check_chat_ids(m, chat, e);
    if (code != RELAY_OK) return code;
    *turn_end = &t->turn_end;
    relay_chat_tokens tokens = relay_text_model_chat_tokens(m);
    return relay_chat_template_render(t->compiled, chat, &tokens, watch, out, e);
}

// Stretches of one origin between two bytes. Owned; count in *n.
static relay_text_span *split_by_origin(const relay_rendered *r, size_t begin, size_t end, bool parse_special,
                                        size_t *n) {
    size_t count = 0;
    for (size_t i = begin; i < end; i++)
        count += i == begin || r->is_template[i] != r->is_template[i - 1];
    relay_text_span *spans = relay_calloc(count == 0 ? 1 : count, sizeof *spans);
    relay_text_span *last = NULL;
    for (size_t i = begin; i < end; i++) {
        if (i == begin || r->is_template[i] != r->is_template[i - 1]) {
            last = last == NULL ? spans : last + 1;
            *last = (relay_text_span){.text = r->text + i, .parse_special = parse_special || r->is_template[i] != 0};
        }
        last->len++;
    }
    *n = count;
    return spans;
}

static relay_code encode_stretch(const relay_text_model *m, const relay_rendered *r, size_t begin, size_t end,
                                 bool parse_special, relay_encoding *enc, relay_err *e) {
    if (begin == end) return RELAY_OK;
    size_t n_spans;
    relay_text_span *spans = split_by_origin(r, begin, end, parse_special, &n_spans);
    relay_encode_opts opts = {.is_continuation = begin != 0};
    relay_code code = relay_tokenizer_encode(m->tokenizer, spans, n_spans, &opts, enc, e);
    free(spans);
    return code;
}

static bool ends_answer(const relay_text_model *m, uint32_t id) {
    uint32_t n;
    const uint32_t *ids = relay_vocab_eos(m->vocab, &n);
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static void append_turn(const relay_text_model *m, const Relay__V1__ChatMessage *message, relay_encoding *enc) {
    size_t n = message->n_token_ids;
    while (n > 0 && ends_answer(m, message->token_ids[n - 1]))
        n--;
    for (size_t i = 0; i < n; i++)
        relay_encoding_add(enc, message->token_ids[i], 0, 0);
}

static void prepend(relay_encoding *enc, uint32_t id) {
    relay_encoding_reserve(enc, 1);
    memmove(enc->ids + 1, enc->ids, enc->n * sizeof *enc->ids);
    enc->ids[0] = id;
    enc->n++;
}

relay_code relay_text_model_encode_rendered(const relay_text_model *m, const relay_rendered *rendered,
                                            const Relay__V1__Chat *chat, bool parse_special, relay_encoding *enc,
                                            relay_err *e) {
    size_t at = 0;
    for (size_t i = 0; i < rendered->n_turns; i++) {
        const relay_rendered_turn *turn = &rendered->turns[i];
        relay_code code = encode_stretch(m, rendered, at, turn->begin, parse_special, enc, e);
        if (code != RELAY_OK) return code;
        append_turn(m, chat->messages[turn->message], enc);
        at = turn->end;
    }
    relay_code code = encode_stretch(m, rendered, at, rendered->len, parse_special, enc, e);
    if (code != RELAY_OK) return code;
    uint32_t bos;
    bool adds_bos = relay_tokenizer_adds_bos(m->tokenizer) && relay_vocab_bos(m->vocab, &bos);
    if (adds_bos && (enc->n == 0 || enc->ids[0] != bos)) prepend(enc, bos);
    return RELAY_OK;
}
