#include "cli/message_json.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/descriptor_set.h"

// Text or bytes: the C copy of the contract holds both as bytes, the public descriptors tell them apart.
static bool is_text(const ProtobufCMessageDescriptor *m, const ProtobufCFieldDescriptor *f) {
    char name[256];
    int len = snprintf(name, sizeof name, "%s.%s", m->name, f->name);
    const relay_symbol *symbol = relay_descriptor_set_find_symbol(relay_descriptor_set_builtin(), name, (size_t)len);
    return symbol != NULL && symbol->kind == RELAY_SYMBOL_TEXT_FIELD;
}

void relay_message_json_bytes(ProtobufCBinaryData bytes, relay_buf *out) {
    size_t cap = (bytes.len + 2) / 3 * 4 + 1;
    char *text = relay_calloc(cap, 1);
    EVP_EncodeBlock((unsigned char *)text, bytes.data, (int)bytes.len);
    relay_buf_printf(out, "\"%s\"", text);
    free(text);
}

static void put_number(double value, const char *format, relay_buf *out) {
    // JSON has no word for these; protobuf's mapping quotes them.
    if (isfinite(value))
        relay_buf_printf(out, format, value);
    else
        relay_buf_puts(out, isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
}

static void put_value(const ProtobufCMessageDescriptor *m, const ProtobufCFieldDescriptor *f, const void *value,
                      relay_buf *out) {
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        relay_buf_printf(out, "%d", *(const int32_t *)value);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        relay_buf_printf(out, "%lld", (long long)*(const int64_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        relay_buf_printf(out, "%u", *(const uint32_t *)value);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        relay_buf_printf(out, "%llu", (unsigned long long)*(const uint64_t *)value);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        put_number((double)*(const float *)value, "%.9g", out);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        put_number(*(const double *)value, "%.17g", out);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        relay_buf_puts(out, *(const protobuf_c_boolean *)value ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM: {
        const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(f->descriptor, *(const int *)value);
        if (v != NULL)
            relay_buf_printf(out, "\"%s\"", v->name);
        else
            relay_buf_printf(out, "%d", *(const int *)value);
        break;
    }
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *b = value;
        if (is_text(m, f))
            relay_buf_put_json_string(out, (const char *)b->data, b->len);
        else
            relay_message_json_bytes(*b, out);
        break;
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        relay_message_json(*(const ProtobufCMessage *const *)value, out);
        break;
    }
}

static size_t element_size(ProtobufCType type) {
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    default:
        return 4;
    }
}

static bool is_present(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f) {
    const char *base = (const char *)m;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) return *(const uint32_t *)(base + f->quantifier_offset) == f->id;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) return *(const void *const *)(base + f->offset) != NULL;
    return *(const protobuf_c_boolean *)(base + f->quantifier_offset);
}

void relay_message_json(const ProtobufCMessage *m, relay_buf *out) {
    relay_buf_putc(out, '{');
    const char *comma = "";
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        const char *base = (const char *)m;
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t n = *(const size_t *)(base + f->quantifier_offset);
            if (n == 0) continue;
            relay_buf_printf(out, "%s\"%s\":[", comma, f->name);
            const char *elements = *(const char *const *)(base + f->offset);
            for (size_t k = 0; k < n; k++) {
                if (k != 0) relay_buf_putc(out, ',');
                put_value(m->descriptor, f, elements + k * element_size(f->type), out);
            }
            relay_buf_putc(out, ']');
        } else {
            if (!is_present(m, f)) continue;
            relay_buf_printf(out, "%s\"%s\":", comma, f->name);
            put_value(m->descriptor, f, base + f->offset, out);
        }
        comma = ",";
    }
    relay_buf_putc(out, '}');
}
