// A comparison of decimals is one of their digits: fewer digits before the point are less, as many are compared from
// the left, then those behind the point. "At least" and "at most" are written so for magnitudes, put together by sign,
// and what both allow is their product.
#include "model_svc/constraint/json_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_svc/constraint/json_text.h"

// |value| as digits before and behind the point, without zeros that say nothing; "0" and "" for 0.
typedef struct decimal {
    char whole[32], fraction[352];
    bool is_negative;
} decimal;

static decimal to_decimal(double value) {
    decimal d = {.is_negative = value < 0};
    char digits[32], text[400];
    int precision = 0;
    do { // the shortest that reads back the same
        snprintf(digits, sizeof digits, "%.*e", precision, fabs(value));
    } while (strtod(digits, NULL) != fabs(value) && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    int places = precision - exponent;
    snprintf(text, sizeof text, "%.*f", places > 0 ? places : 0, fabs(value));
    char *point = strchr(text, '.');
    if (point != NULL) {
        snprintf(d.fraction, sizeof d.fraction, "%s", point + 1);
        *point = '\0';
        for (size_t n = strlen(d.fraction); n > 0 && d.fraction[n - 1] == '0'; n--)
            d.fraction[n - 1] = '\0';
    }
    snprintf(d.whole, sizeof d.whole, "%.31s", text);
    return d;
}

static relay_expr digits(relay_grammar *g) {
    return relay_json_digits(g, 0, RELAY_UNBOUNDED);
}

static relay_expr any_fraction(relay_grammar *g) {
    relay_expr some = relay_expr_then(g, relay_expr_string(g, "."), relay_json_digits(g, 1, RELAY_UNBOUNDED));
    return relay_expr_optional(g, some);
}

// As many digits as `s` has, greater or less than it; it is not equal to itself.
static relay_expr beyond_whole(relay_grammar *g, const char *s, bool is_greater) {
    relay_expr x = RELAY_EXPR_NOTHING;
    for (size_t i = strlen(s);
         i-- > 0;) { // from the last digit on: this one differs, or it is equal and a later one does
        size_t rest = strlen(s) - i - 1;
        char least = i == 0 && rest > 0 ? '1' : '0';
        char first = is_greater ? (char)(s[i] + 1) : least, last = is_greater ? '9' : (char)(s[i] - 1);
        relay_expr differs = RELAY_EXPR_NOTHING;
        if (first <= last) {
            differs = relay_expr_then(g, relay_expr_bytes(g, (uint8_t)first, (uint8_t)last),
                                      relay_json_digits(g, (uint32_t)rest, (uint32_t)rest));
        }
        x = relay_expr_or(g, differs, relay_expr_then(g, relay_expr_text(g, s + i, 1), x));
    }
    return x;
}

// Digits behind the point that make a fraction of at least `s`.
static relay_expr fraction_at_least(relay_grammar *g, const char *s, bool is_exclusive) {
    if (*s == '\0') {
        if (!is_exclusive) return digits(g);
        return relay_expr_seq(g, (relay_expr[]){digits(g), relay_expr_bytes(g, '1', '9'), digits(g)}, 3);
    }
    relay_expr x = relay_expr_then(g, relay_expr_text(g, s, 1), fraction_at_least(g, s + 1, is_exclusive));
    if (*s == '9') return x;
    return relay_expr_or(g, x, relay_expr_then(g, relay_expr_bytes(g, (uint8_t)(*s + 1), '9'), digits(g)));
}

static relay_expr fraction_at_most(relay_grammar *g, const char *s, bool is_exclusive) {
    if (*s == '\0') {
        relay_expr zeros = relay_expr_repeat(g, relay_expr_string(g, "0"), 0, RELAY_UNBOUNDED);
        return is_exclusive ? RELAY_EXPR_NOTHING : zeros;
    }
    relay_expr x = relay_expr_then(g, relay_expr_text(g, s, 1), fraction_at_most(g, s + 1, is_exclusive));
    x = relay_expr_or(g, x, RELAY_EXPR_EMPTY); // what ends here is less: `s` has no zeros at its end
    if (*s == '0') return x;
    return relay_expr_or(g, x, relay_expr_then(g, relay_expr_bytes(g, '0', (uint8_t)(*s - 1)), digits(g)));
}

static relay_expr magnitude_at_least(relay_grammar *g, const decimal *d, bool is_exclusive) {
    uint32_t n = (uint32_t)strlen(d->whole);
    relay_expr longer = relay_expr_then(g, relay_expr_bytes(g, '1', '9'), relay_json_digits(g, n, RELAY_UNBOUNDED));
    relay_expr greater = relay_expr_or(g, longer, beyond_whole(g, d->whole, true));
    relay_expr x = relay_expr_then(g, greater, any_fraction(g));
    relay_expr tail = relay_expr_then(g, relay_expr_string(g, "."), fraction_at_least(g, d->fraction, is_exclusive));
    if (d->fraction[0] == '\0' && !is_exclusive) tail = relay_expr_optional(g, tail);
    return relay_expr_or(g, x, relay_expr_then(g, relay_expr_string(g, d->whole), tail));
}

static relay_expr magnitude_at_most(relay_grammar *g, const decimal *d, bool is_exclusive) {
    uint32_t n = (uint32_t)strlen(d->whole);
    relay_expr less = beyond_whole(g, d->whole, false);
    if (n > 1) {
        relay_expr shorter = relay_expr_then(g, relay_expr_bytes(g, '1', '9'), relay_json_digits(g, 0, n - 2));
        less = relay_expr_or(g, less, relay_expr_or(g, shorter, relay_expr_string(g, "0")));
    }
    relay_expr x = relay_expr_then(g, less, any_fraction(g));
    relay_expr tail = relay_expr_then(g, relay_expr_string(g, "."), fraction_at_most(g, d->fraction, is_exclusive));
    if (d->fraction[0] != '\0' || !is_exclusive) tail = relay_expr_optional(g, tail);
    return relay_expr_or(g, x, relay_expr_then(g, relay_expr_string(g, d->whole), tail));
}

static relay_expr any_magnitude(relay_grammar *g) {
    return relay_expr_then(g, digits(g), any_fraction(g));
}

static relay_expr minus(relay_grammar *g, relay_expr magnitude) {
    return relay_expr_then(g, relay_expr_string(g, "-"), magnitude);
}

static bool is_zero(const decimal *d) {
    return strcmp(d->whole, "0") == 0 && d->fraction[0] == '\0';
}

// On one side of a bound: `is_least` for at least it, else at most.
static relay_expr within(relay_grammar *g, const relay_json_bound *b, bool is_least) {
    decimal d = to_decimal(b->value);
    // Away from zero on the bound's own side, or towards it and all of the other side. Zero is on the positive side.
    bool is_outward = d.is_negative != is_least;
    if (is_zero(&d)) is_outward = is_least;
    if (is_outward) {
        relay_expr x = magnitude_at_least(g, &d, b->is_exclusive);
        return is_least ? x : minus(g, x);
    }
    relay_expr x = is_zero(&d) && b->is_exclusive ? RELAY_EXPR_NOTHING : magnitude_at_most(g, &d, b->is_exclusive);
    return is_least ? relay_expr_or(g, minus(g, x), any_magnitude(g)) : relay_expr_or(g, x, minus(g, any_magnitude(g)));
}

relay_expr relay_json_number_between(relay_grammar *g, bool is_integer, const relay_json_bound *min,
                                     const relay_json_bound *max) {
    relay_expr whole = relay_expr_or(
        g, relay_expr_string(g, "0"),
        relay_expr_then(g, relay_expr_bytes(g, '1', '9'), relay_json_digits(g, 0, RELAY_JSON_MAX_DIGITS - 1)));
    relay_expr fraction = relay_expr_then(g, relay_expr_string(g, "."), relay_json_digits(g, 1, RELAY_JSON_MAX_DIGITS));
    relay_expr x = is_integer ? whole : relay_expr_then(g, whole, relay_expr_optional(g, fraction));
    // Minus zero is zero, and spelled without the sign.
    relay_expr zero = relay_expr_then(
        g, relay_expr_string(g, "0"),
        relay_expr_optional(g, relay_expr_then(g, relay_expr_string(g, "."),
                                               relay_expr_repeat(g, relay_expr_string(g, "0"), 0, RELAY_UNBOUNDED))));
    x = relay_expr_or(g, x, minus(g, relay_expr_minus(g, x, zero)));
    if (min->is_set) x = relay_expr_and(g, x, within(g, min, true));
    if (max->is_set) x = relay_expr_and(g, x, within(g, max, false));
    return x;
}
