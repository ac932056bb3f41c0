// SentencePiece's precompiled character map: which strings normalize to which.
//
// The format (sentencepiece, src/normalizer.cc): the size of a trie in bytes, 4 bytes little-endian; the trie, a double
// array of Darts-clone (32-bit units); the replacements, each ended by a NUL, to which the trie's values are offsets.
// It is applied in one of two ways. As HF tokenizers does: a grapheme cluster of less than 6 bytes is looked up as a
// whole, and replaced as a whole by what its shortest known beginning stands for; else each of its characters is looked
// up by itself. As SentencePiece itself does: whatever of the map is the longest beginning of the rest of the text is
// replaced, else a character goes through.
#ifndef RELAY_TOKENIZER_SVC_CHARSMAP_H
#define RELAY_TOKENIZER_SVC_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/aligned_text.h"

typedef struct relay_charsmap relay_charsmap;

// Takes a copy. `what` names it in messages. Refuses a map that is cut short or whose values lie outside of it.
relay_code relay_charsmap_create(relay_charsmap **out, const void *data, size_t len, const char *what,
                                 relay_err *e) RELAY_NODISCARD;
void relay_charsmap_destroy(relay_charsmap *m);

// The first byte from which something may change; `len` if nothing does.
size_t relay_charsmap_find(const relay_charsmap *m, const char *s, size_t len);
size_t relay_charsmap_find_longest(const relay_charsmap *m, const char *s, size_t len);
// Whether a text of such characters stays as it is when clusters are looked up.
bool relay_charsmap_keeps(const relay_charsmap *m, uint32_t code_point);

// The changes of the text; or, where nobody asks what stands for what, the text that they make, behind `to`.
void relay_charsmap_apply(const relay_charsmap *m, const char *s, size_t len, relay_char_changes *out);
void relay_charsmap_apply_longest(const relay_charsmap *m, const char *s, size_t len, relay_char_changes *out);
void relay_charsmap_write(const relay_charsmap *m, const char *s, size_t len, relay_aligned_text *to);
void relay_charsmap_write_longest(const relay_charsmap *m, const char *s, size_t len, relay_aligned_text *to);

#endif
