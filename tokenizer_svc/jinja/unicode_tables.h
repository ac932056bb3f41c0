// Facts of Unicode that utf8proc does not give. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_UNICODE_TABLES_H
#define RELAY_TOKENIZER_SVC_JINJA_UNICODE_TABLES_H

#include <stdint.h>

typedef struct jinja_code_range {
    uint32_t first, last;
} jinja_code_range;

typedef struct jinja_special_case {
    uint32_t code_point;
    uint32_t upper[3], title[3]; // 0 behind the end
} jinja_special_case;

// In order. Lowercase letters outside category Ll, uppercase ones outside Lu, digits outside Nd, numbers outside N*.
extern const jinja_code_range jinja_other_lowercase[], jinja_other_uppercase[], jinja_other_digits[],
    jinja_other_numeric[];
extern const uint32_t jinja_other_lowercase_n, jinja_other_uppercase_n, jinja_other_digits_n, jinja_other_numeric_n;
extern const jinja_special_case jinja_special_cases[];
extern const uint32_t jinja_special_cases_n;

#endif
