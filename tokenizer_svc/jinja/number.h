// Numbers out of text, as Python's int() and float() read them. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_NUMBER_H
#define RELAY_TOKENIZER_SVC_JINJA_NUMBER_H

#include "tokenizer_svc/jinja/value.h"

typedef enum jinja_parsed {
    JINJA_PARSED,
    JINJA_PARSE_NO_NUMBER,
    JINJA_PARSE_TOO_LARGE, // beyond 64 bits
} jinja_parsed;

// White space around, a sign, single underscores between digits; with base 0, 2, 8 or 16 its prefix.
jinja_parsed jinja_parse_int(jinja_value str, int64_t base, int64_t *out);
bool jinja_parse_float(jinja_value str, double *out);

#endif
