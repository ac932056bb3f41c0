// Defaults are those of the classes in Hugging Face's transformers that tokenizer_class names: GPT2Tokenizer,
// Qwen2Tokenizer, RobertaTokenizer and BartTokenizer for the first kind, BertTokenizer for the second. Another class is
// refused, for what it does beside the files is not in them.
#include "tokenizer_svc/formats/vocab_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/formats/patterns.h"
#include "tokenizer_svc/formats/piece_index.h"
#include "tokenizer_svc/formats/spec_build.h"

enum { MAX_MERGES = 1 << 23 };

typedef struct files {
    relay_tokenizer_spec *spec;
    yyjson_val *config;
    relay_piece_index index;
} files;

// ---- tokenizer_config.json

static relay_code get_bool(const files *f, const char *key, bool *value, relay_err *e) {
    yyjson_val *v = yyjson_obj_get(f->config, key);
    if (v == NULL || yyjson_is_null(v)) return RELAY_OK;
    if (!yyjson_is_bool(v))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "tokenizer_config.json: %s must be a bool", key);
    *value = yyjson_get_bool(v);
    return RELAY_OK;
}

// A token's name: a string, or an object with its content.
static relay_code get_name(const files *f, const char *key, const char *fallback, relay_spec_str *name, relay_err *e) {
    yyjson_val *v = yyjson_obj_get(f->config, key);
    if (yyjson_is_obj(v)) v = yyjson_obj_get(v, "content");
    if (v == NULL || yyjson_is_null(v)) {
        *name = (relay_spec_str){.s = fallback, .len = fallback == NULL ? 0 : (uint32_t)strlen(fallback)};
        return RELAY_OK;
    }
    if (!yyjson_is_str(v) || yyjson_get_len(v) > RELAY_SPEC_MAX_TOKEN_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "tokenizer_config.json: %s must be a token's name of at most %d bytes", key,
                          RELAY_SPEC_MAX_TOKEN_BYTES);
    *name = (relay_spec_str){.s = yyjson_get_str(v), .len = (uint32_t)yyjson_get_len(v)};
    return RELAY_OK;
}

// The id of a special token, which becomes an added token. Not set where the vocabulary has none of that name.
static relay_code get_special(files *f, const char *key, const char *fallback, relay_special_id *id, relay_err *e) {
    relay_spec_str name;
    relay_code code = get_name(f, key, fallback, &name, e);
    if (code != RELAY_OK || name.s == NULL) return code;
    uint32_t found = relay_piece_index_find(&f->index, name.s, name.len);
    relay_tokenizer_spec *spec = f->spec;
    for (uint32_t i = 0; i < spec->n_added && found == RELAY_PIECE_NONE; i++)
        if (spec->added[i].content.len == name.len && memcmp(spec->added[i].content.s, name.s, name.len) == 0)
            found = spec->added[i].id;
    if (found == RELAY_PIECE_NONE) return RELAY_OK;
    *id = (relay_special_id){true, found};
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (spec->added[i].id == found) return RELAY_OK;
    relay_spec_add_token(spec, relay_spec_copy(spec, name.s, name.len), found, true);
    return RELAY_OK;
}

static bool flag(yyjson_val *object, const char *key) {
    return yyjson_get_bool(yyjson_obj_get(object, key));
}

// {"50256": {"content": "<|endoftext|>", "special": true, ...}, ...}
static relay_code read_added_tokens(files *f, relay_err *e) {
    yyjson_val *decoder = yyjson_obj_get(f->config, "added_tokens_decoder");
    if (decoder == NULL || yyjson_is_null(decoder)) return RELAY_OK;
    if (!yyjson_is_obj(decoder))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "tokenizer_config.json: added_tokens_decoder must be an object");
    size_t i, n;
    yyjson_val *key, *v;
    yyjson_obj_foreach(decoder, i, n, key, v) {
        const char *digits = yyjson_get_str(key);
        char *end;
        unsigned long id = strtoul(digits, &end, 10);
        yyjson_val *content = yyjson_obj_get(v, "content");
        if (*digits < '0' || *digits > '9' || *end != 0 || id >= RELAY_SPEC_MAX_TOKENS || !yyjson_is_str(content) ||
            yyjson_get_len(content) == 0 || yyjson_get_len(content) > RELAY_SPEC_MAX_TOKEN_BYTES)
            return relay_fail(
                e, RELAY_INVALID_ARGUMENT,
                "tokenizer_config.json: added_tokens_decoder.%.*s must be an id below %d with a content of 1 to "
                "%d bytes",
                relay_spec_shown(yyjson_get_len(key)), digits, RELAY_SPEC_MAX_TOKENS, RELAY_SPEC_MAX_TOKEN_BYTES);
        relay_added_token *t =
            relay_spec_add_token(f->spec, relay_spec_copy(f->spec, yyjson_get_str(content), yyjson_get_len(content)),
                                 (uint32_t)id, flag(v, "special"));
        t->single_word = flag(v, "single_word");
        t->lstrip = flag(v, "lstrip");
        t->rstrip = flag(v, "rstrip");
        t->normalized = flag(v, "normalized");
        if (t->id >= f->spec->n_ids) f->spec->n_ids = t->id + 1;
    }
    return RELAY_OK;
}

