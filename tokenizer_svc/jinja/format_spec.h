// One value as a format asks for it: the mini-language of Python's format(). Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_FORMAT_SPEC_H
#define RELAY_TOKENIZER_SVC_JINJA_FORMAT_SPEC_H

#include "tokenizer_svc/jinja/text.h"

enum { JINJA_FORMAT_MAX_WIDTH = 1 << 20, JINJA_FORMAT_MAX_PRECISION = 1000 };

typedef struct jinja_format_spec {
    jinja_value fill; // one character
    char align;       // < > = ^ or 0: the type's own
    char sign;        // + - or a blank
    bool alternate;   // #
    char grouping;    // , _ or 0
    int width;        // 0: none
    int precision;    // -1: none
    char type;        // 0: the type's own
} jinja_format_spec;

#define JINJA_FORMAT_SPEC_DEFAULT                                                                                      \
    (jinja_format_spec) {                                                                                              \
        .fill = JINJA_LITERAL(" "), .sign = '-', .precision = -1                                                       \
    }

// [[fill]align][sign][#][0][width][grouping][.precision][type]
bool jinja_format_spec_parse(jinja_run *run, jinja_value text, jinja_format_spec *spec) RELAY_NODISCARD;
// format(v, spec), appended.
bool jinja_format_value(jinja_text *t, jinja_value v, const jinja_format_spec *spec) RELAY_NODISCARD;
bool jinja_format_str(jinja_text *t, jinja_value str, const jinja_format_spec *spec) RELAY_NODISCARD;
bool jinja_format_int(jinja_text *t, int64_t i, const jinja_format_spec *spec, uint8_t origin) RELAY_NODISCARD;
bool jinja_format_float(jinja_text *t, double f, const jinja_format_spec *spec, uint8_t origin) RELAY_NODISCARD;

#endif
