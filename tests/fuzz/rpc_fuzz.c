// What comes in over gRPC: messages, and the two formats that are read by hand. The first byte picks which.
//
// A message is accepted or refused alike whether its bytes come in one piece or two, and what is accepted can be
// checked for UTF-8 and packed. (Packed bytes need not be accepted again: protobuf-c keeps an unknown field number 0,
// and cannot read what it then writes.)
#include <grpc/byte_buffer.h>
#include <stdlib.h>
#include <string.h>

#include "common/descriptor_set.h"
#include "common/rpc_core.h"
#include "common/rpc_server.h"
#include "common/rpc_status.h"
#include "proto/descriptors.h"
#include "relay/v1/generation.pb-c.h"
#include "relay/v1/model.pb-c.h"
#include "relay/v1/tokenizer.pb-c.h"
#include "tests/fuzz/fuzz.h"

static const ProtobufCMessageDescriptor *const types[] = {
    &relay__v1__generate_request__descriptor,        &relay__v1__session_request__descriptor,
    &relay__v1__generate_tokens_request__descriptor, &relay__v1__tokenize_batch_request__descriptor,
    &relay__v1__render_chat_request__descriptor,     &relay__v1__detokenize_step_request__descriptor,
};
enum { N_TYPES = sizeof types / sizeof *types };
enum { DESCRIPTORS = N_TYPES, STATUS, N_FORMATS };

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size, bool in_pieces) {
    grpc_slice slices[2] = {grpc_slice_from_copied_buffer(data, in_pieces ? size / 2 : size), grpc_empty_slice()};
    if (in_pieces) slices[1] = grpc_slice_from_copied_buffer((const char *)data + size / 2, size - size / 2);
    grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(slices, in_pieces ? 2 : 1);
    grpc_slice_unref(slices[0]);
    grpc_slice_unref(slices[1]);
    ProtobufCMessage *message;
    relay_err e;
    relay_code code = relay_rpc_unpack(type, bytes, &message, &e);
    RELAY_ASSERT((code == RELAY_OK) == (message != NULL));
    return message;
}

static void try_message(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size) {
    ProtobufCMessage *message = unpack(type, data, size, false), *same = unpack(type, data, size, true);
    RELAY_ASSERT((message == NULL) == (same == NULL));
    if (message == NULL) return;
    relay_err e;
    RELAY_ASSERT(relay_rpc_check_utf8(message, &e) == relay_rpc_check_utf8(same, &e));
    grpc_slice packed;
    RELAY_ASSERT(relay_rpc_pack(message, UINT32_MAX, &packed, &e) == RELAY_OK);
    grpc_slice_unref(packed);
    protobuf_c_message_free_unpacked(same, NULL);
    protobuf_c_message_free_unpacked(message, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    unsigned format = *data++ % N_FORMATS;
    size--;
    if (format == DESCRIPTORS) {
        relay_descriptor_set *set;
        if (relay_descriptor_set_parse(&set, data, size, NULL) == RELAY_OK) relay_descriptor_set_destroy(set);
    } else if (format == STATUS) {
        (void)relay_rpc_status_retry_ms(data, size);
    } else {
        try_message(types[format], data, size);
    }
    return 0;
}

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    static const struct {
        uint8_t format;
        const char *bytes;
        size_t size;
    } seeds[] = {
#define SEED(format, s) {format, s, sizeof(s) - 1}
        // GenerateRequest: model, a chat of one message, stop strings, a seed.
        SEED(0, "\x0A\x01m\x1A\x0E\x0A\x0C\x0A\x04user\x12\x04hi\xC3\xA9\x3A\x07\x08\x10\x1A\x03\x0A\x0A\x0A\x32\x02"
                "\x48\x07"),
        // SessionRequest: start of stream 7 with three packed ids.
        SEED(1, "\x12\x09\x08\x07\x12\x05\x12\x03\x01\xAC\x02"),
        SEED(2, "\x0A\x02id\x12\x04\x01\x02\xAC\x02\x2A\x05\x0D\x00\x00\x80\x3F\x6A\x04\x0A\x02\x05\x06"),
        SEED(3, "\x12\x03one\x12\x00\x12\x04\xF0\x9F\x8F\x83\x1A\x02\x08\x01"),
        SEED(4, "\x0A\x01m\x12\x08\x0A\x06\x0A\x04user\x22\x05{{x}}"),
        SEED(5, "\x12\x04\x01\x02\x03\x04\x1A\x05\x12\x03\xE2\x82\xAC\x2A\x03\x01\x02\x03\x30\x01"),
        // A file that declares a message with a text field and imports itself.
        SEED(DESCRIPTORS, "\x0A\x21\x0A\x01"
                          "a\x12\x01p\x1A\x01"
                          "a\x22\x0C\x0A\x01M\x12\x07\x0A\x01"
                          "f\x18\x01\x28\x09"
                          "\x2A\x08\x0A\x01"
                          "E\x12\x03\x0A\x01V"),
        SEED(STATUS,
             "\x08\x08\x1A\x36\x0A\x28type.googleapis.com/google.rpc.RetryInfo\x12\x0A\x0A\x08\x08\x01\x10\x80\xCA"
             "\xB5\xEE\x01"),
    };
    if (i < sizeof seeds / sizeof *seeds) {
        if (seeds[i].size + 1 > cap) return 0;
        out[0] = seeds[i].format;
        memcpy(out + 1, seeds[i].bytes, seeds[i].size);
        return seeds[i].size + 1;
    }
    // And the set in the binary.
    if (i != sizeof seeds / sizeof *seeds || relay_descriptors_size + 1 > cap) return 0;
    out[0] = DESCRIPTORS;
    memcpy(out + 1, relay_descriptors_data, relay_descriptors_size);
    return relay_descriptors_size + 1;
}
