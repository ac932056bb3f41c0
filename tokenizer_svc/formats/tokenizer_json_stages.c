// A kind of stage is a table of type names and what to read for each. Which fields may be missing, and what they are
// then, is as in the library's own deserializers.
#include "tokenizer_svc/formats/tokenizer_json_stages.h"

#include <string.h>

#include "tokenizer_svc/formats/base64.h"
#include "tokenizer_svc/formats/spec_build.h"

enum { MAX_STAGES = 64, MAX_DEPTH = 16, MAX_TEMPLATE = 64 };

typedef relay_code (*stage_fn)(relay_tokenizer_spec *spec, const relay_json_object *o);

// All stages of a Sequence's list.
static relay_code read_list(relay_tokenizer_spec *spec, const relay_json_object *o, const char *field, stage_fn read) {
    yyjson_val *list;
    relay_code code = relay_json_array(o, field, &list);
    if (code != RELAY_OK) return code;
    if (yyjson_arr_size(list) > MAX_STAGES || strlen(o->path) > RELAY_JSON_PATH_MAX - 40)
        return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, field, "too many stages");
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(list, i, n, v) {
        relay_json_object child;
        code = relay_json_element(o, field, i, v, &child);
        if (code == RELAY_OK) code = read(spec, &child);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

// {"String": "..."} or {"Regex": "..."}.
static relay_code read_pattern(const relay_json_object *o, relay_spec_pattern *out) {
    relay_json_object p;
    bool found;
    relay_code code = relay_json_child(o, "pattern", &p, &found);
    if (code != RELAY_OK) return code;
    if (!found) return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, "pattern", "is missing");
    out->is_regex = yyjson_obj_get(p.v, "Regex") != NULL;
    if (!out->is_regex && yyjson_obj_get(p.v, "String") == NULL)
        return relay_json_refuse(&p, RELAY_UNIMPLEMENTED, "", "is neither a String nor a Regex");
    return relay_json_str(&p, out->is_regex ? "Regex" : "String", false, &out->text);
}

static relay_code read_behavior(const relay_json_object *o, bool is_optional, relay_split_behavior *out) {
    static const char *const names[] = {"Removed",        "Isolated",   "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous", NULL};
    uint32_t i = RELAY_SPLIT_ISOLATED;
    relay_code code = relay_json_choice(o, "behavior", names, is_optional, &i);
    *out = (relay_split_behavior)i;
    return code;
}

// Of Metaspace, as stage and as decoder. add_prefix_space is how older files say "never".
static relay_code read_prepend_scheme(const relay_json_object *o, relay_prepend_scheme *out) {
    static const char *const names[] = {"always", "never", "first", NULL};
    uint32_t i = RELAY_PREPEND_ALWAYS;
    bool add_prefix_space = true;
    relay_code code = relay_json_choice(o, "prepend_scheme", names, true, &i);
    if (code == RELAY_OK) code = relay_json_bool(o, "add_prefix_space", true, &add_prefix_space);
    if (code != RELAY_OK) return code;
    if (!add_prefix_space && i != RELAY_PREPEND_NEVER)
        return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, "add_prefix_space", "contradicts prepend_scheme");
    *out = (relay_prepend_scheme)i;
    return RELAY_OK;
}

// ---- Normalizers

enum { NORMALIZER_SEQUENCE = 13 };

static relay_code read_charsmap(relay_tokenizer_spec *spec, const relay_json_object *o, relay_normalizer_spec *z) {
    relay_spec_str text;
    relay_code code = relay_json_str(o, "precompiled_charsmap", false, &text);
    if (code != RELAY_OK) return code;
    char *bytes = relay_spec_alloc(spec, text.len / 4 * 3 + 1, 1);
    size_t n;
    if (!relay_base64_decode(text.s, text.len, bytes, &n))
        return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, "precompiled_charsmap", "is no base64");
    z->content = (relay_spec_str){bytes, (uint32_t)n};
    return RELAY_OK;
}

static relay_code read_bert_normalizer(const relay_json_object *o, relay_normalizer_spec *z) {
    relay_code code = relay_json_bool(o, "clean_text", false, &z->clean_text);
    if (code == RELAY_OK) code = relay_json_bool(o, "handle_chinese_chars", false, &z->handle_chinese_chars);
    if (code == RELAY_OK) code = relay_json_bool(o, "lowercase", false, &z->lowercase);
    z->strip_accents = z->lowercase;
    if (code == RELAY_OK) code = relay_json_bool(o, "strip_accents", true, &z->strip_accents);
    return code;
}

