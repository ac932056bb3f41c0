// + - * / // % ** and the signs, as Python has them, over 64-bit integers.
#include <math.h>
#include <string.h>

#include "tokenizer_svc/jinja/eval.h"

static const char *sign_of(jinja_operator op) {
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    return signs[op];
}

static bool refuse(jinja_run *run, jinja_operator op, jinja_value a, jinja_value b) {
    if (a.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, a);
    if (b.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, b);
    if (a.kind == JINJA_BIGINT || b.kind == JINJA_BIGINT) return jinja_fail(run, "an integer beyond 64 bits");
    if (op == JINJA_OP_ADD && (a.kind == JINJA_STR || a.kind == JINJA_LIST || a.kind == JINJA_TUPLE))
        return jinja_fail(run, "can only concatenate %s (not \"%s\") to %s", jinja_type_name(a), jinja_type_name(b),
                          jinja_type_name(a));
    return jinja_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", sign_of(op), jinja_type_name(a),
                      jinja_type_name(b));
}

static bool too_large(jinja_run *run) {
    return jinja_fail(run, "an integer beyond 64 bits");
}

// Rounds down, as // does.
static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// The quotient of the exact values, rounded once where both are doubles, and as good as once where they are not.
static double true_div(int64_t a, int64_t b) {
    if ((double)a == (long double)a && (double)b == (long double)b) return (double)a / (double)b;
    return (double)((long double)a / (long double)b);
}

static bool int_power(jinja_run *run, int64_t base, int64_t exponent, jinja_value *out) {
    if (exponent < 0) {
        if (base == 0) return jinja_fail(run, "0.0 cannot be raised to a negative power");
        *out = jinja_float(pow((double)base, (double)exponent));
        return true;
    }
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return too_large(run);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large(run);
    }
    *out = jinja_int(result);
    return true;
}

static bool int_op(jinja_run *run, jinja_operator op, int64_t a, int64_t b, jinja_value *out) {
    int64_t r = 0;
    bool overflow = false;
    if ((op == JINJA_OP_DIV || op == JINJA_OP_FLOORDIV || op == JINJA_OP_MOD) && b == 0)
        return jinja_fail(run, op == JINJA_OP_DIV ? "division by zero" : "integer division or modulo by zero");
    switch (op) {
    case JINJA_OP_ADD:
        overflow = __builtin_add_overflow(a, b, &r);
        break;
    case JINJA_OP_SUB:
        overflow = __builtin_sub_overflow(a, b, &r);
        break;
    case JINJA_OP_MUL:
        overflow = __builtin_mul_overflow(a, b, &r);
        break;
    case JINJA_OP_DIV:
        *out = jinja_float(true_div(a, b));
        return true;
    case JINJA_OP_FLOORDIV:
        overflow = a == INT64_MIN && b == -1;
        if (!overflow) r = floor_div(a, b);
        break;
    case JINJA_OP_MOD:
        r = b == -1 ? 0 : a - floor_div(a, b) * b;
        break;
    default:
        return int_power(run, a, b, out);
    }
    if (overflow) return too_large(run);
    *out = jinja_int(r);
    return true;
}

static double float_mod(double a, double b) {
    double r = fmod(a, b);
    if (r != 0 && (r < 0) != (b < 0)) return r + b;
    return r == 0 ? copysign(0, b) : r;
}

static double float_floor_div(double a, double b) {
    double q = (a - float_mod(a, b)) / b, whole = floor(q);
    return q - whole > 0.5 ? whole + 1 : whole;
}

static bool float_op(jinja_run *run, jinja_operator op, double a, double b, jinja_value *out) {
    double r;
    if ((op == JINJA_OP_DIV || op == JINJA_OP_FLOORDIV || op == JINJA_OP_MOD) && b == 0)
        return jinja_fail(run, op == JINJA_OP_DIV        ? "float division by zero"
                               : op == JINJA_OP_FLOORDIV ? "float floor division by zero"
                                                         : "float modulo");
    switch (op) {
    case JINJA_OP_ADD:
        r = a + b;
        break;
    case JINJA_OP_SUB:
        r = a - b;
        break;
    case JINJA_OP_MUL:
        r = a * b;
        break;
    case JINJA_OP_DIV:
        r = a / b;
        break;
    case JINJA_OP_FLOORDIV:
        r = float_floor_div(a, b);
        break;
    case JINJA_OP_MOD:
        r = float_mod(a, b);
        break;
    default:
        if (a == 0 && b < 0) return jinja_fail(run, "0.0 cannot be raised to a negative power");
        if (a < 0 && b != floor(b)) return jinja_fail(run, "a complex number");
        r = pow(a, b);
        if (isinf(r) && !isinf(a) && !isinf(b)) return jinja_fail(run, "(34, 'Numerical result out of range')");
    }
    *out = jinja_float(r);
    return true;
}

