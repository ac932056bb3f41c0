// Text with origins: building it, and what the language does to it. Private to this folder and chat_template.c.
//
// Python counts characters, the bytes are UTF-8: functions say which they mean. Every function carries origins.
#ifndef RELAY_TOKENIZER_SVC_JINJA_TEXT_H
#define RELAY_TOKENIZER_SVC_JINJA_TEXT_H

#include "tokenizer_svc/jinja/value.h"

// Text that is being built in the run's arena. An append that fails sets the run's error and marks the text, so a run
// of appends needs one check at its end.
typedef struct jinja_text {
    jinja_run *run;
    char *s;
    uint8_t *from; // NULL while all bytes have the origin `origin`
    size_t len, cap;
    uint8_t origin;
    bool is_failed;
} jinja_text;

void jinja_text_init(jinja_text *t, jinja_run *run);
void jinja_text_add(jinja_text *t, const char *s, size_t len, uint8_t origin); // origin: not MIXED
void jinja_text_add_value(jinja_text *t, jinja_value str);
// Bytes [begin, begin + len) of a string.
void jinja_text_add_part(jinja_text *t, jinja_value str, size_t begin, size_t len);
void jinja_text_add_char(jinja_text *t, uint32_t code_point, uint8_t origin);
// So many copies; refused before a byte is written where they would not fit.
void jinja_text_fill(jinja_text *t, jinja_value fill, size_t times);
bool jinja_text_finish(jinja_text *t, jinja_value *out) RELAY_NODISCARD;

// The origin of byte i, not MIXED.
static inline uint8_t jinja_origin_at(jinja_value str, size_t i) {
    if (str.origin != JINJA_MIXED) return str.origin;
    return jinja_origin_of_byte(str.from[i]);
}
// Bytes [begin, begin + len), sharing the memory.
jinja_value jinja_str_part(jinja_value str, size_t begin, size_t len);

// One string of n; grows the first in place where it is the end of its memory.
bool jinja_str_join(jinja_run *run, const jinja_value *strs, uint32_t n, jinja_value *out) RELAY_NODISCARD;
bool jinja_str_repeat(jinja_run *run, jinja_value str, int64_t times, jinja_value *out) RELAY_NODISCARD;

bool jinja_str_is_ascii(jinja_value str);
size_t jinja_str_chars(jinja_value str); // how many characters
// The byte offset of character `index`, which is at most the number of characters.
size_t jinja_str_offset(jinja_value str, size_t index);
// The character at byte *at, which moves behind it. One outside ASCII is paid for as looked up in Unicode's tables.
bool jinja_str_next(jinja_run *run, jinja_value str, size_t *at, uint32_t *code_point);
// The byte offset of the first `needle` at or behind `begin`, or SIZE_MAX.
size_t jinja_str_find(jinja_value str, jinja_value needle, size_t begin);
size_t jinja_str_rfind(jinja_value str, jinja_value needle, size_t end);
// The last one, or SIZE_MAX; every comparison is paid for.
bool jinja_str_rfind_spending(jinja_run *run, jinja_value str, jinja_value needle, size_t *at) RELAY_NODISCARD;

enum { JINJA_STRIP_LEFT = 1, JINJA_STRIP_RIGHT = 2 };
// `chars` is a string of characters, or not a string: white space.
jinja_value jinja_str_strip(jinja_value str, jinja_value chars, int sides);
// The same in a run, which pays for it.
bool jinja_str_strip_spending(jinja_run *run, jinja_value str, jinja_value chars, int sides,
                              jinja_value *out) RELAY_NODISCARD;
// All occurrences, or the first `count` if that is not negative.
bool jinja_str_replace(jinja_run *run, jinja_value str, jinja_value old, jinja_value new_text, int64_t count,
                       jinja_value *out) RELAY_NODISCARD;
// `separator` is a string, or not a string: runs of white space. At most max_split cuts if that is not negative.
bool jinja_str_split(jinja_run *run, jinja_value str, jinja_value separator, int64_t max_split, bool from_right,
                     jinja_value *out) RELAY_NODISCARD;
bool jinja_str_splitlines(jinja_run *run, jinja_value str, bool keep_ends, jinja_value *out) RELAY_NODISCARD;

typedef enum jinja_case {
    JINJA_UPPER,
    JINJA_LOWER,
    JINJA_CAPITALIZE,
    JINJA_TITLE,
    JINJA_SWAPCASE,
    JINJA_CASEFOLD,
} jinja_case;
bool jinja_str_case(jinja_run *run, jinja_value str, jinja_case to, jinja_value *out) RELAY_NODISCARD;

// & < > ' " as entities, marked as markup; markup stays as it is.
bool jinja_str_escape(jinja_run *run, jinja_value str, jinja_value *out) RELAY_NODISCARD;

// ---- values as text (repr.c, tojson.c)

// Python's str(): a string as it is.
bool jinja_to_str(jinja_run *run, jinja_value v, jinja_value *out) RELAY_NODISCARD;
// str() or repr() appended; false when the run has failed.
bool jinja_add_str(jinja_text *t, jinja_value v) RELAY_NODISCARD;
bool jinja_add_repr(jinja_text *t, jinja_value v) RELAY_NODISCARD;

typedef struct jinja_json_style {
    bool ensure_ascii, sort_keys, has_indent;
    jinja_value indent;                        // a string, when has_indent
    jinja_value item_separator, key_separator; // strings
} jinja_json_style;
// json.dumps
bool jinja_to_json(jinja_run *run, jinja_value v, const jinja_json_style *style, jinja_value *out) RELAY_NODISCARD;

// Python's repr of a float: the shortest digits that read back as the same value. `out` has room for 32 bytes.
size_t jinja_float_repr(double f, char *out);

#endif
