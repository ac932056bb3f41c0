// The filters, tests, functions and methods, by name. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_BUILTINS_H
#define RELAY_TOKENIZER_SVC_JINJA_BUILTINS_H

#include "tokenizer_svc/jinja/value.h"

// A filter of `self`, a test of it (the result is a boolean), or a method of it. Functions have no self (MISSING).
typedef bool (*jinja_builtin_call)(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out);

typedef struct jinja_builtin {
    const char *name;
    jinja_builtin_call call;
} jinja_builtin;

// A method that has been taken off its object: x.strip without parentheses.
typedef struct jinja_method {
    jinja_value self;
    const jinja_builtin *builtin;
} jinja_method;

typedef struct jinja_function {
    jinja_builtin builtin;
} jinja_function;

// NULL where there is none.
const jinja_builtin *jinja_find_filter(const char *name, size_t len);
const jinja_builtin *jinja_find_test(const char *name, size_t len);
const jinja_function *jinja_find_function(const char *name, size_t len);
const jinja_builtin *jinja_find_method(jinja_value self, const char *name, size_t len);
// A method of Python's that changes its object: known, and refused.
bool jinja_is_mutator(jinja_value self, const char *name, size_t len);

// Arguments by position and name into out[0..n), those not given MISSING. `what` is for messages. False: too many, an
// unknown name, one given twice, or one of the first n_required missing.
bool jinja_bind(jinja_run *run, const jinja_args *args, const char *what, const char *const *names, uint32_t n,
                uint32_t n_required, jinja_value *out) RELAY_NODISCARD;
// Most methods take their arguments by position only: between `least` and `most` of them.
bool jinja_only_positions(jinja_run *run, const jinja_args *args, const char *what, uint32_t least,
                          uint32_t most) RELAY_NODISCARD;
// The values that arguments must have; MISSING gives the default, and NONE does so too in ..._or_none.
bool jinja_arg_int_or_none(jinja_run *run, jinja_value v, const char *what, int64_t otherwise,
                           int64_t *out) RELAY_NODISCARD;
bool jinja_arg_int(jinja_run *run, jinja_value v, const char *what, int64_t otherwise, int64_t *out) RELAY_NODISCARD;
bool jinja_arg_str(jinja_run *run, jinja_value v, const char *what, jinja_value *out) RELAY_NODISCARD;
static inline bool jinja_arg_is_given(jinja_value v) {
    return v.kind != JINJA_MISSING && v.kind != JINJA_NONE;
}

// The tables, each in the file of that name, ended by an entry without a name.
extern const jinja_builtin jinja_text_filters[], jinja_value_filters[], jinja_list_filters[], jinja_select_filters[];
extern const jinja_builtin jinja_tests[];
extern const jinja_function jinja_functions[];
extern const jinja_builtin jinja_str_methods[], jinja_str_tests[], jinja_dict_methods[], jinja_list_methods[];
extern const jinja_builtin jinja_loop_methods[], jinja_cycler_methods[];

#endif
