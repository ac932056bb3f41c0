// A scanner walks as its pattern's alternatives say, in their order, and never goes back over a text: what an
// alternative would try and give up is decided by the classes of at most two characters. The families:
//
//   GPT-2: contractions; letters, numbers or the rest with a space before them; blanks
//   cl100k (Llama 3, Qwen ...): contractions; letters with any one character before them; numbers; the rest with a
//   space
//     before and line ends behind; blanks up to their last line end; blanks
//   o200k (Tekken ...): the same with words in which case changes once, and contractions as their ends
//
// In all of them the last of several blanks belongs to what follows.
#include "tokenizer_svc/scan.h"

#include <stdbool.h>
#include <string.h>

#include "tokenizer_svc/scan_class.h"
#include "tokenizer_svc/scan_masks.h"

typedef enum word_rule {
    SPACED_WORDS,   // " ?\p{L}+", and the same for numbers
    PREFIXED_WORDS, // "[^\r\n\p{L}\p{N}]?\p{L}+"
    CASED_WORDS,
} word_rule;

typedef enum contraction_rule {
    NO_CONTRACTIONS,
    PLAIN,    // "'s|'t|..."
    ANY_CASE, // "(?i:'s|'t|...)"
    BEHIND,   // "(?i:'s|'t|...)?" at a word's end
} contraction_rule;

struct relay_scan {
    const char *name;
    const char *pattern; // of the Split; NULL: the one of ByteLevel itself
    bool digits_first;   // Digits with individual_digits stands before
    word_rule words;
    contraction_rule contractions;
    uint32_t max_digits;   // of a number; 0: any
    const char *tail;      // characters that belong to what is before them if that is no word and no number
    bool ends_at_line;     // blanks: those up to the last line end first
    bool keeps_last_blank; // "\s++\z": blanks that end the text are one word
};

// ---- Runs of a class

// The first character from `at` on that has none of the classes.
static inline size_t run_of(const uint8_t *s, size_t len, size_t at, uint32_t classes) {
    while (at < len) {
        uint32_t n;
        if ((relay_scan_class_at(s + at, &n) & classes) == 0) break;
        at += n;
    }
    return at;
}

// ... that has one of them.
static inline size_t run_without(const uint8_t *s, size_t len, size_t at, uint32_t classes) {
    while (at < len) {
        uint32_t n;
        if ((relay_scan_class_at(s + at, &n) & classes) != 0) break;
        at += n;
    }
    return at;
}

static inline uint32_t class_or_none(const uint8_t *s, size_t len, size_t at, uint32_t *n) {
    *n = 0;
    return at < len ? relay_scan_class_at(s + at, n) : 0;
}

// ---- The alternatives. Each returns where its match ends, or `at` if there is none.

static inline size_t contraction(const uint8_t *s, size_t len, size_t at, bool any_case) {
    if (at + 1 >= len || s[at] != '\'') return at;
    uint8_t fold = any_case ? 0x20 : 0, a = s[at + 1] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if (at + 2 >= len) return at;
    uint8_t b = s[at + 2] | fold;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    if (any_case && s[at + 1] == 0xC5 && s[at + 2] == 0xBF) return at + 3; // U+017F is an s of the other case
    return at;
}

static inline size_t number(const uint8_t *s, size_t len, size_t at, uint32_t max) {
    if (max == 0) return run_of(s, len, at, RELAY_SCAN_NUMBER);
    for (uint32_t i = 0, n; i < max && (class_or_none(s, len, at, &n) & RELAY_SCAN_NUMBER) != 0; i++)
        at += n;
    return at;
}

// A word from `at`, whose case changes at most once, from upper to lower: "[U]*[L]+|[U]+[L]*", where marks and letters
// without case are both.
static inline size_t cased_word(const uint8_t *s, size_t len, size_t at, bool with_lower) {
    enum { BOTH = RELAY_SCAN_LETTER | RELAY_SCAN_MARK };
    size_t behind_both = at, i = at; // behind the last character that may be lower
    uint32_t n;
    for (;; i += n) {
        uint32_t class = class_or_none(s, len, i, &n);
        if ((class & BOTH) != 0)
            behind_both = i + n;
        else if ((class & RELAY_SCAN_UPPER) == 0)
            break;
    }
    if (!with_lower) return i;
    size_t end = run_of(s, len, i, RELAY_SCAN_LOWER | BOTH);
    return end > i ? end : behind_both;
}

