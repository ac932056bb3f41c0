// A score of a tokenizer.json, as HF tokenizers reads it.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_JSON_SCORE_H
#define RELAY_TOKENIZER_SVC_FORMATS_JSON_SCORE_H

#include <yyjson.h>

// HF reads numbers with serde_json, which is fast and not exact: digits times or through a power of ten, each rounded.
// The last bit of one score in four differs from the number that the text stands for, and decides between paths that
// are equally good. `number` is a number of a document.
double relay_json_score(yyjson_val *number);

#endif
