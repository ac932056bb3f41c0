// A schema that holds others becomes a rule, so that it is compiled once however often it is used, and may refer to
// itself. References are read when everything else is: a schema met on the way is only noted.
#include "model_svc/constraint/json_schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "model_svc/constraint/json_number.h"
#include "model_svc/constraint/json_schema_internal.h"

enum { MAX_POINTER_BYTES = 1 << 14, MAX_REFS = 4096 };

typedef enum keyword_use {
    ANNOTATION, // says nothing of what is valid
    ALONE,      // beside annotations only
    ENUM,       // beside annotations and type
    OF_TYPE,
} keyword_use;

enum { OBJECT = 1, ARRAY = 2, STRING = 4, NUMBER = 8, INTEGER = 16, BOOLEAN = 32, NULLS = 64, ALL_TYPES = 127 };

static const struct {
    const char *name;
    keyword_use use;
    uint32_t types; // that it constrains
} keywords[] = {
    {"$schema", ANNOTATION, 0},
    {"$id", ANNOTATION, 0},
    {"$comment", ANNOTATION, 0},
    {"$defs", ANNOTATION, 0},
    {"definitions", ANNOTATION, 0},
    {"title", ANNOTATION, 0},
    {"description", ANNOTATION, 0},
    {"default", ANNOTATION, 0},
    {"examples", ANNOTATION, 0},
    {"deprecated", ANNOTATION, 0},
    {"readOnly", ANNOTATION, 0},
    {"writeOnly", ANNOTATION, 0},
    {"$ref", ALONE, 0},
    {"anyOf", ALONE, 0},
    {"oneOf", ALONE, 0},
    {"allOf", ALONE, 0},
    {"enum", ENUM, 0},
    {"const", ENUM, 0},
    {"type", OF_TYPE, 0},
    {"properties", OF_TYPE, OBJECT},
    {"required", OF_TYPE, OBJECT},
    {"additionalProperties", OF_TYPE, OBJECT},
    {"items", OF_TYPE, ARRAY},
    {"prefixItems", OF_TYPE, ARRAY},
    {"minItems", OF_TYPE, ARRAY},
    {"maxItems", OF_TYPE, ARRAY},
    {"minLength", OF_TYPE, STRING},
    {"maxLength", OF_TYPE, STRING},
    {"pattern", OF_TYPE, STRING},
    {"format", OF_TYPE, STRING},
    {"minimum", OF_TYPE, NUMBER | INTEGER},
    {"maximum", OF_TYPE, NUMBER | INTEGER},
    {"exclusiveMinimum", OF_TYPE, NUMBER | INTEGER},
    {"exclusiveMaximum", OF_TYPE, NUMBER | INTEGER},
};

static const struct {
    const char *name;
    uint32_t types;
} type_names[] = {
    {"object", OBJECT},   {"array", ARRAY},     {"string", STRING}, {"number", NUMBER},
    {"integer", INTEGER}, {"boolean", BOOLEAN}, {"null", NULLS},
};

static relay_expr read_schema(relay_schema_reader *r, yyjson_val *schema);

// ---- Errors and places

relay_expr relay_schema_fail(relay_schema_reader *r, const char *fmt, ...) {
    if (r->code != RELAY_OK) return RELAY_EXPR_NOTHING;
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    r->code = relay_fail(r->e, RELAY_INVALID_ARGUMENT, "%s: at \"%.160s\": %s", r->field,
                         r->path.data == NULL ? "" : r->path.data, what);
    return RELAY_EXPR_NOTHING;
}

size_t relay_schema_enter(relay_schema_reader *r, const char *name, size_t len) {
    size_t before = r->path.len;
    relay_buf_putc(&r->path, '/');
    for (size_t i = 0; i < len; i++) { // RFC 6901
        if (name[i] == '~') {
            relay_buf_puts(&r->path, "~0");
        } else if (name[i] == '/') {
            relay_buf_puts(&r->path, "~1");
        } else if (name[i] == '\0') {
            relay_buf_putc(&r->path, '?');
        } else {
            relay_buf_putc(&r->path, name[i]);
        }
    }
    return before;
}

void relay_schema_leave(relay_schema_reader *r, size_t path_len) {
    r->path.len = path_len;
    r->path.is_failed = false;
    if (r->path.data != NULL) r->path.data[path_len] = '\0';
}