static inline size_t cased_words(const uint8_t *s, size_t len, size_t at) {
    uint32_t n;
    uint32_t class = relay_scan_class_at(s + at, &n);
    size_t behind = (class & (RELAY_SCAN_LINE | RELAY_SCAN_L | RELAY_SCAN_NUMBER)) == 0 ? at + n : at;
    for (int with_lower = 1; with_lower >= 0; with_lower--) {
        size_t end = cased_word(s, len, behind, with_lower);
        if (end > behind) return end;
        if (behind == at) continue;
        end = cased_word(s, len, at, with_lower);
        if (end > at) return end;
    }
    return at;
}

static inline size_t prefixed_word(const uint8_t *s, size_t len, size_t at, uint32_t class, uint32_t n) {
    if ((class & RELAY_SCAN_L) != 0) return run_of(s, len, at + n, RELAY_SCAN_L);
    if ((class & (RELAY_SCAN_LINE | RELAY_SCAN_NUMBER)) != 0) return at;
    uint32_t m;
    if ((class_or_none(s, len, at + n, &m) & RELAY_SCAN_L) == 0) return at;
    return run_of(s, len, at + n + m, RELAY_SCAN_L);
}

// What is neither blank nor letter nor number, with a space before it and the tail behind it.
static inline size_t the_rest(const uint8_t *s, size_t len, size_t at, const char *tail) {
    enum { NOT = RELAY_SCAN_SPACE | RELAY_SCAN_L | RELAY_SCAN_NUMBER };
    size_t begin = s[at] == ' ' ? at + 1 : at;
    size_t end = run_without(s, len, begin, NOT);
    if (end == begin) return at;
    while (tail[0] != 0 && end < len && s[end] != 0 && strchr(tail, s[end]) != NULL)
        end++;
    return end;
}

static inline size_t blanks(const relay_scan *p, const uint8_t *s, size_t len, size_t at) {
    size_t end = at, last = at, behind_line = at; // `last` begins the last character
    uint32_t n;
    while ((class_or_none(s, len, end, &n) & RELAY_SCAN_SPACE) != 0) {
        last = end;
        end += n;
        if (s[last] == '\r' || s[last] == '\n') behind_line = end;
    }
    if (p->keeps_last_blank && end == len) return end;
    if (p->ends_at_line && behind_line > at) return behind_line;
    return end < len && last > at ? last : end;
}

// ---- A word

static inline size_t word_end(const relay_scan *p, const uint8_t *s, size_t len, size_t at) {
    uint32_t n;
    uint32_t class = relay_scan_class_at(s + at, &n);
    size_t end;
    if (p->contractions == PLAIN || p->contractions == ANY_CASE) {
        end = contraction(s, len, at, p->contractions == ANY_CASE);
        if (end > at) return end;
    }
    if (p->words == SPACED_WORDS) {
        uint32_t m = n, next = class;
        if (s[at] == ' ') next = class_or_none(s, len, at + 1, &m);
        size_t behind = s[at] == ' ' ? at + 1 + m : at + m;
        if ((next & RELAY_SCAN_L) != 0) return run_of(s, len, behind, RELAY_SCAN_L);
        if ((next & RELAY_SCAN_NUMBER) != 0) return run_of(s, len, behind, RELAY_SCAN_NUMBER);
    } else {
        end = p->words == CASED_WORDS ? cased_words(s, len, at) : prefixed_word(s, len, at, class, n);
        if (end > at) return p->contractions == BEHIND ? contraction(s, len, end, true) : end;
        if ((class & RELAY_SCAN_NUMBER) != 0) return number(s, len, at, p->max_digits);
    }
    end = the_rest(s, len, at, p->tail);
    return end > at ? end : blanks(p, s, len, at);
}

// Where Digits comes first, a text between two digits stands alone.
static inline size_t word_end_between_digits(const relay_scan *p, const uint8_t *s, size_t len, size_t at,
                                             size_t *piece_end) {
    if (*piece_end <= at) {
        uint32_t n;
        if ((relay_scan_class_at(s + at, &n) & RELAY_SCAN_DIGIT) != 0) return at + n;
        *piece_end = run_without(s, len, at, RELAY_SCAN_DIGIT);
    }
    return word_end(p, s, *piece_end, at);
}

