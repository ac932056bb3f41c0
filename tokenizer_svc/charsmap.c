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
    bool ascii_changes[128];
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
    for (int c = 1; c < 128; c++) {
        char key = (char)c;
        const char *s = find(m, &key, 1);
        m->ascii_changes[c] = s != NULL && (s[0] != key || s[1] != '\0');
    }
    m->ascii_changes['\r'] = true; // with a line feed it is a cluster
    *out = m;
    return RELAY_OK;
}

void relay_charsmap_destroy(relay_charsmap *m) {
    if (m == NULL) return;
    free(m->units);
    free(m->replacements);
    free(m);
}

size_t relay_charsmap_find(const relay_charsmap *m, const char *s, size_t len) {
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)s[i] >= 0x80 || m->ascii_changes[(uint8_t)s[i]]) return i;
    return len;
}

// The length of the grapheme cluster at s by the rules that make clusters of less than 6 bytes (Unicode Standard Annex
// #29, GB3 to GB9b). Those of Hangul, flags, emoji and conjuncts come out in parts; each part is 6 bytes or a character
// of its own, which is looked up alike.
static size_t cluster_length(const char *s, size_t len) {
    uint32_t cp;
    size_t n = relay_utf8_decode(s, len, &cp);
    if (cp == '\r' && n < len && s[n] == '\n') return n + 1;
    uint32_t classes = relay_unicode_class(cp);
    if ((classes & RELAY_CHAR_BREAKS) != 0) return n;
    while (n < len) {
        size_t next = relay_utf8_decode(s + n, len - n, &cp);
        uint32_t next_classes = relay_unicode_class(cp);
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
