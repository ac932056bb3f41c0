// When chunks are independent:
//
// - The first pre-tokenizer removes whitespace wherever it stands (WhitespaceSplit, Whitespace, BERT's), and none asks
//   where in the text a word is.
// - Every normalizer changes characters one by one, or together with neighbours that are no blanks: forms, lower case,
//   accents, BERT's, a replacement without blanks, SentencePiece's character map. The map looks at grapheme clusters,
//   to which a blank and the combining mark behind it belong: there a blank is a border only between characters that
//   are known to form none with it.
// - No added token is looked for in normalized text, where one could hold a blank.
#include "tokenizer_svc/chunker.h"

#include <string.h>

#include "common/utf8.h"

enum {
    INSIDE,
    BLANK,
    ALONE,   // a chunk by itself: ASCII's punctuation, for BERT
    HAN_LEAD // the first byte of what may be a Chinese character, for BERT
};

// ---- Which tokenizers

static bool has_blank(relay_spec_str s) {
    for (uint32_t i = 0; i < s.len; i++)
        if (s.s[i] == ' ' || (s.s[i] >= '\t' && s.s[i] <= '\r')) return true;
    return false;
}

static bool is_local(const relay_normalizer_spec *n) {
    switch (n->kind) {
    case RELAY_NORMALIZE_NFC:
    case RELAY_NORMALIZE_NFD:
    case RELAY_NORMALIZE_NFKC:
    case RELAY_NORMALIZE_NFKD:
    case RELAY_NORMALIZE_LOWERCASE:
    case RELAY_NORMALIZE_STRIP_ACCENTS:
    case RELAY_NORMALIZE_BERT:
    case RELAY_NORMALIZE_PRECOMPILED:
        return true;
    case RELAY_NORMALIZE_REPLACE: // what it puts in may be a blank: then a chunk has several words
        return !n->pattern.is_regex && !has_blank(n->pattern.text);
    default:
        return false;
    }
}

static bool removes_blanks(relay_pretokenizer_kind kind) {
    return kind == RELAY_PRETOKENIZE_WHITESPACE_SPLIT || kind == RELAY_PRETOKENIZE_WHITESPACE ||
           kind == RELAY_PRETOKENIZE_BERT;
}

static bool is_placeless(const relay_pretokenizer_spec *p) {
    return p->kind != RELAY_PRETOKENIZE_METASPACE || p->prepend_scheme != RELAY_PREPEND_FIRST;
}

