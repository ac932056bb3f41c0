#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tokenizer_svc/byte_trie.h"
#include "tokenizer_svc/unigram.h"
#include "tokenizer_svc/word_cache.h"
#include "tokenizer_svc/wordlevel.h"
#include "tokenizer_svc/wordpiece.h"

#define SP "\xE2\x96\x81"

enum { MAX_PIECES = 512 };

typedef struct entry {
    const char *piece;
    double score;
    relay_token_kind kind;
} entry;

typedef struct world {
    relay_model_token tokens[MAX_PIECES];
    relay_tokenizer_spec spec;
    relay_word_model *model;
    void *work;
} world;

// Entries end with a piece of NULL.
static world *prepare(relay_model_kind kind, const entry *entries) {
    world *w = calloc(1, sizeof *w);
    relay_model_spec *m = &w->spec.model;
    *m = (relay_model_spec){.kind = kind, .tokens = w->tokens, .has_unk = true, .max_input_chars_per_word = 100};
    for (; entries->piece != NULL; entries++)
        w->tokens[m->n_tokens++] = (relay_model_token){{entries->piece, (uint32_t)strlen(entries->piece)},
                                                       entries->score,
                                                       entries->kind == 0 ? RELAY_TOKEN_NORMAL : entries->kind};
    return w;
}

static relay_code create(world *w, relay_err *e) {
    switch (w->spec.model.kind) {
    case RELAY_MODEL_UNIGRAM:
        return relay_unigram_create(&w->model, &w->spec, e);
    case RELAY_MODEL_WORDPIECE:
        return relay_wordpiece_create(&w->model, &w->spec, e);
    default:
        return relay_wordlevel_create(&w->model, &w->spec, e);
    }
}

static void open_model(world *w) {
    relay_err e = {0};
    if (create(w, &e) != RELAY_OK) fail_msg("%s", e.message);
    w->work = w->model->work_create(w->model, 1000);
}

static void close_model(world *w) {
    if (w->model != NULL) {
        w->model->work_destroy(w->work);
        w->model->destroy(w->model);
    }
    free(w);
}

// `expected` as "id:begin-end id:begin-end"; twice, the second time from the cache.
static void assert_tokens(world *w, const char *word, const char *expected) {
    for (int time = 0; time < 2; time++) {
        relay_encoding enc = {.has_offsets = true}, ids_only = {0};
        relay_err e = {0};
        if (w->model->encode(w->model, w->work, word, strlen(word), 0, &enc, &e) != RELAY_OK) fail_msg("%s", e.message);
        assert_int_equal(w->model->encode(w->model, w->work, word, strlen(word), 7, &ids_only, &e), RELAY_OK);
        assert_int_equal(ids_only.n, enc.n);
        char got[512] = "";
        for (uint32_t i = 0; i < enc.n; i++) {
            size_t n = strlen(got);
            snprintf(got + n, sizeof got - n, "%s%u:%u-%u", i == 0 ? "" : " ", enc.ids[i], enc.offset_begin[i],
                     enc.offset_end[i]);
            assert_int_equal(ids_only.ids[i], enc.ids[i]);
        }
        assert_string_equal(got, expected);
        relay_encoding_fini(&enc);
        relay_encoding_fini(&ids_only);
    }
}

static void assert_fails(world *w, const char *word, const char *says) {
    relay_encoding enc = {0};
    relay_err e = {0};
    assert_int_equal(w->model->encode(w->model, w->work, word, strlen(word), 0, &enc, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, says));
    relay_encoding_fini(&enc);
}

// ---- Unigram

static const entry pieces[] = {{"<unk>", 0, 0}, {"a", -1, 0},     {"b", -1, 0},     {"ab", -1.5, 0},
                               {SP, -2, 0},     {SP "a", -2, 0},  {"aa", -1.25, 0}, {"xyz", -50, 0},
                               {"x", -3, 0},    {"<0xC3>", 0, 0}, {"<0xA9>", 0, 0}, {NULL, 0, 0}};

static void the_best_path_wins_and_the_first_of_equals(void **state) {
    world *w = prepare(RELAY_MODEL_UNIGRAM, pieces);
    open_model(w);
    assert_tokens(w, "ab", "3:0-2");
    assert_tokens(w, "aab", "6:0-2 2:2-3");
    assert_tokens(w, "aaa", "1:0-1 6:1-3"); // both ways -2.25: the one whose last piece begins first
    assert_tokens(w, SP "a" SP "b", "5:0-4 4:4-7 2:7-8");
    assert_tokens(w, SP SP SP "a", "4:0-3 4:3-6 5:6-10");
    close_model(w);
}

