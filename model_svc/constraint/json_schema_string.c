#include <string.h>

#include "model_svc/constraint/json_schema_internal.h"
#include "model_svc/constraint/regex.h"

#define DATE                                                                                                           \
    "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"            \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define TIME  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATOM  "[A-Za-z0-9_%+-]{1,32}"

// Each is a subset of what the format allows: February has 28 days, years four digits and no sign.
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE}, // RFC 3339
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"ipv4", OCTET "\\." OCTET "\\." OCTET "\\." OCTET},
    {"hostname", LABEL "(?:\\." LABEL "){0,3}"},
    {"email", ATOM "(?:\\." ATOM ")?@" LABEL "(?:\\." LABEL "){1,3}"},
};

static relay_expr read_pattern(relay_schema_reader *r, const char *pattern, size_t len, bool is_search) {
    relay_expr x = RELAY_EXPR_NOTHING;
    relay_err why = {0};
    if (relay_regex_read(&x, r->g, pattern, len, relay_json_chars, is_search, "pattern", &why) != RELAY_OK) {
        relay_schema_fail(r, "%s", why.message);
    }
    return x;
}

static relay_expr read_format(relay_schema_reader *r, yyjson_val *format) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (yyjson_equals_str(format, formats[i].name)) {
            return read_pattern(r, formats[i].pattern, strlen(formats[i].pattern), false);
        }
    }
    return relay_schema_fail(r,
                             "format \"%.64s\" is not supported (date, time, date-time, uuid, ipv4, hostname, email)",
                             yyjson_is_str(format) ? yyjson_get_str(format) : "");
}

relay_expr relay_schema_string(relay_schema_reader *r, yyjson_val *schema) {
    yyjson_val *pattern = yyjson_obj_get(schema, "pattern"), *format = yyjson_obj_get(schema, "format");
    uint32_t min = 0, max = RELAY_UNBOUNDED;
    bool has_length = relay_schema_count(r, schema, "minLength", &min);
    has_length |= relay_schema_count(r, schema, "maxLength", &max);
    if (min > max) return relay_schema_fail(r, "minLength is %u and maxLength %u: nothing has such a length", min, max);
    if (pattern == NULL && format == NULL && !has_length) return relay_expr_rule(r->g, r->rules.string);

    relay_expr x = RELAY_EXPR_NOTHING;
    bool is_first = true;
    if (has_length) {
        x = relay_expr_repeat(r->g, r->rules.char_any, min, max);
        is_first = false;
    }
    if (pattern != NULL) {
        if (!yyjson_is_str(pattern)) return relay_schema_fail(r, "pattern is not a string");
        relay_expr p = read_pattern(r, yyjson_get_str(pattern), yyjson_get_len(pattern), true);
        x = is_first ? p : relay_expr_and(r->g, x, p);
        is_first = false;
    }
    if (format != NULL) {
        relay_expr f = read_format(r, format);
        x = is_first ? f : relay_expr_and(r->g, x, f);
    }
    relay_expr quote = relay_expr_string(r->g, "\"");
    return relay_expr_seq(r->g, (relay_expr[]){quote, x, quote}, 3);
}
