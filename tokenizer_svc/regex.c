// A pattern that is plain text is searched by memmem. One that is not is compiled by PCRE2, with limits on the steps
// and the memory of each search.
#define _GNU_SOURCE // memmem
#include "tokenizer_svc/regex.h"

#include <stdlib.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/utf8.h"
#include "tokenizer_svc/unicode_standin.h"

enum {
    MAX_STEPS = 100 * 1000 * 1000,    // of one search; PCRE2's own unit
    MAX_HEAP_KIB = 64 * 1024,         // of one search, where PCRE2 has no JIT
    MAX_JIT_STACK = 64 * 1024 * 1024, // bytes; reserved when the machine stack is not enough, used as far as needed
    FIRST_JIT_STACK = 64 * 1024,
    MAX_PATTERN_BYTES = 1 << 16,
};

struct relay_regex {
    char *what;
    char *text; // of a plain pattern
    size_t text_len;
    pcre2_code *code; // NULL of a plain pattern
    bool is_jit;      // false where the system allows no executable memory
    bool matches_empty;
};

// ---- Making one

static relay_code compile(relay_regex *r, const relay_spec_pattern *p, relay_err *e) {
    relay_buf b;
    relay_buf_init(&b, 8 * MAX_PATTERN_BYTES);
    relay_code code = relay_regex_translate(&b, p->text.s, p->text.len, r->what, e);
    if (code == RELAY_OK && b.is_failed)
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: the pattern is too long", r->what);
    if (code == RELAY_OK) {
        pcre2_compile_context *c = pcre2_compile_context_create(NULL);
        RELAY_ASSERT(c != NULL);
        pcre2_set_newline(c, PCRE2_NEWLINE_LF);
        int error;
        PCRE2_SIZE offset;
        r->code = pcre2_compile((PCRE2_SPTR)(b.data == NULL ? "" : b.data), b.len,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, c);
        pcre2_compile_context_free(c);
        if (r->code == NULL) {
            PCRE2_UCHAR text[128];
            pcre2_get_error_message(error, text, sizeof text);
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: pattern \"%.*s\": %s", r->what,
                              p->text.len < 160 ? (int)p->text.len : 160, p->text.s, (const char *)text);
        }
    }
    relay_buf_fini(&b);
    if (code != RELAY_OK) return code;
    size_t jit_size = 0;
    if (pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0) pcre2_pattern_info(r->code, PCRE2_INFO_JITSIZE, &jit_size);
    r->is_jit = jit_size > 0;
    uint32_t matches_empty = 0;
    pcre2_pattern_info(r->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    r->matches_empty = matches_empty != 0;
    return RELAY_OK;
}

relay_code relay_regex_create(relay_regex **out, const relay_spec_pattern *pattern, const char *what, relay_err *e) {
    *out = NULL;
    if (pattern->text.len > MAX_PATTERN_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: a pattern of %u bytes; at most %d are read", what,
                          pattern->text.len, MAX_PATTERN_BYTES);
    relay_regex *r = relay_calloc(1, sizeof *r);
    r->what = relay_strndup(what, strlen(what));
    relay_code code = RELAY_OK;
    if (pattern->is_regex) {
        code = compile(r, pattern, e);
    } else {
        r->text = relay_strndup(pattern->text.len == 0 ? "" : pattern->text.s, pattern->text.len);
        r->text_len = pattern->text.len;
        r->matches_empty = r->text_len == 0;
    }
    if (code != RELAY_OK) {
        relay_regex_destroy(r);
        return code;
    }
    *out = r;
    return RELAY_OK;
}

void relay_regex_destroy(relay_regex *r) {
    if (r == NULL) return;
    pcre2_code_free(r->code);
    free(r->text);
    free(r->what);
    free(r);
}

bool relay_regex_matches_empty(const relay_regex *r) {
    return r->matches_empty;
}

// ---- Working memory

