// Byte-pair encoding of one word: from raw bytes to token ids.
//
// Method: Sennrich, Haddow and Birch 2016, over bytes as in GPT-2 (Radford et al. 2019): a word begins as its bytes;
// again and again the adjacent pair whose merge stands first in the model's list is joined, the leftmost where a pair
// occurs twice, until no pair is in the list. Immutable after load; any thread, each with working memory of its own.
#ifndef RELAY_TOKENIZER_SVC_BPE_H
#define RELAY_TOKENIZER_SVC_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/gguf.h"
#include "common/status.h"
#include "common/vocab.h"

typedef struct relay_bpe relay_bpe;

// Reads tokenizer.ggml.merges. `ignore_merges`: a word that is a token is that token even if the merges do not lead to
// it. Refuses by name a merge that is not two pieces, repeats another, or whose pieces or result the vocabulary lacks.
// `vocab` is borrowed and outlives it.
relay_code relay_bpe_load_gguf(relay_bpe **out, const relay_gguf *g, const relay_vocab *vocab, bool ignore_merges,
                               relay_err *e) RELAY_NODISCARD;
void relay_bpe_destroy(relay_bpe *b);

typedef struct relay_bpe_token {
    uint32_t id;
    uint32_t begin, end; // bytes of the word
} relay_bpe_token;

// Working memory of one thread with one relay_bpe, and the result. All zero at first; it grows with the longest word.
typedef struct relay_bpe_work {
    relay_bpe_token *tokens; // the last word's, in order
    uint32_t n_tokens;
    uint32_t cap;
    struct relay_bpe_cached *cache; // [cache_mask + 1], or NULL
    uint32_t cache_mask;
    struct relay_bpe_symbol *symbols; // [cap], for long words
    uint64_t *heap;                   // [3 * cap], for long words
    uint32_t long_cap;
} relay_bpe_work;

// Says how much text is to come: where it pays, words are remembered with their tokens.
void relay_bpe_work_expect(relay_bpe_work *w, size_t text_len);
void relay_bpe_work_fini(relay_bpe_work *w);

// Leaves the word's tokens in w->tokens. A byte that the vocabulary has no token for is left out and its neighbours
// come together, as in HF tokenizers. len <= RELAY_BPE_MAX_WORD_BYTES.
void relay_bpe_encode(const relay_bpe *b, const char *word, size_t len, relay_bpe_work *w);

#define RELAY_BPE_MAX_WORD_BYTES (UINT32_MAX / 4)

#endif
