#include "common/message.h"

#include <stdbool.h>
#include <stdio.h>

// The way from the root message to where the check stands. Types do not recurse, so it stays short; what does not fit
// is cut, which harms nothing but the text of an error.
typedef struct path {
    char text[160];
    size_t len;
} path;

static path path_child(const path *parent, const char *name, bool is_repeated, size_t index) {
    path p = *parent;
    const char *dot = p.len == 0 ? "" : ".";
    size_t room = sizeof p.text - p.len;
    int n = is_repeated ? snprintf(p.text + p.len, room, "%s%s[%zu]", dot, name, index)
                        : snprintf(p.text + p.len, room, "%s%s", dot, name);
    if (n > 0) p.len += (size_t)n < room ? (size_t)n : room - 1;
    return p;
}

static const char *path_or_type(const path *p, const ProtobufCMessage *m) {
    return p->len == 0 ? m->descriptor->short_name : p->text;
}

static relay_code check_message(const ProtobufCMessage *m, const path *at, relay_err *e);

static relay_code check_value(const ProtobufCFieldDescriptor *f, const void *value, const path *at, relay_err *e) {
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *child = *(ProtobufCMessage *const *)value;
        return child == NULL ? RELAY_OK : check_message(child, at, e);
    }
    int number = *(const int *)value;
    const ProtobufCEnumDescriptor *type = f->descriptor;
    if (protobuf_c_enum_descriptor_get_value(type, number) != NULL) return RELAY_OK;
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is %d, which is no value of %s", at->text, number,
                      type->short_name);
}

// How many values a field holds, 0 where it is unset, and where the first lies.
static size_t field_values(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, const char **first) {
    const char *base = (const char *)m;
    *first = base + f->offset;
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        *first = *(const char *const *)(base + f->offset);
        return *(const size_t *)(base + f->quantifier_offset);
    }
    if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        return *(const uint32_t *)(base + f->quantifier_offset) == f->id ? 1 : 0;
    }
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) return 1; // NULL where unset
    return *(const protobuf_c_boolean *)(base + f->quantifier_offset) ? 1 : 0;
}

static relay_code check_message(const ProtobufCMessage *m, const path *at, relay_err *e) {
    if (m->n_unknown_fields != 0) {
        return relay_fail(e, RELAY_UNIMPLEMENTED, "%s holds field number %u, which this build does not know",
                          path_or_type(at, m), m->unknown_fields[0].tag);
    }
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (f->type != PROTOBUF_C_TYPE_MESSAGE && f->type != PROTOBUF_C_TYPE_ENUM) continue;
        const char *value;
        size_t n = field_values(m, f, &value);
        size_t stride = f->type == PROTOBUF_C_TYPE_MESSAGE ? sizeof(void *) : sizeof(int);
        for (size_t j = 0; j < n; j++) {
            path child = path_child(at, f->name, f->label == PROTOBUF_C_LABEL_REPEATED, j);
            relay_code code = check_value(f, value + j * stride, &child, e);
            if (code != RELAY_OK) return code;
        }
    }
    return RELAY_OK;
}

relay_code relay_message_check(const ProtobufCMessage *m, relay_err *e) {
    path root = {.len = 0};
    return check_message(m, &root, e);
}
