// JSON: yyjson with Relay's bounds, and the one place that includes it.
//
// Strict RFC 8259 UTF-8. Refused with INVALID_ARGUMENT naming the field and the byte: bad syntax, invalid UTF-8,
// duplicate keys (checked), more than max_depth levels. A number that neither 64 bits nor a double hold is kept as its
// text (the type is YYJSON_TYPE_RAW), for who passes it on.
#ifndef RELAY_COMMON_JSON_H
#define RELAY_COMMON_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

#include "common/status.h"

enum { RELAY_JSON_MAX_DEPTH = 64 };

// `field` is the name for messages ("tools_json"). Gives a document to be freed with yyjson_doc_free.
relay_code relay_json_parse(yyjson_doc **out, const char *text, size_t len, uint32_t max_depth, const char *field,
                            relay_err *e) RELAY_NODISCARD;

#endif