static relay_code read_template(files *f, relay_err *e) {
    yyjson_val *v = yyjson_obj_get(f->config, "chat_template");
    if (v == NULL || yyjson_is_null(v)) return RELAY_OK;
    if (!yyjson_is_str(v))
        return relay_fail(e, RELAY_UNIMPLEMENTED, "tokenizer_config.json: chat_template is not a string");
    f->spec->templates = relay_spec_alloc(f->spec, 1, sizeof *f->spec->templates);
    f->spec->templates[f->spec->n_templates++] = (relay_named_template){
        .name = RELAY_SPEC_STR("default"), .source = relay_spec_copy(f->spec, yyjson_get_str(v), yyjson_get_len(v))};
    return RELAY_OK;
}

typedef struct special_field {
    const char *key, *fallback;
    relay_special_id *id;
} special_field;

static relay_code read_special(files *f, const special_field *fields, size_t n, relay_err *e) {
    relay_code code = read_added_tokens(f, e);
    for (size_t i = 0; i < n && code == RELAY_OK; i++)
        code = get_special(f, fields[i].key, fields[i].fallback, fields[i].id, e);
    if (code == RELAY_OK) code = read_template(f, e);
    if (code == RELAY_OK) code = get_bool(f, "clean_up_tokenization_spaces", &f->spec->clean_up_tokenization_spaces, e);
    return code;
}

// ---- vocab.json and merges.txt

typedef struct bpe_class {
    const char *name;
    const char *pattern; // NULL: ByteLevel's own
    bool is_nfc;
    const char *bos, *eos, *unk, *pad, *sep, *cls, *mask;
} bpe_class;

static const bpe_class bpe_classes[] = {
    {.name = "GPT2Tokenizer", .bos = "<|endoftext|>", .eos = "<|endoftext|>"},
    {.name = "Qwen2Tokenizer",
     .pattern = RELAY_PATTERN_QWEN2,
     .is_nfc = true,
     .eos = "<|endoftext|>",
     .pad = "<|endoftext|>"},
    {.name = "RobertaTokenizer",
     .bos = "<s>",
     .eos = "</s>",
     .unk = "<unk>",
     .pad = "<pad>",
     .sep = "</s>",
     .cls = "<s>",
     .mask = "<mask>"},
    {.name = "BartTokenizer",
     .bos = "<s>",
     .eos = "</s>",
     .unk = "<unk>",
     .pad = "<pad>",
     .sep = "</s>",
     .cls = "<s>",
     .mask = "<mask>"},
};

// The config's tokenizer_class, with or without "Fast" behind it; `fallback` where it names none.
static relay_code get_class(const files *f, const char *fallback, relay_spec_str *name, relay_err *e) {
    relay_code code = get_name(f, "tokenizer_class", fallback, name, e);
    if (code == RELAY_OK && name->len > 4 && memcmp(name->s + name->len - 4, "Fast", 4) == 0) name->len -= 4;
    return code;
}

static relay_code unknown_class(relay_spec_str name, const char *known, relay_err *e) {
    return relay_fail(e, RELAY_UNIMPLEMENTED, "tokenizer_config.json: tokenizer_class is \"%.*s\"; Relay knows %s",
                      relay_spec_shown(name.len), name.s, known);
}

static relay_code find_class(const files *f, const bpe_class **class, relay_err *e) {
    relay_spec_str name;
    relay_code code = get_class(f, bpe_classes[0].name, &name, e);
    if (code != RELAY_OK) return code;
    for (size_t i = 0; i < sizeof bpe_classes / sizeof *bpe_classes; i++) {
        *class = &bpe_classes[i];
        if (relay_spec_str_is(name, bpe_classes[i].name)) return RELAY_OK;
    }
    return unknown_class(name, "GPT2Tokenizer, Qwen2Tokenizer, RobertaTokenizer and BartTokenizer", e);
}