relay_code relay_tokenizer_json_normalizer(relay_tokenizer_spec *spec, const relay_json_object *o) {
    static const char *const names[] = {
        "NFC",     "NFD",     "NFKC",           "NFKD",        "Nmt",       "Lowercase", "Strip", "StripAccents",
        "Replace", "Prepend", "BertNormalizer", "Precompiled", "ByteLevel", "Sequence",  NULL};
    static const relay_normalizer_kind kinds[] = {
        RELAY_NORMALIZE_NFC,        RELAY_NORMALIZE_NFD,       RELAY_NORMALIZE_NFKC,  RELAY_NORMALIZE_NFKD,
        RELAY_NORMALIZE_NMT,        RELAY_NORMALIZE_LOWERCASE, RELAY_NORMALIZE_STRIP, RELAY_NORMALIZE_STRIP_ACCENTS,
        RELAY_NORMALIZE_REPLACE,    RELAY_NORMALIZE_PREPEND,   RELAY_NORMALIZE_BERT,  RELAY_NORMALIZE_PRECOMPILED,
        RELAY_NORMALIZE_BYTE_LEVEL,
    };
    uint32_t type = 0;
    relay_code code = relay_json_choice(o, "type", names, false, &type);
    if (code != RELAY_OK) return code;
    if (type == NORMALIZER_SEQUENCE) return read_list(spec, o, "normalizers", relay_tokenizer_json_normalizer);
    relay_normalizer_spec z = {.kind = kinds[type]};
    switch (z.kind) {
    case RELAY_NORMALIZE_STRIP:
        code = relay_json_bool(o, "strip_left", false, &z.strip_left);
        if (code == RELAY_OK) code = relay_json_bool(o, "strip_right", false, &z.strip_right);
        break;
    case RELAY_NORMALIZE_REPLACE:
        code = read_pattern(o, &z.pattern);
        if (code == RELAY_OK) code = relay_json_str(o, "content", false, &z.content);
        break;
    case RELAY_NORMALIZE_PREPEND:
        code = relay_json_str(o, "prepend", false, &z.content);
        break;
    case RELAY_NORMALIZE_BERT:
        code = read_bert_normalizer(o, &z);
        break;
    case RELAY_NORMALIZE_PRECOMPILED:
        code = read_charsmap(spec, o, &z);
        break;
    default:
        break;
    }
    if (code == RELAY_OK) *relay_spec_add_normalizer(spec, z.kind) = z;
    return code;
}

// ---- Pre-tokenizers

enum { PRETOKENIZER_SEQUENCE = 11 };

static relay_code read_byte_level(const relay_json_object *o, relay_pretokenizer_spec *p) {
    p->use_regex = true;
    relay_code code = relay_json_bool(o, "add_prefix_space", false, &p->add_prefix_space);
    if (code == RELAY_OK) code = relay_json_bool(o, "trim_offsets", false, &p->trim_offsets);
    if (code == RELAY_OK) code = relay_json_bool(o, "use_regex", true, &p->use_regex);
    return code;
}

relay_code relay_tokenizer_json_pretokenizer(relay_tokenizer_spec *spec, const relay_json_object *o) {
    static const char *const names[] = {"BertPreTokenizer",
                                        "ByteLevel",
                                        "CharDelimiterSplit",
                                        "Digits",
                                        "FixedLength",
                                        "Metaspace",
                                        "Punctuation",
                                        "Split",
                                        "UnicodeScripts",
                                        "Whitespace",
                                        "WhitespaceSplit",
                                        "Sequence",
                                        NULL};
    uint32_t type = 0;
    relay_code code = relay_json_choice(o, "type", names, false, &type);
    if (code != RELAY_OK) return code;
    if (type == PRETOKENIZER_SEQUENCE) return read_list(spec, o, "pretokenizers", relay_tokenizer_json_pretokenizer);
    _Static_assert(RELAY_PRETOKENIZE_WHITESPACE_SPLIT == PRETOKENIZER_SEQUENCE - 1, "names are in the enum's order");
    relay_pretokenizer_spec p = {.kind = (relay_pretokenizer_kind)type, .split = true};
    switch (p.kind) {
    case RELAY_PRETOKENIZE_BYTE_LEVEL:
        code = read_byte_level(o, &p);
        break;
    case RELAY_PRETOKENIZE_CHAR_DELIMITER_SPLIT:
        code = relay_json_str(o, "delimiter", false, &p.content);
        break;
    case RELAY_PRETOKENIZE_DIGITS:
        code = relay_json_bool(o, "individual_digits", false, &p.individual_digits);
        break;
    case RELAY_PRETOKENIZE_FIXED_LENGTH:
        p.length = 5;
        code = relay_json_u32(o, "length", true, &p.length);
        break;
    case RELAY_PRETOKENIZE_METASPACE:
        code = relay_json_str(o, "replacement", false, &p.content);
        if (code == RELAY_OK) code = read_prepend_scheme(o, &p.prepend_scheme);
        if (code == RELAY_OK) code = relay_json_bool(o, "split", true, &p.split);
        break;
    case RELAY_PRETOKENIZE_PUNCTUATION:
        code = read_behavior(o, true, &p.behavior);
        break;
    case RELAY_PRETOKENIZE_SPLIT:
        code = read_pattern(o, &p.pattern);
        if (code == RELAY_OK) code = read_behavior(o, false, &p.behavior);
        if (code == RELAY_OK) code = relay_json_bool(o, "invert", false, &p.invert);
        break;
    default:
        break;
    }
    if (code == RELAY_OK) *relay_spec_add_pretokenizer(spec, p.kind) = p;
    return code;
}

