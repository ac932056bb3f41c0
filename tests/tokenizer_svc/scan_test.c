#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/buf.h"
#include "common/utf8.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/scan.h"
#include "tokenizer_svc/unicode_standin.h"

// ---- The pre-tokenizers that a scanner stands for, by PCRE2

static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct by_pattern {
    pcre2_code *code[RELAY_SCAN_MAX_STAGES];
    pcre2_match_data *match;
    uint32_t n;
    bool rust_digits;
    char *seen; // the text with stand-ins
    uint32_t *ends;
    uint32_t n_ends;
} by_pattern;

static void compile(by_pattern *p, const char *pattern, size_t len) {
    int error;
    PCRE2_SIZE offset;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, len, PCRE2_UTF | PCRE2_UCP, &error, &offset, NULL);
    assert_non_null(code);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    p->code[p->n++] = code;
}

static by_pattern by_pattern_make(const relay_scan *s) {
    by_pattern p = {.match = pcre2_match_data_create(1, NULL)};
    relay_pretokenizer_spec stages[RELAY_SCAN_MAX_STAGES];
    uint32_t n = relay_scan_stages(s, stages);
    for (uint32_t i = 0; i < n; i++) {
        if (stages[i].kind == RELAY_PRETOKENIZE_DIGITS) {
            compile(&p, "\\p{N}", 5);
            p.rust_digits = true;
        } else if (stages[i].kind == RELAY_PRETOKENIZE_BYTE_LEVEL) {
            compile(&p, gpt2_pattern, sizeof gpt2_pattern - 1);
        } else {
            compile(&p, stages[i].pattern.text.s, stages[i].pattern.text.len);
        }
    }
    return p;
}

static void by_pattern_fini(by_pattern *p) {
    for (uint32_t i = 0; i < p->n; i++)
        pcre2_code_free(p->code[i]);
    pcre2_match_data_free(p->match);
    free(p->seen);
    free(p->ends);
}

static void split(by_pattern *p, uint32_t stage, size_t begin, size_t end) {
    if (begin == end) return;
    if (stage == p->n) {
        p->ends[p->n_ends++] = (uint32_t)end;
        return;
    }
    const char *piece = p->seen + begin;
    size_t len = end - begin, at = 0;
    while (at < len &&
           pcre2_match(p->code[stage], (PCRE2_SPTR)piece, len, at, PCRE2_NO_UTF_CHECK, p->match, NULL) >= 0) {
        const PCRE2_SIZE *m = pcre2_get_ovector_pointer(p->match);
        size_t from = m[0], to = m[1];
        split(p, stage + 1, begin + at, begin + from);
        split(p, stage + 1, begin + from, begin + to);
        at = to;
    }
    split(p, stage + 1, begin + at, end);
}

static void apply(by_pattern *p, const char *text, size_t len) {
    p->seen = relay_realloc(p->seen, len + 1);
    p->ends = relay_realloc(p->ends, (len + 1) * sizeof *p->ends);
    p->n_ends = 0;
    memcpy(p->seen, text, len);
    relay_unicode_standin_replace(p->seen, len, p->rust_digits);
    split(p, 0, 0, len);
}

// `max` words at a time.
static void assert_same_words(const relay_scan *s, by_pattern *p, const char *text, size_t len, size_t max) {
    apply(p, text, len);
    relay_scan_walk walk = {0};
    uint32_t ends[256], n = 0;
    while (walk.at < len) {
        size_t got = relay_scan_words(s, &walk, text, len, ends, max);
        assert_true(got > 0 && got <= max);
        for (size_t i = 0; i < got; i++, n++) {
            if (n < p->n_ends && ends[i] == p->ends[n]) continue;
            uint32_t begin = n > 0 ? p->ends[n - 1] : 0, to = begin + 40 < len ? begin + 40 : (uint32_t)len;
            relay_buf hex;
            relay_buf_init(&hex, 1024);
            for (uint32_t k = begin > 70 ? begin - 70 : 0; k < to; k++)
                relay_buf_printf(&hex, " %02x", (uint8_t)text[k]);
            fail_msg("%s: word %u at byte %u ends at %u, not %u:%s", relay_scan_name(s), n, begin, ends[i],
                     n < p->n_ends ? p->ends[n] : 0, hex.data);
        }
    }
    assert_int_equal(n, p->n_ends);
}

// ---- Texts

static void put(relay_buf *b, uint32_t cp) {
    char bytes[4];
    relay_buf_append(b, bytes, relay_utf8_encode(cp, bytes));
}

static bool is_scalar(uint32_t cp) {
    return cp < 0xD800 || (cp > 0xDFFF && cp < 0x110000);
}

// Every character, beside one of each class.
static void knows_every_character(void **state) {
    for (uint32_t k = 0; k < relay_scan_count(); k++) {
        const relay_scan *s = relay_scan_at(k);
        by_pattern p = by_pattern_make(s);
        relay_buf text;
        relay_buf_init(&text, 1 << 20);
        for (uint32_t cp = k % 4; cp < 0x110000; cp += cp < 0x32400 ? 4 : 97) { // four scanners see all of them
            if (!is_scalar(cp)) continue;
            static const char around[] = "aB 1.\n";
            for (size_t i = 0; i + 1 < sizeof around; i++) {
                put(&text, (uint8_t)around[i]);
                put(&text, cp);
            }
            if (text.len < 4096) continue;
            assert_same_words(s, &p, text.data, text.len, 256);
            relay_buf_clear(&text);
        }
        assert_same_words(s, &p, text.data, text.len, 256);
        relay_buf_fini(&text);
        by_pattern_fini(&p);
    }
}