static relay_code count_ids(yyjson_val *vocab, uint32_t *n_ids, uint64_t *n_bytes, relay_err *e) {
    *n_ids = 0;
    *n_bytes = 0;
    if (!yyjson_is_obj(vocab) || yyjson_obj_size(vocab) == 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocab.json must be an object with a member a token");
    size_t i, n;
    yyjson_val *key, *v;
    yyjson_obj_foreach(vocab, i, n, key, v) {
        size_t len = yyjson_get_len(key);
        if (len > RELAY_SPEC_MAX_TOKEN_BYTES)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocab.json: a token has %zu bytes; it may have %d", len,
                              RELAY_SPEC_MAX_TOKEN_BYTES);
        if (!yyjson_is_uint(v) || yyjson_get_uint(v) >= RELAY_SPEC_MAX_TOKENS)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocab.json: \"%.*s\" must have an id below %d",
                              relay_spec_shown(len), yyjson_get_str(key), RELAY_SPEC_MAX_TOKENS);
        if (yyjson_get_uint(v) >= *n_ids) *n_ids = (uint32_t)yyjson_get_uint(v) + 1;
        *n_bytes += len;
    }
    return RELAY_OK;
}

static relay_code read_vocab(files *f, yyjson_val *vocab, relay_err *e) {
    relay_model_spec *m = &f->spec->model;
    uint64_t n_bytes;
    relay_code code = count_ids(vocab, &m->n_tokens, &n_bytes, e);
    if (code != RELAY_OK) return code;
    f->spec->n_ids = m->n_tokens;
    m->tokens = relay_spec_alloc(f->spec, m->n_tokens, sizeof *m->tokens);
    for (uint32_t id = 0; id < m->n_tokens; id++)
        m->tokens[id].kind = RELAY_TOKEN_PADDING;
    char *out = relay_spec_alloc(f->spec, n_bytes + 1, 1);
    relay_piece_index_init(&f->index, m->tokens, m->n_tokens);
    size_t i, n;
    yyjson_val *key, *v;
    yyjson_obj_foreach(vocab, i, n, key, v) {
        size_t len = yyjson_get_len(key);
        relay_model_token *t = &m->tokens[yyjson_get_uint(v)];
        if (t->piece.s != NULL)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocab.json: \"%.*s\" has id %" PRIu64 ", as \"%.*s\" has",
                              relay_spec_shown(len), yyjson_get_str(key), yyjson_get_uint(v),
                              relay_spec_shown(t->piece.len), t->piece.s);
        memcpy(out, yyjson_get_str(key), len);
        *t = (relay_model_token){.piece = {.s = out, .len = (uint32_t)len}, .kind = RELAY_TOKEN_NORMAL};
        out += len;
        relay_piece_index_add(&f->index, (uint32_t)yyjson_get_uint(v)); // the JSON reader refuses equal keys
    }
    return RELAY_OK;
}

// The next line, without its end; false behind the last.
static bool next_line(const char **at, const char *end, relay_spec_str *line) {
    if (*at == end) return false;
    const char *eol = memchr(*at, '\n', (size_t)(end - *at));
    size_t len = (size_t)((eol == NULL ? end : eol) - *at);
    line->s = *at;
    *at = eol == NULL ? end : eol + 1;
    if (len > 0 && line->s[len - 1] == '\r') len--;
    line->len = len < UINT32_MAX ? (uint32_t)len : UINT32_MAX;
    return true;
}

static relay_code read_merge(const files *f, relay_spec_str line, uint32_t number, relay_merge_spec *merge,
                             relay_err *e) {
    const char *space =
        line.len < 3 || line.len > RELAY_SPEC_MAX_TOKEN_BYTES ? NULL : memchr(line.s + 1, ' ', line.len - 2);
    if (space == NULL)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "merges.txt: line %u is \"%.*s\"; it must be two pieces with a space between them", number,
                          relay_spec_shown(line.len), line.s);
    relay_written_merge w = {.left = {line.s, (uint32_t)(space - line.s)}};
    w.right = (relay_spec_str){space + 1, line.len - w.left.len - 1};
    relay_piece_index_find_merges(&f->index, &w, 1, 0, merge);
    if (merge->left != RELAY_PIECE_NONE && merge->right != RELAY_PIECE_NONE && merge->result != RELAY_PIECE_NONE)
        return RELAY_OK;
    relay_spec_str none = merge->left == RELAY_PIECE_NONE ? w.left : w.right;
    if (merge->left != RELAY_PIECE_NONE && merge->right != RELAY_PIECE_NONE)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "merges.txt: line %u: \"%.*s\" joined is no token of vocab.json",
                          number, relay_spec_shown(line.len), line.s);
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "merges.txt: line %u: \"%.*s\" is no token of vocab.json", number,
                      relay_spec_shown(none.len), none.s);
}

