// The tokenizer in a GGUF file: keys tokenizer.ggml.* and tokenizer.chat_template.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_GGUF_TOKENIZER_H
#define RELAY_TOKENIZER_SVC_FORMATS_GGUF_TOKENIZER_H

#include "common/gguf.h"
#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

// Fills in *spec, whose arena is ready and whose other fields are zero; copies what it keeps, so that `g` may be closed
// afterwards.
relay_code relay_gguf_tokenizer_read(relay_tokenizer_spec *spec, const relay_gguf *g, relay_err *e) RELAY_NODISCARD;

#endif