// ---- Many words
//
// A pattern does not look back, so a block of 64 bytes may begin at any word. In it the borders of words are sums and
// products of the classes' masks: a border lies where the class changes, but for the rules at each line below. What
// cannot be seen from within the block is left to the next one, which begins at the last sure border, or to the way
// word by word.

typedef struct block {
    const relay_scan *p;
    const uint8_t *s; // 64 bytes, of which n count: whole characters
    uint32_t n;
    bool is_last; // the text ends with it
    relay_scan_masks m;
    uint64_t first; // the first byte of each character
} block;

static inline uint64_t below(uint32_t n) {
    return n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0);
}

static inline uint32_t lowest(uint64_t bits) {
    return (uint32_t)__builtin_ctzll(bits);
}

static inline uint32_t highest(uint64_t bits) {
    return 63 - (uint32_t)__builtin_clzll(bits);
}

// Contractions where words begin or, for o200k, behind words.
static uint64_t fix_contractions(const block *b, uint64_t starts) {
    bool is_behind = b->p->contractions == BEHIND;
    uint64_t words = b->m.upper | b->m.lower | b->m.letter;
    uint64_t left = b->m.apostrophe & (is_behind ? words << 1 : starts);
    for (uint32_t last_end = 0; left != 0; left &= left - 1) {
        uint32_t at = lowest(left);
        if (is_behind && at == last_end) continue; // a word ends with one of them
        uint32_t end = (uint32_t)contraction(b->s, b->n, at, b->p->contractions != PLAIN);
        if (end == at) continue;
        last_end = end;
        starts &= ~(below(end) & ~below(is_behind ? at : at + 1));
        if (end < 64) starts |= UINT64_C(1) << end;
    }
    return starts;
}

// The borders of numbers, which have at most `max` digits; `first` has the first bytes of characters.
static uint64_t split_numbers(uint64_t number, uint64_t first, uint32_t max) {
    uint64_t starts = number & ~(number << 1), out = starts;
    for (; starts != 0; starts &= starts - 1) {
        uint64_t behind = ~number & ~below(lowest(starts));
        uint64_t digits = number & first & ~below(lowest(starts));
        if (behind != 0) digits &= below(lowest(behind));
        for (uint32_t i = 0; digits != 0; digits &= digits - 1, i++)
            if (i % max == 0) out |= digits & -digits;
    }
    return out;
}

// The first bytes of the characters that have these bytes.
static uint64_t to_first(const block *b, uint64_t bytes) {
    for (int i = 0; i < 3 && (bytes & b->m.tail) != 0; i++)
        bytes = (bytes & ~b->m.tail) | (bytes & b->m.tail) >> 1;
    return bytes;
}

// "'s|... | ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
static uint64_t spaced_starts(const block *b) {
    const relay_scan_masks *m = &b->m;
    // Where Digits comes first, a digit takes no space before it, and what is before it is the end of a text.
    uint64_t digit = b->p->digits_first ? m->digit : 0;
    uint64_t letter = (m->upper | m->lower | m->letter) & ~digit, number = m->number & ~digit;
    uint64_t solid = ~m->space & below(b->n), rest = solid & ~(letter | number | digit);
    uint64_t starts = (letter & ~(letter << 1)) | (number & ~(number << 1)) | (rest & ~(rest << 1));
    starts &= ~(m->blank << 1);
    return starts | (digit & b->first) | (m->space & ~(m->space << 1)) | to_first(b, m->space & (solid & ~digit) >> 1);
}