static relay_code read_merges(files *f, const char *text, size_t len, relay_err *e) {
    relay_model_spec *m = &f->spec->model;
    uint64_t n_lines = 1;
    for (const char *p = text; (p = memchr(p, '\n', (size_t)(text + len - p))) != NULL; p++)
        n_lines++;
    if (n_lines > MAX_MERGES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "merges.txt has %" PRIu64 " lines; it may have %d", n_lines,
                          MAX_MERGES);
    m->merges = relay_spec_alloc(f->spec, n_lines, sizeof *m->merges);
    const char *at = text, *end = text + len;
    relay_spec_str line;
    for (uint32_t number = 1; next_line(&at, end, &line); number++) {
        bool is_version = number == 1 && line.len >= 8 && memcmp(line.s, "#version", 8) == 0;
        if (line.len == 0 || is_version) continue;
        relay_code code = read_merge(f, line, number, &m->merges[m->n_merges], e);
        if (code != RELAY_OK) return code;
        m->n_merges++;
    }
    return RELAY_OK;
}

static relay_code set_gpt2_stages(files *f, const bpe_class *class, relay_err *e) {
    relay_tokenizer_spec *spec = f->spec;
    bool add_prefix_space = false, add_bos = false;
    relay_code code = get_bool(f, "add_prefix_space", &add_prefix_space, e);
    if (code == RELAY_OK) code = get_bool(f, "add_bos_token", &add_bos, e);
    if (code != RELAY_OK) return code;
    if (class->is_nfc) relay_spec_add_normalizer(spec, RELAY_NORMALIZE_NFC);
    if (class->pattern != NULL) {
        relay_pretokenizer_spec *split = relay_spec_add_pretokenizer(spec, RELAY_PRETOKENIZE_SPLIT);
        split->pattern = (relay_spec_pattern){.text = {.s = class->pattern, .len = (uint32_t)strlen(class->pattern)},
                                              .is_regex = true};
        split->behavior = RELAY_SPLIT_ISOLATED;
    }
    relay_pretokenizer_spec *bytes = relay_spec_add_pretokenizer(spec, RELAY_PRETOKENIZE_BYTE_LEVEL);
    bytes->add_prefix_space = add_prefix_space;
    bytes->trim_offsets = true;
    bytes->use_regex = class->pattern == NULL;
    relay_spec_add_decoder(spec, RELAY_DECODE_BYTE_LEVEL);
    spec->model.byte_alphabet = spec->model.is_byte_level = true;
    if (class->cls != NULL) {
        relay_spec_set_post(spec, spec->cls, spec->sep);
        spec->post_trim_offsets = true;
        spec->post_add_prefix_space = add_prefix_space;
        spec->add_bos = spec->cls.is_set;
        spec->add_eos = spec->sep.is_set;
    } else if (add_bos && spec->bos.is_set) {
        relay_spec_set_post(spec, spec->bos, (relay_special_id){0});
        spec->add_bos = true;
    }
    return RELAY_OK;
}

relay_code relay_gpt2_files_read(relay_tokenizer_spec *spec, yyjson_val *vocab, const char *merges, size_t merges_len,
                                 yyjson_val *config, relay_err *e) {
    files f = {.spec = spec, .config = config};
    spec->format = "vocab.json";
    spec->model.kind = RELAY_MODEL_BPE;
    const bpe_class *class;
    relay_code code = find_class(&f, &class, e);
    if (code == RELAY_OK) code = read_vocab(&f, vocab, e);
    if (code == RELAY_OK) code = read_merges(&f, merges, merges_len, e);
    if (code == RELAY_OK) {
        const special_field fields[] = {
            {"bos_token", class->bos, &spec->bos},    {"eos_token", class->eos, &spec->eos},
            {"unk_token", class->unk, &spec->unk},    {"pad_token", class->pad, &spec->pad},
            {"sep_token", class->sep, &spec->sep},    {"cls_token", class->cls, &spec->cls},
            {"mask_token", class->mask, &spec->mask},
        };
        code = read_special(&f, fields, sizeof fields / sizeof *fields, e);
    }
    if (code == RELAY_OK) code = set_gpt2_stages(&f, class, e);
    relay_piece_index_fini(&f.index);
    return code;
}

