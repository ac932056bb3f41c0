// The normalizers of a tokenizer, one behind the other, with the exact results of HF tokenizers 0.23, its alignments
// included.
//
// Most text needs none of them, and relay_normalizer_is_identity says so without a copy.
#ifndef RELAY_TOKENIZER_SVC_NORMALIZER_H
#define RELAY_TOKENIZER_SVC_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/aligned_text.h"
#include "tokenizer_svc/regex.h"
#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_normalizer relay_normalizer;

// Keeps nothing of the specs. Refuses by name a pattern or character map that cannot be applied exactly.
relay_code relay_normalizer_create(relay_normalizer **out, const relay_normalizer_spec *specs, uint32_t n,
                                   relay_err *e) RELAY_NODISCARD;
void relay_normalizer_destroy(relay_normalizer *z);

// Working memory of one thread; all zero at first.
typedef struct relay_normalizer_work {
    relay_aligned_text texts[2];
    relay_char_changes changes;
    relay_regex_work regex;
} relay_normalizer_work;

void relay_normalizer_work_fini(relay_normalizer_work *w);

// Whether the text, which is not empty, is what it is normalized to. False may be said of text that is, too.
bool relay_normalizer_is_identity(const relay_normalizer *z, const char *s, size_t len);

// Normalizes the text that lies at `origin` in the caller's. The result is the working memory's and stays until its
// next use.
relay_code relay_normalizer_apply(const relay_normalizer *z, relay_normalizer_work *w, const char *s, uint32_t len,
                                  uint32_t origin, bool is_aligned, const relay_aligned_text **out,
                                  relay_err *e) RELAY_NODISCARD;

#endif
