// Tokenizers in several files of a folder: what models had before tokenizer.json.
//
//   vocab.json (or encoder.json) and merges.txt (vocab.bpe)   byte-level BPE of GPT-2 and its kin
//   vocab.txt                                                 BERT's WordPiece, a piece a line
//
// What these leave open is in tokenizer_config.json, where there is one, or else as in the class's own defaults.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_VOCAB_FILES_H
#define RELAY_TOKENIZER_SVC_FORMATS_VOCAB_FILES_H

#include <stddef.h>
#include <yyjson.h>

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

// Both fill in *spec, whose arena is ready and whose other fields are zero, and copy what they keep. `config` is the
// root of tokenizer_config.json, or NULL. Errors name the path in the files: "vocab.json: \"the\"", "merges.txt: line
// 17".
relay_code relay_gpt2_files_read(relay_tokenizer_spec *spec, yyjson_val *vocab, const char *merges, size_t merges_len,
                                 yyjson_val *config, relay_err *e) RELAY_NODISCARD;
relay_code relay_bert_files_read(relay_tokenizer_spec *spec, const char *vocab, size_t vocab_len, yyjson_val *config,
                                 relay_err *e) RELAY_NODISCARD;

#endif
