#include "tokenizer_svc/aligned_text.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/utf8.h"

// ---- The text

void relay_aligned_text_fini(relay_aligned_text *t) {
    free(t->s);
    free(t->of);
    *t = (relay_aligned_text){0};
}

static void reserve(relay_aligned_text *t, uint32_t more) {
    uint64_t need = (uint64_t)t->len + more;
    if (need > t->cap || (t->is_aligned && t->of == NULL)) {
        uint64_t cap = 2 * (uint64_t)t->cap > need ? 2 * (uint64_t)t->cap : need + 64;
        RELAY_ASSERT(cap <= UINT32_MAX);
        t->cap = (uint32_t)cap;
        t->s = relay_realloc(t->s, cap);
        // Kept as large as the text once it is there: a text that is aligned later finds room.
        if (t->is_aligned || t->of != NULL) t->of = relay_realloc(t->of, cap * sizeof *t->of);
    }
}

void relay_aligned_text_set(relay_aligned_text *t, const char *s, uint32_t len, uint32_t origin, bool is_aligned) {
    t->len = 0;
    t->is_aligned = is_aligned;
    reserve(t, len);
    memcpy(t->s, s, len);
    t->len = len;
    if (!is_aligned) return;
    for (uint32_t i = 0; i < len;) {
        uint32_t n;
        relay_utf8_valid_at(s + i, &n);
        for (uint32_t j = 0; j < n; j++)
            t->of[i + j] = (relay_alignment){origin + i, origin + i + n};
        i += n;
    }
}

void relay_aligned_text_append(relay_aligned_text *t, const char *s, uint32_t len, relay_alignment of) {
    reserve(t, len);
    memcpy(t->s + t->len, s, len);
    for (uint32_t i = 0; t->is_aligned && i < len; i++)
        t->of[t->len + i] = of;
    t->len += len;
}

void relay_aligned_text_append_from(relay_aligned_text *t, const relay_aligned_text *from, uint32_t begin,
                                    uint32_t end) {
    if (begin == end) return;
    reserve(t, end - begin);
    memcpy(t->s + t->len, from->s + begin, end - begin);
    if (t->is_aligned) memcpy(t->of + t->len, from->of + begin, (end - begin) * sizeof *t->of);
    t->len += end - begin;
}

// ---- Changes

void relay_char_changes_fini(relay_char_changes *c) {
    free(c->v);
    *c = (relay_char_changes){0};
}

void relay_char_changes_clear(relay_char_changes *c) {
    c->n = 0;
    c->n_removed_first = 0;
}

void relay_char_changes_add(relay_char_changes *c, uint32_t code_point, int32_t change) {
    if (c->n == c->cap) {
        c->cap = c->cap == 0 ? 256 : 2 * c->cap;
        c->v = relay_realloc(c->v, (uint64_t)c->cap * sizeof *c->v);
    }
    c->v[c->n++] = (relay_char_change){code_point, change};
}

// Bytes of up to n characters from `at` on.
static uint32_t bytes_of_chars(const relay_aligned_text *t, uint32_t at, uint32_t n) {
    uint32_t begin = at, cp;
    for (; n > 0 && at < t->len; n--)
        at += (uint32_t)relay_utf8_decode(t->s + at, t->len - at, &cp);
    return at - begin;
}

void relay_aligned_text_change(relay_aligned_text *to, const relay_aligned_text *from, const relay_char_changes *c) {
    to->len = 0;
    to->is_aligned = from->is_aligned;
    uint32_t at = 0; // the place in the old text
    if (from->is_aligned) at = bytes_of_chars(from, 0, c->n_removed_first);
    for (uint32_t i = 0; i < c->n; i++) {
        char bytes[4];
        uint32_t n = (uint32_t)relay_utf8_encode(c->v[i].code_point, bytes);
        relay_alignment of = {0};
        if (from->is_aligned) {
            int32_t change = c->v[i].change;
            uint32_t source = change > 0 ? (at == 0 ? 0 : at - 1) : at;
            of = from->of[source < from->len ? source : from->len - 1];
            if (change <= 0) at += bytes_of_chars(from, at, 1 + (uint32_t)-change);
        }
        relay_aligned_text_append(to, bytes, n, of);
    }
}
