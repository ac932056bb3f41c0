// The questions that a string answers: isalpha() and its kin.
#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/run.h"
#include "tokenizer_svc/jinja/unicode.h"

static bool is_alnum(uint32_t cp) {
    return jinja_is_alpha(cp) || jinja_is_decimal(cp) || jinja_is_digit(cp) || jinja_is_numeric(cp);
}

static bool is_ascii(uint32_t cp) {
    return cp < 0x80;
}

static bool check_call(jinja_run *run, jinja_value self, const jinja_args *args) {
    if (args->n_pos != 0 || args->n_named != 0) return jinja_fail(run, "takes no arguments");
    return jinja_spend_chars(run, self.len);
}

// Are all characters so? `of_nothing` is the answer for an empty string.
static bool all(jinja_run *run, jinja_value self, const jinja_args *args, bool (*is)(uint32_t), bool of_nothing,
                jinja_value *out) {
    if (!check_call(run, self, args)) return false;
    bool result = self.len > 0 || of_nothing;
    for (size_t i = 0; i < self.len && result;) {
        uint32_t cp;
        if (!jinja_str_next(run, self, &i, &cp)) return false;
        result = is(cp);
    }
    *out = jinja_bool(result);
    return true;
}

#define ALL_METHOD(function, is, of_nothing)                                                                           \
    static bool function(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {                 \
        return all(run, self, args, is, of_nothing, out);                                                              \
    }
ALL_METHOD(all_alnum, is_alnum, false)
ALL_METHOD(all_alpha, jinja_is_alpha, false)
ALL_METHOD(all_ascii, is_ascii, true)
ALL_METHOD(all_decimal, jinja_is_decimal, false)
ALL_METHOD(all_digit, jinja_is_digit, false)
ALL_METHOD(all_numeric, jinja_is_numeric, false)
ALL_METHOD(all_printable, jinja_is_printable, true)
ALL_METHOD(all_space, jinja_is_space, false)

// Has it cased letters, and all of them this case?
static bool all_cased(jinja_run *run, jinja_value self, const jinja_args *args, bool (*is)(uint32_t),
                      jinja_value *out) {
    if (!check_call(run, self, args)) return false;
    bool result = true, any = false;
    for (size_t i = 0; i < self.len && result;) {
        uint32_t cp;
        if (!jinja_str_next(run, self, &i, &cp)) return false;
        any = any || is(cp);
        result = is(cp) || !jinja_is_cased(cp);
    }
    *out = jinja_bool(result && any);
    return true;
}

static bool all_lower(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return all_cased(run, self, args, jinja_is_lower, out);
}

static bool all_upper(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return all_cased(run, self, args, jinja_is_upper, out);
}

static bool all_titled(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    if (!check_call(run, self, args)) return false;
    bool result = true, any = false, in_word = false;
    for (size_t i = 0; i < self.len && result;) {
        uint32_t cp;
        if (!jinja_str_next(run, self, &i, &cp)) return false;
        bool is_capital = jinja_is_upper(cp) || jinja_is_titlecase(cp), is_small = jinja_is_lower(cp);
        result = is_capital ? !in_word : is_small ? in_word : true;
        in_word = is_capital || is_small;
        any = any || in_word;
    }
    *out = jinja_bool(result && any);
    return true;
}

static bool all_identifier(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    if (!check_call(run, self, args)) return false;
    bool result = self.len > 0;
    for (size_t i = 0; i < self.len && result;) {
        uint32_t cp;
        bool is_first = i == 0;
        if (!jinja_str_next(run, self, &i, &cp)) return false;
        result = jinja_is_identifier(cp, is_first);
    }
    *out = jinja_bool(result);
    return true;
}

const jinja_builtin jinja_str_tests[] = {
    {"isalnum", all_alnum},
    {"isalpha", all_alpha},
    {"isascii", all_ascii},
    {"isdecimal", all_decimal},
    {"isdigit", all_digit},
    {"isidentifier", all_identifier},
    {"islower", all_lower},
    {"isnumeric", all_numeric},
    {"isprintable", all_printable},
    {"isspace", all_space},
    {"istitle", all_titled},
    {"isupper", all_upper},
    {NULL, NULL},
};
