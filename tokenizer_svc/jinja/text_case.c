// Upper, lower, capitalize, title: full Unicode mappings, each character's origin kept.
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/run.h"
#include "tokenizer_svc/jinja/unicode.h"

enum { CAPITAL_SIGMA = 0x3A3, SMALL_SIGMA = 0x3C3, FINAL_SIGMA = 0x3C2 };

// A capital sigma at byte `at` ends its word: a cased letter before it and none behind, marks in between not counted.
static bool is_final_sigma(jinja_value str, size_t at) {
    uint32_t cp = 0;
    size_t i = at;
    bool found = false;
    while (i > 0 && !found) {
        do
            i--;
        while (i > 0 && ((uint8_t)str.s[i] & 0xC0) == 0x80);
        relay_utf8_decode(str.s + i, str.len - i, &cp);
        found = !jinja_is_case_ignorable(cp);
    }
    if (!found || !jinja_is_cased(cp)) return false;
    for (i = at + 2; i < str.len;) {
        i += relay_utf8_decode(str.s + i, str.len - i, &cp);
        if (!jinja_is_case_ignorable(cp)) return !jinja_is_cased(cp);
    }
    return true;
}

static uint32_t map(jinja_value str, size_t at, uint32_t cp, jinja_case to, uint32_t out[3]) {
    switch (to) {
    case JINJA_UPPER:
        return jinja_to_upper(cp, out);
    case JINJA_TITLE:
        return jinja_to_title(cp, out);
    case JINJA_CASEFOLD:
        return jinja_to_casefold(cp, out);
    default:
        if (cp != CAPITAL_SIGMA) return jinja_to_lower(cp, out);
        out[0] = is_final_sigma(str, at) ? FINAL_SIGMA : SMALL_SIGMA;
        return 1;
    }
}

// Which simple mapping a character gets; `is_in_word` says that a cased letter stands before it.
static jinja_case case_of(jinja_case to, uint32_t cp, bool is_first, bool is_in_word) {
    switch (to) {
    case JINJA_CAPITALIZE:
        return is_first ? JINJA_TITLE : JINJA_LOWER;
    case JINJA_TITLE:
        return is_in_word ? JINJA_LOWER : JINJA_TITLE;
    case JINJA_SWAPCASE:
        return jinja_is_lower(cp) ? JINJA_UPPER : jinja_is_upper(cp) ? JINJA_LOWER : JINJA_SWAPCASE;
    default:
        return to;
    }
}

// Letters of ASCII only: byte by byte, each where it was.
static bool ascii_case(jinja_run *run, jinja_value str, bool to_upper, jinja_value *out) {
    char *s = jinja_alloc(run, str.len, 1);
    if (s == NULL) return false;
    char first = to_upper ? 'a' : 'A';
    for (size_t i = 0; i < str.len; i++)
        s[i] = (char)((uint8_t)(str.s[i] - first) < 26 ? str.s[i] ^ 0x20 : str.s[i]);
    *out = str;
    out->s = s;
    return true;
}

bool jinja_str_case(jinja_run *run, jinja_value str, jinja_case to, jinja_value *out) {
    jinja_text t;
    if (!jinja_spend_chars(run, str.len)) return false;
    bool is_simple = to == JINJA_UPPER || to == JINJA_LOWER || to == JINJA_CASEFOLD;
    if (is_simple && jinja_str_is_ascii(str)) return ascii_case(run, str, to == JINJA_UPPER, out);
    if (!jinja_spend(run, str.len)) return false;
    jinja_text_init(&t, run);
    bool is_in_word = false;
    for (size_t i = 0; i < str.len && !t.is_failed;) {
        uint32_t cp, mapped[3];
        size_t n = relay_utf8_decode(str.s + i, str.len - i, &cp);
        uint8_t origin = jinja_origin_at(str, i);
        jinja_case how = case_of(to, cp, i == 0, is_in_word);
        uint32_t n_mapped = 1;
        mapped[0] = cp;
        if (how != JINJA_SWAPCASE) n_mapped = map(str, i, cp, how, mapped);
        for (uint32_t k = 0; k < n_mapped; k++)
            jinja_text_add_char(&t, mapped[k], origin);
        is_in_word = jinja_is_cased(cp);
        i += n;
    }
    if (!jinja_text_finish(&t, out)) return false;
    out->is_markup = str.is_markup;
    return true;
}
