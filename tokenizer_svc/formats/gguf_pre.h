// What each name in tokenizer.ggml.pre stands for: pre-tokenizers, and what else the name implies.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_GGUF_PRE_H
#define RELAY_TOKENIZER_SVC_FORMATS_GGUF_PRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_gguf_pre {
    const char *name;
    const relay_pretokenizer_spec *stages; // [n_stages]; the last is a ByteLevel
    uint32_t n_stages;
    bool ignore_merges; // a word that is a token is that token, whatever the merges say
    bool adds_bos;      // where the file does not say
    bool by_rank;       // the file has no merges: ids are ranks
} relay_gguf_pre;

// NULL for a name Relay does not know.
const relay_gguf_pre *relay_gguf_pre_find(const char *name, size_t len);
// All of them: 0 <= i < count.
const relay_gguf_pre *relay_gguf_pre_at(uint32_t i);
uint32_t relay_gguf_pre_count(void);

#endif