bool relay_chunker_init(relay_chunker *c, const relay_tokenizer_spec *spec) {
    *c = (relay_chunker){.minds_neighbours = false};
    if (spec->n_pretokenizers == 0 || !removes_blanks(spec->pretokenizers[0].kind)) return false;
    for (uint32_t i = 0; i < spec->n_pretokenizers; i++)
        if (!is_placeless(&spec->pretokenizers[i])) return false;
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (spec->added[i].normalized) return false;
    bool is_bert = spec->pretokenizers[0].kind == RELAY_PRETOKENIZE_BERT, isolates_han = false;
    for (uint32_t i = 0; i < spec->n_normalizers; i++) {
        const relay_normalizer_spec *n = &spec->normalizers[i];
        if (!is_local(n)) return false;
        is_bert = is_bert && n->kind == RELAY_NORMALIZE_BERT;
        isolates_han |= n->kind == RELAY_NORMALIZE_BERT && n->handle_chinese_chars;
        c->minds_neighbours |= n->kind == RELAY_NORMALIZE_PRECOMPILED;
    }
    c->kinds[' '] = c->kinds['\n'] = BLANK;
    c->has_only_blanks = !is_bert;
    if (!is_bert) return true;
    for (int b = 0x21; b < 0x7F; b++) {
        bool is_alphanumeric = (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') || (b >= 'a' && b <= 'z');
        if (!is_alphanumeric) c->kinds[b] = ALONE;
    }
    for (int b = 0xE3; b <= 0xE9 && isolates_han; b++)
        c->kinds[b] = HAN_LEAD;
    return true;
}

// ---- Where to cut

// U+4E00 to U+9FFF, the greater part of Chinese characters, of three bytes.
static bool is_han(const char *s) {
    uint32_t cp = (uint32_t)(s[0] & 0x0F) << 12 | (uint32_t)(s[1] & 0x3F) << 6 | (uint32_t)(s[2] & 0x3F);
    return cp >= 0x4E00 && cp <= 0x9FFF;
}

// Characters that never form a grapheme cluster with a blank, in any Unicode: most of those of most languages.
static bool keeps_to_itself(uint32_t cp) {
    return cp < 0x7F || (cp >= 0xC0 && cp < 0x300) || (cp >= 0x370 && cp < 0x483) || (cp >= 0x48A && cp < 0x557) ||
           (cp >= 0x5D0 && cp < 0x5EB) || (cp >= 0x620 && cp < 0x64B) || (cp >= 0x2010 && cp < 0x2028) ||
           (cp >= 0x2030 && cp < 0x2060) || (cp >= 0x3001 && cp < 0x302A) || (cp >= 0x3041 && cp < 0x3097) ||
           (cp >= 0x30A1 && cp < 0x3100) || (cp >= 0x3400 && cp < 0xA000) || (cp >= 0xAC00 && cp < 0xD7A4) ||
           (cp >= 0xFF01 && cp < 0xFF9E);
}

static bool char_keeps_to_itself(const char *s) {
    uint32_t n;
    return keeps_to_itself(relay_utf8_valid_at(s, &n));
}

// The lowest set bit is that of the first zero byte (Warren, Hacker's Delight); behind it others may be wrong.
static uint64_t zero_bytes(uint64_t v) {
    return (v - 0x0101010101010101u) & ~v & 0x8080808080808080u;
}

// The first blank at or behind `at`; or, of the last bytes, the first that was not looked at.
static size_t next_blank(const char *s, size_t len, size_t at) {
    for (uint64_t v; at + sizeof v <= len; at += sizeof v) {
        memcpy(&v, s + at, sizeof v);
        uint64_t blanks = zero_bytes(v ^ 0x2020202020202020u) | zero_bytes(v ^ 0x0A0A0A0A0A0A0A0Au);
        if (blanks != 0) return at + (size_t)__builtin_ctzll(blanks) / 8;
    }
    return at;
}

// Whether the blank at s[i] is a border: it stands by itself whatever is beside it.
static bool is_border(const relay_chunker *c, const char *s, size_t len, size_t i) {
    if (!c->minds_neighbours) return true;
    if (s[i] == '\n' && i > 0 && s[i - 1] == '\r') return false;
    if (i > 0) {
        size_t before = i - 1;
        while (before > 0 && ((uint8_t)s[before] & 0xC0) == 0x80)
            before--;
        if (!char_keeps_to_itself(s + before)) return false;
    }
    return i + 1 == len || char_keeps_to_itself(s + i + 1);
}

bool relay_chunker_next(const relay_chunker *c, const char *s, size_t len, size_t at, size_t *begin, size_t *end) {
    while (at < len && c->kinds[(uint8_t)s[at]] == BLANK && is_border(c, s, len, at))
        at++;
    if (at == len) return false;
    *begin = at;
    uint8_t first = c->kinds[(uint8_t)s[at]];
    if (first == ALONE) {
        *end = at + 1;
        return true;
    }
    if (first == HAN_LEAD && is_han(s + at)) {
        *end = at + 3;
        return true;
    }
    for (at++; at < len; at++) {
        if (c->has_only_blanks) at = next_blank(s, len, at);
        if (at == len) break;
        uint8_t kind = c->kinds[(uint8_t)s[at]];
        if (kind == INSIDE) continue;
        if (kind == ALONE || (kind == HAN_LEAD && is_han(s + at)) || (kind == BLANK && is_border(c, s, len, at))) break;
    }
    *end = at;
    return true;
}
