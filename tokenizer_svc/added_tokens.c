// The names lie in one sorted array, and a search narrows a range of it byte by byte: the names that share the bytes
// read so far are neighbours, and the one that ends there stands first. No tree is needed, and a byte that begins no
// name, which is nearly every byte of a text, is passed over by one look into a table.
//
// A search from one byte reads at most the longest name, so the worst text costs its length times that.
#include "tokenizer_svc/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/unicode_classes.h"

typedef struct name {
    const char *bytes; // in `block`
    uint32_t len;
    uint32_t id;
    bool is_special; // counts only in open ranges
    bool single_word, lstrip, rstrip;
} name;

struct relay_added_tokens {
    uint32_t n_names;
    name *names; // sorted by their bytes
    char *block;
    uint32_t first[256];        // the first name that begins with a byte
    uint32_t n_with_first[256]; // and how many do
    bool has_user, has_special;
};

static int compare_names(const void *a, const void *b) {
    const name *x = a, *y = b;
    uint32_t common = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->bytes, y->bytes, common);
    if (order != 0) return order;
    return x->len < y->len ? -1 : x->len > y->len;
}

relay_code relay_added_tokens_create(relay_added_tokens **out, const relay_added_token *tokens, uint32_t n,
                                     relay_err *e) {
    *out = NULL;
    relay_unicode_prepare();
    relay_added_tokens *a = relay_calloc(1, sizeof *a);
    a->names = relay_calloc(n == 0 ? 1 : n, sizeof *a->names);
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        n_bytes += tokens[i].content.len;
    a->block = relay_calloc(n_bytes + 1, 1);
    char *at = a->block;
    relay_code code = RELAY_OK;
    for (uint32_t i = 0; i < n && code == RELAY_OK; i++) {
        const relay_added_token *t = &tokens[i];
        if (t->content.len == 0) {
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "added token %u is empty", t->id);
            break;
        }
        memcpy(at, t->content.s, t->content.len);
        a->names[a->n_names++] = (name){at, t->content.len, t->id, t->special, t->single_word, t->lstrip, t->rstrip};
        at += t->content.len;
        a->has_user |= !t->special;
        a->has_special |= t->special;
    }
    qsort(a->names, a->n_names, sizeof *a->names, compare_names);
    for (uint32_t i = a->n_names; i-- > 0;) {
        const name *x = &a->names[i];
        if (i > 0 && code == RELAY_OK && compare_names(x, x - 1) == 0)
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "added tokens %u and %u are both \"%.*s\"", x[-1].id, x->id,
                              x->len < 64 ? (int)x->len : 64, x->bytes);
        a->first[(uint8_t)x->bytes[0]] = i;
        a->n_with_first[(uint8_t)x->bytes[0]]++;
    }
    if (code == RELAY_OK) {
        *out = a;
    } else {
        relay_added_tokens_destroy(a);
    }
    return code;
}

void relay_added_tokens_destroy(relay_added_tokens *a) {
    if (a == NULL) return;
    free(a->names);
    free(a->block);
    free(a);
}

bool relay_added_tokens_is_empty(const relay_added_tokens *a) {
    return a->n_names == 0;
}

bool relay_added_tokens_has_special(const relay_added_tokens *a) {
    return a->has_special;
}

// ---- Searching

