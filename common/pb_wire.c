#include "common/pb_wire.h"

// Wire types, from the protobuf encoding document. Groups (3 and 4) are long gone from the language and refused.
enum { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_BYTES = 2, WIRE_32BIT = 5 };

static bool fail(relay_pb_reader *r) {
    r->is_failed = true;
    return false;
}

static bool read_varint(relay_pb_reader *r, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end) return fail(r);
        uint8_t b = *r->at++;
        *value |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80) return true;
    }
    return fail(r);
}

static bool read_fixed(relay_pb_reader *r, unsigned n_bytes, uint64_t *value) {
    if ((size_t)(r->end - r->at) < n_bytes) return fail(r);
    *value = 0;
    for (unsigned i = 0; i < n_bytes; i++)
        *value |= (uint64_t)*r->at++ << 8 * i;
    return true;
}

bool relay_pb_next(relay_pb_reader *r, relay_pb_field *f) {
    *f = (relay_pb_field){0};
    uint64_t key;
    if (r->is_failed || r->at == r->end || !read_varint(r, &key)) return false;
    if (key >> 3 == 0 || key >> 3 > UINT32_MAX) return fail(r);
    f->number = (uint32_t)(key >> 3);
    switch (key & 7) {
    case WIRE_VARINT:
        return read_varint(r, &f->value);
    case WIRE_64BIT:
        return read_fixed(r, 8, &f->value);
    case WIRE_32BIT:
        return read_fixed(r, 4, &f->value);
    case WIRE_BYTES:
        if (!read_varint(r, &f->value)) return false;
        if (f->value > (size_t)(r->end - r->at)) return fail(r);
        f->is_bytes = true;
        f->data = r->at;
        f->size = (size_t)f->value;
        r->at += f->size;
        return true;
    default:
        return fail(r);
    }
}

static void put_raw_varint(relay_buf *b, uint64_t value) {
    while (value >= 0x80) {
        relay_buf_putc(b, (char)(value | 0x80));
        value >>= 7;
    }
    relay_buf_putc(b, (char)value);
}

void relay_pb_put_varint(relay_buf *b, uint32_t number, uint64_t value) {
    put_raw_varint(b, (uint64_t)number << 3 | WIRE_VARINT);
    put_raw_varint(b, value);
}

void relay_pb_put_bytes(relay_buf *b, uint32_t number, const void *data, size_t size) {
    put_raw_varint(b, (uint64_t)number << 3 | WIRE_BYTES);
    put_raw_varint(b, size);
    relay_buf_append(b, data, size);
}