relay_expr relay_schema_below(relay_schema_reader *r, yyjson_val *schema, const char *name, yyjson_val *key,
                              const size_t *index) {
    size_t before = relay_schema_enter(r, name, strlen(name));
    char number[24];
    if (index != NULL) snprintf(number, sizeof number, "%zu", *index);
    if (key != NULL) relay_schema_enter(r, yyjson_get_str(key), yyjson_get_len(key));
    if (index != NULL) relay_schema_enter(r, number, strlen(number));
    relay_expr x = read_schema(r, schema);
    if (r->code == RELAY_OK) relay_schema_leave(r, before);
    return x;
}

bool relay_schema_count(relay_schema_reader *r, yyjson_val *schema, const char *keyword, uint32_t *out) {
    yyjson_val *v = yyjson_obj_get(schema, keyword);
    if (v == NULL) return false;
    double value = yyjson_get_num(v);
    if (!yyjson_is_num(v) || !(value >= 0) || value != floor(value) || value > 1e9) {
        relay_schema_fail(r, "%s is not a whole number of at most 1e9", keyword);
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

// ---- References

static uint32_t rule_of(relay_schema_reader *r, yyjson_val *schema, const char *path, size_t len) {
    for (uint32_t i = 0; i < r->n_refs; i++) {
        if (r->refs[i].schema == schema) return r->refs[i].rule;
    }
    if (r->n_refs == MAX_REFS) {
        relay_schema_fail(r, "more than %d schemas are referred to", MAX_REFS);
        return 0;
    }
    if (r->n_refs == r->cap_refs) {
        r->cap_refs = r->cap_refs == 0 ? 16 : 2 * r->cap_refs;
        r->refs = relay_realloc(r->refs, r->cap_refs * sizeof r->refs[0]);
    }
    uint32_t rule = relay_grammar_add_rule(r->g, path, len);
    r->refs[r->n_refs++] = (relay_schema_ref){.schema = schema, .rule = rule, .path = relay_strndup(path, len)};
    return rule;
}

static relay_expr read_ref(relay_schema_reader *r, yyjson_val *ref) {
    const char *s = yyjson_get_str(ref);
    size_t len = yyjson_get_len(ref);
    if (!yyjson_is_str(ref) || len == 0 || s[0] != '#' || (len > 1 && s[1] != '/')) {
        return relay_schema_fail(r, "$ref \"%.64s\" is not supported: it must point into this schema (#/...)",
                                 yyjson_is_str(ref) ? s : "");
    }
    yyjson_val *target = len == 1 ? r->root : yyjson_ptr_getn(r->root, s + 1, len - 1); // RFC 6901
    if (target == NULL) return relay_schema_fail(r, "$ref \"%.64s\" points to nothing", s);
    return relay_expr_rule(r->g, rule_of(r, target, s + 1, len - 1));
}

// ---- Alternatives

static uint32_t types_of(yyjson_val *schema);

// The one value that `schema` allows, or NULL.
static yyjson_val *only_value(yyjson_val *schema) {
    yyjson_val *value = yyjson_obj_get(schema, "const"), *all = yyjson_obj_get(schema, "enum");
    if (value == NULL && yyjson_arr_size(all) == 1) value = yyjson_arr_get_first(all);
    return value;
}

static bool is_required(yyjson_val *schema, yyjson_val *name) {
    yyjson_val *one;
    size_t i, n;
    yyjson_arr_foreach(yyjson_obj_get(schema, "required"), i, n, one) {
        if (yyjson_equals(one, name)) return true;
    }
    return false;
}

// Whether nothing can be valid under both, as far as it is easily seen: by type, by a single value, or by a required
// property that has another single value in each.
static bool are_disjoint(yyjson_val *a, yyjson_val *b) {
    if (!yyjson_is_obj(a) || !yyjson_is_obj(b)) return false;
    yyjson_val *x = only_value(a), *y = only_value(b);
    if (x != NULL && y != NULL) return !yyjson_equals(x, y);
    if (yyjson_obj_get(a, "type") == NULL || yyjson_obj_get(b, "type") == NULL) return false;
    uint32_t types_a = types_of(a), types_b = types_of(b);
    if (types_a & (NUMBER | INTEGER)) types_a |= NUMBER | INTEGER;
    if ((types_a & types_b) == 0) return true;
    if (types_a != OBJECT || types_b != OBJECT) return false;
    yyjson_val *key, *schema, *others = yyjson_obj_get(b, "properties");
    size_t i, n;
    yyjson_obj_foreach(yyjson_obj_get(a, "properties"), i, n, key, schema) {
        yyjson_val *other = yyjson_obj_getn(others, yyjson_get_str(key), yyjson_get_len(key));
        if (other == NULL || !is_required(a, key) || !is_required(b, key)) continue;
        x = only_value(schema);
        y = only_value(other);
        if (x != NULL && y != NULL && !yyjson_equals(x, y)) return true;
    }
    return false;
}

static void check_one_of(relay_schema_reader *r, yyjson_val *all) {
    size_t n = yyjson_arr_size(all);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i && relay_grammar_spend(r->g, 100); k++) {
            if (are_disjoint(yyjson_arr_get(all, k), yyjson_arr_get(all, i))) continue;
            relay_schema_fail(r,
                              "oneOf is supported where its schemas exclude one another by type, const or a required "
                              "property's const; %zu and %zu do not: write anyOf",
                              k, i);
            return;
        }
    }
}

