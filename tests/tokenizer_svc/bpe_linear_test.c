// No text is a cliff: the steps of one pass, counted, for texts that are hard on other ways.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/bpe_linear.h"

enum { LEN = 1 << 20, N_TOKENS = 3000, MAX_PIECE = 64, MAX_STEPS_A_BYTE = 4 };

typedef struct model {
    relay_model_token tokens[N_TOKENS];
    char pieces[N_TOKENS][MAX_PIECE + 1];
    relay_merge_spec merges[N_TOKENS];
    relay_model_spec m;
    relay_bpe_rules rules;
    relay_bpe_trie trie;
} model;

static uint32_t add(model *x, const char *piece) {
    uint32_t id = x->m.n_tokens++;
    strcpy(x->pieces[id], piece);
    x->tokens[id] = (relay_model_token){.piece = {x->pieces[id], (uint32_t)strlen(piece)}, .kind = RELAY_TOKEN_NORMAL};
    return id;
}

static void merge(model *x, uint32_t left, uint32_t right) {
    char piece[2 * MAX_PIECE + 1];
    strcpy(piece, x->pieces[left]);
    strcat(piece, x->pieces[right]);
    if (strlen(piece) > MAX_PIECE) return;
    for (uint32_t id = 0; id < x->m.n_tokens; id++)
        if (strcmp(x->pieces[id], piece) == 0) return;
    x->merges[x->m.n_merges++] = (relay_merge_spec){left, right, add(x, piece)};
}

// Bytes, runs of a letter up to 64 (made from the left, as runs of spaces are in real models), and random merges.
static model *make_model(test_random *r) {
    model *x = calloc(1, sizeof *x);
    x->m = (relay_model_spec){.tokens = x->tokens, .merges = x->merges, .is_byte_level = true};
    for (int byte = 1; byte < 256; byte++)
        add(x, (const char[]){(char)byte, 0});
    uint32_t letter = 'a' - 1;
    for (uint32_t run = letter, i = 1; i < MAX_PIECE; i++) {
        merge(x, run, letter);
        run = x->m.n_tokens - 1;
    }
    while (x->m.n_tokens < N_TOKENS - 1) {
        uint32_t n = x->m.n_tokens;
        uint32_t left = test_random_below(r, 2) == 0 ? 'a' - 1 + test_random_below(r, 26) : test_random_below(r, n);
        merge(x, left, test_random_below(r, 2) == 0 ? 'a' - 1 + test_random_below(r, 26) : test_random_below(r, n));
    }
    relay_err e = {0};
    if (relay_bpe_rules_init(&x->rules, &x->m, &e) != RELAY_OK) fail_msg("%s", e.message);
    assert_true(x->rules.is_linear);
    relay_bpe_trie_init(&x->trie, &x->rules);
    return x;
}

static void assert_few_steps(model *x, const char *what, const char *text) {
    relay_bpe_linear w = {0};
    uint32_t *ids = malloc(LEN * sizeof *ids);
    uint32_t n = relay_bpe_linear_encode(&x->rules, &x->trie, &w, text, LEN, ids);
    assert_true(n > 0);
    if (w.n_steps > (uint64_t)MAX_STEPS_A_BYTE * LEN)
        fail_msg("%s: %llu steps for %d bytes", what, (unsigned long long)w.n_steps, LEN);
    free(ids);
    relay_bpe_linear_fini(&w);
}

static void takes_few_steps_whatever_the_text(void **state) {
    test_random r = {21};
    model *x = make_model(&r);
    char *text = malloc(LEN);
    memset(text, 'a', LEN);
    assert_few_steps(x, "one letter", text);
    memset(text, ' ', LEN);
    assert_few_steps(x, "spaces", text);
    for (size_t i = 0; i < LEN; i++)
        text[i] = "\xF0\x9F\x98\x80"[i % 4];
    assert_few_steps(x, "one emoji", text);
    for (size_t i = 0; i < LEN; i++)
        text[i] = (char)('0' + test_random_below(&r, 10));
    assert_few_steps(x, "digits", text);
    for (size_t i = 0; i < LEN; i++)
        text[i] = (char)('a' + test_random_below(&r, 26));
    assert_few_steps(x, "one random word", text);
    for (size_t i = 0; i < LEN; i++)
        text[i] = i % 65 == 64 ? 'b' : 'a';
    assert_few_steps(x, "runs that end one behind the longest token", text);
    for (size_t i = 0; i < LEN; i++)
        text[i] = (char)(1 + test_random_below(&r, 255));
    assert_few_steps(x, "random bytes", text);
    free(text);
    relay_bpe_trie_fini(&x->trie);
    relay_bpe_rules_fini(&x->rules);
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(takes_few_steps_whatever_the_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
