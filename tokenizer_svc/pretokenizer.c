// One pattern splits a piece into matches and what lies between them (HF's Split with "isolated"); each such part is a
// piece for the next pattern, and after the last a word. The parts are visited depth first, so nothing is stored.
//
// A pattern sees its piece and nothing around it: lookahead ends at the piece's end. Matching is bounded: each search
// has limits on steps and memory, and no pattern in the table takes more than linear time over a text.
#include "tokenizer_svc/pretokenizer.h"

#include <stdlib.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tokenizer_svc/unicode_standin.h"

enum {
    MAX_STEPS = 100 * 1000 * 1000,    // of one search; PCRE2's own unit
    MAX_HEAP_KIB = 64 * 1024,         // of one search, where PCRE2 has no JIT
    MAX_JIT_STACK = 64 * 1024 * 1024, // bytes; reserved when the machine stack is not enough, used as far as needed
    FIRST_JIT_STACK = 64 * 1024,
};

struct relay_pretokenizer {
    const relay_pretokenizer_scheme *scheme;
    uint32_t n_patterns;
    pcre2_code *patterns[RELAY_PRETOKENIZER_MAX_PATTERNS];
    bool is_jit[RELAY_PRETOKENIZER_MAX_PATTERNS]; // false where the system allows no executable memory
};

// ---- Making one

static relay_code compile(pcre2_code **out, const char *pattern, const char *name, relay_err *e) {
    int error;
    PCRE2_SIZE offset;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &offset, NULL);
    if (*out != NULL) return RELAY_OK;
    PCRE2_UCHAR text[128];
    pcre2_get_error_message(error, text, sizeof text);
    return relay_fail(e, RELAY_INTERNAL, "pre-tokenizer \"%s\": PCRE2 refuses its pattern at byte %zu: %s", name,
                      offset, (const char *)text);
}

relay_code relay_pretokenizer_create(relay_pretokenizer **out, const relay_pretokenizer_scheme *scheme, relay_err *e) {
    *out = NULL;
    relay_pretokenizer *p = relay_calloc(1, sizeof *p);
    p->scheme = scheme;
    for (uint32_t i = 0; scheme->patterns[i] != NULL; i++) {
        RELAY_ASSERT(i < RELAY_PRETOKENIZER_MAX_PATTERNS);
        relay_code code = compile(&p->patterns[i], scheme->patterns[i], scheme->name, e);
        if (code != RELAY_OK) {
            relay_pretokenizer_destroy(p);
            return code;
        }
        p->n_patterns++;
        size_t jit_size = 0;
        if (pcre2_jit_compile(p->patterns[i], PCRE2_JIT_COMPLETE) == 0)
            pcre2_pattern_info(p->patterns[i], PCRE2_INFO_JITSIZE, &jit_size);
        p->is_jit[i] = jit_size > 0;
    }
    *out = p;
    return RELAY_OK;
}

void relay_pretokenizer_destroy(relay_pretokenizer *p) {
    if (p == NULL) return;
    for (uint32_t i = 0; i < p->n_patterns; i++)
        pcre2_code_free(p->patterns[i]);
    free(p);
}

const relay_pretokenizer_scheme *relay_pretokenizer_get_scheme(const relay_pretokenizer *p) {
    return p->scheme;
}

// ---- Working memory

static void prepare(relay_pretokenizer_work *w) {
    if (w->match != NULL) return;
    w->match = pcre2_match_data_create(1, NULL);
    w->limits = pcre2_match_context_create(NULL);
    RELAY_ASSERT(w->match != NULL && w->limits != NULL); // a few hundred bytes: out of memory ends the process
    pcre2_set_match_limit(w->limits, MAX_STEPS);
    pcre2_set_heap_limit(w->limits, MAX_HEAP_KIB);
}

// False if it is as large as it may be.
static bool enlarge_jit_stack(relay_pretokenizer_work *w) {
    if (w->stack != NULL) return false;
    w->stack = pcre2_jit_stack_create(FIRST_JIT_STACK, MAX_JIT_STACK, NULL);
    if (w->stack == NULL) return false;
    pcre2_jit_stack_assign(w->limits, NULL, w->stack);
    return true;
}

