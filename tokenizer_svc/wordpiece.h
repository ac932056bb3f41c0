// The WordPiece model: a word is cut from its beginning into the longest pieces that the vocabulary has.
//
// Method: Wu et al. 2016, as in BERT (Devlin et al. 2018). A piece that goes on in a word has a prefix ("##"). A word
// that cannot be cut, or has too many characters, is the unknown token.
#ifndef RELAY_TOKENIZER_SVC_WORDPIECE_H
#define RELAY_TOKENIZER_SVC_WORDPIECE_H

#include "common/status.h"
#include "tokenizer_svc/byte_trie.h"
#include "tokenizer_svc/tokenizer_spec.h"
#include "tokenizer_svc/word_cache.h"
#include "tokenizer_svc/word_model.h"

// See word_model.h. INVALID_ARGUMENT for an unknown id out of range.
relay_code relay_wordpiece_create(relay_word_model **out, const relay_tokenizer_spec *spec,
                                  relay_err *e) RELAY_NODISCARD;

// ---- For bert_stretch, which finds the words itself

typedef struct relay_wordpiece {
    relay_word_model model;
    relay_byte_trie trie;
    uint32_t
        go_on; // where pieces that go on in a word begin: behind the prefix; RELAY_TRIE_NOWHERE with `goes_on` false
    bool goes_on;
    bool has_unk;
    uint32_t unk_id;
    uint32_t max_chars;
} relay_wordpiece;

typedef struct relay_wordpiece_work {
    relay_word_cache cache;
    uint32_t *ids, *ends; // [cap] the last word's
    uint32_t n, cap;
} relay_wordpiece_work;

void relay_wordpiece_init(relay_wordpiece *m, const relay_model_spec *spec);
void relay_wordpiece_fini(relay_wordpiece *m);
void relay_wordpiece_work_init(relay_wordpiece_work *w, size_t text_len);
void relay_wordpiece_work_fini(relay_wordpiece_work *w);
// Leaves the word's tokens in w->ids, w->ends. False where the word is unknown and there is no unknown token.
bool relay_wordpiece_cut(const relay_wordpiece *m, relay_wordpiece_work *w, const char *word, size_t len);
// Appends the tokens of the word, which begins at `base` of the text. False as relay_wordpiece_cut.
bool relay_wordpiece_add(const relay_wordpiece *m, relay_wordpiece_work *w, const char *word, size_t len, uint32_t base,
                         relay_encoding *enc);

#endif
