// Three passes: the depth of nesting on the text, yyjson, and a walk over its result that looks for duplicate keys.
#include "common/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

// Members of an object up to this many are sorted as they are; more are put into groups by their hash first.
enum { FEW_KEYS = 16 };

typedef struct parse {
    const char *copy; // yyjson's copy of it; its strings lie in it where they lay in the text
    const char *field;
    relay_err *e;
} parse;

// yyjson reads nesting of any depth without recursion; the walk over the result below recurses, so depth is checked
// first, on the text: brackets outside strings. Text that is no JSON may count wrong, and is refused by yyjson in
// either case.
static relay_code check_depth(const char *text, size_t len, uint32_t max_depth, const char *field, relay_err *e) {
    uint32_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == ' ' && len - i >= 8 && memcmp(text + i, "        ", 8) == 0) {
            i += 7; // indentation is most of a large file
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > max_depth)
                return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: byte %zu: more than %u levels of nesting", field, i,
                                  max_depth);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return RELAY_OK;
}

static int compare_keys(const void *a, const void *b) {
    yyjson_val *x = *(yyjson_val *const *)a, *y = *(yyjson_val *const *)b;
    size_t x_len = yyjson_get_len(x), y_len = yyjson_get_len(y);
    if (x_len != y_len) return x_len < y_len ? -1 : 1;
    return memcmp(yyjson_get_str(x), yyjson_get_str(y), x_len);
}

static int compare_keys_by_place(const void *a, const void *b) {
    yyjson_val *x = *(yyjson_val *const *)a, *y = *(yyjson_val *const *)b;
    int order = compare_keys(a, b);
    return order != 0 ? order : (x > y) - (x < y);
}

static relay_code duplicate(const parse *p, yyjson_val *key) {
    const char *s = yyjson_get_str(key);
    size_t len = yyjson_get_len(key);
    return relay_fail(p->e, RELAY_INVALID_ARGUMENT, "%s: byte %zu: duplicate key \"%.*s\"", p->field,
                      (size_t)(s - p->copy) - 1, len < 64 ? (int)len : 64, s);
}

static relay_code check_few_keys(const parse *p, yyjson_val *object, size_t n) {
    yyjson_val *keys[FEW_KEYS];
    yyjson_obj_iter it = yyjson_obj_iter_with(object);
    for (size_t i = 0; i < n; i++)
        keys[i] = yyjson_obj_iter_next(&it);
    qsort(keys, n, sizeof(yyjson_val *), compare_keys_by_place);
    for (size_t i = 1; i < n; i++)
        if (compare_keys(&keys[i - 1], &keys[i]) == 0) return duplicate(p, keys[i]);
    return RELAY_OK;
}

typedef struct hashed_key {
    uint64_t hash;
    yyjson_val *key;
} hashed_key;

static int compare_hashed_keys(const void *a, const void *b) {
    const hashed_key *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return compare_keys_by_place(&x->key, &y->key);
}

// Keys in groups by the low bits of their hash, one a group on average, and each group sorted: equal keys are
// neighbours. Whoever makes keys of one hash makes one large group, and sorting it takes what sorting takes.
static relay_code check_many_keys(const parse *p, yyjson_val *object, size_t n) {
    size_t n_groups = FEW_KEYS;
    while (n_groups < n)
        n_groups *= 2;
    hashed_key *keys = relay_calloc(n, sizeof *keys), *grouped = relay_calloc(n, sizeof *grouped);
    uint32_t *end = relay_calloc(n_groups + 1, sizeof *end);
    yyjson_obj_iter it = yyjson_obj_iter_with(object);
    for (size_t i = 0; i < n; i++) {
        yyjson_val *key = yyjson_obj_iter_next(&it);
        keys[i] = (hashed_key){.hash = XXH3_64bits(yyjson_get_str(key), yyjson_get_len(key)), .key = key};
        end[(keys[i].hash & (n_groups - 1)) + 1]++;
    }
    for (size_t g = 1; g <= n_groups; g++)
        end[g] += end[g - 1];
    for (size_t i = 0; i < n; i++)
        grouped[end[keys[i].hash & (n_groups - 1)]++] = keys[i];
    yyjson_val *first = NULL; // of the keys that are there before, the first in the text
    for (size_t g = 0, begin = 0; g < n_groups; begin = end[g++]) {
        if (end[g] - begin > 1) qsort(&grouped[begin], end[g] - begin, sizeof *grouped, compare_hashed_keys);
        for (size_t i = begin + 1; i < end[g]; i++)
            if (grouped[i - 1].hash == grouped[i].hash && compare_keys(&grouped[i - 1].key, &grouped[i].key) == 0 &&
                (first == NULL || grouped[i].key < first))
                first = grouped[i].key;
    }
    free(end);
    free(grouped);
    free(keys);
    return first == NULL ? RELAY_OK : duplicate(p, first);
}

static relay_code check_object_keys(const parse *p, yyjson_val *object) {
    size_t n = yyjson_obj_size(object);
    return n <= FEW_KEYS ? check_few_keys(p, object, n) : check_many_keys(p, object, n);
}

// Depth is bounded by check_depth.
static relay_code check_keys(const parse *p, yyjson_val *v) {
    relay_code code = RELAY_OK;
    size_t i, n;
    yyjson_val *key, *child;
    if (yyjson_is_obj(v)) {
        code = check_object_keys(p, v);
        yyjson_obj_foreach(v, i, n, key, child) {
            if (code == RELAY_OK) code = check_keys(p, child);
        }
    } else if (yyjson_is_arr(v)) {
        yyjson_arr_foreach(v, i, n, child) {
            if (code == RELAY_OK) code = check_keys(p, child);
        }
    }
    return code;
}

relay_code relay_json_parse(yyjson_doc **out, const char *text, size_t len, uint32_t max_depth, const char *field,
                            relay_err *e) {
    RELAY_ASSERT(max_depth <= RELAY_JSON_MAX_DEPTH);
    *out = NULL;
    relay_code code = check_depth(text, len, max_depth, field, e);
    if (code != RELAY_OK) return code;
    yyjson_read_err err;
    // Without the in-situ flag yyjson writes to a copy of its own.
    yyjson_doc *doc = yyjson_read_opts((char *)text, len, YYJSON_READ_BIGNUM_AS_RAW, NULL, &err);
    if (doc == NULL) return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: byte %zu: %s", field, err.pos, err.msg);
    parse p = {.copy = doc->str_pool, .field = field, .e = e};
    code = check_keys(&p, yyjson_doc_get_root(doc));
    if (code != RELAY_OK) {
        yyjson_doc_free(doc);
        doc = NULL;
    }
    *out = doc;
    return code;
}
