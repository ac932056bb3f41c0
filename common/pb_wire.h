// The protobuf wire format by hand: for the few messages that protobuf-c has no code for (descriptors, google.rpc).
//
// A reader walks the fields of one message in place and copies nothing. It takes any bytes: what is malformed ends the
// walk and marks the reader as failed.
#ifndef RELAY_COMMON_PB_WIRE_H
#define RELAY_COMMON_PB_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

typedef struct relay_pb_reader {
    const uint8_t *at, *end;
    bool is_failed;
} relay_pb_reader;

typedef struct relay_pb_field {
    uint32_t number;
    bool is_bytes;       // length-delimited: data and size are set; otherwise value is
    uint64_t value;      // varint or fixed-width, as unsigned bits
    const uint8_t *data; // borrowed from the message
    size_t size;
} relay_pb_field;

static inline relay_pb_reader relay_pb_read(const uint8_t *data, size_t size) {
    return (relay_pb_reader){.at = data, .end = data + size};
}
// Reads the next field; false at the end and on malformed input.
bool relay_pb_next(relay_pb_reader *r, relay_pb_field *f);

void relay_pb_put_varint(relay_buf *b, uint32_t number, uint64_t value);
void relay_pb_put_bytes(relay_buf *b, uint32_t number, const void *data, size_t size);

#endif
