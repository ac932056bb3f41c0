#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/bpe_model.h"

// ---- Random models

enum { MAX_TOKENS = 400, MAX_PIECE = 24, MAX_MERGES = 120, MAX_WORD = 260 };

typedef struct random_model {
    relay_model_token tokens[MAX_TOKENS];
    char pieces[MAX_TOKENS][MAX_PIECE + 8];
    relay_merge_spec merges[MAX_MERGES];
    relay_model_spec m;
} random_model;

static const char *const letters[] = {"a", "b", "c", "\xC3\xA9", "\xE8\xAA\x9E", "\xE8\xAA\x9D", "\xF0\x9F\x98\x80"};
enum { N_LETTERS = sizeof letters / sizeof *letters };

static uint32_t add_token(random_model *x, const char *piece, relay_token_kind kind) {
    uint32_t id = x->m.n_tokens++;
    assert_true(id < MAX_TOKENS);
    strcpy(x->pieces[id], piece);
    x->tokens[id] = (relay_model_token){.piece = {x->pieces[id], (uint32_t)strlen(piece)}, .kind = kind};
    return id;
}

static uint32_t find_token(const random_model *x, const char *piece, size_t len) {
    for (uint32_t id = 0; id < x->m.n_tokens; id++)
        if (x->tokens[id].piece.len == len && memcmp(x->pieces[id], piece, len) == 0) return id;
    return UINT32_MAX;
}

// Joins of tokens that there are; `shuffled`: in any order, so that a token may stand before its parts.
static void add_merges(random_model *x, test_random *r, bool shuffled) {
    uint32_t wanted = 1 + test_random_below(r, MAX_MERGES);
    for (uint32_t tries = 0; x->m.n_merges < wanted && tries < 2000; tries++) {
        uint32_t left = test_random_below(r, x->m.n_tokens), right = test_random_below(r, x->m.n_tokens);
        if (x->tokens[left].kind != RELAY_TOKEN_NORMAL || x->tokens[right].kind != RELAY_TOKEN_NORMAL) continue;
        if (x->tokens[left].piece.len + x->tokens[right].piece.len > MAX_PIECE) continue;
        bool is_known = false;
        for (uint32_t i = 0; i < x->m.n_merges; i++)
            is_known |= x->merges[i].left == left && x->merges[i].right == right;
        if (is_known) continue;
        char piece[2 * MAX_PIECE + 1];
        strcpy(piece, x->pieces[left]);
        const char *tail = x->pieces[right];
        uint32_t prefix_len = x->m.continuing_subword_prefix.len;
        if (prefix_len > 0 && strncmp(tail, x->m.continuing_subword_prefix.s, prefix_len) == 0) tail += prefix_len;
        strcat(piece, tail);
        uint32_t id = find_token(x, piece, strlen(piece));
        if (id == UINT32_MAX) id = add_token(x, piece, RELAY_TOKEN_NORMAL);
        uint32_t at = shuffled ? test_random_below(r, x->m.n_merges + 1) : x->m.n_merges;
        memmove(&x->merges[at + 1], &x->merges[at], (x->m.n_merges - at) * sizeof *x->merges);
        x->merges[at] = (relay_merge_spec){left, right, id};
        x->m.n_merges++;
    }
}

typedef struct model_kind {
    relay_bpe_order order;
    bool is_byte_level, byte_fallback, has_unk, fuse_unk, ignore_merges, shuffled, has_affixes;
    uint32_t n_missing; // letters (bytes) without a token
} model_kind;