static relay_expr read_alternatives(relay_schema_reader *r, yyjson_val *all, const char *keyword) {
    if (!yyjson_is_arr(all) || yyjson_arr_size(all) == 0) {
        return relay_schema_fail(r, "%s is not an array of schemas", keyword);
    }
    bool is_all = strcmp(keyword, "allOf") == 0;
    if (is_all && yyjson_arr_size(all) > 1)
        return relay_schema_fail(r, "allOf with more than one schema is not supported");
    if (strcmp(keyword, "oneOf") == 0) check_one_of(r, all);
    relay_expr_list ways = {0};
    yyjson_val *schema;
    size_t i, n;
    yyjson_arr_foreach(all, i, n, schema) {
        if (r->code == RELAY_OK) relay_expr_list_add(&ways, relay_schema_below(r, schema, keyword, NULL, &i));
    }
    return relay_expr_list_alt(&ways, r->g);
}

// ---- Types

static uint32_t type_by_name(yyjson_val *name) {
    for (size_t i = 0; i < sizeof type_names / sizeof type_names[0]; i++) {
        if (yyjson_equals_str(name, type_names[i].name)) return type_names[i].types;
    }
    return 0;
}

// 0 where a name is none.
static uint32_t types_of(yyjson_val *schema) {
    yyjson_val *type = yyjson_obj_get(schema, "type"), *name;
    if (!yyjson_is_arr(type)) return type_by_name(type);
    uint32_t types = 0;
    size_t i, n;
    yyjson_arr_foreach(type, i, n, name) {
        uint32_t one = type_by_name(name);
        if (one == 0) return 0;
        types |= one;
    }
    return types;
}

static bool is_of_types(yyjson_val *v, uint32_t types) {
    switch (yyjson_get_type(v)) {
    case YYJSON_TYPE_OBJ:
        return types & OBJECT;
    case YYJSON_TYPE_ARR:
        return types & ARRAY;
    case YYJSON_TYPE_STR:
        return types & STRING;
    case YYJSON_TYPE_BOOL:
        return types & BOOLEAN;
    case YYJSON_TYPE_NULL:
        return types & NULLS;
    case YYJSON_TYPE_NUM:
        if (types & NUMBER) return true;
        return (types & INTEGER) && (!yyjson_is_real(v) || yyjson_get_real(v) == floor(yyjson_get_real(v)));
    default: // a number past 64 bits
        return types & NUMBER;
    }
}

static relay_expr read_values(relay_schema_reader *r, yyjson_val *schema) {
    yyjson_val *all = yyjson_obj_get(schema, "enum"), *one = yyjson_obj_get(schema, "const"), *value;
    uint32_t types = yyjson_obj_get(schema, "type") == NULL ? ALL_TYPES : types_of(schema);
    if (all != NULL && one != NULL) return relay_schema_fail(r, "enum beside const is not supported");
    if (all != NULL && !yyjson_is_arr(all)) return relay_schema_fail(r, "enum is not an array");
    if (types == 0) return relay_schema_fail(r, "type is not the name of a type, or an array of them");
    if (one != NULL) return is_of_types(one, types) ? relay_json_constant(r->g, one) : RELAY_EXPR_NOTHING;
    relay_expr_list ways = {0};
    size_t i, n;
    yyjson_arr_foreach(all, i, n, value) {
        if (is_of_types(value, types)) relay_expr_list_add(&ways, relay_json_constant(r->g, value));
    }
    return relay_expr_list_alt(&ways, r->g);
}

