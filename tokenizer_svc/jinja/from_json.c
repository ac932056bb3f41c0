#include "tokenizer_svc/jinja/from_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer_svc/jinja/run.h"

// A number that fits neither 64 bits nor a double: an integer is kept as its digits, the rest is infinite.
static jinja_value from_raw(const char *s, size_t len) {
    if (memchr(s, '.', len) != NULL || memchr(s, 'e', len) != NULL || memchr(s, 'E', len) != NULL)
        return jinja_float(s[0] == '-' ? -HUGE_VAL : HUGE_VAL);
    return (jinja_value){.kind = JINJA_BIGINT, .s = s, .len = (uint32_t)len};
}

static bool from_uint(jinja_run *run, uint64_t u, jinja_value *out) {
    if (u <= INT64_MAX) {
        *out = jinja_int((int64_t)u);
        return true;
    }
    char *digits = jinja_alloc(run, 24, 1);
    if (digits == NULL) return false;
    *out = from_raw(digits, (size_t)snprintf(digits, 24, "%llu", (unsigned long long)u));
    return true;
}

static bool from_array(jinja_run *run, yyjson_val *json, jinja_value *out) {
    size_t i, n;
    yyjson_val *item;
    if (!jinja_list_make(run, JINJA_LIST, (uint32_t)yyjson_arr_size(json), out)) return false;
    yyjson_arr_foreach(json, i, n, item) {
        if (!jinja_from_json(run, item, &out->list->items[i])) return false;
    }
    return true;
}

static bool from_object(jinja_run *run, yyjson_val *json, jinja_value *out) {
    size_t i, n;
    yyjson_val *name, *item;
    if (!jinja_dict_make(run, JINJA_DICT, (uint32_t)yyjson_obj_size(json), out)) return false;
    yyjson_obj_foreach(json, i, n, name, item) {
        jinja_value key = jinja_str(yyjson_get_str(name), yyjson_get_len(name), JINJA_CALLER), value;
        if (!jinja_from_json(run, item, &value) || !jinja_dict_append(run, out->dict, key, value)) return false;
    }
    return true;
}

bool jinja_from_json(jinja_run *run, yyjson_val *json, jinja_value *out) {
    bool ok = true;
    switch (yyjson_get_type(json)) {
    case YYJSON_TYPE_BOOL:
        *out = jinja_bool(yyjson_get_bool(json));
        break;
    case YYJSON_TYPE_NUM:
        if (yyjson_is_uint(json))
            ok = from_uint(run, yyjson_get_uint(json), out);
        else
            *out = yyjson_is_sint(json) ? jinja_int(yyjson_get_sint(json)) : jinja_float(yyjson_get_real(json));
        break;
    case YYJSON_TYPE_RAW:
        *out = from_raw(yyjson_get_raw(json), yyjson_get_len(json));
        break;
    case YYJSON_TYPE_STR:
        *out = jinja_str(yyjson_get_str(json), yyjson_get_len(json), JINJA_CALLER);
        break;
    case YYJSON_TYPE_ARR:
        ok = from_array(run, json, out);
        break;
    case YYJSON_TYPE_OBJ:
        ok = from_object(run, json, out);
        break;
    default:
        *out = jinja_none();
    }
    if (ok) out->origin = JINJA_CALLER;
    return ok;
}