static void make_model(random_model *x, test_random *r, const model_kind *k) {
    memset(x, 0, sizeof *x);
    x->m = (relay_model_spec){.kind = RELAY_MODEL_BPE,
                              .tokens = x->tokens,
                              .merges = x->merges,
                              .order = k->order,
                              .byte_fallback = k->byte_fallback,
                              .fuse_unk = k->fuse_unk,
                              .ignore_merges = k->ignore_merges,
                              .is_byte_level = k->is_byte_level};
    if (k->has_affixes) {
        x->m.continuing_subword_prefix = (relay_spec_str){"##", 2};
        x->m.end_of_word_suffix = (relay_spec_str){"</w>", 4};
    }
    if (k->has_unk) {
        x->m.has_unk = true;
        x->m.unk_id = add_token(x, "<unk>", RELAY_TOKEN_UNKNOWN);
    }
    for (int byte = 0; byte < 256 && k->byte_fallback; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        add_token(x, name, RELAY_TOKEN_BYTE);
    }
    if (k->is_byte_level) {
        static const char used[] = "abc\xC3\xA9\xE8\xAA\x9E\x9D\xF0\x9F\x98\x80";
        for (size_t i = k->n_missing; used[i] != 0; i++)
            if (find_token(x, &used[i], 1) == UINT32_MAX) add_token(x, (const char[]){used[i], 0}, RELAY_TOKEN_NORMAL);
    } else {
        for (size_t i = k->n_missing; i < N_LETTERS; i++) {
            char piece[MAX_PIECE];
            static const char *const forms[] = {"%s", "##%s", "%s</w>", "##%s</w>"};
            for (int form = 0; form < (k->has_affixes ? 4 : 1); form++) {
                snprintf(piece, sizeof piece, forms[form], letters[i]);
                add_token(x, piece, RELAY_TOKEN_NORMAL);
            }
        }
    }
    if (k->order == RELAY_BPE_BY_MERGES) {
        add_merges(x, r, k->shuffled);
        if (k->ignore_merges) add_token(x, "abcabcaaab\xE8\xAA\x9E", RELAY_TOKEN_NORMAL); // nothing leads to it
        return;
    }
    random_model plain = *x; // for its pieces
    plain.m.tokens = plain.tokens;
    plain.m.merges = plain.merges;
    add_merges(&plain, r, false);
    for (uint32_t id = x->m.n_tokens; id < plain.m.n_tokens; id++)
        add_token(x, plain.pieces[id], RELAY_TOKEN_NORMAL);
    for (uint32_t id = 0; id < x->m.n_tokens; id++)
        x->tokens[id].score = k->shuffled ? (float)test_random_below(r, 50) : -(float)id;
}

// ---- The definition, on strings

typedef struct symbol {
    uint32_t id, begin, end;
} symbol;

static uint32_t rank_of(const random_model *x, uint32_t left, uint32_t right, uint32_t *joined, float *score) {
    if (x->m.order == RELAY_BPE_BY_MERGES) {
        for (uint32_t i = 0; i < x->m.n_merges; i++) {
            if (x->merges[i].left != left || x->merges[i].right != right) continue;
            *joined = x->merges[i].result;
            return i;
        }
        return UINT32_MAX;
    }
    char piece[2 * MAX_PIECE + 16];
    size_t n = x->tokens[left].piece.len, m = x->tokens[right].piece.len;
    if (x->tokens[left].kind != RELAY_TOKEN_NORMAL || x->tokens[right].kind != RELAY_TOKEN_NORMAL) return UINT32_MAX;
    memcpy(piece, x->pieces[left], n);
    memcpy(piece + n, x->pieces[right], m);
    *joined = find_token(x, piece, n + m);
    if (*joined == UINT32_MAX || x->tokens[*joined].kind != RELAY_TOKEN_NORMAL) return UINT32_MAX;
    *score = x->tokens[*joined].score;
    return *joined;
}

static uint32_t encode_by_definition(const random_model *x, const char *word, uint32_t len, symbol *out) {
    uint32_t n = 0, whole = find_token(x, word, len);
    bool whole_words = x->m.ignore_merges || x->m.order == RELAY_BPE_BY_RANK;
    if (whole_words && whole != UINT32_MAX && x->tokens[whole].kind == RELAY_TOKEN_NORMAL) {
        out[0] = (symbol){whole, 0, len};
        return 1;
    }
    bool has_pending = false;
    symbol pending = {0};
    for (uint32_t at = 0, size; at < len; at += size) {
        uint32_t cp;
        size = x->m.is_byte_level ? 1 : (uint32_t)relay_utf8_decode(word + at, len - at, &cp);
        char piece[32] = "";
        if (at > 0 && x->m.continuing_subword_prefix.len > 0) strcat(piece, x->m.continuing_subword_prefix.s);
        strncat(piece, word + at, size);
        if (at + size == len && x->m.end_of_word_suffix.len > 0) strcat(piece, x->m.end_of_word_suffix.s);
        uint32_t id = find_token(x, piece, strlen(piece));
        if (id != UINT32_MAX) {
            if (has_pending) out[n++] = pending;
            has_pending = false;
            out[n++] = (symbol){id, at, at + size};
        } else if (x->m.byte_fallback) {
            for (uint32_t i = 0; i < strlen(piece); i++)
                out[n++] = (symbol){(x->m.has_unk ? 1 : 0) + (uint8_t)piece[i], at + i, at + i + 1};
        } else if (x->m.has_unk) {
            if (has_pending && !x->m.fuse_unk) out[n++] = pending;
            if (!has_pending || !x->m.fuse_unk) pending = (symbol){x->m.unk_id, at, at};
            pending.end = at + size;
            has_pending = true;
        }
    }
    if (has_pending) out[n++] = pending;
    for (;;) {
        uint32_t best = UINT32_MAX, best_rank = UINT32_MAX, best_id = 0;
        float best_score = 0;
        for (uint32_t i = 0; i + 1 < n; i++) {
            uint32_t joined;
            float score = 0;
            uint32_t rank = rank_of(x, out[i].id, out[i + 1].id, &joined, &score);
            if (rank == UINT32_MAX) continue;
            bool is_better = x->m.order == RELAY_BPE_BY_SCORE ? best == UINT32_MAX || score > best_score
                                                              : best == UINT32_MAX || rank < best_rank;
            if (!is_better) continue;
            best = i;
            best_rank = rank;
            best_score = score;
            best_id = joined;
        }
        if (best == UINT32_MAX) return n;
        out[best].id = best_id;
        out[best].end = out[best + 1].end;
        memmove(&out[best + 1], &out[best + 2], (n - best - 2) * sizeof *out);
        n--;
    }
}