static void unknown_characters_are_fused(void **state) {
    world *w = prepare(RELAY_MODEL_UNIGRAM, pieces);
    open_model(w);
    assert_tokens(w,
                  "a\xC3\xA9\xC3\xA9"
                  "b",
                  "1:0-1 0:1-5 2:5-6");
    assert_tokens(w, "\xC3\xA9" SP "\xC3\xA9", "0:0-2 4:2-5 0:5-7");
    assert_tokens(w, "<unk>", "0:0-5"); // its name, one unknown character or five: one token
    assert_tokens(w, "q" SP "a<unk>q", "0:0-1 5:1-5 0:5-11");
    close_model(w);
}

static void unknown_characters_fall_back_to_all_their_bytes_or_none(void **state) {
    world *w = prepare(RELAY_MODEL_UNIGRAM, pieces);
    w->spec.model.byte_fallback = true;
    open_model(w);
    assert_tokens(w, "a\xC3\xA9", "1:0-1 9:1-3 10:1-3");
    assert_tokens(w, "a\xC3\xA8", "1:0-1 0:1-3"); // 0xA8 has no token
    close_model(w);
}

static void without_an_unknown_token_a_text_may_have_no_tokens(void **state) {
    world *w = prepare(RELAY_MODEL_UNIGRAM, pieces);
    w->spec.model.has_unk = false;
    open_model(w);
    assert_fails(w, "az", "no unknown token");
    assert_tokens(w, "ab", "3:0-2");
    close_model(w);
}

static void user_pieces_go_first_as_sentencepiece_has_them(void **state) {
    static const entry user[] = {
        {"<unk>", 0, RELAY_TOKEN_UNKNOWN}, {"a", -1, 0}, {"b", -1, 0}, {"ab", -30, RELAY_TOKEN_USER},
        {"c", -1, RELAY_TOKEN_CONTROL},    {NULL, 0, 0}};
    world *w = prepare(RELAY_MODEL_UNIGRAM, user);
    open_model(w);
    assert_tokens(w, "abc", "1:0-1 2:1-2 4:2-3");
    close_model(w);
    w = prepare(RELAY_MODEL_UNIGRAM, user);
    w->spec.model.is_sentencepiece = true;
    open_model(w);
    assert_tokens(w, "abc", "3:0-2 0:2-3"); // and a control piece is not found in text
    close_model(w);
}

// What is cached for one beginning must not be taken for another: the sums round differently.
static void long_texts_are_cut_as_without_a_cache(void **state) {
    entry many[MAX_PIECES];
    char names[MAX_PIECES][24];
    uint32_t n = 0;
    many[n++] = (entry){"<unk>", 0, 0};
    uint64_t seed = 7;
    while (n < 300) {
        size_t len = 0;
        if (n % 5 == 0) len = (size_t)snprintf(names[n], sizeof names[n], SP);
        for (uint32_t i = 0; i < 1 + n % 4; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            names[n][len++] = (char)('a' + (seed >> 60) % 3);
        }
        names[n][len] = 0;
        bool is_new = true;
        for (uint32_t i = 0; i < n; i++)
            is_new = is_new && strcmp(many[i].piece, names[n]) != 0;
        many[n] = (entry){names[n], -0.1 * (double)((seed >> 40) % 37), 0};
        n += is_new;
        if (!is_new && (seed & 1023) == 0) break;
    }
    many[n] = (entry){NULL, 0, 0};
    char *text = malloc(60001);
    size_t len = 0;
    while (len < 59990) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        if ((seed >> 58) % 4 == 0) {
            memcpy(text + len, SP, 3);
            len += 3;
        } else {
            text[len++] = (char)('a' + (seed >> 60) % 3);
        }
    }
    for (int mode = 0; mode < 2; mode++) {
        world *cached = prepare(RELAY_MODEL_UNIGRAM, many);
        many[n] = (entry){"z" SP "z", -1, 0}; // with such a piece a text does not fall apart
        many[n + 1] = (entry){NULL, 0, 0};
        world *whole = prepare(RELAY_MODEL_UNIGRAM, many);
        many[n] = (entry){NULL, 0, 0};
        cached->spec.model.is_sentencepiece = whole->spec.model.is_sentencepiece = mode == 1;
        open_model(cached);
        open_model(whole);
        relay_encoding a = {0}, b = {0};
        relay_err e = {0};
        assert_int_equal(cached->model->encode(cached->model, cached->work, text, len, 0, &a, &e), RELAY_OK);
        assert_int_equal(whole->model->encode(whole->model, whole->work, text, len, 0, &b, &e), RELAY_OK);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.ids, b.ids, a.n * sizeof *a.ids);
        relay_encoding_fini(&a);
        relay_encoding_fini(&b);
        close_model(cached);
        close_model(whole);
    }
    free(text);
}

