// The patterns of tokenizer files: Oniguruma's syntax in, PCRE2 behind, the same matches.
//
// What reads differently in the two is written over: `^` and `$` stand at every line's ends; \w and \b are Unicode's
// words; \h is a hexadecimal digit; a class may hold another and be cut with one (`[\p{L}&&[^\p{Han}]]`); `{1,3}+` is a
// repeated repetition. Characters newer than PCRE2 are seen through stand-ins (unicode_standin.h). Refused by name, for
// no translation would be exact: other escapes, options and properties than those of regex_translate.c.
#ifndef RELAY_TOKENIZER_SVC_REGEX_H
#define RELAY_TOKENIZER_SVC_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_regex relay_regex;

// `what` names the pattern in messages and is copied. Immutable after creation; any thread.
relay_code relay_regex_create(relay_regex **out, const relay_spec_pattern *pattern, const char *what,
                              relay_err *e) RELAY_NODISCARD;
void relay_regex_destroy(relay_regex *r);
bool relay_regex_matches_empty(const relay_regex *r);

// Working memory of one thread, for any number of patterns; all zero at first.
typedef struct relay_regex_work {
    struct pcre2_real_match_data_8 *match;
    struct pcre2_real_match_context_8 *limits;
    struct pcre2_real_jit_stack_8 *stack; // NULL while the machine stack is enough
    char *shadow;                         // the text with stand-ins
    size_t shadow_cap;
} relay_regex_work;

void relay_regex_work_fini(relay_regex_work *w);

// The text as the pattern is to see it: itself, or a copy with stand-ins of the same length in the working memory.
const char *relay_regex_see(const relay_regex *r, relay_regex_work *w, const char *text, size_t len);

typedef struct relay_regex_scan {
    const relay_regex *regex;
    relay_regex_work *work;
    const char *seen; // the piece, as relay_regex_see shows it; the pattern sees nothing around it
    size_t len;
    size_t at;         // where to search on; 0 at first
    size_t last_match; // the end of the match before; SIZE_MAX at first
} relay_regex_scan;

static inline relay_regex_scan relay_regex_scan_of(const relay_regex *r, relay_regex_work *w, const char *seen,
                                                   size_t len) {
    return (relay_regex_scan){r, w, seen, len, 0, SIZE_MAX};
}

// The next match, behind the one before; *found false if there is none. An empty match does not follow another match at
// its end. RESOURCE_EXHAUSTED where it takes more steps or memory than is allowed.
relay_code relay_regex_next(relay_regex_scan *scan, bool *found, size_t *begin, size_t *end,
                            relay_err *e) RELAY_NODISCARD;

// Appends to *out what PCRE2 is to compile (with UTF, UCP, MULTILINE and line feed as the newline).
relay_code relay_regex_translate(relay_buf *out, const char *pattern, size_t len, const char *what,
                                 relay_err *e) RELAY_NODISCARD;

#endif
