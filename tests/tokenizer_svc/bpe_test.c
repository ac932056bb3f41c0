#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/bpe.h"

static relay_bpe *load(const small_vocab *v, bool ignore_merges) {
    relay_bpe *b;
    relay_err e = {0};
    if (relay_bpe_load_gguf(&b, v->gguf, v->vocab, ignore_merges, &e) != RELAY_OK) fail_msg("%s", e.message);
    return b;
}

// The word's tokens, joined by spaces.
static void assert_tokens(const small_vocab *v, const relay_bpe *b, const char *word, const char *expected) {
    relay_bpe_work w = {0};
    relay_bpe_encode(b, word, strlen(word), &w);
    relay_buf got;
    relay_buf_init(&got, 4096);
    for (uint32_t i = 0; i < w.n_tokens; i++) {
        const relay_token *t = relay_vocab_token(v->vocab, w.tokens[i].id);
        if (i > 0) relay_buf_putc(&got, ' ');
        relay_buf_append(&got, t->bytes, t->len);
    }
    assert_string_equal(got.data, expected);
    relay_buf_fini(&got);
    relay_bpe_work_fini(&w);
}

static void joins_the_first_merge_of_the_list_first(void **state) {
    static const char *const merges[] = {"b c", "a b", "c d", "ab cd", NULL};
    small_vocab v = small_vocab_make(&(small_vocab_spec){.merges = merges});
    relay_bpe *b = load(&v, false);
    assert_tokens(&v, b, "abc", "a bc");
    assert_tokens(&v, b, "abd", "ab d");
    assert_tokens(&v, b, "abcd", "a bc d"); // though abcd is a token
    assert_tokens(&v, b, "abbcd", "ab bc d");
    relay_bpe_destroy(b);
    relay_bpe_destroy(NULL);
    small_vocab_fini(&v);
}

static void joins_the_leftmost_of_equal_pairs_first(void **state) {
    static const char *const merges[] = {"a a", "aa a", NULL};
    small_vocab v = small_vocab_make(&(small_vocab_spec){.merges = merges});
    relay_bpe *b = load(&v, false);
    assert_tokens(&v, b, "aaa", "aaa");
    assert_tokens(&v, b, "aaaa", "aa aa");
    assert_tokens(&v, b, "aaaaa", "aa aaa");
    relay_bpe_destroy(b);
    small_vocab_fini(&v);
}

static void takes_a_whole_word_that_is_a_token_where_merges_are_ignored(void **state) {
    static const char *const merges[] = {"b c", "a b", "c d", "ab cd", NULL};
    static const char *const pieces[] = {"xyz", NULL};
    small_vocab v = small_vocab_make(&(small_vocab_spec){.merges = merges, .pieces = pieces});
    relay_bpe *b = load(&v, true);
    assert_tokens(&v, b, "abcd", "abcd");
    assert_tokens(&v, b, "xyz", "xyz");
    assert_tokens(&v, b, "xyzz", "x y z z");
    relay_bpe_destroy(b);
    b = load(&v, false);
    assert_tokens(&v, b, "xyz", "x y z");
    relay_bpe_destroy(b);
    small_vocab_fini(&v);
}

static void leaves_out_a_byte_without_a_token(void **state) {
    static const char *const merges[] = {"a b", NULL};
    static const uint8_t missing[] = {4};
    small_vocab v =
        small_vocab_make(&(small_vocab_spec){.merges = merges, .missing_bytes = missing, .n_missing_bytes = 1});
    relay_bpe *b = load(&v, false);
    assert_tokens(&v, b,
                  "a\x04"
                  "b",
                  "ab"); // its neighbours come together
    relay_bpe_work w = {0};
    relay_bpe_encode(b, "c\004\004d", 4, &w);
    assert_int_equal(w.n_tokens, 2);
    assert_int_equal(w.tokens[1].begin, 3);
    relay_bpe_encode(b, "\004", 1, &w);
    assert_int_equal(w.n_tokens, 0);
    relay_bpe_work_fini(&w);
    relay_bpe_destroy(b);
    small_vocab_fini(&v);
}

// ---- Against the definition

enum { MAX_MERGES = 60, MAX_PIECE = 12 };

typedef struct random_model {
    char text[MAX_MERGES][2 * MAX_PIECE + 2]; // "left right"
    const char *merges[MAX_MERGES + 1];
    uint32_t n;
} random_model;

static void piece_at(const random_model *m, uint32_t i, char *out) {
    if (i < 3) {
        out[0] = (char)('a' + i);
        out[1] = 0;
        return;
    }
    const char *space = strchr(m->text[i - 3], ' ');
    size_t n = (size_t)(space - m->text[i - 3]);
    memcpy(out, m->text[i - 3], n);
    strcpy(out + n, space + 1);
}

