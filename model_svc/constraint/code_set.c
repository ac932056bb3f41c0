#include "model_svc/constraint/code_set.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { LAST_CODE_POINT = 0x10FFFF };

void relay_code_set_fini(relay_code_set *s) {
    free(s->ranges);
    *s = (relay_code_set){0};
}

void relay_code_set_add(relay_code_set *s, uint32_t first, uint32_t last) {
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 16 : 2 * s->cap;
        s->ranges = relay_realloc(s->ranges, s->cap * sizeof s->ranges[0]);
    }
    s->ranges[s->n++] = (relay_code_range){.first = first, .last = last};
}

static int compare_ranges(const void *a, const void *b) {
    const relay_code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void relay_code_set_add_others(relay_code_set *s, const relay_code_range *ranges, uint32_t n) {
    relay_code_range *sorted = relay_calloc(n + 1, sizeof sorted[0]);
    if (n > 0) memcpy(sorted, ranges, n * sizeof sorted[0]);
    qsort(sorted, n, sizeof sorted[0], compare_ranges);
    uint32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (sorted[i].first > next) relay_code_set_add(s, next, sorted[i].first - 1);
        if (sorted[i].last + 1 > next) next = sorted[i].last + 1;
    }
    if (next <= LAST_CODE_POINT) relay_code_set_add(s, next, LAST_CODE_POINT);
    free(sorted);
}

// ECMA-262, CharacterClassEscape, without the flag "v" or "i".
static const relay_code_range digits[] = {{'0', '9'}};
static const relay_code_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const relay_code_range spaces[] = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680},
                                          {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                          {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

bool relay_code_set_add_class(relay_code_set *s, char letter) {
    static const struct {
        char letter;
        const relay_code_range *ranges;
        uint32_t n;
    } classes[] = {{'d', digits, 1}, {'w', words, 4}, {'s', spaces, sizeof spaces / sizeof spaces[0]}};
    for (uint32_t i = 0; i < 3; i++) {
        if (letter == classes[i].letter) {
            for (uint32_t k = 0; k < classes[i].n; k++)
                relay_code_set_add(s, classes[i].ranges[k].first, classes[i].ranges[k].last);
            return true;
        }
        if (letter == classes[i].letter - 'a' + 'A') {
            relay_code_set_add_others(s, classes[i].ranges, classes[i].n);
            return true;
        }
    }
    return false;
}

static bool is_known_category(const char *name, size_t len) {
    static const char *const names[] = {"C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
                                        "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
                                        "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0) return true;
    }
    return false;
}

bool relay_code_set_add_category(relay_code_set *s, const char *name, size_t len, bool is_negated) {
    if (!is_known_category(name, len)) return false;
    uint32_t first = 0;
    bool was_in = false;
    for (uint32_t c = 0; c <= LAST_CODE_POINT + 1; c++) {
        bool is_in = false;
        if (c <= LAST_CODE_POINT) {
            is_in = (memcmp(utf8proc_category_string((utf8proc_int32_t)c), name, len) == 0) != is_negated;
        }
        if (is_in && !was_in) first = c;
        if (!is_in && was_in) relay_code_set_add(s, first, c - 1);
        was_in = is_in;
    }
    return true;
}
