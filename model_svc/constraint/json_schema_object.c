#include <stdlib.h>
#include <string.h>

#include "model_svc/constraint/json_schema_internal.h"

enum { MAX_PROPERTIES = 1024 };

// ---- Objects

typedef struct property {
    const char *name;
    size_t len;
    bool is_required;
    relay_expr member; // name, colon, value
} property;

typedef struct properties {
    property items[MAX_PROPERTIES];
    uint32_t n;
    relay_expr others; // a member of another name; NOTHING where there is none
} properties;

static property *find_property(properties *p, const char *name, size_t len) {
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->items[i].len == len && memcmp(p->items[i].name, name, len) == 0) return &p->items[i];
    }
    return NULL;
}

static relay_expr member(relay_schema_reader *r, relay_expr key, relay_expr value) {
    return relay_expr_seq(r->g, (relay_expr[]){key, relay_json_colon(&r->rules), value}, 3);
}

static void add_property(relay_schema_reader *r, properties *p, const char *name, size_t len, relay_expr value) {
    if (p->n == MAX_PROPERTIES) {
        relay_schema_fail(r, "more than %d properties", MAX_PROPERTIES);
        return;
    }
    relay_expr key = relay_json_literal(r->g, name, len);
    p->items[p->n++] = (property){.name = name, .len = len, .member = member(r, key, value)};
}

static void read_properties(relay_schema_reader *r, yyjson_val *schema, properties *p) {
    yyjson_val *all = yyjson_obj_get(schema, "properties"), *key, *value;
    size_t i, n;
    if (all != NULL && !yyjson_is_obj(all)) relay_schema_fail(r, "properties is not an object");
    yyjson_obj_foreach(all, i, n, key, value) {
        if (r->code != RELAY_OK) return;
        relay_expr x = relay_schema_below(r, value, "properties", key, NULL);
        add_property(r, p, yyjson_get_str(key), yyjson_get_len(key), x);
    }
}

// What is required and has no schema may be anything.
static void read_required(relay_schema_reader *r, yyjson_val *schema, properties *p) {
    yyjson_val *all = yyjson_obj_get(schema, "required"), *name;
    size_t i, n;
    if (all != NULL && !yyjson_is_arr(all)) relay_schema_fail(r, "required is not an array");
    yyjson_arr_foreach(all, i, n, name) {
        if (r->code != RELAY_OK) return;
        if (!yyjson_is_str(name)) {
            relay_schema_fail(r, "required holds what is not a string");
            return;
        }
        property *found = find_property(p, yyjson_get_str(name), yyjson_get_len(name));
        if (found == NULL) {
            yyjson_val *others = yyjson_obj_get(schema, "additionalProperties");
            if (others != NULL && !yyjson_is_true(others)) {
                relay_schema_fail(r,
                                  "\"%.64s\" is required and not among properties; beside additionalProperties "
                                  "that is not supported",
                                  yyjson_get_str(name));
                return;
            }
            add_property(r, p, yyjson_get_str(name), yyjson_get_len(name), relay_expr_rule(r->g, r->rules.value));
            if (r->code != RELAY_OK) return;
            found = &p->items[p->n - 1];
        }
        found->is_required = true;
    }
}

static void read_others(relay_schema_reader *r, yyjson_val *schema, properties *p) {
    yyjson_val *others = yyjson_obj_get(schema, "additionalProperties");
    p->others = RELAY_EXPR_NOTHING;
    bool is_open = others == NULL ? yyjson_obj_get(schema, "properties") == NULL : !yyjson_is_false(others);
    if (!is_open) return;
    relay_expr value = others == NULL ? relay_expr_rule(r->g, r->rules.value)
                                      : relay_schema_below(r, others, "additionalProperties", NULL, NULL);
    relay_expr key = relay_expr_rule(r->g, r->rules.string);
    if (p->n > 0) {
        // Names that are taken must not come again: in their one spelling, so that they can be told.
        relay_expr quote = relay_expr_string(r->g, "\"");
        relay_expr any = relay_expr_repeat(r->g, r->rules.char_any, 0, RELAY_UNBOUNDED);
        any = relay_expr_seq(r->g, (relay_expr[]){quote, any, quote}, 3);
        relay_expr_list names = {0};
        for (uint32_t i = 0; i < p->n; i++)
            relay_expr_list_add(&names, relay_json_literal(r->g, p->items[i].name, p->items[i].len));
        relay_expr taken = relay_expr_list_alt(&names, r->g);
        uint32_t rule = relay_grammar_add_rule(r->g, "key", 3);
        relay_grammar_set_rule(r->g, rule, relay_expr_minus(r->g, any, taken));
        key = relay_expr_rule(r->g, rule);
    }
    p->others = member(r, key, value);
}