static bool read_bound(relay_schema_reader *r, yyjson_val *schema, const char *keyword, bool is_exclusive, bool is_min,
                       relay_json_bound *out) {
    yyjson_val *v = yyjson_obj_get(schema, keyword);
    if (v == NULL) return true;
    double value = yyjson_get_num(v);
    if (!yyjson_is_num(v) || !(fabs(value) < 1e18) || (value != 0 && fabs(value) < 1e-18)) {
        relay_schema_fail(r, "%s is not a number that is supported (0, or 1e-18 to 1e18)", keyword);
        return false;
    }
    bool is_stricter =
        !out->is_set || (is_min ? value > out->value : value < out->value) || (value == out->value && is_exclusive);
    if (is_stricter) *out = (relay_json_bound){.is_set = true, .is_exclusive = is_exclusive, .value = value};
    return true;
}

static relay_expr read_number(relay_schema_reader *r, yyjson_val *schema, bool is_integer) {
    relay_json_bound min = {0}, max = {0};
    if (!read_bound(r, schema, "minimum", false, true, &min) ||
        !read_bound(r, schema, "exclusiveMinimum", true, true, &min) ||
        !read_bound(r, schema, "maximum", false, false, &max) ||
        !read_bound(r, schema, "exclusiveMaximum", true, false, &max)) {
        return RELAY_EXPR_NOTHING;
    }
    if (!is_integer && !min.is_set && !max.is_set) return relay_expr_rule(r->g, r->rules.number);
    return relay_json_number_between(r->g, is_integer, &min, &max);
}

// Each of `types` with the keywords that are about it.
static relay_expr read_types(relay_schema_reader *r, yyjson_val *schema, uint32_t types) {
    relay_expr x = RELAY_EXPR_NOTHING;
    if (types & OBJECT) x = relay_expr_or(r->g, x, relay_schema_object(r, schema));
    if (types & ARRAY) x = relay_expr_or(r->g, x, relay_schema_array(r, schema));
    if (types & STRING) x = relay_expr_or(r->g, x, relay_schema_string(r, schema));
    if (types & NUMBER) {
        x = relay_expr_or(r->g, x, read_number(r, schema, false));
    } else if (types & INTEGER) {
        x = relay_expr_or(r->g, x, read_number(r, schema, true));
    }
    if (types & BOOLEAN) {
        x = relay_expr_or(r->g, x,
                          relay_expr_or(r->g, relay_expr_string(r->g, "true"), relay_expr_string(r->g, "false")));
    }
    if (types & NULLS) x = relay_expr_or(r->g, x, relay_expr_string(r->g, "null"));
    return x;
}

// ---- A schema

// A use of each kind that the schema makes, and the types that its keywords are about.
typedef struct uses {
    uint32_t n_alone, n_enum, n_type_keywords;
    const char *alone;
    uint32_t types;
} uses;

static bool read_uses(relay_schema_reader *r, yyjson_val *schema, uses *u) {
    *u = (uses){0};
    yyjson_val *key, *value;
    size_t i, n;
    yyjson_obj_foreach(schema, i, n, key, value) {
        const char *name = yyjson_get_str(key);
        size_t k = 0, n_keywords = sizeof keywords / sizeof keywords[0];
        while (k < n_keywords && !yyjson_equals_str(key, keywords[k].name))
            k++;
        // Values that ask for nothing.
        if (strcmp(name, "uniqueItems") == 0 && yyjson_is_false(value)) continue;
        if (k == n_keywords) {
            relay_schema_fail(r, "keyword \"%.64s\" is not supported", name);
            return false;
        }
        if (keywords[k].use == ALONE) {
            u->n_alone++;
            u->alone = keywords[k].name;
        }
        if (keywords[k].use == ENUM) u->n_enum++;
        if (keywords[k].use == OF_TYPE && strcmp(name, "type") != 0) u->n_type_keywords++;
        u->types |= keywords[k].types;
    }
    return true;
}