static void prepare(relay_regex_work *w) {
    if (w->match != NULL) return;
    w->match = pcre2_match_data_create(1, NULL);
    w->limits = pcre2_match_context_create(NULL);
    RELAY_ASSERT(w->match != NULL && w->limits != NULL); // a few hundred bytes: out of memory ends the process
    pcre2_set_match_limit(w->limits, MAX_STEPS);
    pcre2_set_heap_limit(w->limits, MAX_HEAP_KIB);
}

// False if it is as large as it may be.
static bool enlarge_jit_stack(relay_regex_work *w) {
    if (w->stack != NULL) return false;
    w->stack = pcre2_jit_stack_create(FIRST_JIT_STACK, MAX_JIT_STACK, NULL);
    if (w->stack == NULL) return false;
    pcre2_jit_stack_assign(w->limits, NULL, w->stack);
    return true;
}

void relay_regex_work_fini(relay_regex_work *w) {
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->limits);
    pcre2_jit_stack_free(w->stack);
    free(w->shadow);
    *w = (relay_regex_work){0};
}

const char *relay_regex_see(const relay_regex *r, relay_regex_work *w, const char *text, size_t len) {
    if (r->code == NULL) return text;
    size_t first = relay_unicode_standin_find(text, len, 0, false);
    if (first == len) return text;
    if (len > w->shadow_cap) {
        w->shadow = relay_realloc(w->shadow, len);
        w->shadow_cap = len;
    }
    memcpy(w->shadow, text, len);
    relay_unicode_standin_replace(w->shadow + first, len - first, false);
    return w->shadow;
}

// ---- Searching

static relay_code search(const relay_regex_scan *s, bool *found, size_t *begin, size_t *end, relay_err *e) {
    const relay_regex *r = s->regex;
    relay_regex_work *w = s->work;
    *found = false;
    if (r->code == NULL) {
        // An empty text is found at once and everywhere, as an empty pattern is.
        const char *hit = memmem(s->seen + s->at, s->len - s->at, r->text, r->text_len);
        *found = hit != NULL;
        *begin = hit == NULL ? 0 : (size_t)(hit - s->seen);
        *end = *begin + r->text_len;
        return RELAY_OK;
    }
    prepare(w);
    int rc;
    do {
        rc = r->is_jit
                 ? pcre2_jit_match(r->code, (PCRE2_SPTR)s->seen, s->len, s->at, PCRE2_NO_UTF_CHECK, w->match, w->limits)
                 : pcre2_match(r->code, (PCRE2_SPTR)s->seen, s->len, s->at, PCRE2_NO_UTF_CHECK, w->match, w->limits);
    } while (rc == PCRE2_ERROR_JIT_STACKLIMIT && enlarge_jit_stack(w));
    *found = rc >= 0; // 0 is a match too: of a pattern with groups, which are not kept
    if (*found) {
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(w->match);
        *begin = ends[0];
        *end = ends[1];
        return RELAY_OK;
    }
    if (rc == PCRE2_ERROR_NOMATCH) return RELAY_OK;
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT || rc == PCRE2_ERROR_JIT_STACKLIMIT)
        return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "text: splitting it into words takes too many steps (%s)",
                          r->what);
    return relay_fail(e, RELAY_INTERNAL, "%s: PCRE2 fails with %d", r->what, rc);
}

relay_code relay_regex_next(relay_regex_scan *scan, bool *found, size_t *begin, size_t *end, relay_err *e) {
    for (;;) {
        *found = false;
        if (scan->at > scan->len) return RELAY_OK;
        relay_code code = search(scan, found, begin, end, e);
        if (code != RELAY_OK || !*found) return code;
        if (*begin == *end && *end == scan->last_match) {
            uint32_t cp;
            scan->at += scan->at < scan->len ? relay_utf8_decode(scan->seen + scan->at, scan->len - scan->at, &cp) : 1;
            continue;
        }
        scan->at = *end;
        scan->last_match = *end;
        return RELAY_OK;
    }
}