// ---- Words against it

static uint32_t make_word(test_random *r, char *word, uint32_t n_letters, uint32_t variety) {
    uint32_t len = 0, first = test_random_below(r, N_LETTERS);
    for (uint32_t i = 0; i < n_letters; i++) {
        const char *letter = letters[(first + test_random_below(r, variety)) % N_LETTERS];
        memcpy(word + len, letter, strlen(letter));
        len += (uint32_t)strlen(letter);
    }
    return len;
}

static void assert_same(const random_model *x, const char *word, uint32_t len, const relay_encoding *enc) {
    symbol expected[MAX_WORD];
    uint32_t n = encode_by_definition(x, word, len, expected);
    if (enc->n != n) fail_msg("%.*s: %u tokens, not %u", (int)len, word, enc->n, n);
    for (uint32_t i = 0; i < n; i++) {
        if (enc->ids[i] != expected[i].id)
            fail_msg("%.*s: token %u is %u, not %u", (int)len, word, i, enc->ids[i], expected[i].id);
        if (!enc->has_offsets) continue;
        assert_int_equal(enc->offset_begin[i], 1000 + expected[i].begin);
        assert_int_equal(enc->offset_end[i], 1000 + expected[i].end);
    }
}

static void check_kind(const model_kind *k, uint64_t seed, int n_models) {
    test_random r = {seed};
    random_model *x = malloc(sizeof *x);
    for (int round = 0; round < n_models; round++) {
        make_model(x, &r, k);
        relay_tokenizer_spec spec = {.model = x->m};
        relay_word_model *m;
        relay_err e = {0};
        if (relay_bpe_create(&m, &spec, &e) != RELAY_OK) fail_msg("%s", e.message);
        void *work = m->work_create(m, 1000);
        relay_encoding ids = {0}, offsets = {.has_offsets = true};
        for (int i = 0; i < 60; i++) {
            char word[MAX_WORD];
            uint32_t n_letters = 1 + test_random_below(&r, i % 3 == 0 ? 60 : i % 3 == 1 ? 4 : 12);
            uint32_t len = make_word(&r, word, n_letters, 1 + test_random_below(&r, N_LETTERS));
            if (k->ignore_merges && i % 20 == 0) {
                strcpy(word, "abcabcaaab\xE8\xAA\x9E");
                len = (uint32_t)strlen(word) - (i % 40 == 0 ? 3 : 0);
            }
            for (int again = 0; again < 2; again++) { // anew, and out of the cache
                ids.n = offsets.n = 0;
                assert_int_equal(m->encode(m, work, word, len, 1000, &ids, &e), RELAY_OK);
                assert_same(x, word, len, &ids);
                assert_int_equal(m->encode(m, work, word, len, 1000, &offsets, &e), RELAY_OK);
                assert_same(x, word, len, &offsets);
            }
        }
        relay_encoding_fini(&ids);
        relay_encoding_fini(&offsets);
        m->work_destroy(work);
        m->destroy(m);
    }
    free(x);
}

static void agrees_with_the_definition_byte_by_byte(void **state) {
    check_kind(&(model_kind){.is_byte_level = true}, 1, 20);
    check_kind(&(model_kind){.is_byte_level = true, .shuffled = true}, 2, 40);
}

static void agrees_with_the_definition_character_by_character(void **state) {
    check_kind(&(model_kind){0}, 3, 20);
    check_kind(&(model_kind){.shuffled = true}, 4, 30);
}

static void agrees_with_the_definition_by_rank(void **state) {
    check_kind(&(model_kind){.order = RELAY_BPE_BY_RANK, .is_byte_level = true}, 5, 20);
    check_kind(&(model_kind){.order = RELAY_BPE_BY_RANK, .is_byte_level = true, .shuffled = true}, 6, 20);
}

static void agrees_with_the_definition_by_score(void **state) {
    check_kind(&(model_kind){.order = RELAY_BPE_BY_SCORE, .byte_fallback = true}, 7, 20);
    // Equal scores, and tokens above their parts.
    check_kind(&(model_kind){.order = RELAY_BPE_BY_SCORE, .byte_fallback = true, .shuffled = true}, 8, 40);
}