// ---- vocab.txt

static relay_code read_lines(files *f, const char *text, size_t len, relay_err *e) {
    relay_model_spec *m = &f->spec->model;
    uint64_t n = 0;
    const char *at = text, *end = text + len;
    relay_spec_str line;
    while (next_line(&at, end, &line))
        n++;
    if (n == 0 || n > RELAY_SPEC_MAX_TOKENS)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocab.txt has %" PRIu64 " lines; it must have 1 to %d", n,
                          RELAY_SPEC_MAX_TOKENS);
    f->spec->n_ids = m->n_tokens = (uint32_t)n;
    m->tokens = relay_spec_alloc(f->spec, n, sizeof *m->tokens);
    relay_piece_index_init(&f->index, m->tokens, m->n_tokens);
    at = text;
    for (uint32_t id = 0; next_line(&at, end, &line); id++) {
        if (line.len == 0 || line.len > RELAY_SPEC_MAX_TOKEN_BYTES || !relay_utf8_is_valid(line.s, line.len))
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocab.txt: line %u must be a piece of 1 to %d bytes of UTF-8",
                              id + 1, RELAY_SPEC_MAX_TOKEN_BYTES);
        m->tokens[id] =
            (relay_model_token){.piece = relay_spec_copy(f->spec, line.s, line.len), .kind = RELAY_TOKEN_NORMAL};
        uint32_t before = relay_piece_index_add(&f->index, id);
        if (before != RELAY_PIECE_NONE)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocab.txt: line %u is \"%.*s\", as line %u is", id + 1,
                              relay_spec_shown(line.len), line.s, before + 1);
    }
    return RELAY_OK;
}

static relay_code set_bert_stages(files *f, relay_err *e) {
    relay_tokenizer_spec *spec = f->spec;
    bool lowercase = true, chinese = true;
    relay_code code = get_bool(f, "do_lower_case", &lowercase, e);
    bool strip_accents = lowercase;
    if (code == RELAY_OK) code = get_bool(f, "strip_accents", &strip_accents, e);
    if (code == RELAY_OK) code = get_bool(f, "tokenize_chinese_chars", &chinese, e);
    if (code != RELAY_OK) return code;
    relay_normalizer_spec *n = relay_spec_add_normalizer(spec, RELAY_NORMALIZE_BERT);
    n->clean_text = true;
    n->handle_chinese_chars = chinese;
    n->strip_accents = strip_accents;
    n->lowercase = lowercase;
    relay_spec_set_wordpiece(spec);
    relay_spec_set_post(spec, spec->cls, spec->sep);
    spec->add_bos = spec->cls.is_set;
    spec->add_eos = spec->sep.is_set;
    return RELAY_OK;
}

relay_code relay_bert_files_read(relay_tokenizer_spec *spec, const char *vocab, size_t vocab_len, yyjson_val *config,
                                 relay_err *e) {
    files f = {.spec = spec, .config = config};
    spec->format = "vocab.txt";
    spec->model.kind = RELAY_MODEL_WORDPIECE;
    relay_spec_str class;
    relay_code code = get_class(&f, "BertTokenizer", &class, e);
    if (code == RELAY_OK && !relay_spec_str_is(class, "BertTokenizer") &&
        !relay_spec_str_is(class, "DistilBertTokenizer"))
        code = unknown_class(class, "BertTokenizer and DistilBertTokenizer", e);
    if (code == RELAY_OK) code = read_lines(&f, vocab, vocab_len, e);
    if (code == RELAY_OK) {
        const special_field fields[] = {
            {"unk_token", "[UNK]", &spec->unk},    {"sep_token", "[SEP]", &spec->sep},
            {"pad_token", "[PAD]", &spec->pad},    {"cls_token", "[CLS]", &spec->cls},
            {"mask_token", "[MASK]", &spec->mask},
        };
        code = read_special(&f, fields, sizeof fields / sizeof *fields, e);
    }
    if (code == RELAY_OK && !spec->unk.is_set)
        code = relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "vocab.txt has no unknown token ([UNK], or what tokenizer_config.json calls it)");
    if (code == RELAY_OK) {
        spec->model.has_unk = true;
        spec->model.unk_id = spec->unk.id;
        code = set_bert_stages(&f, e);
    }
    relay_piece_index_fini(&f.index);
    return code;
}