// The patterns of cl100k's family. *sure loses what the next block may change; 0: to be walked word by word.
static uint64_t prefixed_starts(const block *b, uint64_t *sure) {
    const relay_scan *p = b->p;
    const relay_scan_masks *m = &b->m;
    uint64_t letter = m->upper | m->lower | m->letter, number = m->number, space = m->space, line = m->line;
    uint64_t solid = ~space & below(b->n), rest = solid & ~(letter | number);
    uint64_t other = space & ~line; // spaces that end no line
    if (p->words == CASED_WORDS && (m->mark != 0 || (m->letter << 1 & m->upper & b->first) != 0)) return 0;
    if (p->tail[2] == '/' && (m->slash & line << 1) != 0) return 0;
    // The first of the rest, if it is alone, belongs to the letters behind it; and so does any space.
    uint64_t rest_starts = rest & ~(rest << 1) & ~(m->blank << 1), prefix = rest_starts;
    if (m->wide != 0)
        for (int i = 0; i < 3; i++)
            prefix |= prefix << 1 & ~b->first;
    uint64_t starts = letter & ~(letter << 1) & ~(other << 1) & ~(prefix << 1);
    if (p->words == CASED_WORDS) starts |= m->upper & b->first & m->lower << 1;
    if (number != 0) starts |= p->max_digits == 1 ? number & b->first : split_numbers(number, b->first, p->max_digits);
    // Spaces: line ends behind the rest belong to it; all up to the last line end is one word; the last space begins
    // one.
    uint64_t behind_line = other & line << 1;
    if (behind_line != 0) {
        uint64_t sum = behind_line + other, ends = sum & ~other; // the first behind each of these runs
        if ((ends & line) != 0) return 0;
        bool is_open = sum < other || (ends & ~below(b->n)) != 0;
        if (is_open && !b->is_last) *sure &= below(highest(behind_line));
    }
    uint64_t run_starts = space & ~(space << 1) & ~(line & rest << 1);
    return starts | rest_starts | run_starts | behind_line | to_first(b, other & solid >> 1);
}

// Where words begin in the block, as bits, the lowest for its own beginning; 0 if it is to be walked word by word.
static uint64_t block_starts(block *b) {
    const relay_scan *p = b->p;
    if (b->m.wide != 0) relay_scan_masks_widen(&b->m, b->s, b->n);
    b->first = ~b->m.tail;
    uint64_t sure = b->is_last ? below(b->n) : below(b->n - 3); // contractions look ahead
    uint64_t starts = p->words == SPACED_WORDS ? spaced_starts(b) : prefixed_starts(b, &sure);
    if (starts == 0) return 0;
    if (b->m.apostrophe != 0 && p->contractions != NO_CONTRACTIONS) starts = fix_contractions(b, starts);
    return (starts & sure) | 1;
}

// Adds the words of the block at `at`. Returns where the next begins, `at` if the block has to be walked.
static size_t block_words(const relay_scan *p, relay_scan_masks_fn masks, const uint8_t *s, size_t len, size_t at,
                          uint32_t *ends, size_t *n_ends) {
    size_t left = len - at;
    uint8_t copy[RELAY_SCAN_BLOCK];
    block b = {.p = p, .s = s + at, .n = RELAY_SCAN_BLOCK, .is_last = left <= RELAY_SCAN_BLOCK};
    if (left < RELAY_SCAN_BLOCK) {
        memset(copy, 0, sizeof copy);
        memcpy(copy, s + at, left);
        b.s = copy;
        b.n = (uint32_t)left;
    }
    if (b.is_last && p->keeps_last_blank) return at;
    while (!b.is_last && (b.s[b.n] & 0xC0) == 0x80)
        b.n--;
    masks(&b.m, b.s);
    uint64_t starts = block_starts(&b);
    if (starts == 0) return at;
    uint32_t next = highest(starts);
    size_t n = *n_ends;
    for (starts &= starts - 1; starts != 0; starts &= starts - 1)
        ends[n++] = (uint32_t)at + lowest(starts);
    at += next;
    if (b.is_last) ends[n++] = (uint32_t)(at = len);
    *n_ends = n;
    return at;
}

size_t relay_scan_words(const relay_scan *p, relay_scan_walk *w, const char *text, size_t len, uint32_t *ends,
                        size_t max) {
    const uint8_t *s = (const uint8_t *)text;
    relay_scan_masks_fn masks = relay_scan_masks_choose();
    size_t n = 0, at = w->at, walk_until = 0;
    while (n < max && at < len) {
        if (masks != NULL && at >= walk_until && max >= RELAY_SCAN_BLOCK) {
            if (max - n < RELAY_SCAN_BLOCK) break;
            size_t next = block_words(p, masks, s, len, at, ends, &n);
            if (next > at) {
                at = next;
                continue;
            }
            walk_until = at + RELAY_SCAN_BLOCK / 2;
        }
        at = p->digits_first ? word_end_between_digits(p, s, len, at, &w->piece_end) : word_end(p, s, len, at);
        ends[n++] = (uint32_t)at;
    }
    w->at = at;
    return n;
}

// ---- The patterns

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS      "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define REST         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define BLANKS       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CASED(end)                                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" end                    \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" end