// The first of names[low..high) whose byte at `depth` is at least `byte`; all of them are longer than `depth` or
// come first.
static uint32_t lower_bound(const relay_added_tokens *a, uint32_t low, uint32_t high, uint32_t depth, uint32_t byte) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const name *n = &a->names[middle];
        if (n->len <= depth || (uint8_t)n->bytes[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// How the bytes [begin, end) lie to the open ranges; scan->open is the first that may reach into them.
typedef enum openness { CLOSED, PARTLY_OPEN, OPEN } openness;

static openness openness_of(const relay_added_scan *scan, size_t begin, size_t end) {
    if (scan->n_open == 0 || scan->open->begin >= end) return CLOSED;
    return scan->open->begin <= begin && scan->open->end >= end ? OPEN : PARTLY_OPEN;
}

// The longest name at scan->at that counts, or is to be passed over as a whole: a special one in closed text. One that
// lies partly in open text is neither, or a user could spoil a name that the template writes.
static const name *longest(const relay_added_scan *scan) {
    const relay_added_tokens *a = scan->tokens;
    const char *text = scan->text + scan->at;
    size_t len = scan->len - scan->at;
    uint8_t byte = (uint8_t)text[0];
    uint32_t low = a->first[byte], high = low + a->n_with_first[byte];
    const name *best = NULL;
    for (uint32_t depth = 1; low < high; depth++) {
        const name *n = &a->names[low];
        if (n->len == depth && (!n->is_special || openness_of(scan, scan->at, scan->at + depth) != PARTLY_OPEN))
            best = n;
        if (depth == len) break;
        byte = (uint8_t)text[depth];
        low = lower_bound(a, low, high, depth, byte);
        high = lower_bound(a, low, high, depth, byte + 1u);
    }
    return best;
}

// The character that ends before `at`; at > 0.
static size_t char_before(const char *text, size_t at, uint32_t *cp) {
    size_t begin = at - 1;
    while (begin > 0 && ((uint8_t)text[begin] & 0xC0) == 0x80)
        begin--;
    relay_utf8_decode(text + begin, at - begin, cp);
    return begin;
}

static bool has_class(uint32_t cp, uint32_t classes) {
    return (relay_unicode_class(cp) & classes) != 0;
}

static bool is_single_word(const relay_added_scan *scan, size_t begin, size_t end) {
    uint32_t cp;
    if (begin > 0) {
        char_before(scan->text, begin, &cp);
        if (has_class(cp, RELAY_CHAR_WORD)) return false;
    }
    if (end == scan->len) return true;
    relay_utf8_decode(scan->text + end, scan->len - end, &cp);
    return !has_class(cp, RELAY_CHAR_WORD);
}

static size_t blanks_before(const relay_added_scan *scan, size_t begin) {
    while (begin > scan->taken) {
        uint32_t cp;
        size_t at = char_before(scan->text, begin, &cp);
        if (!has_class(cp, RELAY_CHAR_SPACE)) break;
        begin = at;
    }
    return begin;
}

static size_t blanks_behind(const relay_added_scan *scan, size_t end) {
    while (end < scan->len) {
        uint32_t cp;
        size_t n = relay_utf8_decode(scan->text + end, scan->len - end, &cp);
        if (!has_class(cp, RELAY_CHAR_SPACE)) break;
        end += n;
    }
    return end;
}

bool relay_added_scan_next(relay_added_scan *scan, relay_added_match *match) {
    const relay_added_tokens *a = scan->tokens;
    if (!a->has_user && scan->n_open == 0) return false;
    for (; scan->at < scan->len; scan->at++) {
        if (a->n_with_first[(uint8_t)scan->text[scan->at]] == 0) continue;
        while (scan->n_open > 0 && scan->open->end <= scan->at) {
            scan->open++;
            scan->n_open--;
        }
        const name *n = longest(scan);
        if (n == NULL) continue;
        size_t begin = scan->at, end = begin + n->len;
        bool counts = (!n->is_special || openness_of(scan, begin, end) == OPEN) &&
                      (!n->single_word || is_single_word(scan, begin, end));
        scan->at = end;
        if (counts) {
            if (n->lstrip) begin = begin < scan->taken ? scan->taken : blanks_before(scan, begin);
            if (n->rstrip) end = blanks_behind(scan, end);
            scan->taken = end;
            *match = (relay_added_match){.id = n->id, .begin = begin, .end = end};
            // Else the token before took all of it.
            if (begin < end) return true;
        }
        scan->at--; // the loop's step
    }
    return false;
}