static relay_expr read_object_schema(relay_schema_reader *r, yyjson_val *schema) {
    uses u;
    if (!read_uses(r, schema, &u)) return RELAY_EXPR_NOTHING;
    yyjson_val *type = yyjson_obj_get(schema, "type");
    if (u.n_alone > 0) {
        if (u.n_alone > 1 || u.n_enum > 0 || u.n_type_keywords > 0 || type != NULL) {
            return relay_schema_fail(r, "%s beside other keywords that constrain is not supported", u.alone);
        }
        yyjson_val *value = yyjson_obj_get(schema, u.alone);
        return strcmp(u.alone, "$ref") == 0 ? read_ref(r, value) : read_alternatives(r, value, u.alone);
    }
    if (u.n_enum > 0) {
        if (u.n_type_keywords > 0) {
            return relay_schema_fail(r, "enum and const beside other keywords than type are not supported");
        }
        return read_values(r, schema);
    }
    if (type != NULL && types_of(schema) == 0) {
        return relay_schema_fail(r, "type is not the name of a type, or an array of them");
    }
    // Without a type any value is valid that the keywords are not about; of those that they are about is what is meant.
    uint32_t types = type != NULL ? types_of(schema) : u.types != 0 ? u.types : ALL_TYPES;
    if (type == NULL && u.types == 0) return relay_expr_rule(r->g, r->rules.value);
    if (type != NULL && (u.types & ~types & ~(uint32_t)(NUMBER | INTEGER)) != 0 && (u.types & types) == 0) {
        return relay_schema_fail(r, "keywords are about other types than \"type\" allows");
    }
    return read_types(r, schema, types);
}

static relay_expr read_schema(relay_schema_reader *r, yyjson_val *schema) {
    if (r->code != RELAY_OK || r->g->code != RELAY_OK) return RELAY_EXPR_NOTHING;
    if (yyjson_is_true(schema)) return relay_expr_rule(r->g, r->rules.value);
    if (yyjson_is_false(schema)) return RELAY_EXPR_NOTHING;
    if (!yyjson_is_obj(schema)) return relay_schema_fail(r, "a schema is an object, true or false");
    relay_expr x = read_object_schema(r, schema);
    if (r->code != RELAY_OK || r->g->code != RELAY_OK) return RELAY_EXPR_NOTHING;
    if (r->g->exprs[x].kind == RELAY_EXPR_KIND_RULE || x == RELAY_EXPR_NOTHING) return x;
    uint32_t rule = relay_grammar_add_rule(r->g, r->path.data == NULL ? "" : r->path.data, r->path.len);
    relay_grammar_set_rule(r->g, rule, x);
    return relay_expr_rule(r->g, rule);
}

// The schemas that were referred to, and those that they refer to.
static void read_refs(relay_schema_reader *r) {
    for (uint32_t i = 0; i < r->n_refs && r->code == RELAY_OK && r->g->code == RELAY_OK; i++) {
        relay_schema_leave(r, 0);
        relay_buf_puts(&r->path, r->refs[i].path);
        relay_grammar_set_rule(r->g, r->refs[i].rule, read_schema(r, r->refs[i].schema));
    }
}

relay_code relay_json_schema_read(relay_grammar *g, const char *text, size_t len, const char *field, relay_err *e) {
    yyjson_doc *doc;
    relay_code code = relay_json_parse(&doc, text, len, RELAY_JSON_MAX_DEPTH, field, e);
    if (code != RELAY_OK) return code;
    relay_schema_reader r = {.g = g, .root = yyjson_doc_get_root(doc), .field = field, .e = e};
    relay_buf_init(&r.path, MAX_POINTER_BYTES);
    relay_json_rules_init(&r.rules, g);
    uint32_t root = relay_grammar_add_rule(g, "schema", 6);
    relay_grammar_set_rule(g, root, read_schema(&r, r.root));
    read_refs(&r);
    g->root = root;
    for (uint32_t i = 0; i < r.n_refs; i++)
        free(r.refs[i].path);
    free(r.refs);
    relay_buf_fini(&r.path);
    yyjson_doc_free(doc);
    return r.code;
}
