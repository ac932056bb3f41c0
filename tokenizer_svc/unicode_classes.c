// Classes are looked up in pages of 256 characters; equal pages are one. Composites are found in a small hash table of
// pairs, made from the decompositions of those characters that are no composition exclusions.
#include "tokenizer_svc/unicode_classes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/status.h"
#include "common/utf8.h"
#include "tokenizer_svc/unicode_data.h"

enum {
    N_CODE_POINTS = 0x110000,
    PAGE = 256,
    MAX_PAGES = 512,
    PAIR_SLOTS = 4096,        // of some 900 pairs
    LAST_COMPOSITE = 0x11FFF, // past it all decomposable characters are excluded from composition
    LAST_WITH_FORMS = 0x2FFFF,
    // Hangul syllables compose by arithmetic (Unicode Standard, section 3.12).
    S_BASE = 0xAC00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11A7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT,
};

typedef struct pair {
    uint32_t first, second, composite; // composite 0: free
} pair;

uint16_t relay_unicode_page_of[0x1100];
static uint16_t pages[MAX_PAGES][PAGE];
const uint16_t (*relay_unicode_pages)[256] = (const uint16_t (*)[256])pages;
static pair pairs[PAIR_SLOTS];

// ---- Ranges

static const relay_unicode_range *find_range(const relay_unicode_range *ranges, uint32_t n, uint32_t cp) {
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (cp > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && cp >= ranges[low].first ? &ranges[low] : NULL;
}

static bool is_inert(uint32_t cp) {
    return find_range(relay_unicode_inert_ranges, relay_unicode_n_inert_ranges, cp) != NULL;
}

uint8_t relay_unicode_script(uint32_t cp) {
    const relay_unicode_range *r = find_range(relay_unicode_script_ranges, relay_unicode_n_script_ranges, cp);
    return r == NULL ? 0 : (uint8_t)r->value;
}

// ---- Case, decomposition, composition

uint32_t relay_unicode_lower(uint32_t cp, uint32_t out[2]) {
    if (cp == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    const relay_unicode_range *r = find_range(relay_unicode_lower_ranges, relay_unicode_n_lower_ranges, cp);
    out[0] = r == NULL ? (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp) : (uint32_t)((int32_t)cp + r->value);
    return 1;
}

uint8_t relay_unicode_combining_class(uint32_t cp) {
    if (cp < 0x300) return 0;
    return is_inert(cp) ? 0 : (uint8_t)utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

uint32_t relay_unicode_decompose(uint32_t cp, bool compatible, uint32_t out[RELAY_MAX_DECOMPOSITION]) {
    out[0] = cp;
    if (cp < 0xA0 || is_inert(cp)) return 1;
    int last_boundclass = 0;
    utf8proc_option_t options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    utf8proc_int32_t parts[RELAY_MAX_DECOMPOSITION];
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, parts, RELAY_MAX_DECOMPOSITION, options, &last_boundclass);
    RELAY_ASSERT(n > 0 && n <= RELAY_MAX_DECOMPOSITION);
    for (utf8proc_ssize_t i = 0; i < n; i++)
        out[i] = (uint32_t)parts[i];
    return (uint32_t)n;
}

static pair *pair_slot(uint32_t first, uint32_t second) {
    uint32_t i = (first * 0x9E3779B1u ^ second * 0x85EBCA6Bu) >> 20;
    while (pairs[i].composite != 0 && (pairs[i].first != first || pairs[i].second != second))
        i = (i + 1) % PAIR_SLOTS;
    return &pairs[i];
}

uint32_t relay_unicode_compose(uint32_t first, uint32_t second) {
    if (first - L_BASE < L_COUNT && second - V_BASE < V_COUNT)
        return S_BASE + ((first - L_BASE) * V_COUNT + (second - V_BASE)) * T_COUNT;
    if (first - S_BASE < S_COUNT && (first - S_BASE) % T_COUNT == 0 && second - T_BASE - 1 < T_COUNT - 1)
        return first + (second - T_BASE);
    if (second < 0x300) return 0;
    return pair_slot(first, second)->composite;
}

// ---- Making the tables

// Of a full decomposition all but the last character compose to the pair's first one, which has a shorter one.
static void add_pairs(uint32_t of_length) {
    for (uint32_t cp = 0xC0; cp <= LAST_COMPOSITE; cp++) {
        if (cp - S_BASE < S_COUNT) continue;
        const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
        uint32_t parts[RELAY_MAX_DECOMPOSITION];
        if (p->comp_exclusion || relay_unicode_decompose(cp, false, parts) != of_length) continue;
        uint32_t first = parts[0];
        for (uint32_t i = 1; i + 1 < of_length; i++)
            first = pair_slot(first, parts[i])->composite;
        if (first == 0 || relay_unicode_combining_class(parts[0]) != 0) continue;
        pair *slot = pair_slot(first, parts[of_length - 1]);
        // A character that is only another name of a composite (U+1F71 of U+03AC) stands behind it.
        if (slot->composite == 0) *slot = (pair){first, parts[of_length - 1], cp};
    }
}

static bool is_chinese(uint32_t cp) {
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x20000 && cp <= 0x2A6DF) ||
           (cp >= 0x2A700 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) || (cp >= 0xF900 && cp <= 0xFAFF) ||
           (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static bool is_space(uint32_t cp) {
    return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}

static bool is_second_of_hangul(uint32_t cp) {
    return cp - V_BASE < V_COUNT || cp - T_BASE - 1 < T_COUNT - 1;
}

static uint32_t classes_by_forms(uint32_t cp) {
    uint32_t classes = 0, parts[RELAY_MAX_DECOMPOSITION], lower[2];
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    bool has_forms = p->decomp_seqindex != UINT16_MAX || p->combining_class != 0 || cp - S_BASE < S_COUNT;
    if (relay_unicode_lower(cp, lower) != 1 || lower[0] != cp) classes |= RELAY_CHAR_NOT_LOWER;
    if (!has_forms) return classes;
    if (relay_unicode_combining_class(cp) != 0)
        return classes | RELAY_CHAR_NOT_NFC | RELAY_CHAR_NOT_NFD | RELAY_CHAR_NOT_NFKC | RELAY_CHAR_NOT_NFKD;
    uint32_t n = relay_unicode_decompose(cp, false, parts);
    if (n != 1 || parts[0] != cp) {
        classes |= RELAY_CHAR_NOT_NFD | RELAY_CHAR_NOT_NFKD;
        uint32_t whole = parts[0];
        for (uint32_t i = 1; i < n; i++)
            whole = whole == 0 ? 0 : relay_unicode_compose(whole, parts[i]);
        if (whole != cp) classes |= RELAY_CHAR_NOT_NFC | RELAY_CHAR_NOT_NFKC;
    }
    uint32_t compatible[RELAY_MAX_DECOMPOSITION];
    uint32_t n_compatible = relay_unicode_decompose(cp, true, compatible);
    if (n_compatible != n || memcmp(parts, compatible, n * sizeof *parts) != 0)
        classes |= RELAY_CHAR_NOT_NFKC | RELAY_CHAR_NOT_NFKD;
    return classes;
}

// Pages are filled in ascending order: *next is the first range that may reach into this one.
static void fill_page(uint16_t page[PAGE], uint32_t first, const relay_unicode_range **next) {
    memset(page, 0, PAGE * sizeof *page);
    const relay_unicode_range *end = relay_unicode_class_ranges + relay_unicode_n_class_ranges;
    for (const relay_unicode_range *r = *next; r < end && r->first < first + PAGE; r++) {
        uint32_t from = r->first > first ? r->first - first : 0;
        for (uint32_t i = from; i < PAGE && first + i <= r->last; i++)
            page[i] = (uint16_t)r->value;
        if (r->last < first + PAGE) *next = r + 1;
    }
    if (first > LAST_WITH_FORMS) return;
    for (uint32_t i = 0; i < PAGE; i++) {
        uint32_t cp = first + i;
        if (is_space(cp)) page[i] |= RELAY_CHAR_SPACE;
        if (is_chinese(cp)) page[i] |= RELAY_CHAR_CHINESE;
        page[i] |= (uint16_t)classes_by_forms(cp);
        if (is_second_of_hangul(cp)) page[i] |= RELAY_CHAR_NOT_NFC | RELAY_CHAR_NOT_NFKC;
    }
    for (uint32_t i = 0; i < PAIR_SLOTS; i++)
        if (pairs[i].composite != 0 && pairs[i].second - first < PAGE)
            page[pairs[i].second - first] |= RELAY_CHAR_NOT_NFC | RELAY_CHAR_NOT_NFKC;
}

static void make_tables(void) {
    for (uint32_t length = 2; length <= 4; length++)
        add_pairs(length);
    uint32_t n_pages = 0;
    const relay_unicode_range *next = relay_unicode_class_ranges;
    for (uint32_t first = 0; first < N_CODE_POINTS; first += PAGE) {
        uint16_t page[PAGE];
        fill_page(page, first, &next);
        uint32_t same = n_pages; // most pages are as the one before
        while (same > 0 && memcmp(pages[same - 1], page, sizeof page) != 0)
            same--;
        if (same == 0) {
            RELAY_ASSERT(n_pages < MAX_PAGES);
            memcpy(pages[n_pages++], page, sizeof page);
            same = n_pages;
        }
        relay_unicode_page_of[first / PAGE] = (uint16_t)(same - 1);
    }
}

void relay_unicode_prepare(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_tables);
}

size_t relay_unicode_find(const char *s, size_t len, uint32_t classes) {
    uint32_t ascii = 0;
    for (uint32_t c = 0; c < 0x80; c++)
        ascii |= relay_unicode_class(c);
    bool skips_ascii = (ascii & classes) == 0;
    size_t i = 0;
    while (i < len) {
        uint64_t word;
        if (skips_ascii && i + 8 <= len && (memcpy(&word, s + i, 8), (word & UINT64_C(0x8080808080808080)) == 0)) {
            i += 8;
            continue;
        }
        uint32_t cp;
        size_t n = relay_utf8_decode(s + i, len - i, &cp);
        if ((relay_unicode_class(cp) & classes) != 0) return i;
        i += n;
    }
    return len;
}