static void bad_models_are_refused(void **state) {
    static const relay_model_kind kinds[] = {RELAY_MODEL_UNIGRAM, RELAY_MODEL_WORDPIECE, RELAY_MODEL_WORDLEVEL};
    for (int i = 0; i < 3; i++) {
        world *w = prepare(kinds[i], pieces);
        w->spec.model.unk_id = 11;
        relay_err e = {0};
        assert_int_equal(create(w, &e), RELAY_INVALID_ARGUMENT);
        assert_non_null(strstr(e.message, "11; the vocabulary has 11 tokens"));
        assert_null(w->model);
        close_model(w);
    }
    world *w = prepare(RELAY_MODEL_UNIGRAM, pieces);
    w->tokens[3].score = NAN;
    relay_err e = {0};
    assert_int_equal(create(w, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "model.vocab[3]"));
    close_model(w);
}

// ---- WordPiece and WordLevel

static void words_are_cut_into_the_longest_pieces(void **state) {
    static const entry words[] = {{"[UNK]", 0, 0},  {"play", 0, 0}, {"##ing", 0, 0},      {"##i", 0, 0}, {"##n", 0, 0},
                                  {"playin", 0, 0}, {"p", 0, 0},    {"##\xC3\xA9", 0, 0}, {NULL, 0, 0}};
    world *w = prepare(RELAY_MODEL_WORDPIECE, words);
    w->spec.model.continuing_subword_prefix = (relay_spec_str){"##", 2};
    w->spec.model.max_input_chars_per_word = 8;
    open_model(w);
    assert_tokens(w, "play", "1:0-4");
    assert_tokens(w, "playi", "1:0-4 3:4-5");
    assert_tokens(w, "playing", "0:0-7"); // playin is the longest, and nothing goes on with g
    assert_tokens(w, "p\xC3\xA9\xC3\xA9", "6:0-1 7:1-3 7:3-5");
    assert_tokens(w, "p\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9",
                  "6:0-1 7:1-3 7:3-5 7:5-7 7:7-9 7:9-11 7:11-13 7:13-15");
    assert_tokens(w, "p\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9", "0:0-17"); // nine characters
    assert_tokens(w, "##i", "3:0-3"); // spelled out at a word's beginning
    close_model(w);

    w = prepare(RELAY_MODEL_WORDPIECE, words);
    w->spec.model.continuing_subword_prefix = (relay_spec_str){"@@", 2};
    w->spec.model.has_unk = false;
    open_model(w);
    assert_tokens(w, "play", "1:0-4");
    assert_fails(w, "playi", "no unknown token");
    close_model(w);
}

static void a_word_is_one_token(void **state) {
    static const entry words[] = {{"<unk>", 0, 0}, {"play", 0, 0}, {NULL, 0, 0}};
    world *w = prepare(RELAY_MODEL_WORDLEVEL, words);
    open_model(w);
    assert_tokens(w, "play", "1:0-4");
    assert_tokens(w, "playing", "0:0-7");
    close_model(w);
    w = prepare(RELAY_MODEL_WORDLEVEL, words);
    w->spec.model.has_unk = false;
    open_model(w);
    assert_fails(w, "pla", "no unknown token");
    close_model(w);
}

// ---- No cliff

static void a_megabyte_is_as_fast_a_byte_as_a_page(void **state) {
    enum { MEGABYTE = 1 << 20 };
    char *text = malloc(MEGABYTE);
    for (int i = 0; i < 4; i++) {
        for (size_t at = 0; at < MEGABYTE; at++)
            text[at] = i == 0 ? 'a' : i == 1 ? "ab"[at % 2] : i == 2 ? (SP)[at % 3] : 'q';
        size_t len = MEGABYTE - MEGABYTE % 3;
        for (int kind = 0; kind < 3; kind++) {
            world *w = prepare(
                (relay_model_kind[]){RELAY_MODEL_UNIGRAM, RELAY_MODEL_WORDPIECE, RELAY_MODEL_WORDLEVEL}[kind], pieces);
            w->spec.model.max_input_chars_per_word = UINT32_MAX;
            open_model(w);
            relay_encoding enc = {0};
            relay_mono_us start = relay_mono_now();
            assert_int_equal(w->model->encode(w->model, w->work, text, len, 0, &enc, NULL), RELAY_OK);
            assert_true(relay_mono_now() - start < 5 * 1000 * 1000); // quadratic would be hours
            assert_true(enc.n > 0);
            relay_encoding_fini(&enc);
            close_model(w);
        }
    }
    free(text);
}