static const relay_scan scans[] = {
    {.name = "GPT-2, ByteLevel's own", .words = SPACED_WORDS, .contractions = PLAIN, .tail = ""},
    {.name = "GPT-2", .pattern = GPT2_PATTERN, .words = SPACED_WORDS, .contractions = PLAIN, .tail = ""},
    {.name = "GPT-2 between digits", .digits_first = true, .words = SPACED_WORDS, .contractions = PLAIN, .tail = ""},
    {.name = "Llama 3",
     .pattern = CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" REST "|" BLANKS,
     .words = PREFIXED_WORDS,
     .contractions = ANY_CASE,
     .max_digits = 3,
     .tail = "\r\n",
     .ends_at_line = true},
    {.name = "Qwen",
     .pattern = CONTRACTIONS "|" LETTERS "|\\p{N}|" REST "|" BLANKS,
     .words = PREFIXED_WORDS,
     .contractions = ANY_CASE,
     .max_digits = 1,
     .tail = "\r\n",
     .ends_at_line = true},
    {.name = "cl100k",
     .pattern = "'(?i:[sdmt]|ll|ve|re)|" LETTERS "|\\p{N}{1,3}|" REST "|\\s++\\z|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
     .words = PREFIXED_WORDS,
     .contractions = ANY_CASE,
     .max_digits = 3,
     .tail = "\r\n",
     .ends_at_line = true,
     .keeps_last_blank = true},
    {.name = "o200k",
     .pattern = CASED(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS,
     .words = CASED_WORDS,
     .contractions = BEHIND,
     .max_digits = 3,
     .tail = "\r\n/",
     .ends_at_line = true},
    {.name = "Tekken",
     .pattern = CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS,
     .words = CASED_WORDS,
     .contractions = NO_CONTRACTIONS,
     .max_digits = 1,
     .tail = "\r\n/",
     .ends_at_line = true},
};

enum { N_SCANS = sizeof scans / sizeof *scans };

// All of these patterns match every character, so a Split that removes what is between its matches is an isolating one.
static bool is_split(const relay_pretokenizer_spec *p, const char *pattern) {
    return p->kind == RELAY_PRETOKENIZE_SPLIT && p->pattern.is_regex &&
           ((p->behavior == RELAY_SPLIT_ISOLATED && !p->invert) || (p->behavior == RELAY_SPLIT_REMOVED && p->invert)) &&
           p->pattern.text.len == strlen(pattern) && memcmp(p->pattern.text.s, pattern, p->pattern.text.len) == 0;
}

static bool is_byte_level(const relay_pretokenizer_spec *p, bool use_regex) {
    return p->kind == RELAY_PRETOKENIZE_BYTE_LEVEL && !p->add_prefix_space && p->use_regex == use_regex;
}

static bool does(const relay_scan *s, const relay_pretokenizer_spec *p, uint32_t n) {
    if (s->digits_first) {
        if (n == 0 || p->kind != RELAY_PRETOKENIZE_DIGITS || !p->individual_digits) return false;
        p++;
        n--;
    }
    if (s->pattern == NULL) return n == 1 && is_byte_level(p, true);
    return (n == 1 || (n == 2 && is_byte_level(p + 1, false))) && is_split(p, s->pattern);
}

const relay_scan *relay_scan_find(const relay_pretokenizer_spec *p, uint32_t n) {
    for (uint32_t i = 0; i < N_SCANS; i++) {
        if (!does(&scans[i], p, n)) continue;
        relay_scan_class_prepare();
        return &scans[i];
    }
    return NULL;
}

const relay_scan *relay_scan_at(uint32_t i) {
    relay_scan_class_prepare();
    return i < N_SCANS ? &scans[i] : NULL;
}

uint32_t relay_scan_count(void) {
    return N_SCANS;
}

const char *relay_scan_name(const relay_scan *s) {
    return s->name;
}

uint32_t relay_scan_stages(const relay_scan *s, relay_pretokenizer_spec out[RELAY_SCAN_MAX_STAGES]) {
    uint32_t n = 0;
    if (s->digits_first)
        out[n++] = (relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_DIGITS, .individual_digits = true};
    if (s->pattern == NULL)
        out[n++] = (relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_BYTE_LEVEL, .use_regex = true};
    else
        out[n++] = (relay_pretokenizer_spec){
            .kind = RELAY_PRETOKENIZE_SPLIT,
            .pattern = {.text = {s->pattern, (uint32_t)strlen(s->pattern)}, .is_regex = true},
            .behavior = RELAY_SPLIT_ISOLATED,
        };
    return n;
}