// Room behind the items of `list` for `more`: where its memory ends with it, in place, else a copy with some to spare.
static bool extend_items(jinja_run *run, const jinja_list *list, uint32_t more, jinja_value **items) {
    for (uint32_t i = 0; i < JINJA_TAILS; i++) {
        jinja_list_tail *tail = &run->list_tails[i];
        if (tail->items == NULL || list->items + list->n != tail->items + tail->n || tail->cap - tail->n < more)
            continue;
        tail->n += more;
        *items = list->items;
        return true;
    }
    uint32_t n = list->n + more, cap = n < 8 ? n : n + n / 2;
    *items = jinja_alloc(run, cap, sizeof **items);
    if (*items == NULL || !jinja_spend(run, n / 4)) return false;
    if (list->n != 0) memcpy(*items, list->items, list->n * sizeof **items);
    if (cap > n) run->list_tails[run->next_tail++ % JINJA_TAILS] = (jinja_list_tail){*items, n, cap};
    return true;
}

static bool add_lists(jinja_run *run, jinja_value a, jinja_value b, jinja_value *out) {
    jinja_value *items;
    if ((uint64_t)a.list->n + b.list->n > UINT32_MAX / 2)
        return jinja_fail_code(run, RELAY_RESOURCE_EXHAUSTED, "makes a list of more than %u items", UINT32_MAX / 2);
    if (!jinja_spend(run, b.list->n / 4 + 1) || !extend_items(run, a.list, b.list->n, &items)) return false;
    if (b.list->n != 0) memcpy(items + a.list->n, b.list->items, b.list->n * sizeof *items);
    if (!jinja_list_wrap(run, a.kind, items, a.list->n + b.list->n, out)) return false;
    out->origin = jinja_origin_of_both(a, b);
    return true;
}

static bool add_strs(jinja_run *run, jinja_value a, jinja_value b, jinja_value *out) {
    bool is_markup = a.is_markup || b.is_markup; // then what is not markup is escaped
    jinja_value both[2] = {a, b};
    if (is_markup && (!jinja_str_escape(run, a, &both[0]) || !jinja_str_escape(run, b, &both[1]))) return false;
    if (!jinja_str_join(run, both, 2, out)) return false;
    out->is_markup = is_markup;
    return true;
}

static bool repeat(jinja_run *run, jinja_value v, jinja_value times, jinja_value *out) {
    int64_t n = jinja_as_int(times) < 0 ? 0 : jinja_as_int(times);
    uint64_t total;
    if (v.kind == JINJA_STR) return jinja_str_repeat(run, v, n, out);
    if (__builtin_mul_overflow((uint64_t)n, (uint64_t)v.list->n, &total) || total > UINT32_MAX) total = UINT32_MAX;
    if (!jinja_spend(run, total / 4 + 1) || !jinja_list_make(run, v.kind, (uint32_t)total, out)) return false;
    for (uint64_t i = 0; i < total; i++)
        out->list->items[i] = v.list->items[i % v.list->n];
    out->origin = v.origin;
    return true;
}

static bool is_sequence(jinja_value v) {
    return v.kind == JINJA_STR || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
}

bool jinja_binary(jinja_run *run, jinja_operator op, jinja_value a, jinja_value b, jinja_value *out) {
    if (op == JINJA_OP_ADD && a.kind == b.kind && is_sequence(a))
        return a.kind == JINJA_STR ? add_strs(run, a, b, out) : add_lists(run, a, b, out);
    if (op == JINJA_OP_MOD && a.kind == JINJA_STR) return jinja_format_percent(run, a, b, out);
    if (op == JINJA_OP_MUL && is_sequence(a) && jinja_is_integer(b)) return repeat(run, a, b, out);
    if (op == JINJA_OP_MUL && is_sequence(b) && jinja_is_integer(a)) return repeat(run, b, a, out);
    if (!jinja_is_number(a) || !jinja_is_number(b)) return refuse(run, op, a, b);
    bool ok = jinja_is_integer(a) && jinja_is_integer(b) ? int_op(run, op, jinja_as_int(a), jinja_as_int(b), out)
                                                         : float_op(run, op, jinja_as_float(a), jinja_as_float(b), out);
    if (ok) out->origin = jinja_origin_of_both(a, b);
    return ok;
}

bool jinja_unary(jinja_run *run, jinja_operator op, jinja_value a, jinja_value *out) {
    if (a.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, a);
    if (!jinja_is_number(a))
        return jinja_fail(run, "bad operand type for unary %s: '%s'", sign_of(op), jinja_type_name(a));
    if (a.kind == JINJA_FLOAT) {
        *out = jinja_float(op == JINJA_OP_SUB ? -a.f : a.f);
    } else {
        int64_t r = jinja_as_int(a);
        if (op == JINJA_OP_SUB && __builtin_sub_overflow(0, r, &r)) return too_large(run);
        *out = jinja_int(r);
    }
    out->origin = a.origin;
    return true;
}