// Merges over a, b and c, of pieces that there are already; several may give one result.
static void make_model(random_model *m, test_random *r) {
    m->n = 0;
    uint32_t wanted = 1 + test_random_below(r, MAX_MERGES);
    for (uint32_t tries = 0; m->n < wanted && tries < 1000; tries++) {
        char left[2 * MAX_PIECE + 2], right[2 * MAX_PIECE + 2], *text = m->text[m->n];
        piece_at(m, test_random_below(r, 3 + m->n), left);
        piece_at(m, test_random_below(r, 3 + m->n), right);
        if (strlen(left) + strlen(right) > MAX_PIECE) continue;
        strcpy(text, left);
        strcat(text, " ");
        strcat(text, right);
        bool is_known = false;
        for (uint32_t i = 0; i < m->n; i++)
            is_known |= strcmp(m->text[i], text) == 0;
        if (!is_known) m->merges[m->n++] = text;
    }
    m->merges[m->n] = NULL;
}

// The rank of joining the words' parts [a, b) and [b, c); m->n if there is no such merge.
static uint32_t rank_of(const random_model *m, const char *word, uint32_t a, uint32_t b, uint32_t c) {
    char text[2 * MAX_PIECE + 2];
    if (b - a > MAX_PIECE || c - b > MAX_PIECE) return m->n;
    memcpy(text, word + a, b - a);
    text[b - a] = ' ';
    memcpy(text + (b - a) + 1, word + b, c - b);
    text[c - a + 1] = 0;
    uint32_t rank = 0;
    while (rank < m->n && strcmp(m->text[rank], text) != 0)
        rank++;
    return rank;
}

