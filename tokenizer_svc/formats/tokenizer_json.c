// The order in which stages are read is that in which one depends on another: pre-tokenizers before the model (whether
// its pieces are written in the byte alphabet), the model before added tokens (their ids), these before what names
// tokens.
#include "tokenizer_svc/formats/tokenizer_json.h"

#include <string.h>

#include "tokenizer_svc/formats/json_fields.h"
#include "tokenizer_svc/formats/piece_index.h"
#include "tokenizer_svc/formats/spec_build.h"
#include "tokenizer_svc/formats/tokenizer_json_model.h"
#include "tokenizer_svc/formats/tokenizer_json_stages.h"

enum { MAX_ADDED = 1 << 20, MAX_END_IDS = 32, MAX_TEMPLATES = 64 };

typedef struct reading {
    relay_tokenizer_spec *spec;
    relay_json_object root;
    const relay_tokenizer_json_files *files;
    relay_piece_index index; // of the model's pieces
    bool has_index;
    uint32_t n_pieces;
    relay_err *e;
} reading;

bool relay_tokenizer_json_is(yyjson_val *root) {
    return yyjson_is_obj(yyjson_obj_get(root, "model")) && yyjson_is_obj(root);
}

// ---- Stages

typedef relay_code (*stage_fn)(relay_tokenizer_spec *spec, const relay_json_object *o);

static relay_code read_stage(reading *r, const char *field, stage_fn read) {
    relay_json_object o;
    bool found;
    relay_code code = relay_json_child(&r->root, field, &o, &found);
    return code == RELAY_OK && found ? read(r->spec, &o) : code;
}

static relay_code check_fields(const reading *r) {
    static const char *const known[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder", "model"};
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(r->root.v, i, n, key, value) {
        bool is_known = false;
        for (size_t k = 0; k < sizeof known / sizeof *known && !is_known; k++)
            is_known = yyjson_equals_str(key, known[k]);
        if (!is_known)
            return relay_json_refuse(&r->root, RELAY_UNIMPLEMENTED, yyjson_get_str(key),
                                     "is no field that Relay knows");
    }
    return RELAY_OK;
}

static relay_code read_version(reading *r) {
    relay_spec_str version = {0};
    relay_code code = relay_json_str(&r->root, "version", true, &version);
    if (code != RELAY_OK || version.s == NULL || relay_spec_str_is(version, "1.0")) return code;
    return relay_json_refuse(&r->root, RELAY_UNIMPLEMENTED, "version", "is \"%.*s\"; Relay knows \"1.0\"",
                             relay_spec_shown(version.len), version.s);
}

static relay_code read_model(reading *r) {
    relay_json_object model;
    bool found;
    relay_code code = relay_json_child(&r->root, "model", &model, &found);
    if (code == RELAY_OK && !found) code = relay_json_refuse(&r->root, RELAY_INVALID_ARGUMENT, "model", "is missing");
    if (code != RELAY_OK) return code;
    return relay_tokenizer_json_model(r->spec, &model, &r->index, &r->has_index, &r->n_pieces);
}

// ---- Added tokens

static relay_code read_added_token(const relay_json_object *o, relay_added_token *t) {
    relay_code code = relay_json_u32(o, "id", false, &t->id);
    if (code == RELAY_OK) code = relay_json_str(o, "content", false, &t->content);
    if (code == RELAY_OK) code = relay_json_bool(o, "single_word", false, &t->single_word);
    if (code == RELAY_OK) code = relay_json_bool(o, "lstrip", false, &t->lstrip);
    if (code == RELAY_OK) code = relay_json_bool(o, "rstrip", false, &t->rstrip);
    if (code == RELAY_OK) code = relay_json_bool(o, "normalized", false, &t->normalized);
    if (code == RELAY_OK) code = relay_json_bool(o, "special", false, &t->special);
    return code;
}

// The library gives a token the id of the piece of that name or else the next free one, whatever the file says.
static relay_code check_added_id(const reading *r, const relay_json_object *o, const relay_added_token *t,
                                 uint32_t *next) {
    uint32_t id = relay_piece_index_find(&r->index, t->content.s, t->content.len);
    if (id == RELAY_PIECE_NONE) id = (*next)++;
    if (t->id == id && id < RELAY_SPEC_MAX_TOKENS) return RELAY_OK;
    return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, "id", "is %u; by the vocabulary and the tokens before it is %u",
                             t->id, id);
}

static bool is_repeated(const relay_tokenizer_spec *spec, const relay_added_token *t) {
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (spec->added[i].id == t->id) return true;
    return false;
}

