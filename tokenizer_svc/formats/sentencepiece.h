// SentencePiece's .model files: protobuf, message ModelProto of sentencepiece_model.proto.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_SENTENCEPIECE_H
#define RELAY_TOKENIZER_SVC_FORMATS_SENTENCEPIECE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

// Whether a file may be one: that it begins with a piece. Other files do not begin so.
bool relay_sentencepiece_is(const void *data, size_t len);

// Fills in *spec, whose arena is ready and whose other fields are zero. Its strings point into `data`, which outlives
// it. Errors name the path in the message: "pieces[17].score".
relay_code relay_sentencepiece_read(relay_tokenizer_spec *spec, const void *data, size_t len,
                                    relay_err *e) RELAY_NODISCARD;

#endif
