// Protocol messages in C: the few things that protobuf-c leaves to its users.
#ifndef RELAY_COMMON_MESSAGE_H
#define RELAY_COMMON_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>
#include <string.h>

#include "common/status.h"

// Sets an optional scalar field of a message struct: RELAY_SET(response, step, 7).
#define RELAY_SET(message, field, ...)                                                                                 \
    do {                                                                                                               \
        (message)->has_##field = 1;                                                                                    \
        (message)->field = (__VA_ARGS__);                                                                              \
    } while (0)

// Borrows bytes for a field of a message that is only going to be packed.
static inline ProtobufCBinaryData relay_message_bytes(const void *data, size_t len) {
    return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)data};
}

static inline ProtobufCBinaryData relay_message_text(const char *s) {
    return relay_message_bytes(s, strlen(s));
}

// Everything in a message that a client sent means something to this build, submessages included: no field that is not
// in its contract (UNIMPLEMENTED), no enum value that is not in its contract (INVALID_ARGUMENT). Names the field's
// path. A field of a later contract is refused rather than skipped because an option that is silently ignored gives
// wrong answers.
relay_code relay_message_check(const ProtobufCMessage *m, relay_err *e) RELAY_NODISCARD;

#endif
