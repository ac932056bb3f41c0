// .tiktoken files: a line a token, its bytes in base64 and its rank, which is its id.
//
// The file holds neither the pattern that splits text into words nor the special tokens: these are its encoding's
// (tiktoken_encodings.h), which has to be known. It is given by name, or recognised by the file's content.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_TIKTOKEN_H
#define RELAY_TOKENIZER_SVC_FORMATS_TIKTOKEN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

// Whether a file may be one: that its first line is base64, a space and a number.
bool relay_tiktoken_is(const void *data, size_t len);

// Fills in *spec, whose arena is ready and whose other fields are zero. `encoding` is a name such as "cl100k_base";
// NULL: recognise it, and UNIMPLEMENTED where that fails. Errors name the line: "line 17: ...".
relay_code relay_tiktoken_read(relay_tokenizer_spec *spec, const void *data, size_t len, const char *encoding,
                               relay_err *e) RELAY_NODISCARD;

#endif
