// Splitting text into words by hand-written scanners, for the pre-tokenizers that most models have: exactly the words
// that the patterns give, many times faster. What is not known here runs on PCRE2 (pretokenizer.h).
//
// Immutable and without working memory; any thread.
#ifndef RELAY_TOKENIZER_SVC_SCAN_H
#define RELAY_TOKENIZER_SVC_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_scan relay_scan;

// The scanner that does what these pre-tokenizers do, a final ByteLevel that only changes the alphabet aside; NULL if
// there is none.
const relay_scan *relay_scan_find(const relay_pretokenizer_spec *p, uint32_t n);

// By number, for tests: 0 <= i < count.
const relay_scan *relay_scan_at(uint32_t i);
uint32_t relay_scan_count(void);
const char *relay_scan_name(const relay_scan *s);
enum { RELAY_SCAN_MAX_STAGES = 2 };
// The pre-tokenizers that it stands for. Returns how many.
uint32_t relay_scan_stages(const relay_scan *s, relay_pretokenizer_spec out[RELAY_SCAN_MAX_STAGES]);

// A walk over one text; all zero at its beginning.
typedef struct relay_scan_walk {
    size_t at;        // where the next word begins
    size_t piece_end; // of what the pattern sees there, where another pre-tokenizer stands before it
} relay_scan_walk;

// The next words of a text that is valid UTF-8 of less than 2^32 bytes: their ends, at most `max` > 0 of them.
// Returns how many; 0 at the end of the text. Blocks of 64 bytes are scanned at once where 64 words or more may come.
size_t relay_scan_words(const relay_scan *s, relay_scan_walk *w, const char *text, size_t len, uint32_t *ends,
                        size_t max);

#endif
