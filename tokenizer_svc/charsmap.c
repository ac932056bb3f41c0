// A unit of the double array holds, from its low bits: the byte that leads to it (8), whether a value hangs on it (1),
// and how far its children are (22, or 30 with the low 8 bits zero, by the ninth bit); a value is a unit of its own
// with bit 31 set. Walks stay inside the array whatever it holds.
#include "tokenizer_svc/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/unicode_classes.h"

enum { SHORT_CLUSTER = 6 }; // bytes: shorter ones are looked up as a whole

struct relay_charsmap {
    uint32_t *units;
    uint32_t n_units;
    char *replacements; // NUL behind the last one
    uint32_t n_replacement_bytes;
    uint64_t stands[0x10000 / 64]; // a bit for each character below U+10000: as in stands_alone()
};

static uint32_t offset_of(uint32_t unit) {
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

// What a beginning of the key that is in the map stands for, and its length: of the shortest one, or of the longest.
// NULL if there is none.
static const char *find_beginning(const relay_charsmap *m, const char *key, size_t len, bool is_longest,
                                  size_t *found_len) {
    const char *found = NULL;
    uint32_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < len; i++) {
        uint8_t byte = (uint8_t)key[i];
        at ^= byte;
        if (byte == 0 || at >= m->n_units) break;
        uint32_t unit = m->units[at];
        if ((unit & (1u << 31 | 0xFF)) != byte) break;
        at ^= offset_of(unit);
        if (at >= m->n_units) break;
        if ((unit >> 8 & 1) == 0) continue;
        uint32_t value = m->units[at] & ~(1u << 31);
        found = m->replacements + (value < m->n_replacement_bytes ? value : m->n_replacement_bytes);
        *found_len = i + 1;
        if (!is_longest) break;
    }
    return found;
}

static const char *find(const relay_charsmap *m, const char *key, size_t len) {
    size_t found_len;
    return find_beginning(m, key, len, false, &found_len);
}

// Whether the character is a cluster of its own that stays as it is, unless the one behind it is none of this kind.
static bool stands_alone(const relay_charsmap *m, uint32_t cp) {
    if (cp == '\r' || (cp >= 0xD800 && cp < 0xE000)) return false; // with a line feed it is a cluster
    if ((relay_unicode_class(cp) & (RELAY_CHAR_EXTENDS | RELAY_CHAR_PREPENDS)) != 0) return false;
    char key[4];
    size_t n = relay_utf8_encode(cp, key);
    const char *to = find(m, key, n);
    return to == NULL || (strlen(to) == n && memcmp(to, key, n) == 0);
}

relay_code relay_charsmap_create(relay_charsmap **out, const void *data, size_t len, const char *what, relay_err *e) {
    *out = NULL;
    uint32_t trie_bytes = 0;
    if (len >= sizeof trie_bytes) memcpy(&trie_bytes, data, sizeof trie_bytes);
    if (trie_bytes < 4 || trie_bytes % 4 != 0 || trie_bytes > len - sizeof trie_bytes)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: a trie of %u bytes in a map of %zu", what, trie_bytes, len);
    const char *replacements = (const char *)data + sizeof trie_bytes + trie_bytes;
    size_t n = len - sizeof trie_bytes - trie_bytes;
    if (n > UINT32_MAX / 2 || !relay_utf8_is_valid(replacements, n))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: the replacements are not valid UTF-8", what);
    relay_charsmap *m = relay_calloc(1, sizeof *m);
    m->n_units = trie_bytes / 4;
    m->units = relay_calloc(m->n_units, sizeof *m->units);
    memcpy(m->units, (const char *)data + sizeof trie_bytes, trie_bytes);
    m->n_replacement_bytes = (uint32_t)n;
    m->replacements = relay_calloc(n + 1, 1);
    memcpy(m->replacements, replacements, n);
    relay_unicode_prepare();
    for (uint32_t cp = 0; cp < 0x10000; cp++)
        if (stands_alone(m, cp)) m->stands[cp / 64] |= UINT64_C(1) << cp % 64;
    *out = m;
    return RELAY_OK;
}

void relay_charsmap_destroy(relay_charsmap *m) {
    if (m == NULL) return;
    free(m->units);
    free(m->replacements);
    free(m);
}

bool relay_charsmap_keeps(const relay_charsmap *m, uint32_t cp) {
    return cp < 0x10000 ? (m->stands[cp / 64] >> cp % 64 & 1) != 0 : stands_alone(m, cp);
}

size_t relay_charsmap_find(const relay_charsmap *m, const char *s, size_t len) {
    uint32_t n;
    for (size_t i = 0; i < len; i += n)
        if (!relay_charsmap_keeps(m, relay_utf8_valid_at(s + i, &n))) return i;
    return len;
}

size_t relay_charsmap_find_longest(const relay_charsmap *m, const char *s, size_t len) {
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)s[i] >= 0x80 || !relay_charsmap_keeps(m, (uint8_t)s[i])) return i;
    return len;
}

