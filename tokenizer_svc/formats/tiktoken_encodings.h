// The encodings that .tiktoken files belong to: what the files do not hold.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_TIKTOKEN_ENCODINGS_H
#define RELAY_TOKENIZER_SVC_FORMATS_TIKTOKEN_ENCODINGS_H

#include <stdbool.h>
#include <stdint.h>

// A special token; or `count` of them with ids in a row, `#` in the name standing for a number that counts up.
typedef struct relay_tiktoken_special {
    const char *name;
    uint32_t id;
    uint32_t count;  // 0: one token
    uint32_t number; // of the first
} relay_tiktoken_special;

typedef struct relay_tiktoken_encoding {
    const char *name;
    const char *sha256; // of the file as published, in hexadecimal; NULL: not known here
    uint32_t n_ranks;
    const char *pattern;
    bool is_nfc; // text is normalized to NFC first
    bool adds_bos;
    const char *bos, *eos, *pad;           // names of special tokens; NULL: none
    const relay_tiktoken_special *special; // up to a NULL name; a later one of the same id is left out
} relay_tiktoken_encoding;

// NULL for a name that is none.
const relay_tiktoken_encoding *relay_tiktoken_encoding_find(const char *name);
// By the file's sha256 (hexadecimal); or, for encodings whose files' sha256 is not known here, by the number of ranks.
// NULL if it is none of them.
const relay_tiktoken_encoding *relay_tiktoken_encoding_recognise(const char *sha256, uint32_t n_ranks);
// All names, separated by ", ", for messages.
const char *relay_tiktoken_encoding_names(void);

#endif
