// A character is plain if the normalizers say so of it alone: each of those of a chunker looks at one character, or
// begins with one that it would change. Only the text that a Replace looks for may be longer; its characters are none.
#include "tokenizer_svc/plain_chars.h"

#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/unicode_classes.h"

// What a pre-tokenizer cuts at: characters for which (class ^ wanted) & classes != 0.
typedef struct cut_rule {
    uint32_t classes, wanted;
} cut_rule;

static bool find_rule(relay_pretokenizer_kind kind, cut_rule *rule) {
    switch (kind) {
    case RELAY_PRETOKENIZE_WHITESPACE_SPLIT:
        *rule = (cut_rule){RELAY_CHAR_SPACE, 0};
        return true;
    case RELAY_PRETOKENIZE_BERT:
        *rule = (cut_rule){RELAY_CHAR_SPACE | RELAY_CHAR_PUNCTUATION, 0};
        return true;
    case RELAY_PRETOKENIZE_WHITESPACE: // a run of \w
        *rule = (cut_rule){RELAY_CHAR_SPACE | RELAY_CHAR_WORD, RELAY_CHAR_WORD};
        return true;
    default:
        return false;
    }
}

static void remove_chars(relay_plain_chars *p, relay_spec_str s) {
    uint32_t n;
    for (uint32_t i = 0; i < s.len; i += n) {
        uint32_t cp = relay_utf8_valid_at(s.s + i, &n);
        if (cp < 0x10000) p->bits[cp / 64] &= ~(UINT64_C(1) << cp % 64);
    }
}

// The Metaspace behind what removes blanks. False where it is none.
static bool take_metaspace(relay_plain_chars *p, const relay_pretokenizer_spec *m) {
    if (m->kind != RELAY_PRETOKENIZE_METASPACE || m->prepend_scheme == RELAY_PREPEND_FIRST) return false;
    if (m->prepend_scheme != RELAY_PREPEND_ALWAYS) return true;
    memcpy(p->prefix, m->content.s, m->content.len);
    p->prefix_len = m->content.len;
    return true;
}

void relay_plain_chars_init(relay_plain_chars *p, const relay_tokenizer_spec *spec, const relay_normalizer *z) {
    *p = (relay_plain_chars){.prefix_len = 0};
    cut_rule rule;
    if (spec->n_pretokenizers == 0 || spec->n_pretokenizers > 2 || !find_rule(spec->pretokenizers[0].kind, &rule))
        return;
    if (spec->n_pretokenizers == 2 && !take_metaspace(p, &spec->pretokenizers[1])) return;
    for (uint32_t cp = 0; cp < 0x10000; cp++) {
        bool is_surrogate = cp >= 0xD800 && cp < 0xE000;
        if (is_surrogate || ((relay_unicode_class(cp) ^ rule.wanted) & rule.classes) != 0) continue;
        char s[4];
        size_t n = relay_utf8_encode(cp, s);
        if (relay_normalizer_is_identity(z, s, n)) p->bits[cp / 64] |= UINT64_C(1) << cp % 64;
    }
    for (uint32_t i = 0; i < spec->n_normalizers; i++)
        if (spec->normalizers[i].kind == RELAY_NORMALIZE_REPLACE) remove_chars(p, spec->normalizers[i].pattern.text);
    if (spec->n_pretokenizers == 2) remove_chars(p, spec->pretokenizers[1].content);
}

bool relay_plain_chars_hold(const relay_plain_chars *p, const char *s, size_t len) {
    uint32_t n;
    for (size_t i = 0; i < len; i += n) {
        uint32_t cp = relay_utf8_valid_at(s + i, &n);
        if (cp >= 0x10000 || (p->bits[cp / 64] >> cp % 64 & 1) == 0) return false;
    }
    return true;
}
