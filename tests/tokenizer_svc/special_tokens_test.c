#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/buf.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/special_tokens.h"

static const char *const controls[] = {"<s>", "<|im_start|>", "<|im_end|>", "<|im", "ab", "bcd", NULL};
static const char *const users[] = {"<tool>", "  ", "    ", "<|", "abx", NULL};

static small_vocab world;
static relay_special_tokens *tokens;

static int make_world(void **state) {
    world = small_vocab_make(&(small_vocab_spec){.control = controls, .user = users, .n_padding = 3});
    tokens = relay_special_tokens_create(world.vocab);
    return 0;
}

static int end_world(void **state) {
    relay_special_tokens_destroy(tokens);
    relay_special_tokens_destroy(NULL);
    small_vocab_fini(&world);
    return 0;
}

// The text with [brackets] around each match.
static void assert_matches(const char *text, const relay_byte_range *open, size_t n_open, const char *expected) {
    relay_special_scan scan = {.tokens = tokens, .text = text, .len = strlen(text), .open = open, .n_open = n_open};
    relay_special_match m;
    relay_buf out;
    relay_buf_init(&out, 1 << 16);
    size_t at = 0;
    while (relay_special_scan_next(&scan, &m)) {
        assert_true(m.begin >= at && m.end > m.begin);
        const relay_token *t = relay_vocab_token(world.vocab, m.id);
        assert_int_equal(t->len, m.end - m.begin);
        assert_memory_equal(t->bytes, text + m.begin, t->len);
        relay_buf_append(&out, text + at, m.begin - at);
        relay_buf_printf(&out, "[%.*s]", (int)t->len, t->bytes);
        at = m.end;
    }
    relay_buf_puts(&out, text + at);
    assert_string_equal(out.data, expected);
    relay_buf_fini(&out);
}

static void matches_control_names_only_where_they_count(void **state) {
    const char *text = "x<s><tool><s>y<s>";
    assert_matches(text, NULL, 0, "x<s>[<tool>]<s>y<s>");
    assert_matches(text, &(relay_byte_range){0, strlen(text)}, 1, "x[<s>][<tool>][<s>]y[<s>]");
    assert_matches(text, &(relay_byte_range){10, 14}, 1, "x<s>[<tool>][<s>]y<s>");
    assert_matches(text, &(relay_byte_range){1, 3}, 1, "x<s>[<tool>]<s>y<s>"); // one byte short
    assert_matches(text, &(relay_byte_range){2, 4}, 1, "x<s>[<tool>]<s>y<s>");
    const relay_byte_range two[] = {{0, 4}, {14, 17}};
    assert_matches(text, two, 2, "x[<s>][<tool>]<s>y[<s>]");
}

// With control names everywhere.
static void assert_all_matches(const char *text, const char *expected) {
    assert_matches(text, &(relay_byte_range){0, strlen(text)}, 1, expected);
}

static void takes_the_leftmost_and_then_the_longest(void **state) {
    assert_all_matches("<|im_start|>", "[<|im_start|>]");
    assert_all_matches("<|im_sta", "[<|im]_sta");
    assert_all_matches("<|i", "[<|]i");
    assert_matches("<|im_end|>", NULL, 0, "[<|]im_end|>"); // the user token in it does count
    assert_all_matches("abcd", "[ab]cd");                  // not bcd, which begins later
    assert_all_matches("abxbcd", "[abx][bcd]");
    assert_matches("       .", NULL, 0, "[    ][  ] .");
}

static void lets_an_added_token_cross_any_border(void **state) {
    assert_matches("a<tool>b", &(relay_byte_range){3, 5}, 1, "a[<tool>]b");
    assert_matches("a<tool>b", &(relay_byte_range){0, 3}, 1, "a[<tool>]b");
}

static void knows_no_padding(void **state) {
    char name[32];
    const relay_token *t = relay_vocab_token(world.vocab, relay_vocab_size(world.vocab) - 1);
    assert_int_equal(t->kind, RELAY_TOKEN_PADDING);
    memcpy(name, t->bytes, t->len);
    name[t->len] = 0;
    assert_matches(name, &(relay_byte_range){0, t->len}, 1, name);
}

static void finds_nothing_without_such_tokens(void **state) {
    small_vocab v = small_vocab_make(&(small_vocab_spec){0});
    relay_special_tokens *none = relay_special_tokens_create(v.vocab);
    relay_byte_range all = {0, 3};
    relay_special_scan scan = {.tokens = none, .text = "<s>", .len = 3, .open = &all, .n_open = 1};
    relay_special_match m;
    assert_false(relay_special_scan_next(&scan, &m));
    assert_false(relay_special_scan_next(&scan, &m));
    relay_special_tokens_destroy(none);
    small_vocab_fini(&v);
}

// Every name tried at every byte, against the walk.
static void agrees_with_trying_every_name(void **state) {
    test_random r = {13};
    for (int round = 0; round < 20000; round++) {
        char text[40];
        size_t len = test_random_below(&r, sizeof text);
        for (size_t i = 0; i < len; i++)
            text[i] = "<|s>abcdx im_"[test_random_below(&r, 13)];
        if (len > 14 && round % 3 == 0) memcpy(text + test_random_below(&r, (uint32_t)len - 12), "<|im_start|>", 12);
        relay_byte_range open[2];
        size_t n_open = 0;
        for (size_t at = test_random_below(&r, 20); at < len && n_open < 2; n_open++) {
            size_t n = 1 + test_random_below(&r, 20);
            open[n_open] = (relay_byte_range){at, n < len - at ? at + n : len};
            at = open[n_open].end + 1 + test_random_below(&r, 5);
        }
        relay_special_scan scan = {.tokens = tokens, .text = text, .len = len, .open = open, .n_open = n_open};
        relay_special_match m;
        for (size_t at = 0; at < len;) {
            uint32_t best = UINT32_MAX;
            size_t best_len = 0;
            for (uint32_t id = 256; id < relay_vocab_size(world.vocab); id++) {
                const relay_token *t = relay_vocab_token(world.vocab, id);
                if (t->kind == RELAY_TOKEN_PADDING || t->len > len - at || t->len <= best_len) continue;
                bool is_open = t->kind == RELAY_TOKEN_USER;
                for (size_t k = 0; k < n_open; k++)
                    is_open |= at >= open[k].begin && at + t->len <= open[k].end;
                if (!is_open || memcmp(text + at, t->bytes, t->len) != 0) continue;
                best = id;
                best_len = t->len;
            }
            if (best == UINT32_MAX) {
                at++;
                continue;
            }
            assert_true(relay_special_scan_next(&scan, &m));
            assert_int_equal(m.id, best);
            assert_int_equal(m.begin, at);
            at += best_len;
        }
        assert_false(relay_special_scan_next(&scan, &m));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_control_names_only_where_they_count),
        cmocka_unit_test(takes_the_leftmost_and_then_the_longest),
        cmocka_unit_test(lets_an_added_token_cross_any_border),
        cmocka_unit_test(knows_no_padding),
        cmocka_unit_test(finds_nothing_without_such_tokens),
        cmocka_unit_test(agrees_with_trying_every_name),
    };
    return cmocka_run_group_tests(tests, make_world, end_world);
}
