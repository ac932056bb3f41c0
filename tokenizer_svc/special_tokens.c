// The names lie in one sorted array, and a search narrows a range of it byte by byte: the names that share the bytes
// read so far are neighbours, and the one that ends there stands first. No tree is needed, and a byte that begins no
// name, which is nearly every byte of a text, is passed over by one look into a table.
//
// A search from one byte reads at most the longest name, so the worst text costs its length times that.
#include "tokenizer_svc/special_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"

typedef struct name {
    const char *bytes; // the vocabulary's
    uint32_t len;
    uint32_t id;
    bool is_control; // counts only in open ranges
} name;

struct relay_special_tokens {
    uint32_t n_names;
    name *names;                // sorted by their bytes
    uint32_t first[256];        // the first name that begins with a byte
    uint32_t n_with_first[256]; // and how many do
    uint32_t n_user[256];       // and how many of these count everywhere
    bool has_user;
};

static int compare_names(const void *a, const void *b) {
    const name *x = a, *y = b;
    uint32_t common = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->bytes, y->bytes, common);
    if (order != 0) return order;
    return x->len < y->len ? -1 : x->len > y->len;
}

relay_special_tokens *relay_special_tokens_create(const relay_vocab *vocab) {
    relay_special_tokens *s = relay_calloc(1, sizeof *s);
    uint32_t size = relay_vocab_size(vocab);
    s->names = relay_calloc(size, sizeof *s->names);
    for (uint32_t id = 0; id < size; id++) {
        const relay_token *t = relay_vocab_token(vocab, id);
        bool is_control = t->kind == RELAY_TOKEN_CONTROL || t->kind == RELAY_TOKEN_UNKNOWN;
        if ((!is_control && t->kind != RELAY_TOKEN_USER) || t->len == 0) continue;
        s->names[s->n_names++] = (name){.bytes = t->bytes, .len = t->len, .id = id, .is_control = is_control};
    }
    qsort(s->names, s->n_names, sizeof *s->names, compare_names);
    for (uint32_t i = s->n_names; i-- > 0;) {
        uint8_t byte = (uint8_t)s->names[i].bytes[0];
        s->first[byte] = i;
        s->n_with_first[byte]++;
        s->n_user[byte] += !s->names[i].is_control;
        s->has_user |= !s->names[i].is_control;
    }
    return s;
}

void relay_special_tokens_destroy(relay_special_tokens *s) {
    if (s == NULL) return;
    free(s->names);
    free(s);
}

// The first of names[low..high) whose byte at `depth` is at least `byte`; all of them are longer than `depth` or
// come first.
static uint32_t lower_bound(const relay_special_tokens *s, uint32_t low, uint32_t high, uint32_t depth, uint32_t byte) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const name *n = &s->names[middle];
        if (n->len <= depth || (uint8_t)n->bytes[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The longest name at the beginning of text[0..len) that counts; CONTROL names count if they end within open_len.
static const name *longest_at(const relay_special_tokens *s, const char *text, size_t len, size_t open_len) {
    uint8_t byte = (uint8_t)text[0];
    uint32_t low = s->first[byte], high = low + s->n_with_first[byte];
    const name *best = NULL;
    for (uint32_t depth = 1; low < high; depth++) {
        const name *n = &s->names[low];
        if (n->len == depth && (!n->is_control || depth <= open_len)) best = n;
        if (depth == len) break;
        byte = (uint8_t)text[depth];
        low = lower_bound(s, low, high, depth, byte);
        high = lower_bound(s, low, high, depth, byte + 1u);
    }
    return best;
}

// Searches from scan->at to `until`, where the bytes up to `open_end` (0: none) may be CONTROL names.
static bool search(relay_special_scan *scan, size_t until, size_t open_end, relay_special_match *match) {
    const relay_special_tokens *s = scan->tokens;
    const uint32_t *n_with_first = open_end > 0 ? s->n_with_first : s->n_user;
    for (; scan->at < until; scan->at++) {
        if (n_with_first[(uint8_t)scan->text[scan->at]] == 0) continue;
        size_t open_len = open_end > scan->at ? open_end - scan->at : 0;
        const name *n = longest_at(s, scan->text + scan->at, scan->len - scan->at, open_len);
        if (n == NULL) continue;
        *match = (relay_special_match){.id = n->id, .begin = scan->at, .end = scan->at + n->len};
        scan->at += n->len;
        return true;
    }
    return false;
}

bool relay_special_scan_next(relay_special_scan *scan, relay_special_match *match) {
    while (scan->at < scan->len) {
        while (scan->n_open > 0 && scan->open->end <= scan->at) {
            scan->open++;
            scan->n_open--;
        }
        size_t open_begin = scan->n_open > 0 ? scan->open->begin : scan->len;
        if (scan->at < open_begin) {
            if (!scan->tokens->has_user)
                scan->at = open_begin;
            else if (search(scan, open_begin, 0, match))
                return true;
        } else if (search(scan, scan->open->end, scan->open->end, match)) {
            return true;
        }
    }
    return false;
}
