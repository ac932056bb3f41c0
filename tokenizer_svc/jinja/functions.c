// The global functions: jinja2's, and those that HF adds.
#include <string.h>
#include <time.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"

// The sandbox allows no longer ranges.
enum { MAX_RANGE = 100000 };

static bool range(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    int64_t bounds[3] = {0, 0, 1};
    if (args->n_named > 0 || args->n_pos < 1 || args->n_pos > 3)
        return jinja_fail(run, "range expected 1 to 3 arguments, got %u", args->n_pos + args->n_named);
    for (uint32_t i = 0; i < args->n_pos; i++) {
        if (!jinja_arg_int(run, args->pos[i], "range", 0, &bounds[args->n_pos == 1 ? 1 : i])) return false;
    }
    if (bounds[2] == 0) return jinja_fail(run, "range() arg 3 must not be zero");
    // The distance and the step as magnitudes, which unsigned arithmetic has without overflow.
    bool up = bounds[2] > 0;
    uint64_t distance = up ? (uint64_t)bounds[1] - (uint64_t)bounds[0] : (uint64_t)bounds[0] - (uint64_t)bounds[1];
    uint64_t step = up ? (uint64_t)bounds[2] : -(uint64_t)bounds[2];
    bool is_empty = up ? bounds[0] >= bounds[1] : bounds[0] <= bounds[1];
    uint64_t n = is_empty ? 0 : (distance - 1) / step + 1;
    if (n > MAX_RANGE)
        return jinja_fail(run, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    jinja_range *r = jinja_alloc(run, 1, sizeof *r);
    if (r == NULL) return false;
    *r = (jinja_range){bounds[0], n > 1 ? bounds[2] : (up ? 1 : -1), (int64_t)n};
    *out = (jinja_value){.kind = JINJA_RANGE, .range = r};
    return true;
}

// dict(mapping or pairs, name=value, ...)
static bool make_dict(jinja_run *run, const jinja_args *args, jinja_kind kind, jinja_value *out) {
    if (args->n_pos > 1) return jinja_fail(run, "dict expected at most 1 argument, got %u", args->n_pos);
    if (!jinja_dict_make(run, kind, args->n_named, out)) return false;
    jinja_value from = args->n_pos > 0 ? args->pos[0] : jinja_missing();
    if (from.kind == JINJA_DICT) {
        for (uint32_t i = 0; i < from.dict->n; i++)
            if (!jinja_dict_set(run, out->dict, from.dict->pairs[i].key, from.dict->pairs[i].value)) return false;
        out->origin = from.origin;
    } else if (from.kind != JINJA_MISSING) {
        jinja_iter it;
        jinja_value pair, *two;
        uint32_t n;
        if (!jinja_iter_begin(run, from, &it)) return false;
        while (jinja_iter_next(&it, &pair)) {
            if (!jinja_items(run, pair, &two, &n)) return false;
            if (n != 2) return jinja_fail(run, "dictionary update sequence element has length %u; 2 is required", n);
            if (!jinja_dict_set(run, out->dict, two[0], two[1])) return false;
        }
        if (run->has_failed) return false;
    }
    for (uint32_t i = 0; i < args->n_named; i++)
        if (!jinja_dict_set(run, out->dict, args->named[i].key, args->named[i].value)) return false;
    return true;
}

static bool dict(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return make_dict(run, args, JINJA_DICT, out);
}

static bool namespace(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return make_dict(run, args, JINJA_NAMESPACE, out);
}

static bool cycler(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    if (args->n_named > 0) return jinja_fail(run, "cycler takes no keyword arguments");
    if (args->n_pos == 0) return jinja_fail(run, "at least one item has to be provided");
    jinja_cycler *c = jinja_alloc(run, 1, sizeof *c);
    if (c == NULL || (c->items = jinja_alloc(run, args->n_pos, sizeof *c->items)) == NULL) return false;
    memcpy(c->items, args->pos, args->n_pos * sizeof *c->items);
    c->n = args->n_pos;
    *out = (jinja_value){.kind = JINJA_CYCLER, .cycler = c};
    return true;
}

static bool joiner(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"sep"};
    jinja_joiner *j = jinja_alloc(run, 1, sizeof *j);
    if (j == NULL || !jinja_bind(run, args, "joiner", names, 1, 0, &j->separator)) return false;
    if (j->separator.kind == JINJA_MISSING) j->separator = JINJA_LITERAL(", ");
    *out = (jinja_value){.kind = JINJA_JOINER, .joiner = j};
    return true;
}

static bool raise_exception(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"message"};
    jinja_value message;
    if (!jinja_bind(run, args, "raise_exception", names, 1, 1, &message) || !jinja_to_str(run, message, &message))
        return false;
    return jinja_fail_text(run, message);
}

// What strftime of the C library does not do as Python's datetime without a time zone does.
static bool expand_directive(jinja_text *t, char directive) {
    if (directive == 'f')
        jinja_text_add(t, "000000", 6, JINJA_TEMPLATE);
    else if (directive != 'z' && directive != 'Z')
        return false;
    return true;
}

static bool strftime_now(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"format"};
    jinja_value format;
    if (!jinja_bind(run, args, "strftime_now", names, 1, 1, &format) ||
        !jinja_arg_str(run, format, "strftime_now", &format))
        return false;
    if (!run->has_time) jinja_run_set_time(run, time(NULL));
    time_t seconds = (time_t)run->unix_seconds;
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL || parts.tm_year + 1900 < 1 || parts.tm_year + 1900 > 9999)
        return jinja_fail(run, "the year is out of range");
    jinja_text t;
    jinja_text_init(&t, run);
    for (size_t i = 0; i < format.len;) {
        size_t n = 1;
        while (i + n < format.len && format.s[i] != '%' && format.s[i + n] != '%')
            n++;
        if (format.s[i] != '%' || i + 1 == format.len) {
            jinja_text_add_part(&t, format, i, n);
            i += n;
            continue;
        }
        // One directive at a time: %, flags and a width, a letter.
        n = 1 + strspn(format.s + i + 1, "-_0^#123456789EO:");
        if (i + n >= format.len) n = format.len - 1 - i;
        char directive = format.s[i + n], text[128], spec[32];
        if (n == 1 && expand_directive(&t, directive)) {
            i += 2;
            continue;
        }
        if (n + 2 > sizeof spec) return jinja_fail(run, "strftime_now: a directive is too long");
        memcpy(spec, format.s + i, n + 1);
        spec[n + 1] = 0;
        size_t len = strftime(text, sizeof text, spec, &parts);
        if (!relay_utf8_is_valid(text, len)) return jinja_fail(run, "strftime_now: bad directive");
        jinja_text_add(&t, text, len, JINJA_TEMPLATE);
        i += n + 1;
    }
    return jinja_text_finish(&t, out);
}

const jinja_function jinja_functions[] = {
    {{"cycler", cycler}},
    {{"dict", dict}},
    {{"joiner", joiner}},
    {{"namespace", namespace}},
    {{"raise_exception", raise_exception}},
    {{"range", range}},
    {{"strftime_now", strftime_now}},
    {{NULL, NULL}},
};