static relay_code read_added_tokens(reading *r) {
    yyjson_val *list = yyjson_obj_get(r->root.v, "added_tokens"), *v;
    if (list == NULL || yyjson_is_null(list)) return RELAY_OK;
    relay_code code = relay_json_array(&r->root, "added_tokens", &list);
    if (code != RELAY_OK) return code;
    size_t i, n = yyjson_arr_size(list);
    if (n > MAX_ADDED)
        return relay_json_refuse(&r->root, RELAY_INVALID_ARGUMENT, "added_tokens", "has %zu; at most %d are read", n,
                                 MAX_ADDED);
    relay_tokenizer_spec *spec = r->spec;
    spec->added = relay_spec_alloc(spec, n + 1, sizeof *spec->added);
    uint32_t next = r->n_pieces, last_id = 0;
    yyjson_arr_foreach(list, i, n, v) {
        relay_json_object o;
        relay_added_token t = {0};
        code = relay_json_element(&r->root, "added_tokens", i, v, &o);
        if (code == RELAY_OK) code = read_added_token(&o, &t);
        if (code == RELAY_OK && t.content.len == 0)
            code = relay_json_refuse(&o, RELAY_INVALID_ARGUMENT, "content", "is empty");
        if (code == RELAY_OK && i > 0 && t.id <= last_id && is_repeated(spec, &t))
            code = relay_json_refuse(&o, RELAY_INVALID_ARGUMENT, "id", "is %u, as of a token before", t.id);
        if (code == RELAY_OK) code = check_added_id(r, &o, &t, &next);
        if (code != RELAY_OK) return code;
        spec->added[spec->n_added++] = t;
        if (t.id > last_id) last_id = t.id;
    }
    return RELAY_OK;
}

static void count_ids(relay_tokenizer_spec *spec) {
    spec->n_ids = spec->model.n_tokens;
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (spec->added[i].id >= spec->n_ids) spec->n_ids = spec->added[i].id + 1;
}

static relay_code check_post_ids(const reading *r) {
    for (uint32_t i = 0; i < r->spec->n_post; i++)
        if (!r->spec->post[i].is_text && r->spec->post[i].id >= r->spec->n_ids)
            return relay_json_refuse(&r->root, RELAY_INVALID_ARGUMENT, "post_processor", "puts id %u; ids are below %u",
                                     r->spec->post[i].id, r->spec->n_ids);
    return RELAY_OK;
}

// ---- What lies beside the file

static bool find_token(const reading *r, const char *s, size_t len, uint32_t *id) {
    for (uint32_t i = 0; i < r->spec->n_added; i++) {
        const relay_added_token *t = &r->spec->added[i];
        if (t->content.len == len && memcmp(t->content.s, s, len) == 0) {
            *id = t->id;
            return true;
        }
    }
    *id = relay_piece_index_find(&r->index, s, len);
    return *id != RELAY_PIECE_NONE;
}

// "<s>" or {"content": "<s>"}; a name that no token has is none, as in the library.
static bool read_special(const reading *r, yyjson_val *file, const char *field, relay_special_id *out) {
    yyjson_val *v = yyjson_obj_get(file, field);
    if (yyjson_is_obj(v)) v = yyjson_obj_get(v, "content");
    if (!yyjson_is_str(v)) return false;
    out->is_set = find_token(r, yyjson_get_str(v), yyjson_get_len(v), &out->id);
    return out->is_set;
}

static void read_specials(reading *r) {
    relay_tokenizer_spec *spec = r->spec;
    const struct {
        const char *field;
        relay_special_id *id;
    } specials[] = {
        {"bos_token", &spec->bos}, {"eos_token", &spec->eos}, {"unk_token", &spec->unk},   {"pad_token", &spec->pad},
        {"sep_token", &spec->sep}, {"cls_token", &spec->cls}, {"mask_token", &spec->mask},
    };
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        if (!read_special(r, r->files->config, specials[i].field, specials[i].id))
            read_special(r, r->files->special_tokens_map, specials[i].field, specials[i].id);
    if (!spec->unk.is_set && spec->model.has_unk) spec->unk = (relay_special_id){true, spec->model.unk_id};
}

static relay_code read_end_ids(reading *r) {
    relay_tokenizer_spec *spec = r->spec;
    if (r->files->generation_config == NULL) return RELAY_OK;
    relay_json_object o = {.v = r->files->generation_config, .path = "generation_config.json", .e = r->e};
    yyjson_val *ids = yyjson_obj_get(o.v, "eos_token_id");
    if (ids == NULL || yyjson_is_null(ids)) return RELAY_OK;
    size_t n = yyjson_is_arr(ids) ? yyjson_arr_size(ids) : 1;
    if (n > MAX_END_IDS)
        return relay_json_refuse(&o, RELAY_INVALID_ARGUMENT, "eos_token_id", "has %zu ids; at most %d are read", n,
                                 MAX_END_IDS);
    spec->end_ids = relay_spec_alloc(spec, n + 1, sizeof *spec->end_ids);
    for (size_t i = 0; i < n; i++) {
        yyjson_val *v = yyjson_is_arr(ids) ? yyjson_arr_get(ids, i) : ids;
        if (!yyjson_is_uint(v) || yyjson_get_uint(v) >= spec->n_ids)
            return relay_json_refuse(&o, RELAY_INVALID_ARGUMENT, "eos_token_id", "must be ids below %u", spec->n_ids);
        spec->end_ids[spec->n_end_ids++] = (uint32_t)yyjson_get_uint(v);
    }
    // Without a tokenizer_config.json the first one is the file's own.
    if (!spec->eos.is_set && n > 0) spec->eos = (relay_special_id){true, spec->end_ids[0]};
    return RELAY_OK;
}

