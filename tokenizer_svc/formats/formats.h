// From a file or folder to what it says of a tokenizer: one reader a format, chosen by what the file holds.
//
// A reader has the name relay_<format>_read and a header of its own in this folder. It fills in a zeroed spec out of
// the spec's arena, checks shapes, types and ranges, and names what is wrong by the file and the path in it. What a
// stage cannot do is refused where that stage is built (tokenizer.h).
//
// A folder is read by the first of the names in the table of formats.c that it holds; files that belong to one
// (tokenizer_config.json beside tokenizer.json) are the reader's to find.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_FORMATS_H
#define RELAY_TOKENIZER_SVC_FORMATS_FORMATS_H

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

// NOT_FOUND where there is no such file, or no tokenizer in the folder; UNIMPLEMENTED for a file of no known format.
// To be freed with relay_tokenizer_spec_fini, which is fine after a failure, too.
relay_code relay_tokenizer_spec_read(relay_tokenizer_spec *out, const char *path, relay_err *e) RELAY_NODISCARD;

#endif
