// A text on its way through normalizers and pre-tokenizers, and for each of its bytes the part of the caller's text
// that it stands for: what HF tokenizers calls a NormalizedString.
//
// The alignments cost twice the text and are kept only where offsets are wanted; without them the same functions change
// the text alone. All bytes of a character have one alignment. A change is said as in HF tokenizers, whose rules decide
// what an offset is where a normalizer makes one character of two, or two of one:
//
//   change 0: the character stands in the place of the next old one and takes its alignment;
//   change 1: it is inserted, and takes the alignment of the byte before that place;
//   change -n: as 0, and the n old characters behind that place are gone.
#ifndef RELAY_TOKENIZER_SVC_ALIGNED_TEXT_H
#define RELAY_TOKENIZER_SVC_ALIGNED_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A text may not grow past this in a normalizer or pre-tokenizer.
#define RELAY_MAX_NORMALIZED_BYTES (UINT32_C(1) << 30)

typedef struct relay_alignment {
    uint32_t begin, end; // bytes of the caller's text
} relay_alignment;

typedef struct relay_aligned_text {
    char *s; // valid UTF-8
    uint32_t len, cap;
    relay_alignment *of; // [cap] of each byte; NULL unless is_aligned
    bool is_aligned;
} relay_aligned_text;

void relay_aligned_text_fini(relay_aligned_text *t);
// Makes it the text that lies at `origin` in the caller's text.
void relay_aligned_text_set(relay_aligned_text *t, const char *s, uint32_t len, uint32_t origin, bool is_aligned);
// Appends bytes with one alignment, or with alignments of their own (NULL where not aligned).
void relay_aligned_text_append(relay_aligned_text *t, const char *s, uint32_t len, relay_alignment of);
void relay_aligned_text_append_from(relay_aligned_text *t, const relay_aligned_text *from, uint32_t begin,
                                    uint32_t end);

typedef struct relay_char_change {
    uint32_t code_point;
    int32_t change;
} relay_char_change;

typedef struct relay_char_changes {
    relay_char_change *v; // owned
    uint32_t n, cap;
    uint32_t n_removed_first; // old characters before the first change that are gone
} relay_char_changes;

void relay_char_changes_fini(relay_char_changes *c);
void relay_char_changes_clear(relay_char_changes *c);
void relay_char_changes_add(relay_char_changes *c, uint32_t code_point, int32_t change);

// Writes to `to` (another text) what the changes make of `from`.
void relay_aligned_text_change(relay_aligned_text *to, const relay_aligned_text *from, const relay_char_changes *c);

#endif