// Borders of the word's tokens, from the definition. Returns how many tokens there are.
static uint32_t split_by_definition(const random_model *m, const char *word, uint32_t len, uint32_t *borders) {
    uint32_t n = len;
    for (uint32_t i = 0; i <= len; i++)
        borders[i] = i;
    for (;;) {
        uint32_t best = m->n, at = 0;
        for (uint32_t i = 0; i + 2 <= n; i++) {
            uint32_t rank = rank_of(m, word, borders[i], borders[i + 1], borders[i + 2]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == m->n) return n;
        memmove(&borders[at + 1], &borders[at + 2], (n - at - 1) * sizeof *borders);
        n--;
    }
}

static void agrees_with_the_definition_on_random_models_and_words(void **state) {
    enum { MAX_WORD = 200 }; // short and long words
    test_random r = {3};
    for (int round = 0; round < 60; round++) {
        random_model m;
        make_model(&m, &r);
        small_vocab v = small_vocab_make(&(small_vocab_spec){.merges = m.merges});
        relay_bpe *b = load(&v, false);
        relay_bpe_work w = {0};
        if (round % 2 == 0) relay_bpe_work_expect(&w, 1 << 16);
        for (int k = 0; k < 40; k++) {
            char word[MAX_WORD];
            uint32_t borders[MAX_WORD + 1];
            uint32_t len = 1 + test_random_below(&r, k % 3 == 0 ? 4 : MAX_WORD);
            for (uint32_t i = 0; i < len; i++)
                word[i] = (char)('a' + test_random_below(&r, 1 + (uint32_t)k % 3));
            uint32_t n = split_by_definition(&m, word, len, borders);
            relay_bpe_encode(b, word, len, &w);
            assert_int_equal(w.n_tokens, n);
            for (uint32_t i = 0; i < n; i++) {
                const relay_token *t = relay_vocab_token(v.vocab, w.tokens[i].id);
                assert_int_equal(w.tokens[i].begin, borders[i]);
                assert_int_equal(w.tokens[i].end, borders[i + 1]);
                assert_int_equal(t->len, borders[i + 1] - borders[i]);
                assert_memory_equal(t->bytes, word + borders[i], t->len);
            }
        }
        relay_bpe_work_fini(&w);
        relay_bpe_destroy(b);
        small_vocab_fini(&v);
    }
}

// What is remembered is what was found, for words that share their place, their ends or their length: of few letters,
// and mostly one of them.
static void remembers_words_with_their_tokens(void **state) {
    static const char *const merges[] = {"a b", "ab c", "c c", "a a", "aa aa", "aaaa aaaa", NULL};
    static const uint8_t missing[] = {'z'};
    small_vocab v =
        small_vocab_make(&(small_vocab_spec){.merges = merges, .missing_bytes = missing, .n_missing_bytes = 1});
    relay_bpe *b = load(&v, false);
    relay_bpe_work remembering = {0}, plain = {0};
    relay_bpe_work_expect(&remembering, 2048);
    test_random r = {5};
    for (int k = 0; k < 150000; k++) {
        char word[20];
        uint32_t len = 1 + test_random_below(&r, k % 4 == 0 ? sizeof word : 6);
        memset(word, 'a', len);
        for (int changes = k % 3; changes > 0; changes--)
            word[test_random_below(&r, len)] = "abcz"[test_random_below(&r, k % 5 == 0 ? 4 : 3)];
        relay_bpe_encode(b, word, len, &remembering);
        relay_bpe_encode(b, word, len, &plain);
        assert_int_equal(remembering.n_tokens, plain.n_tokens);
        if (plain.n_tokens > 0)
            assert_memory_equal(remembering.tokens, plain.tokens, plain.n_tokens * sizeof *plain.tokens);
    }
    relay_bpe_work_fini(&remembering);
    relay_bpe_work_fini(&plain);
    relay_bpe_destroy(b);
    small_vocab_fini(&v);
}

// Takes hours where the time grows with the square.
static void takes_a_megabyte_of_one_letter(void **state) {
    static const char *const merges[] = {"a a", "aa aa", "aaaa aaaa", NULL};
    enum { LEN = 1 << 20 };
    small_vocab v = small_vocab_make(&(small_vocab_spec){.merges = merges});
    relay_bpe *b = load(&v, false);
    char *word = malloc(LEN);
    memset(word, 'a', LEN);
    relay_bpe_work w = {0};
    relay_bpe_encode(b, word, LEN, &w);
    assert_int_equal(w.n_tokens, LEN / 8);
    assert_int_equal(w.tokens[LEN / 8 - 1].end, LEN);
    relay_bpe_work_fini(&w);
    free(word);
    relay_bpe_destroy(b);
    small_vocab_fini(&v);
}

static void refuses_bad_merges_by_number(void **state) {
    static const struct {
        const char *merge, *message;
    } cases[] = {
        {"ab", "merges\"[1] is not two pieces"},
        {" ab", "merges\"[1] is not two pieces"},
        {"ab ", "merges\"[1] is not two pieces"},
        {"", "merges\"[1] is not two pieces"},
        {"a b", "merges\"[1] repeats merge 0"},
        {"a b c", "merges\"[1]: \"b c\" is not in GPT-2's byte alphabet"},
        {"ab \xE2\x82\xAC", "merges\"[1]: \"\xE2\x82\xAC\" is not in GPT-2's byte alphabet"},
        {"abc a", "merges\"[1]: \"abc\" is no token"},
        {"a abc", "merges\"[1]: \"abc\" is no token"},
        {"b a", "merges\"[1]: \"b a\" joined is no token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const good[] = {"a b", NULL};
        const char *const both[] = {"a b", cases[i].merge};
        small_vocab v = small_vocab_make(&(small_vocab_spec){.merges = good});
        gguf_writer *w = gguf_writer_create(); // the merges alone: the vocabulary is v's
        gguf_writer_string_array(w, "tokenizer.ggml.merges", both, 2);
        size_t len;
        const uint8_t *data = gguf_writer_finish(w, &len);
        relay_gguf *g;
        relay_err e = {0};
        assert_int_equal(relay_gguf_open_memory(&g, data, len, &e), RELAY_OK);
        relay_bpe *b;
        assert_int_equal(relay_bpe_load_gguf(&b, g, v.vocab, false, &e), RELAY_INVALID_ARGUMENT);
        assert_null(b);
        if (strstr(e.message, cases[i].message) == NULL) fail_msg("%s: %s", cases[i].merge, e.message);
        relay_gguf_close(g);
        gguf_writer_destroy(w);
        small_vocab_fini(&v);
    }
}

static void refuses_a_file_without_merges(void **state) {
    small_vocab v = small_vocab_make(&(small_vocab_spec){0});
    gguf_writer *w = gguf_writer_create();
    size_t len;
    const uint8_t *data = gguf_writer_finish(w, &len);
    relay_gguf *g;
    relay_err e = {0};
    assert_int_equal(relay_gguf_open_memory(&g, data, len, &e), RELAY_OK);
    relay_bpe *b;
    assert_int_equal(relay_bpe_load_gguf(&b, g, v.vocab, false, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "key \"tokenizer.ggml.merges\" is missing");
    relay_gguf_close(g);
    gguf_writer_destroy(w);
    small_vocab_fini(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_the_first_merge_of_the_list_first),
        cmocka_unit_test(joins_the_leftmost_of_equal_pairs_first),
        cmocka_unit_test(takes_a_whole_word_that_is_a_token_where_merges_are_ignored),
        cmocka_unit_test(leaves_out_a_byte_without_a_token),
        cmocka_unit_test(agrees_with_the_definition_on_random_models_and_words),
        cmocka_unit_test(remembers_words_with_their_tokens),
        cmocka_unit_test(takes_a_megabyte_of_one_letter),
        cmocka_unit_test(refuses_bad_merges_by_number),
        cmocka_unit_test(refuses_a_file_without_merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