static const uint32_t interesting[] = {
    'a',    'z',    'S',    'T',    'l',    'L',    'v',     'e',     'E',      'r',    'd',   'm',    '\'',  '\'',
    ' ',    ' ',    ' ',    '\n',   '\r',   '\t',   0x0B,    0x00,    '.',      ',',    '/',   '!',    '_',   '1',
    '2',    '9',    0x17F,  0x85,   0xA0,   0x3000, 0x2028,  0x180E,  0x301,    0x5BF,  0x2C6, 0x1C5,  0x3B1, 0x391,
    0x4E2D, 0x3042, 0x0660, 0x00BD, 0x2167, 0x200D, 0x1F600, 0x1D400, 0x10FFFF, 0xE000, 0x378, 0xFEFF, 0xAA,  0x2160,
};
enum { N_INTERESTING = sizeof interesting / sizeof *interesting };

static void make_text(relay_buf *out, test_random *r, uint32_t n) {
    relay_buf_clear(out);
    uint32_t variety = 1 + test_random_below(r, N_INTERESTING), first = test_random_below(r, N_INTERESTING);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cp = interesting[(first + test_random_below(r, variety)) % N_INTERESTING];
        uint32_t times = test_random_below(r, 8) == 0 ? 1 + test_random_below(r, 90) : 1;
        if (test_random_below(r, 30) == 0) cp = test_random_below(r, 0x110000);
        for (uint32_t k = 0; is_scalar(cp) && k < times; k++)
            put(out, cp);
    }
}

static void splits_random_text_as_the_patterns_do(void **state) {
    test_random r = {11};
    relay_buf text;
    relay_buf_init(&text, 1 << 20);
    for (uint32_t k = 0; k < relay_scan_count(); k++) {
        const relay_scan *s = relay_scan_at(k);
        by_pattern p = by_pattern_make(s);
        for (int i = 0; i < 1500; i++) {
            make_text(&text, &r, 1 + test_random_below(&r, i % 5 == 0 ? 200 : 12));
            if (text.len > 0) assert_same_words(s, &p, text.data, text.len, 1 + test_random_below(&r, 256));
        }
        by_pattern_fini(&p);
    }
    relay_buf_fini(&text);
}

// Words, figures and code, as ASCII text has them.
static void splits_random_ascii_as_the_patterns_do(void **state) {
    test_random r = {12};
    char text[700];
    for (uint32_t k = 0; k < relay_scan_count(); k++) {
        const relay_scan *s = relay_scan_at(k);
        by_pattern p = by_pattern_make(s);
        for (int i = 0; i < 1500; i++) {
            static const char *const sets[] = {"abc de's 't're'LL", "if (x1 == 2) {\n    y();\n}\n", "12 345 6789 \t",
                                               "a b\r\n\r\n  c",    "fooBarBAZ quxA'd /*/\n",        "  \n \t\r "};
            const char *set = sets[test_random_below(&r, sizeof sets / sizeof *sets)];
            size_t len = 1 + test_random_below(&r, sizeof text);
            size_t n = strlen(set), at = test_random_below(&r, (uint32_t)n);
            for (size_t c = 0; c < len; c++) {
                text[c] = set[at++ % n];
                if (test_random_below(&r, 5) == 0) at = test_random_below(&r, (uint32_t)n);
                if (test_random_below(&r, 60) == 0) text[c] = (char)test_random_below(&r, 128);
            }
            assert_same_words(s, &p, text, len, 256);
        }
        by_pattern_fini(&p);
    }
}

// ---- Which pre-tokenizers are known

static void is_found_by_the_pre_tokenizers_it_stands_for(void **state) {
    for (uint32_t k = 0; k < relay_scan_count(); k++) {
        relay_pretokenizer_spec p[RELAY_SCAN_MAX_STAGES + 1];
        uint32_t n = relay_scan_stages(relay_scan_at(k), p);
        assert_ptr_equal(relay_scan_find(p, n), relay_scan_at(k));
        relay_pretokenizer_spec *last = &p[n - 1];
        p[n] = (relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_BYTE_LEVEL};
        if (last->kind == RELAY_PRETOKENIZE_SPLIT) {
            assert_ptr_equal(relay_scan_find(p, n + 1), relay_scan_at(k));
            last->behavior = RELAY_SPLIT_REMOVED; // of what is between matches
            last->invert = true;
            assert_ptr_equal(relay_scan_find(p, n), relay_scan_at(k));
            last->invert = false;
            assert_null(relay_scan_find(p, n));
            last->behavior = RELAY_SPLIT_ISOLATED;
            last->pattern.text.len--;
            assert_null(relay_scan_find(p, n));
        } else {
            last->add_prefix_space = true;
            assert_null(relay_scan_find(p, n));
        }
        p[0].kind = RELAY_PRETOKENIZE_WHITESPACE;
        assert_null(relay_scan_find(p, n));
    }
    assert_null(relay_scan_find(NULL, 0));
    assert_null(relay_scan_at(relay_scan_count()));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_every_character),
        cmocka_unit_test(splits_random_text_as_the_patterns_do),
        cmocka_unit_test(splits_random_ascii_as_the_patterns_do),
        cmocka_unit_test(is_found_by_the_pre_tokenizers_it_stands_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