static relay_code add_template(reading *r, const char *file_name, relay_named_template t) {
    relay_tokenizer_spec *spec = r->spec;
    for (uint32_t i = 0; i < spec->n_templates; i++) { // the first of a name counts
        relay_spec_str name = spec->templates[i].name;
        if (name.len == t.name.len && memcmp(name.s, t.name.s, name.len) == 0) return RELAY_OK;
    }
    if (spec->n_templates == MAX_TEMPLATES)
        return relay_fail(r->e, RELAY_INVALID_ARGUMENT, "%s: chat template \"%.*s\" is one more than %d", file_name,
                          relay_spec_shown(t.name.len), t.name.s, MAX_TEMPLATES);
    spec->templates[spec->n_templates++] = (relay_named_template){
        .name = relay_spec_copy(spec, t.name.s, t.name.len), .source = relay_spec_copy(spec, t.source.s, t.source.len)};
    return RELAY_OK;
}

static relay_spec_str str_of(yyjson_val *v) {
    return (relay_spec_str){yyjson_get_str(v), (uint32_t)yyjson_get_len(v)};
}

// A template, or a list of {"name", "template"}.
static relay_code read_templates_of(reading *r, yyjson_val *file, const char *file_name) {
    yyjson_val *v = yyjson_obj_get(file, "chat_template"), *entry;
    if (yyjson_is_str(v)) return add_template(r, file_name, (relay_named_template){{"default", 7}, str_of(v)});
    if (v == NULL || yyjson_is_null(v)) return RELAY_OK;
    if (!yyjson_is_arr(v))
        return relay_fail(r->e, RELAY_INVALID_ARGUMENT, "%s: chat_template must be a string or a list", file_name);
    size_t i, n;
    yyjson_arr_foreach(v, i, n, entry) {
        yyjson_val *name = yyjson_obj_get(entry, "name"), *source = yyjson_obj_get(entry, "template");
        if (!yyjson_is_str(name) || !yyjson_is_str(source))
            return relay_fail(r->e, RELAY_INVALID_ARGUMENT, "%s: chat_template[%zu] must be a name and a template",
                              file_name, i);
        relay_code code = add_template(r, file_name, (relay_named_template){str_of(name), str_of(source)});
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

static relay_code read_templates(reading *r) {
    r->spec->templates = relay_spec_alloc(r->spec, MAX_TEMPLATES, sizeof *r->spec->templates);
    for (uint32_t i = 0; i < r->files->n_jinja; i++) {
        relay_code code = add_template(r, "additional_chat_templates", r->files->jinja[i]);
        if (code != RELAY_OK) return code;
    }
    relay_code code = read_templates_of(r, r->files->chat_template, "chat_template.json");
    return code == RELAY_OK ? read_templates_of(r, r->files->config, "tokenizer_config.json") : code;
}

// Whether the tokens around a text are BOS and EOS.
static void find_bos_eos(relay_tokenizer_spec *spec) {
    if (spec->n_post == 0) return;
    const relay_template_piece *first = &spec->post[0], *last = &spec->post[spec->n_post - 1];
    spec->add_bos = spec->bos.is_set && !first->is_text && first->id == spec->bos.id;
    spec->add_eos = spec->eos.is_set && !last->is_text && last->id == spec->eos.id;
}

// ---- The whole

relay_code relay_tokenizer_json_read(relay_tokenizer_spec *spec, yyjson_val *root,
                                     const relay_tokenizer_json_files *files, relay_err *e) {
    reading r = {.spec = spec, .root = {.v = root, .e = e}, .files = files, .e = e};
    spec->format = "tokenizer.json";
    relay_code code = check_fields(&r);
    if (code == RELAY_OK) code = read_version(&r);
    if (code == RELAY_OK) code = read_stage(&r, "normalizer", relay_tokenizer_json_normalizer);
    if (code == RELAY_OK) code = read_stage(&r, "pre_tokenizer", relay_tokenizer_json_pretokenizer);
    if (code == RELAY_OK) code = read_stage(&r, "post_processor", relay_tokenizer_json_post_processor);
    if (code == RELAY_OK) code = read_stage(&r, "decoder", relay_tokenizer_json_decoder);
    if (code == RELAY_OK) code = read_model(&r);
    if (code == RELAY_OK) code = read_added_tokens(&r);
    if (code == RELAY_OK) {
        count_ids(spec);
        code = check_post_ids(&r);
    }
    if (code == RELAY_OK) {
        read_specials(&r);
        relay_json_object config = {.v = files->config, .path = "tokenizer_config.json", .e = e};
        code = relay_json_bool(&config, "clean_up_tokenization_spaces", true, &spec->clean_up_tokenization_spaces);
    }
    if (code == RELAY_OK) code = read_end_ids(&r);
    if (code == RELAY_OK) code = read_templates(&r);
    if (code == RELAY_OK) find_bos_eos(spec);
    if (r.has_index) relay_piece_index_fini(&r.index);
    return code;
}