// ---- What they are made of

static void a_trie_finds_what_was_added_and_no_more(void **state) {
    enum { N = 20000 };
    relay_trie_builder *b = relay_trie_builder_create();
    char key[16];
    for (uint32_t i = 0; i < N; i++) {
        int n = snprintf(key, sizeof key, "%x", i * 2654435761u);
        for (int j = 0; j < n; j++)
            key[j] = (char)(key[j] * 7 + j * 31); // bytes of all values
        relay_trie_builder_add(b, key, (size_t)n, i);
    }
    relay_trie_builder_add(b, "", 0, 5);
    relay_trie_builder_add(b, "twice", 5, 1);
    relay_trie_builder_add(b, "twice", 5, 2);
    relay_byte_trie t;
    relay_trie_builder_finish(b, &t);
    for (uint32_t i = 0; i < 2 * N; i++) {
        int n = snprintf(key, sizeof key, "%x", i * 2654435761u);
        for (int j = 0; j < n; j++)
            key[j] = (char)(key[j] * 7 + j * 31);
        assert_int_equal(relay_byte_trie_find(&t, key, (size_t)n), i < N ? i : RELAY_TRIE_NONE);
    }
    assert_int_equal(relay_byte_trie_find(&t, "", 0), RELAY_TRIE_NONE);
    assert_int_equal(relay_byte_trie_find(&t, "twice", 5), 2);
    assert_int_equal(relay_byte_trie_find(&t, "twic", 4), RELAY_TRIE_NONE);
    relay_byte_trie_fini(&t);

    relay_trie_builder_finish(relay_trie_builder_create(), &t);
    assert_int_equal(relay_byte_trie_find(&t, "a", 1), RELAY_TRIE_NONE);
    relay_byte_trie_fini(&t);
}

static void a_word_cache_forgets_but_does_not_lie(void **state) {
    relay_word_cache c;
    relay_word_cache_init(&c, 0);
    uint32_t n_found = 0;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 300000; i++) {
            char word[24];
            size_t len = (size_t)snprintf(word, sizeof word, "%u", (i % 7 == 0 ? i : i % 40000));
            uint64_t hash = relay_word_hash(word, len);
            const relay_cached_word *w = relay_word_cache_find(&c, word, len, hash);
            if (w != NULL) {
                n_found++;
                assert_int_equal(w->n_tokens, 2);
                assert_int_equal(w->ids[0], (i % 7 == 0 ? i : i % 40000));
                assert_int_equal(w->ids[1], len);
                assert_int_equal(relay_cached_word_ends(w)[1], len);
                continue;
            }
            relay_cached_word *fresh = relay_word_cache_add(&c, word, len, 2, hash);
            fresh->ids[0] = (i % 7 == 0 ? i : i % 40000);
            fresh->ids[1] = (uint32_t)len;
            relay_cached_word_ends(fresh)[1] = (uint8_t)len;
        }
    }
    assert_true(n_found > 0);
    relay_word_cache_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_path_wins_and_the_first_of_equals),
        cmocka_unit_test(unknown_characters_are_fused),
        cmocka_unit_test(unknown_characters_fall_back_to_all_their_bytes_or_none),
        cmocka_unit_test(without_an_unknown_token_a_text_may_have_no_tokens),
        cmocka_unit_test(user_pieces_go_first_as_sentencepiece_has_them),
        cmocka_unit_test(long_texts_are_cut_as_without_a_cache),
        cmocka_unit_test(bad_models_are_refused),
        cmocka_unit_test(words_are_cut_into_the_longest_pieces),
        cmocka_unit_test(a_word_is_one_token),
        cmocka_unit_test(a_megabyte_is_as_fast_a_byte_as_a_page),
        cmocka_unit_test(a_trie_finds_what_was_added_and_no_more),
        cmocka_unit_test(a_word_cache_forgets_but_does_not_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
