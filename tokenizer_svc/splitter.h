// The pre-tokenizers of a tokenizer, one behind the other: they cut a stretch of text into words, with the exact
// results of HF tokenizers 0.23.
//
// Most only cut; Metaspace and ByteLevel change the text, too, and then the words lie in a text of the working memory.
// A ByteLevel that comes last need not write its alphabet for a model that takes raw bytes (keeps_bytes).
#ifndef RELAY_TOKENIZER_SVC_SPLITTER_H
#define RELAY_TOKENIZER_SVC_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/aligned_text.h"
#include "tokenizer_svc/regex.h"
#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_splitter relay_splitter;

// Keeps nothing of the specs. `keeps_bytes`: of the last one, a ByteLevel. Refuses by name a pattern that cannot be
// applied exactly.
relay_code relay_splitter_create(relay_splitter **out, const relay_pretokenizer_spec *specs, uint32_t n,
                                 bool keeps_bytes, relay_err *e) RELAY_NODISCARD;
void relay_splitter_destroy(relay_splitter *s);
// Whether what it does depends on where in the caller's text a stretch stands, so that it is to be told the alignments.
bool relay_splitter_asks_for_place(const relay_splitter *s);

typedef struct relay_word {
    uint32_t begin, end; // bytes of the text
} relay_word;

typedef struct relay_words {
    relay_word *v; // owned; none is empty
    uint32_t n, cap;
} relay_words;

// Working memory of one thread; all zero at first.
typedef struct relay_splitter_work {
    bool is_continuation; // set by the caller: no text begins here
    relay_aligned_text texts[2];
    relay_words words[2];
    relay_regex_work regex;
} relay_splitter_work;

void relay_splitter_work_fini(relay_splitter_work *w);

// What was cut: the text and its words, in order. Bytes that are in no word are gone.
typedef struct relay_split {
    const char *s;
    uint32_t len;
    const relay_alignment *of; // of each byte, or NULL where the text is the one that was given
    const relay_word *words;
    uint32_t n_words;
} relay_split;

// Cuts a stretch, which is not empty. `of`: its alignments; NULL for text of the caller's own, which begins at
// `origin`. The result lasts as long as the text and until the working memory's next use.
relay_code relay_splitter_apply(const relay_splitter *s, relay_splitter_work *w, const char *text, uint32_t len,
                                const relay_alignment *of, uint32_t origin, bool is_aligned, relay_split *out,
                                relay_err *e) RELAY_NODISCARD;

#endif