// The length of the grapheme cluster at s by the rules that make clusters of less than 6 bytes (Unicode Standard Annex
// #29, GB3 to GB9b). Those of Hangul, flags, emoji and conjuncts come out in parts; each part is 6 bytes or a character
// of its own, which is looked up alike.
static size_t cluster_length(const char *s, size_t len) {
    uint32_t next;
    uint32_t cp = relay_utf8_valid_at(s, &next);
    size_t n = next;
    if (cp == '\r' && n < len && s[n] == '\n') return n + 1;
    uint32_t classes = relay_unicode_class(cp);
    if ((classes & RELAY_CHAR_BREAKS) != 0) return n;
    while (n < len) {
        uint32_t next_classes = relay_unicode_class(relay_utf8_valid_at(s + n, &next));
        bool joins = (next_classes & RELAY_CHAR_EXTENDS) != 0 ||
                     ((classes & RELAY_CHAR_PREPENDS) != 0 && (next_classes & RELAY_CHAR_BREAKS) == 0);
        if (!joins) return n;
        n += next;
        classes = next_classes;
    }
    return n;
}

// `from` and `to` are the replaced and the replacing string.
static void replace(relay_char_changes *out, const char *from, size_t from_len, const char *to) {
    int32_t n_old = 0, n_new = 0;
    uint32_t cp;
    for (size_t i = 0; i < from_len; n_old++)
        i += relay_utf8_decode(from + i, from_len - i, &cp);
    size_t to_len = strlen(to);
    for (size_t i = 0; i < to_len; n_new++) {
        i += relay_utf8_decode(to + i, to_len - i, &cp);
        relay_char_changes_add(out, cp, n_new < n_old ? 0 : 1);
    }
    if (n_new < n_old && out->n > 0) out->v[out->n - 1].change += n_new - n_old;
}

void relay_charsmap_apply(const relay_charsmap *m, const char *s, size_t len, relay_char_changes *out) {
    relay_char_changes_clear(out);
    size_t n;
    for (size_t i = 0; i < len; i += n) {
        n = cluster_length(s + i, len - i);
        const char *whole = n < SHORT_CLUSTER ? find(m, s + i, n) : NULL;
        if (whole != NULL) {
            replace(out, s + i, n, whole);
            continue;
        }
        size_t char_len;
        for (size_t j = 0; j < n; j += char_len) {
            uint32_t cp;
            char_len = relay_utf8_decode(s + i + j, len - i - j, &cp);
            const char *one = find(m, s + i + j, char_len);
            if (one != NULL)
                replace(out, s + i + j, char_len, one);
            else
                relay_char_changes_add(out, cp, 0);
        }
    }
}

void relay_charsmap_apply_longest(const relay_charsmap *m, const char *s, size_t len, relay_char_changes *out) {
    relay_char_changes_clear(out);
    size_t n;
    for (size_t i = 0; i < len; i += n) {
        const char *to = find_beginning(m, s + i, len - i, true, &n);
        if (to != NULL) {
            replace(out, s + i, n, to);
            continue;
        }
        uint32_t cp;
        n = relay_utf8_decode(s + i, len - i, &cp);
        relay_char_changes_add(out, cp, 0);
    }
}

static void append(relay_aligned_text *to, const char *s, size_t len) {
    relay_aligned_text_append(to, s, (uint32_t)len, (relay_alignment){0, 0});
}

static void write_cluster(const relay_charsmap *m, const char *s, size_t n, relay_aligned_text *to) {
    const char *whole = n < SHORT_CLUSTER ? find(m, s, n) : NULL;
    if (whole != NULL) {
        append(to, whole, strlen(whole));
        return;
    }
    uint32_t char_len;
    for (size_t i = 0; i < n; i += char_len) {
        relay_utf8_valid_at(s + i, &char_len);
        const char *one = find(m, s + i, char_len);
        append(to, one != NULL ? one : s + i, one != NULL ? strlen(one) : char_len);
    }
}

void relay_charsmap_write(const relay_charsmap *m, const char *s, size_t len, relay_aligned_text *to) {
    for (size_t i = 0; i < len;) {
        size_t at = i + relay_charsmap_find(m, s + i, len - i);
        if (at < len && at > i) { // the character before may be of one cluster with it
            do
                at--;
            while (((uint8_t)s[at] & 0xC0) == 0x80);
        }
        append(to, s + i, at - i);
        if (at == len) break;
        size_t n = cluster_length(s + at, len - at);
        write_cluster(m, s + at, n, to);
        i = at + n;
    }
}

void relay_charsmap_write_longest(const relay_charsmap *m, const char *s, size_t len, relay_aligned_text *to) {
    size_t written = 0;
    for (size_t i = 0; i < len;) {
        size_t n;
        const char *by = find_beginning(m, s + i, len - i, true, &n);
        if (by == NULL) {
            uint32_t char_len;
            relay_utf8_valid_at(s + i, &char_len);
            i += char_len;
            continue;
        }
        append(to, s + written, i - written);
        append(to, by, strlen(by));
        written = i += n;
    }
    append(to, s + written, len - written);
}
