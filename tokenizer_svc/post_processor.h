// What happens to the tokens of a text at the end: truncation, offsets without the blanks of a token, and the tokens
// around the text; with the exact results of HF tokenizers 0.23.
#ifndef RELAY_TOKENIZER_SVC_POST_PROCESSOR_H
#define RELAY_TOKENIZER_SVC_POST_PROCESSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/encoding.h"
#include "tokenizer_svc/tokenizer.h"
#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_post_processor relay_post_processor;

// Takes copies. INVALID_ARGUMENT for a template without the text, or with it twice.
relay_code relay_post_processor_create(relay_post_processor **out, const relay_tokenizer_spec *spec,
                                       relay_err *e) RELAY_NODISCARD;
void relay_post_processor_destroy(relay_post_processor *p);

// The blanks of tokens whose text is not their piece's: added ones and Unigram's unknown one. All zero at first.
typedef struct relay_added_values {
    struct relay_added_value *v;
    uint32_t n, cap;
} relay_added_values;

void relay_added_values_fini(relay_added_values *values);
// Token `index` stands for this text.
void relay_post_processor_note_value(const relay_post_processor *p, relay_added_values *values, uint32_t index,
                                     const char *s, uint32_t len);

// The text's tokens are those from `first` on.
relay_code relay_post_processor_apply(const relay_post_processor *p, relay_encoding *enc, uint32_t first,
                                      const relay_encode_opts *opts, const char *text, uint32_t len,
                                      const relay_added_values *values, relay_err *e) RELAY_NODISCARD;

#endif