// ---- Post-processors

// ["[SEP]", 102]
static relay_code read_named_id(const relay_json_object *o, const char *field, uint32_t *id) {
    yyjson_val *pair;
    relay_code code = relay_json_array(o, field, &pair);
    if (code != RELAY_OK) return code;
    yyjson_val *v = yyjson_arr_get(pair, 1);
    if (yyjson_arr_size(pair) != 2 || !yyjson_is_uint(v) || yyjson_get_uint(v) > UINT32_MAX)
        return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, field, "must be a name and an id");
    *id = (uint32_t)yyjson_get_uint(v);
    return RELAY_OK;
}

static relay_code read_cls_sep(relay_tokenizer_spec *spec, const relay_json_object *o) {
    relay_special_id cls = {.is_set = true}, sep = {.is_set = true};
    relay_code code = read_named_id(o, "cls", &cls.id);
    if (code == RELAY_OK) code = read_named_id(o, "sep", &sep.id);
    if (code == RELAY_OK) relay_spec_set_post(spec, cls, sep);
    return code;
}

static relay_code read_trimming(relay_tokenizer_spec *spec, const relay_json_object *o) {
    bool trims = false, add_prefix_space = false;
    relay_code code = relay_json_bool(o, "trim_offsets", false, &trims);
    if (code == RELAY_OK) code = relay_json_bool(o, "add_prefix_space", false, &add_prefix_space);
    if (code != RELAY_OK || !trims) return code;
    if (spec->post_trim_offsets)
        return relay_json_refuse(o, RELAY_UNIMPLEMENTED, "trim_offsets", "offsets would be trimmed a second time");
    spec->post_trim_offsets = true;
    spec->post_add_prefix_space = add_prefix_space;
    return RELAY_OK;
}

// Appends a template's special token, which may be several ids.
static relay_code read_template_token(const relay_json_object *o, const relay_json_object *piece,
                                      relay_template_piece *out, uint32_t *n) {
    relay_spec_str name;
    relay_json_object tokens, token;
    bool found;
    yyjson_val *ids;
    relay_code code = relay_json_str(piece, "id", false, &name);
    if (code == RELAY_OK) code = relay_json_child(o, "special_tokens", &tokens, &found);
    if (code != RELAY_OK) return code;
    yyjson_val *v = found ? yyjson_obj_getn(tokens.v, name.s, name.len) : NULL;
    if (v == NULL)
        return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, "special_tokens", "\"%.*s\" of the template is missing",
                                 relay_spec_shown(name.len), name.s);
    token = (relay_json_object){.v = v, .e = o->e};
    memcpy(token.path, tokens.path, sizeof token.path);
    code = relay_json_array(&token, "ids", &ids);
    if (code != RELAY_OK) return code;
    size_t i, n_ids;
    yyjson_arr_foreach(ids, i, n_ids, v) {
        if (!yyjson_is_uint(v) || yyjson_get_uint(v) > UINT32_MAX || *n == MAX_TEMPLATE)
            return relay_json_refuse(&token, RELAY_INVALID_ARGUMENT, "ids", "must be ids, at most %d in a template",
                                     MAX_TEMPLATE);
        out[(*n)++] = (relay_template_piece){.id = (uint32_t)yyjson_get_uint(v)};
    }
    return RELAY_OK;
}

