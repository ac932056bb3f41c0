#include "tokenizer_svc/wordlevel.h"

#include <stdlib.h>

#include "tokenizer_svc/byte_trie.h"

typedef struct relay_wordlevel {
    relay_word_model model;
    relay_byte_trie words;
    bool has_unk, fuse_unk;
    uint32_t unk_id;
} relay_wordlevel;

static relay_code encode(const relay_word_model *m, void *work, const char *word, size_t len, uint32_t base,
                         relay_encoding *enc, relay_err *e) {
    (void)work;
    const relay_wordlevel *w = (const relay_wordlevel *)m;
    uint32_t id = relay_byte_trie_find(&w->words, word, len);
    if (id == RELAY_TRIE_NONE && !w->has_unk)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "text: a word has no token, and the tokenizer has no unknown token");
    if (id == RELAY_TRIE_NONE) id = w->unk_id;
    // Unknown words side by side are one token where the model says so.
    if (w->fuse_unk && id == w->unk_id && enc->n > 0 && enc->ids[enc->n - 1] == w->unk_id) {
        if (enc->has_offsets) enc->offset_end[enc->n - 1] = base + (uint32_t)len;
        return RELAY_OK;
    }
    relay_encoding_add(enc, id, base, base + (uint32_t)len);
    return RELAY_OK;
}

static void *work_create(const relay_word_model *m, size_t text_len) {
    (void)m;
    (void)text_len;
    return NULL; // a look-up needs none
}

static void work_destroy(void *work) {
    (void)work;
}

static void destroy(relay_word_model *m) {
    relay_wordlevel *w = (relay_wordlevel *)m;
    if (w == NULL) return;
    relay_byte_trie_fini(&w->words);
    free(w);
}

relay_code relay_wordlevel_create(relay_word_model **out, const relay_tokenizer_spec *spec, relay_err *e) {
    *out = NULL;
    const relay_model_spec *model = &spec->model;
    if (model->has_unk && model->unk_id >= model->n_tokens)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "model.unk_token has id %u; the vocabulary has %u tokens",
                          model->unk_id, model->n_tokens);
    relay_wordlevel *w = relay_calloc(1, sizeof *w);
    w->model = (relay_word_model){
        .destroy = destroy, .work_create = work_create, .work_destroy = work_destroy, .encode = encode};
    w->has_unk = model->has_unk;
    w->fuse_unk = model->fuse_unk;
    w->unk_id = model->unk_id;
    relay_trie_builder *b = relay_trie_builder_create();
    for (uint32_t id = 0; id < model->n_tokens; id++)
        if (model->tokens[id].piece.s != NULL)
            relay_trie_builder_add(b, model->tokens[id].piece.s, model->tokens[id].piece.len, id);
    relay_trie_builder_finish(b, &w->words);
    *out = &w->model;
    return RELAY_OK;
}
