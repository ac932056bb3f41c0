// One trie holds all pieces; those that go on in a word hang behind the prefix, so that cutting a word is a walk from
// the root and then walks from there. A word that the text had before comes from the cache.
#include "tokenizer_svc/wordpiece.h"

#include <stdlib.h>

static size_t count_chars(const char *s, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((uint8_t)s[i] & 0xC0) != 0x80;
    return n;
}

static bool set_unknown(const relay_wordpiece *m, relay_wordpiece_work *w, size_t len) {
    w->ids[0] = m->unk_id;
    w->ends[0] = (uint32_t)len;
    w->n = 1;
    return m->has_unk;
}

bool relay_wordpiece_cut(const relay_wordpiece *m, relay_wordpiece_work *w, const char *word, size_t len) {
    if (len > m->max_chars && count_chars(word, len) > m->max_chars) return set_unknown(m, w, len);
    if (len > w->cap) {
        w->cap = (uint32_t)len;
        w->ids = relay_realloc(w->ids, (uint64_t)w->cap * sizeof *w->ids);
        w->ends = relay_realloc(w->ends, (uint64_t)w->cap * sizeof *w->ends);
    }
    w->n = 0;
    for (size_t at = 0; at < len;) {
        if (at > 0 && !m->goes_on) return set_unknown(m, w, len);
        uint32_t node = at == 0 ? RELAY_TRIE_ROOT : m->go_on, id = RELAY_TRIE_NONE;
        size_t longest = at;
        for (size_t i = at; i < len;) {
            node = relay_byte_trie_step(&m->trie, node, (uint8_t)word[i]);
            if (node == RELAY_TRIE_NOWHERE) break;
            i++;
            if (m->trie.units[node].value == RELAY_TRIE_NONE) continue;
            id = m->trie.units[node].value;
            longest = i;
        }
        if (id == RELAY_TRIE_NONE) return set_unknown(m, w, len);
        w->ids[w->n] = id;
        w->ends[w->n++] = (uint32_t)longest;
        at = longest;
    }
    return true;
}

bool relay_wordpiece_add(const relay_wordpiece *m, relay_wordpiece_work *w, const char *word, size_t len, uint32_t base,
                         relay_encoding *enc) {
    bool is_short = len <= RELAY_WORD_CACHE_MAX_WORD;
    uint64_t hash = is_short ? relay_word_hash(word, len) : 0;
    const relay_cached_word *c = is_short ? relay_word_cache_find(&w->cache, word, len, hash) : NULL;
    if (c != NULL) {
        const uint8_t *ends = relay_cached_word_ends(c);
        relay_encoding_reserve(enc, c->n_tokens);
        for (uint32_t i = 0; i < c->n_tokens; i++)
            enc->ids[enc->n + i] = c->ids[i];
        for (uint32_t i = 0; i < c->n_tokens && enc->has_offsets; i++) {
            enc->offset_begin[enc->n + i] = base + (i == 0 ? 0 : ends[i - 1]);
            enc->offset_end[enc->n + i] = base + ends[i];
        }
        enc->n += c->n_tokens;
        return true;
    }
    if (!relay_wordpiece_cut(m, w, word, len)) return false;
    relay_cached_word *fresh = is_short ? relay_word_cache_add(&w->cache, word, len, w->n, hash) : NULL;
    for (uint32_t i = 0; i < w->n; i++) {
        relay_encoding_add(enc, w->ids[i], base + (i == 0 ? 0 : w->ends[i - 1]), base + w->ends[i]);
        if (fresh == NULL) continue;
        fresh->ids[i] = w->ids[i];
        relay_cached_word_ends(fresh)[i] = (uint8_t)w->ends[i];
    }
    return true;
}

void relay_wordpiece_init(relay_wordpiece *m, const relay_model_spec *spec) {
    *m = (relay_wordpiece){
        .has_unk = spec->has_unk, .unk_id = spec->unk_id, .max_chars = spec->max_input_chars_per_word};
    relay_trie_builder *b = relay_trie_builder_create();
    for (uint32_t id = 0; id < spec->n_tokens; id++)
        if (spec->tokens[id].piece.s != NULL)
            relay_trie_builder_add(b, spec->tokens[id].piece.s, spec->tokens[id].piece.len, id);
    relay_trie_builder_finish(b, &m->trie);
    m->goes_on = true;
    m->go_on = RELAY_TRIE_ROOT;
    for (uint32_t i = 0; i < spec->continuing_subword_prefix.len && m->goes_on; i++) {
        m->go_on = relay_byte_trie_step(&m->trie, m->go_on, (uint8_t)spec->continuing_subword_prefix.s[i]);
        m->goes_on = m->go_on != RELAY_TRIE_NOWHERE;
    }
}

void relay_wordpiece_fini(relay_wordpiece *m) {
    relay_byte_trie_fini(&m->trie);
}

void relay_wordpiece_work_init(relay_wordpiece_work *w, size_t text_len) {
    *w = (relay_wordpiece_work){.cap = RELAY_WORD_CACHE_MAX_WORD};
    relay_word_cache_init(&w->cache, text_len);
    w->ids = relay_calloc(w->cap, sizeof *w->ids);
    w->ends = relay_calloc(w->cap, sizeof *w->ends);
}

void relay_wordpiece_work_fini(relay_wordpiece_work *w) {
    relay_word_cache_fini(&w->cache);
    free(w->ids);
    free(w->ends);
}

// ---- The word model

static relay_code refuse(relay_err *e) {
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "text: a word has no tokens, and the tokenizer has no unknown token");
}

static relay_code encode(const relay_word_model *m, void *work, const char *word, size_t len, uint32_t base,
                         relay_encoding *enc, relay_err *e) {
    if (relay_wordpiece_add((const relay_wordpiece *)m, work, word, len, base, enc)) return RELAY_OK;
    return refuse(e);
}

static relay_code encode_once(const relay_word_model *m, void *work, const char *word, size_t len, uint32_t base,
                              relay_encoding *enc, relay_err *e) {
    relay_wordpiece_work *w = work;
    if (!relay_wordpiece_cut((const relay_wordpiece *)m, w, word, len)) return refuse(e);
    for (uint32_t i = 0; i < w->n; i++)
        relay_encoding_add(enc, w->ids[i], base + (i == 0 ? 0 : w->ends[i - 1]), base + w->ends[i]);
    return RELAY_OK;
}

static void *work_create(const relay_word_model *m, size_t text_len) {
    (void)m;
    relay_wordpiece_work *w = relay_calloc(1, sizeof *w);
    relay_wordpiece_work_init(w, text_len);
    return w;
}

static void work_destroy(void *work) {
    if (work == NULL) return;
    relay_wordpiece_work_fini(work);
    free(work);
}

static void destroy(relay_word_model *m) {
    if (m == NULL) return;
    relay_wordpiece_fini((relay_wordpiece *)m);
    free(m);
}

relay_code relay_wordpiece_create(relay_word_model **out, const relay_tokenizer_spec *spec, relay_err *e) {
    *out = NULL;
    const relay_model_spec *model = &spec->model;
    if (model->has_unk && model->unk_id >= model->n_tokens)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "model.unk_token has id %u; the vocabulary has %u tokens",
                          model->unk_id, model->n_tokens);
    relay_wordpiece *m = relay_calloc(1, sizeof *m);
    relay_wordpiece_init(m, model);
    m->model = (relay_word_model){.destroy = destroy,
                                  .work_create = work_create,
                                  .work_destroy = work_destroy,
                                  .encode = encode,
                                  .encode_once = encode_once};
    *out = &m->model;
    return RELAY_OK;
}