static relay_code read_template(relay_tokenizer_spec *spec, const relay_json_object *o) {
    static const char *const sequences[] = {"A", NULL};
    yyjson_val *single;
    relay_code code = relay_json_array(o, "single", &single);
    if (code != RELAY_OK) return code;
    relay_template_piece *pieces = relay_spec_alloc(spec, MAX_TEMPLATE + 1, sizeof *pieces);
    uint32_t n = 0;
    size_t i, n_pieces;
    yyjson_val *v;
    yyjson_arr_foreach(single, i, n_pieces, v) {
        relay_json_object piece, child;
        bool found;
        code = relay_json_element(o, "single", i, v, &piece);
        if (code == RELAY_OK) code = relay_json_child(&piece, "SpecialToken", &child, &found);
        if (code != RELAY_OK) return code;
        if (found) {
            code = read_template_token(o, &child, pieces, &n);
        } else {
            uint32_t which = 0;
            code = relay_json_child(&piece, "Sequence", &child, &found);
            if (code == RELAY_OK && !found)
                code = relay_json_refuse(&piece, RELAY_UNIMPLEMENTED, "", "is neither a Sequence nor a SpecialToken");
            if (code == RELAY_OK) code = relay_json_choice(&child, "id", sequences, false, &which);
            if (code == RELAY_OK && n == MAX_TEMPLATE)
                code = relay_json_refuse(o, RELAY_INVALID_ARGUMENT, "single", "more than %d pieces", MAX_TEMPLATE);
            if (code == RELAY_OK) pieces[n++].is_text = true;
        }
        if (code != RELAY_OK) return code;
    }
    spec->post = pieces;
    spec->n_post = n;
    return RELAY_OK;
}

relay_code relay_tokenizer_json_post_processor(relay_tokenizer_spec *spec, const relay_json_object *o) {
    enum { BERT, ROBERTA, BYTE_LEVEL, TEMPLATE, SEQUENCE };
    static const char *const names[] = {"BertProcessing",     "RobertaProcessing", "ByteLevel",
                                        "TemplateProcessing", "Sequence",          NULL};
    uint32_t type = 0;
    relay_code code = relay_json_choice(o, "type", names, false, &type);
    if (code != RELAY_OK) return code;
    // The library runs a template's parts through what follows one by one.
    if (type != SEQUENCE && spec->n_post > 0)
        return relay_json_refuse(o, RELAY_UNIMPLEMENTED, "type",
                                 "a post-processor behind one that puts tokens around a text");
    switch (type) {
    case BERT:
        return read_cls_sep(spec, o);
    case ROBERTA:
        code = read_trimming(spec, o);
        return code == RELAY_OK ? read_cls_sep(spec, o) : code;
    case BYTE_LEVEL:
        return read_trimming(spec, o);
    case TEMPLATE:
        return read_template(spec, o);
    default:
        return read_list(spec, o, "processors", relay_tokenizer_json_post_processor);
    }
}

// ---- Decoders

enum { DECODER_SEQUENCE = 9 };

relay_code relay_tokenizer_json_decoder(relay_tokenizer_spec *spec, const relay_json_object *o) {
    static const char *const names[] = {"BPEDecoder", "ByteFallback", "ByteLevel", "CTC",      "Fuse", "Metaspace",
                                        "Replace",    "Strip",        "WordPiece", "Sequence", NULL};
    uint32_t type = 0;
    relay_code code = relay_json_choice(o, "type", names, false, &type);
    if (code != RELAY_OK) return code;
    if (type == DECODER_SEQUENCE) return read_list(spec, o, "decoders", relay_tokenizer_json_decoder);
    _Static_assert(RELAY_DECODE_WORDPIECE == DECODER_SEQUENCE - 1, "names are in the enum's order");
    relay_decoder_spec d = {.kind = (relay_decoder_kind)type};
    switch (d.kind) {
    case RELAY_DECODE_BPE:
        code = relay_json_str(o, "suffix", false, &d.content);
        break;
    case RELAY_DECODE_CTC:
        code = relay_json_str(o, "pad_token", false, &d.content);
        if (code == RELAY_OK) code = relay_json_str(o, "word_delimiter_token", false, &d.pattern.text);
        if (code == RELAY_OK) code = relay_json_bool(o, "cleanup", false, &d.cleanup);
        break;
    case RELAY_DECODE_METASPACE:
        code = relay_json_str(o, "replacement", false, &d.content);
        if (code == RELAY_OK) code = read_prepend_scheme(o, &d.prepend_scheme);
        break;
    case RELAY_DECODE_REPLACE:
        code = read_pattern(o, &d.pattern);
        if (code == RELAY_OK) code = relay_json_str(o, "content", false, &d.content);
        break;
    case RELAY_DECODE_STRIP:
        code = relay_json_str(o, "content", false, &d.content);
        if (code == RELAY_OK) code = relay_json_u32(o, "start", false, &d.strip_begin);
        if (code == RELAY_OK) code = relay_json_u32(o, "stop", false, &d.strip_end);
        break;
    case RELAY_DECODE_WORDPIECE:
        code = relay_json_str(o, "prefix", false, &d.content);
        if (code == RELAY_OK) code = relay_json_bool(o, "cleanup", false, &d.cleanup);
        break;
    default:
        break;
    }
    if (code == RELAY_OK) *relay_spec_add_decoder(spec, d.kind) = d;
    return code;
}
