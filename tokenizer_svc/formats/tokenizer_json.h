// Hugging Face's tokenizer.json, as the library `tokenizers` 0.23 reads it, and what lies beside it:
//
//   tokenizer_config.json     names of the special tokens, chat templates, clean-up of the output
//   special_tokens_map.json   names of the special tokens that tokenizer_config.json leaves open
//   generation_config.json    ids that end an answer
//   chat_template.jinja, additional_chat_templates/NAME.jinja, chat_template.json: chat templates
//
// Of two templates of one name counts that of the first file of: the .jinja files, chat_template.json,
// tokenizer_config.json.
//
// Fields that the library knows no use for are passed over; types, options and values it would refuse are refused, by
// their path in the file. `truncation` and `padding` are not applied, as they are not by transformers, whose calls turn
// them off unless they are asked for: no part of a prompt is lost that nobody asked to cut. `dropout` is for training
// and refused.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_TOKENIZER_JSON_H
#define RELAY_TOKENIZER_SVC_FORMATS_TOKENIZER_JSON_H

#include <stdbool.h>
#include <yyjson.h>

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

// Whether a JSON file is one: an object with a model.
bool relay_tokenizer_json_is(yyjson_val *root);

typedef struct relay_tokenizer_json_files {
    yyjson_val *config, *special_tokens_map, *generation_config, *chat_template; // roots; NULL where there is no file
    const relay_named_template *jinja; // [n_jinja]: chat_template.jinja is "default"
    uint32_t n_jinja;
} relay_tokenizer_json_files;

// Fills in *spec, whose arena is ready and whose other fields are zero. Strings of the model and the added tokens stay
// in `root`'s document, which must live as long as the spec; what is of the other files is copied.
relay_code relay_tokenizer_json_read(relay_tokenizer_spec *spec, yyjson_val *root,
                                     const relay_tokenizer_json_files *files, relay_err *e) RELAY_NODISCARD;

#endif
