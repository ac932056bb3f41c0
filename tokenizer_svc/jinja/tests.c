// What stands behind `is`.
#include <math.h>
#include <string.h>

#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/compare.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"

// A test without arguments.
#define PLAIN_TEST(function, condition)                                                                                \
    static bool function(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {                 \
        *out = jinja_bool(condition);                                                                                  \
        return jinja_bind(run, args, #function, NULL, 0, 0, NULL);                                                     \
    }

static bool is_callable(jinja_value v) {
    return v.kind == JINJA_MACRO || v.kind == JINJA_METHOD || v.kind == JINJA_FUNCTION || v.kind == JINJA_LOOP ||
           v.kind == JINJA_JOINER || v.kind == JINJA_UNDEFINED; // Undefined has a __call__, which fails
}

static bool is_sequence(jinja_value v) {
    switch ((jinja_kind)v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_STR:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_RANGE:
        return true;
    default:
        return false;
    }
}

PLAIN_TEST(defined, self.kind != JINJA_UNDEFINED)
PLAIN_TEST(undefined, self.kind == JINJA_UNDEFINED)
PLAIN_TEST(none, self.kind == JINJA_NONE)
PLAIN_TEST(boolean, self.kind == JINJA_BOOL)
PLAIN_TEST(is_true, self.kind == JINJA_BOOL && self.b)
PLAIN_TEST(is_false, self.kind == JINJA_BOOL && !self.b)
PLAIN_TEST(integer, self.kind == JINJA_INT || self.kind == JINJA_BIGINT)
PLAIN_TEST(is_float, self.kind == JINJA_FLOAT)
PLAIN_TEST(number, jinja_is_number(self) || self.kind == JINJA_BIGINT)
PLAIN_TEST(string, self.kind == JINJA_STR)
PLAIN_TEST(mapping, self.kind == JINJA_DICT)
PLAIN_TEST(sequence, is_sequence(self))
PLAIN_TEST(iterable, jinja_is_iterable(self))
PLAIN_TEST(callable, is_callable(self))
PLAIN_TEST(escaped, self.kind == JINJA_STR && self.is_markup)

// value % divisor == rest
static bool has_rest(jinja_run *run, jinja_value value, jinja_value divisor, int64_t rest, jinja_value *out) {
    jinja_value r;
    bool equal;
    if (!jinja_binary(run, JINJA_OP_MOD, value, divisor, &r) || !jinja_equal(run, r, jinja_int(rest), &equal))
        return false;
    *out = jinja_bool(equal);
    return true;
}

static bool odd(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return jinja_bind(run, args, "odd", NULL, 0, 0, NULL) && has_rest(run, self, jinja_int(2), 1, out);
}

static bool even(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return jinja_bind(run, args, "even", NULL, 0, 0, NULL) && has_rest(run, self, jinja_int(2), 0, out);
}

static bool divisibleby(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"num"};
    jinja_value divisor;
    return jinja_bind(run, args, "divisibleby", names, 1, 1, &divisor) && has_rest(run, self, divisor, 0, out);
}

static bool str_test(jinja_run *run, jinja_value self, const jinja_args *args, const char *name, jinja_value *out) {
    jinja_value str;
    if (!jinja_bind(run, args, name, NULL, 0, 0, NULL) || !jinja_to_str(run, self, &str)) return false;
    return jinja_find_method(str, name, strlen(name))->call(run, str, args, out);
}

static bool lower(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return str_test(run, self, args, "islower", out);
}

static bool upper(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return str_test(run, self, args, "isupper", out);
}

static bool filter(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    *out = jinja_bool(self.kind == JINJA_STR && jinja_find_filter(self.s, self.len) != NULL);
    return jinja_bind(run, args, "filter", NULL, 0, 0, NULL);
}

static bool test(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    *out = jinja_bool(self.kind == JINJA_STR && jinja_find_test(self.s, self.len) != NULL);
    return jinja_bind(run, args, "test", NULL, 0, 0, NULL);
}

static bool sameas(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"other"};
    jinja_value other;
    bool same = false;
    if (!jinja_bind(run, args, "sameas", names, 1, 1, &other)) return false;
    if (self.kind == other.kind) {
        // Values that Python keeps once, and small integers, are the same when they are equal.
        if (self.kind <= JINJA_STR) {
            if (!jinja_equal(run, self, other, &same)) return false;
            same = same && self.kind != JINJA_UNDEFINED && self.kind != JINJA_FLOAT;
        } else {
            same = self.list == other.list;
        }
    }
    *out = jinja_bool(same);
    return true;
}

static bool in(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"seq"};
    jinja_value sequence_value;
    bool found;
    if (!jinja_bind(run, args, "in", names, 1, 1, &sequence_value) ||
        !jinja_contains(run, sequence_value, self, &found))
        return false;
    *out = jinja_bool(found);
    return true;
}

// ---- comparisons: `is gt 3`

typedef enum comparison {
    EQ,
    NE,
    LT,
    LE,
    GT,
    GE,
} comparison;

static bool compare(jinja_run *run, jinja_value self, const jinja_args *args, comparison how, jinja_value *out) {
    if (args->n_pos != 1 || args->n_named != 0) return jinja_fail(run, "a comparison takes one argument");
    jinja_value other = args->pos[0];
    bool result = false, ok = false;
    switch (how) {
    case EQ:
    case NE:
        ok = jinja_equal(run, self, other, &result);
        break;
    case LT:
        ok = jinja_less(run, self, other, "<", &result);
        break;
    case LE:
        ok = jinja_less_equal(run, self, other, "<=", &result);
        break;
    case GT:
        ok = jinja_less(run, other, self, ">", &result);
        break;
    case GE:
        ok = jinja_less_equal(run, other, self, ">=", &result);
        break;
    }
    *out = jinja_bool(result != (how == NE));
    return ok;
}

#define COMPARISON(function, how)                                                                                      \
    static bool function(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {                 \
        return compare(run, self, args, how, out);                                                                     \
    }
COMPARISON(eq, EQ)
COMPARISON(ne, NE)
COMPARISON(lt, LT)
COMPARISON(le, LE)
COMPARISON(gt, GT)
COMPARISON(ge, GE)

const jinja_builtin jinja_tests[] = {
    {"boolean", boolean},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisibleby},
    {"escaped", escaped},
    {"even", even},
    {"false", is_false},
    {"filter", filter},
    {"float", is_float},
    {"in", in},
    {"integer", integer},
    {"iterable", iterable},
    {"lower", lower},
    {"mapping", mapping},
    {"none", none},
    {"number", number},
    {"odd", odd},
    {"sameas", sameas},
    {"sequence", sequence},
    {"string", string},
    {"test", test},
    {"true", is_true},
    {"undefined", undefined},
    {"upper", upper},
    // The signs are names only to select and its kin.
    {"==", eq},
    {"eq", eq},
    {"equalto", eq},
    {"!=", ne},
    {"ne", ne},
    {"<", lt},
    {"lt", lt},
    {"lessthan", lt},
    {"<=", le},
    {"le", le},
    {">", gt},
    {"gt", gt},
    {"greaterthan", gt},
    {">=", ge},
    {"ge", ge},
    {NULL, NULL},
};
