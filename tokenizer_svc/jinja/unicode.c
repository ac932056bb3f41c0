#include "tokenizer_svc/jinja/unicode.h"

#include <stddef.h>
#include <utf8proc.h>

#include "tokenizer_svc/jinja/unicode_tables.h"

static bool in_ranges(const jinja_code_range *ranges, uint32_t n, uint32_t cp) {
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (cp > ranges[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && cp >= ranges[low].first;
}

static utf8proc_category_t category(uint32_t cp) {
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool jinja_is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1F);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool jinja_is_printable(uint32_t cp) {
    if (cp < 0x7F) return cp >= 0x20;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool jinja_is_alpha(uint32_t cp) {
    if (cp < 0x80) return (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool jinja_is_decimal(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool jinja_is_digit(uint32_t cp) {
    return jinja_is_decimal(cp) || (cp >= 0x80 && in_ranges(jinja_other_digits, jinja_other_digits_n, cp));
}

bool jinja_is_numeric(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO ||
           in_ranges(jinja_other_numeric, jinja_other_numeric_n, cp);
}

bool jinja_is_lower(uint32_t cp) {
    if (cp < 0x80) return cp >= 'a' && cp <= 'z';
    return category(cp) == UTF8PROC_CATEGORY_LL || in_ranges(jinja_other_lowercase, jinja_other_lowercase_n, cp);
}

bool jinja_is_upper(uint32_t cp) {
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z';
    return category(cp) == UTF8PROC_CATEGORY_LU || in_ranges(jinja_other_uppercase, jinja_other_uppercase_n, cp);
}

bool jinja_is_titlecase(uint32_t cp) {
    return cp >= 0x80 && category(cp) == UTF8PROC_CATEGORY_LT;
}

bool jinja_is_cased(uint32_t cp) {
    return jinja_is_lower(cp) || jinja_is_upper(cp) || jinja_is_titlecase(cp);
}

bool jinja_is_case_ignorable(uint32_t cp) {
    switch (cp) { // word breaks inside a word: MidLetter, MidNumLet, Single_Quote
    case '\'':
    case '.':
    case ':':
    case 0xB7:
    case 0x387:
    case 0x55F:
    case 0x5F4:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027:
    case 0xFE13:
    case 0xFE52:
    case 0xFE55:
    case 0xFF07:
    case 0xFF0E:
    case 0xFF1A:
        return true;
    }
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

bool jinja_is_identifier(uint32_t cp, bool is_first) {
    if (jinja_is_alpha(cp) || cp == '_') return true;
    if (cp < 0x80) return !is_first && cp >= '0' && cp <= '9';
    utf8proc_category_t c = category(cp);
    if (c == UTF8PROC_CATEGORY_NL) return true;
    return !is_first && (c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ND ||
                         c == UTF8PROC_CATEGORY_PC || cp == 0xB7 || cp == 0x387);
}

static const jinja_special_case *special_case(uint32_t cp) {
    if (cp < 0xDF) return NULL;
    uint32_t low = 0, high = jinja_special_cases_n;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (jinja_special_cases[mid].code_point < cp)
            low = mid + 1;
        else
            high = mid;
    }
    bool found = low < jinja_special_cases_n && jinja_special_cases[low].code_point == cp;
    return found ? &jinja_special_cases[low] : NULL;
}

static uint32_t copy_special(const uint32_t from[3], uint32_t out[3]) {
    uint32_t n = 0;
    for (; n < 3 && from[n] != 0; n++)
        out[n] = from[n];
    return n;
}

uint32_t jinja_to_upper(uint32_t cp, uint32_t out[3]) {
    const jinja_special_case *special = special_case(cp);
    if (special != NULL) return copy_special(special->upper, out);
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
    return 1;
}

uint32_t jinja_to_title(uint32_t cp, uint32_t out[3]) {
    const jinja_special_case *special = special_case(cp);
    if (special != NULL) return copy_special(special->title, out);
    out[0] = (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
    return 1;
}

uint32_t jinja_to_lower(uint32_t cp, uint32_t out[3]) {
    if (cp == 0x130) { // a capital I with a dot: the one small letter that takes two
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return 1;
}

uint32_t jinja_to_casefold(uint32_t cp, uint32_t out[3]) {
    utf8proc_int32_t folded[4];
    int last_bound_class = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, folded, 4, UTF8PROC_CASEFOLD, &last_bound_class);
    if (n < 1 || n > 3) {
        out[0] = cp;
        return 1;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++)
        out[i] = (uint32_t)folded[i];
    return (uint32_t)n;
}