// In the order of the schema. `later` is what may come once there was a member, `first` what may come before: what
// follows a property is used by both, which the automaton makes once.
static relay_expr put_members(relay_schema_reader *r, const properties *p) {
    relay_grammar *g = r->g;
    relay_expr space = relay_json_space(&r->rules), comma = relay_expr_string(g, ",");
    relay_expr close = relay_expr_string(g, "}");
    relay_expr later = relay_expr_then(g, space, close), first = close;
    if (p->others != RELAY_EXPR_NOTHING) {
        relay_expr more = relay_expr_seq(g, (relay_expr[]){comma, space, p->others}, 3);
        later = relay_expr_then(g, relay_expr_repeat(g, more, 0, RELAY_UNBOUNDED), later);
        first = relay_expr_or(g, first, relay_expr_then(g, p->others, later));
    }
    for (uint32_t i = p->n; i-- > 0;) {
        const property *q = &p->items[i];
        relay_expr rest = relay_expr_then(g, q->member, later);
        relay_expr next = relay_expr_seq(g, (relay_expr[]){comma, space, rest}, 3);
        later = q->is_required ? next : relay_expr_or(g, next, later);
        first = q->is_required ? rest : relay_expr_or(g, rest, first);
    }
    return relay_expr_seq(g, (relay_expr[]){relay_expr_string(g, "{"), space, first}, 3);
}

relay_expr relay_schema_object(relay_schema_reader *r, yyjson_val *schema) {
    properties *p = relay_calloc(1, sizeof *p);
    read_properties(r, schema, p);
    read_required(r, schema, p);
    if (r->code == RELAY_OK) read_others(r, schema, p);
    relay_expr x = r->code == RELAY_OK ? put_members(r, p) : RELAY_EXPR_NOTHING;
    free(p);
    return x;
}

// ---- Arrays

relay_expr relay_schema_array(relay_schema_reader *r, yyjson_val *schema) {
    relay_grammar *g = r->g;
    yyjson_val *prefix = yyjson_obj_get(schema, "prefixItems"), *items = yyjson_obj_get(schema, "items");
    uint32_t min = 0, max = RELAY_UNBOUNDED;
    relay_schema_count(r, schema, "minItems", &min);
    relay_schema_count(r, schema, "maxItems", &max);
    if (prefix != NULL && (!yyjson_is_arr(prefix) || yyjson_arr_size(prefix) > MAX_PROPERTIES)) {
        return relay_schema_fail(r, "prefixItems is not an array of at most %d schemas", MAX_PROPERTIES);
    }
    if (yyjson_is_arr(items)) return relay_schema_fail(r, "items as an array is not supported; write prefixItems");
    uint32_t n_prefix = (uint32_t)yyjson_arr_size(prefix);
    if (yyjson_is_false(items) && max > n_prefix) max = n_prefix;
    if (min > max) return relay_schema_fail(r, "at least %u items and at most %u: no array is so", min, max);
    relay_expr item = RELAY_EXPR_NOTHING;
    if (max > n_prefix) {
        item = items == NULL ? relay_expr_rule(g, r->rules.value) : relay_schema_below(r, items, "items", NULL, NULL);
    }
    if (n_prefix == 0) return relay_json_list(&r->rules, "[", item, min, max, "]");

    relay_expr space = relay_json_space(&r->rules), comma = relay_expr_string(g, ",");
    relay_expr close = relay_expr_string(g, "]"), end = relay_expr_then(g, space, close);
    relay_expr more = relay_expr_seq(g, (relay_expr[]){comma, space, item}, 3);
    uint32_t n_more = max == RELAY_UNBOUNDED ? max : max > n_prefix ? max - n_prefix : 0;
    relay_expr later = relay_expr_then(g, relay_expr_repeat(g, more, min > n_prefix ? min - n_prefix : 0, n_more), end);
    for (size_t i = n_prefix; i-- > 0 && r->code == RELAY_OK;) {
        // `later` is what follows item i; past `max` nothing does.
        if (i + 1 >= max) later = end;
        relay_expr x = relay_schema_below(r, yyjson_arr_get(prefix, i), "prefixItems", NULL, &i);
        x = relay_expr_then(g, x, later);
        if (i == 0) {
            if (max == 0) x = RELAY_EXPR_NOTHING;
            later = min == 0 ? relay_expr_or(g, x, close) : x;
            break;
        }
        later = relay_expr_seq(g, (relay_expr[]){comma, space, x}, 3);
        if (i >= min) later = relay_expr_or(g, later, end);
    }
    return relay_expr_seq(g, (relay_expr[]){relay_expr_string(g, "["), space, later}, 3);
}
