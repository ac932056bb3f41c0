#include "tests/model_svc/constraint/matching.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/model_svc/constraint/byte_vocab.h"

void matching_init(matching *m) {
    *m = (matching){.vocab = byte_vocab_create(), .seed = 1};
    m->tokens = relay_token_table_create(m->vocab, relay_vocab_size(m->vocab));
    m->words = relay_calloc(m->tokens->n_words, sizeof m->words[0]);
}

void matching_fini(matching *m) {
    free(m->words);
    relay_token_table_destroy(m->tokens);
    relay_vocab_destroy(m->vocab);
}

uint32_t matching_random(matching *m, uint32_t n) {
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((m->seed >> 33) % n);
}

relay_constraint_spec matching_spec(relay_constraint_kind kind, const char *text) {
    return (relay_constraint_spec){.kind = kind, .text = {.bytes = text, .len = strlen(text)}};
}

relay_constraint *matching_compile(matching *m, relay_constraint_kind kind, const char *text, relay_err *e) {
    relay_constraint_spec spec = matching_spec(kind, text);
    relay_constraint *c;
    return relay_constraint_compile(&c, &spec, m->tokens, e) == RELAY_OK ? c : NULL;
}

static bool is_allowed(const matching *m, uint32_t id) {
    return m->words[id / 32] >> id % 32 & 1;
}

void matching_check_mask(matching *m, relay_constraint *c, const relay_matcher *at) {
    assert_true(relay_matcher_mask(c, at, m->words));
    for (uint32_t id = 0; id < m->tokens->n_vocab; id++) {
        relay_matcher fork = *at;
        bool is_read = relay_matcher_read(c, &fork, id);
        assert_false(relay_matcher_is_stale(c, at));
        if (is_read != is_allowed(m, id)) {
            fail_msg("id %u after %u ids: read %d, mask %d", id, at->n_read, is_read, is_allowed(m, id));
        }
    }
}

verdict matching_feed(matching *m, relay_constraint *c, const char *text, bool by_bytes) {
    uint32_t ids[512], n = (uint32_t)strlen(text);
    assert_true(n <= 512);
    if (by_bytes) {
        for (uint32_t i = 0; i < n; i++)
            ids[i] = (uint8_t)text[i];
    } else {
        n = byte_vocab_encode(m->vocab, text, n, ids);
    }
    relay_matcher at;
    relay_matcher_begin(c, &at);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(relay_matcher_mask(c, &at, m->words));
        bool is_read = relay_matcher_read(c, &at, ids[i]);
        if (is_read != is_allowed(m, ids[i])) fail_msg("\"%s\": mask and reading differ at id %u", text, i);
        if (!is_read) return REJECTED;
    }
    return relay_matcher_is_complete(c, &at) ? COMPLETE : OPEN;
}

static uint32_t draw(matching *m) {
    uint32_t n = 0;
    for (uint32_t id = 0; id < m->tokens->n_vocab; id++)
        n += is_allowed(m, id);
    assert_true(n > 0);
    uint32_t pick = matching_random(m, n);
    for (uint32_t id = 0; id < m->tokens->n_vocab; id++) {
        if (is_allowed(m, id) && pick-- == 0) return id;
    }
    return 0;
}

bool matching_walk(matching *m, relay_constraint *c, uint32_t max_ids, relay_buf *text) {
    relay_matcher at;
    relay_matcher_begin(c, &at);
    relay_buf_clear(text);
    for (uint32_t i = 0; i < max_ids; i++) {
        if (relay_matcher_is_over(c, &at)) return true;
        if (relay_matcher_is_complete(c, &at) && matching_random(m, 3) == 0) return true;
        if (i % 13 == 0) matching_check_mask(m, c, &at);
        assert_true(relay_matcher_mask(c, &at, m->words));
        uint32_t id = draw(m);
        assert_true(relay_matcher_read(c, &at, id));
        const relay_token *t = relay_vocab_token(m->vocab, id);
        relay_buf_append(text, t->bytes, t->len);
    }
    return relay_matcher_is_complete(c, &at);
}