static void takes_whole_words_first_where_merges_are_ignored(void **state) {
    check_kind(&(model_kind){.is_byte_level = true, .ignore_merges = true}, 9, 20);
    check_kind(&(model_kind){.ignore_merges = true}, 10, 20);
}

static void leaves_out_what_has_no_token(void **state) {
    check_kind(&(model_kind){.is_byte_level = true, .n_missing = 1}, 11, 20);
    check_kind(&(model_kind){.n_missing = 2}, 12, 20);
}

static void falls_back_to_bytes_or_to_the_unknown_token(void **state) {
    check_kind(&(model_kind){.byte_fallback = true, .has_unk = true, .n_missing = 4}, 13, 20);
    check_kind(&(model_kind){.has_unk = true, .n_missing = 4}, 14, 20);
    check_kind(&(model_kind){.has_unk = true, .fuse_unk = true, .n_missing = 5}, 15, 20);
}

static void joins_pieces_with_affixes(void **state) {
    check_kind(&(model_kind){.has_affixes = true}, 16, 30);
    check_kind(&(model_kind){.has_affixes = true, .has_unk = true, .n_missing = 2}, 17, 20);
}

// ---- Files that say what cannot be

static void refuses_merges_that_name_no_token_or_repeat(void **state) {
    static const struct {
        relay_merge_spec merges[2];
        const char *message;
    } cases[] = {
        {{{0, 1, 2}, {0, 9, 2}}, "model.merges[1]: id 9 is no token"},
        {{{7, 1, 2}, {0, 1, 2}}, "model.merges[0]: id 7 is no token"},
        {{{0, 1, 3}, {0, 1, 2}}, "model.merges[0]: id 3 is no token"},
        {{{0, 1, 2}, {0, 1, 2}}, "model.merges[1] repeats merge 0"},
    };
    relay_model_token tokens[4] = {{.piece = {"a", 1}, .kind = RELAY_TOKEN_NORMAL},
                                   {.piece = {"b", 1}, .kind = RELAY_TOKEN_NORMAL},
                                   {.piece = {"ab", 2}, .kind = RELAY_TOKEN_NORMAL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        relay_merge_spec merges[] = {cases[i].merges[0], cases[i].merges[1]};
        for (int affixed = 0; affixed < 2; affixed++) {
            relay_tokenizer_spec spec = {
                .model = {.tokens = tokens, .n_tokens = 4, .merges = merges, .n_merges = 2, .is_byte_level = true}};
            if (affixed) spec.model.end_of_word_suffix = (relay_spec_str){"!", 1};
            relay_word_model *m;
            relay_err e = {0};
            assert_int_equal(relay_bpe_create(&m, &spec, &e), RELAY_INVALID_ARGUMENT);
            assert_null(m);
            assert_string_equal(e.message, cases[i].message);
        }
    }
}

static void refuses_an_affix_that_is_too_long(void **state) {
    char affix[100];
    memset(affix, 'x', sizeof affix);
    relay_tokenizer_spec spec = {.model = {.continuing_subword_prefix = {affix, sizeof affix}}};
    relay_word_model *m;
    relay_err e = {0};
    assert_int_equal(relay_bpe_create(&m, &spec, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "model.continuing_subword_prefix: 100 bytes, at most 64 are allowed");
}

// ---- Working memory

static void gives_back_working_memory_for_the_next_text(void **state) {
    relay_model_token tokens[] = {{.piece = {"a", 1}, .kind = RELAY_TOKEN_NORMAL}};
    relay_tokenizer_spec spec = {.model = {.tokens = tokens, .n_tokens = 1, .is_byte_level = true}};
    relay_word_model *m;
    relay_err e;
    assert_int_equal(relay_bpe_create(&m, &spec, &e), RELAY_OK);
    void *works[40];
    for (int i = 0; i < 40; i++)
        works[i] = m->work_create(m, 1);
    for (int i = 0; i < 40; i++)
        m->work_destroy(works[i]); // the first sixteen stay
    void *again = m->work_create(m, 1);
    assert_ptr_equal(again, works[0]);
    m->work_destroy(again);
    m->destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_definition_byte_by_byte),
        cmocka_unit_test(agrees_with_the_definition_character_by_character),
        cmocka_unit_test(agrees_with_the_definition_by_rank),
        cmocka_unit_test(agrees_with_the_definition_by_score),
        cmocka_unit_test(takes_whole_words_first_where_merges_are_ignored),
        cmocka_unit_test(leaves_out_what_has_no_token),
        cmocka_unit_test(falls_back_to_bytes_or_to_the_unknown_token),
        cmocka_unit_test(joins_pieces_with_affixes),
        cmocka_unit_test(refuses_merges_that_name_no_token_or_repeat),
        cmocka_unit_test(refuses_an_affix_that_is_too_long),
        cmocka_unit_test(gives_back_working_memory_for_the_next_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