void relay_pretokenizer_work_fini(relay_pretokenizer_work *w) {
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->limits);
    pcre2_jit_stack_free(w->stack);
    free(w->shadow);
    *w = (relay_pretokenizer_work){0};
}

// The text as the patterns are to see it: itself, or a copy with stand-ins.
static const char *see_through(const relay_pretokenizer *p, relay_pretokenizer_work *w, const char *text, size_t len) {
    bool rust_digits = p->scheme->rust_digits;
    size_t first = relay_unicode_standin_find(text, len, 0, rust_digits);
    if (first == len) return text;
    if (len > w->shadow_cap) {
        w->shadow = relay_realloc(w->shadow, len);
        w->shadow_cap = len;
    }
    memcpy(w->shadow, text, len);
    relay_unicode_standin_replace(w->shadow + first, len - first, rust_digits);
    return w->shadow;
}

// ---- Splitting

typedef struct splitting {
    const relay_pretokenizer *p;
    relay_pretokenizer_work *w;
    const char *text, *seen; // the same length
    relay_word_fn on_word;
    void *arg;
    relay_err *e;
} splitting;

// Searches piece[from..len). *found is false if there is no match; else it is piece[*begin..*end).
static relay_code search(const splitting *s, uint32_t pattern, const char *piece, size_t len, size_t from, bool *found,
                         size_t *begin, size_t *end) {
    const pcre2_code *code = s->p->patterns[pattern];
    relay_pretokenizer_work *w = s->w;
    int rc;
    do {
        rc = s->p->is_jit[pattern]
                 ? pcre2_jit_match(code, (PCRE2_SPTR)piece, len, from, PCRE2_NO_UTF_CHECK, w->match, w->limits)
                 : pcre2_match(code, (PCRE2_SPTR)piece, len, from, PCRE2_NO_UTF_CHECK, w->match, w->limits);
    } while (rc == PCRE2_ERROR_JIT_STACKLIMIT && enlarge_jit_stack(w));
    *found = rc >= 0; // 0 is a match too: of a pattern with groups, which are not kept
    if (*found) {
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(w->match);
        *begin = ends[0];
        *end = ends[1];
        RELAY_ASSERT(*begin >= from && *end > *begin); // no pattern in the table matches nothing
        return RELAY_OK;
    }
    if (rc == PCRE2_ERROR_NOMATCH) return RELAY_OK;
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_JIT_STACKLIMIT)
        return relay_fail(s->e, RELAY_RESOURCE_EXHAUSTED,
                          "text: splitting it into words takes too many steps at byte %zu (pre-tokenizer \"%s\")",
                          (size_t)(piece - s->seen) + from, s->p->scheme->name);
    return relay_fail(s->e, RELAY_INTERNAL, "pre-tokenizer \"%s\": PCRE2 fails with %d", s->p->scheme->name, rc);
}

static relay_code split_piece(const splitting *s, uint32_t pattern, size_t piece_begin, size_t piece_end) {
    if (piece_begin == piece_end) return RELAY_OK;
    if (pattern == s->p->n_patterns) return s->on_word(s->arg, s->text + piece_begin, piece_end - piece_begin, s->e);
    const char *piece = s->seen + piece_begin;
    size_t len = piece_end - piece_begin, at = 0;
    while (at < len) {
        bool found;
        size_t begin, end;
        relay_code code = search(s, pattern, piece, len, at, &found, &begin, &end);
        if (code != RELAY_OK) return code;
        if (!found) break;
        code = split_piece(s, pattern + 1, piece_begin + at, piece_begin + begin);
        if (code == RELAY_OK) code = split_piece(s, pattern + 1, piece_begin + begin, piece_begin + end);
        if (code != RELAY_OK) return code;
        at = end;
    }
    return split_piece(s, pattern + 1, piece_begin + at, piece_end);
}

relay_code relay_pretokenizer_split(const relay_pretokenizer *p, relay_pretokenizer_work *w, const char *text,
                                    size_t len, relay_word_fn on_word, void *arg, relay_err *e) {
    if (len == 0) return RELAY_OK;
    prepare(w);
    const splitting s = {
        .p = p, .w = w, .text = text, .seen = see_through(p, w, text, len), .on_word = on_word, .arg = arg, .e = e};
    return split_piece(&s, 0, 0, len);
}
