// A message as one JSON object, in the manner of protobuf's JSON mapping but with the proto's own field names: text as
// strings, bytes as base64, enums by name, 64-bit integers as numbers. Unset fields are left out.
#ifndef RELAY_CLI_MESSAGE_JSON_H
#define RELAY_CLI_MESSAGE_JSON_H

#include <protobuf-c/protobuf-c.h>

#include "common/buf.h"

// Appends one line without its newline.
void relay_message_json(const ProtobufCMessage *m, relay_buf *out);
// Appends bytes as a JSON string of base64.
void relay_message_json_bytes(ProtobufCBinaryData bytes, relay_buf *out);

#endif
