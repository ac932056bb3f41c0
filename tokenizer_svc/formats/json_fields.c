#include "tokenizer_svc/formats/json_fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/buf.h"

enum { SHOWN_BYTES = 64 };

relay_code relay_json_refuse(const relay_json_object *o, relay_code code, const char *field, const char *fmt, ...) {
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    bool both = o->path[0] != '\0' && field[0] != '\0';
    return relay_fail(o->e, code, "%s%s%s: %s", o->path, both ? "." : "", field, what);
}

// NULL where the field is missing or null.
static yyjson_val *get(const relay_json_object *o, const char *field) {
    yyjson_val *v = yyjson_obj_get(o->v, field);
    return v == NULL || yyjson_is_null(v) ? NULL : v;
}

static relay_code missing(const relay_json_object *o, const char *field, bool is_optional) {
    return is_optional ? RELAY_OK : relay_json_refuse(o, RELAY_INVALID_ARGUMENT, field, "is missing");
}

relay_code relay_json_bool(const relay_json_object *o, const char *field, bool is_optional, bool *out) {
    yyjson_val *v = get(o, field);
    if (v == NULL) return missing(o, field, is_optional);
    if (!yyjson_is_bool(v)) return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, field, "must be true or false");
    *out = yyjson_get_bool(v);
    return RELAY_OK;
}

relay_code relay_json_u32(const relay_json_object *o, const char *field, bool is_optional, uint32_t *out) {
    yyjson_val *v = get(o, field);
    if (v == NULL) return missing(o, field, is_optional);
    if (!yyjson_is_uint(v) || yyjson_get_uint(v) > UINT32_MAX)
        return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, field, "must be a number of 0 to %u", UINT32_MAX);
    *out = (uint32_t)yyjson_get_uint(v);
    return RELAY_OK;
}

relay_code relay_json_str(const relay_json_object *o, const char *field, bool is_optional, relay_spec_str *out) {
    yyjson_val *v = get(o, field);
    if (v == NULL) return missing(o, field, is_optional);
    if (!yyjson_is_str(v) || yyjson_get_len(v) > UINT32_MAX / 2)
        return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, field, "must be a string");
    *out = (relay_spec_str){yyjson_get_str(v), (uint32_t)yyjson_get_len(v)};
    return RELAY_OK;
}

// "path.field", and "[i]" behind it where that is not SIZE_MAX. A path that is too long is cut: it is for messages
// only.
static relay_json_object step_down(const relay_json_object *o, const char *field, size_t i, yyjson_val *v) {
    relay_json_object child = {.v = v, .e = o->e};
    relay_buf b;
    relay_buf_init(&b, 8 * RELAY_JSON_PATH_MAX);
    relay_buf_printf(&b, "%s%s%s", o->path, o->path[0] == '\0' ? "" : ".", field);
    if (i != SIZE_MAX) relay_buf_printf(&b, "[%zu]", i);
    size_t n = b.len < sizeof child.path ? b.len : sizeof child.path - 1;
    if (n > 0) memcpy(child.path, b.data, n);
    relay_buf_fini(&b);
    return child;
}

relay_code relay_json_child(const relay_json_object *o, const char *field, relay_json_object *out, bool *found) {
    yyjson_val *v = get(o, field);
    *found = v != NULL;
    if (v == NULL) return RELAY_OK;
    if (!yyjson_is_obj(v)) return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, field, "must be an object");
    *out = step_down(o, field, SIZE_MAX, v);
    return RELAY_OK;
}

relay_code relay_json_element(const relay_json_object *o, const char *field, size_t i, yyjson_val *element,
                              relay_json_object *out) {
    *out = step_down(o, field, i, element);
    if (yyjson_is_obj(element)) return RELAY_OK;
    return relay_json_refuse(out, RELAY_INVALID_ARGUMENT, "", "must be an object");
}

relay_code relay_json_array(const relay_json_object *o, const char *field, yyjson_val **out) {
    *out = get(o, field);
    if (*out == NULL) return missing(o, field, false);
    if (yyjson_is_arr(*out)) return RELAY_OK;
    return relay_json_refuse(o, RELAY_INVALID_ARGUMENT, field, "must be an array");
}

relay_code relay_json_choice(const relay_json_object *o, const char *field, const char *const *names, bool is_optional,
                             uint32_t *out) {
    relay_spec_str s = {0};
    relay_code code = relay_json_str(o, field, is_optional, &s);
    if (code != RELAY_OK || s.s == NULL) return code;
    for (uint32_t i = 0; names[i] != NULL; i++) {
        if (strlen(names[i]) != s.len || memcmp(names[i], s.s, s.len) != 0) continue;
        *out = i;
        return RELAY_OK;
    }
    return relay_json_refuse(o, RELAY_UNIMPLEMENTED, field, "is \"%.*s\", which Relay does not know",
                             s.len < SHOWN_BYTES ? (int)s.len : SHOWN_BYTES, s.s);
}
