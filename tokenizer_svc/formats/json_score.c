// The method is that of serde_json 1.0 without its feature float_roundtrip: all digits as one integer of 64 bits, those
// that do not fit left out; made a double; then multiplied by or divided through 10^exponent. The text is the shortest
// that stands for the number, which is what serde_json and Python write.
#include "tokenizer_svc/formats/json_score.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { MAX_POWER = 308 };

// 10^n, n <= MAX_POWER, correctly rounded.
static double power_of_ten(int n) {
    char text[8] = "1e";
    text[2] = (char)('0' + n / 100);
    text[3] = (char)('0' + n / 10 % 10);
    text[4] = (char)('0' + n % 10);
    return strtod(text, NULL);
}

static double scale(double value, int exponent) {
    if (exponent > MAX_POWER) return value == 0 ? 0 : value * power_of_ten(MAX_POWER) * power_of_ten(MAX_POWER);
    if (exponent >= 0) return value * power_of_ten(exponent);
    for (; exponent < -MAX_POWER; exponent += MAX_POWER)
        value /= power_of_ten(MAX_POWER);
    return value / power_of_ten(-exponent);
}

static double read_as_serde(const char *s) {
    bool is_negative = *s == '-', is_fraction = false;
    uint64_t digits = 0;
    int exponent = 0;
    for (s += is_negative; *s != 0 && *s != 'e' && *s != 'E'; s++) {
        if (*s == '.') {
            is_fraction = true;
            continue;
        }
        uint64_t digit = (uint64_t)(*s - '0');
        bool fits = digits < UINT64_MAX / 10 || (digits == UINT64_MAX / 10 && digit <= UINT64_MAX % 10);
        if (fits) digits = digits * 10 + digit;
        exponent += is_fraction ? (fits ? -1 : 0) : (fits ? 0 : 1);
    }
    if (*s != 0) exponent += atoi(s + 1);
    double value = scale((double)digits, exponent);
    return is_negative ? -value : value;
}

double relay_json_score(yyjson_val *number) {
    if (!yyjson_is_real(number)) return yyjson_get_num(number);
    char *text = yyjson_val_write(number, 0, NULL);
    double value = text == NULL ? yyjson_get_real(number) : read_as_serde(text);
    free(text);
    return value;
}
