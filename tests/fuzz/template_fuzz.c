// Compiles the input as a chat template and renders it with a conversation that has a bit of everything. Bounds are
// small, so that a template that never ends is one more input.
//
// An input that begins with a zero byte is not text: each byte behind it stands for a piece of the language, so that
// mutations make templates that parse.
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer_svc/jinja/from_json.h"
#include "tokenizer_svc/jinja/jinja.h"

static const char context[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" S\\u00df \"}, {\"role\": \"user\", \"content\": \"Hi, "
    "<you>\\n\\n%s {}\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"type\": \"function\", \"id\": \"c1\", "
    "\"function\": "
    "{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true, null], \"b\": {\"c\": \"d\"}}}}]}],"
    " \"tools\": [{\"name\": \"f\", \"big\": 123456789012345678901234567890}], \"bos_token\": \"<s>\", \"n\": -3, "
    "\"e\": []}";

static const char *const seeds[] = {
    "{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m['content'] | default('', true) | trim }}{% endfor %}",
    "{%- if tools %}{{- tools | tojson(indent=2) }}{%- elif n %}x{%- else %}y{%- endif -%}  z",
    "{% macro f(a, b='x') %}{{ a }}{{ b }}{{ caller() }}{{ varargs }}{{ kwargs }}{% endmacro %}{% call(q) f(1, c=2) "
    "%}{{ q }}{% endcall %}",
    "{% set ns = namespace(i=0, s='') %}{% for c in messages[1].content %}{% set ns.i = ns.i + 1 %}{% set ns.s = ns.s "
    "~ c %}{% endfor %}{{ ns.s[::-2] }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(', ') | upper | indent(2) "
    "}}",
    "{% for x in range(10) if x is odd %}{% if loop.last %}{% break %}{% endif %}{{ loop.revindex ~ x }}{% else "
    "%}none{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x ** 2 // 3 % 5 }}{% endfor %}",
    "{{ '%5.2f|%-5s|%x|%(a)s' % (1.5, 'a', 255) }}{{ '{:>8.3f}{!r:^9}{0[1]}'.format(n, [1], (1, 2)) }}",
    "{% set x | replace('a', 'b') %}a{{ n }}{% endset %}{% filter upper %}{{ x }}{% endfilter %}{% with a = x %}{{ "
    "a[1:] }}{% endwith %}",
    "{{ {'a': 1, 2: (3,), none: [true]} }}{{ dict(a=1).items() | list | sort | unique | list | groupby(0) }}{{ "
    "'a\\x41\\u00e9\\n' }}",
    "{# c #}{% raw %}{{ x }}{% endraw %}{% generation %}{{ raise_exception('no') if n > 0 }}{% endgeneration %}{{ "
    "strftime_now('%d %B') }}",
    "{{ messages[0].content.strip().split('S')[-1].rsplit(none, 1) }}{{ messages[1].content | e | urlencode | "
    "truncate(9) | wordcount }}",
};

static const char *const pieces[] = {
    "{{ ",
    " }}",
    "{%- ",
    " -%}",
    "{% if ",
    " %}",
    "{% elif ",
    "{% else %}",
    "{% endif %}",
    "{% for x in ",
    "{% for k, v in ",
    "{% endfor %}",
    "{% set x = ",
    "{% set ns.a = ",
    "{% set x %}",
    "{% endset %}",
    "{% macro f(a, b=1) %}",
    "{% endmacro %}",
    "{% call f(x) %}",
    "{% endcall %}",
    "{% filter ",
    "{% endfilter %}",
    "{% break %}",
    "{% continue %}",
    "{% set ns = namespace(a=1) %}",
    "x",
    "a",
    "k",
    "v",
    "n",
    "e",
    "ns",
    "ns.a",
    "f",
    "messages",
    "tools",
    "loop",
    "caller",
    "'abc'",
    "' \u00df\n'",
    "'%s{}'",
    "''",
    "1",
    "-2",
    "2.5",
    "10",
    "true",
    "none",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ", ",
    ": ",
    ".",
    " | ",
    " ~ ",
    " + ",
    " - ",
    " * ",
    " / ",
    " // ",
    " % ",
    " ** ",
    " == ",
    " < ",
    " >= ",
    " in ",
    " not in ",
    " is ",
    " is not ",
    " and ",
    " or ",
    "not ",
    " if ",
    " else ",
    "[0]",
    "[1:]",
    "[::-1]",
    ".content",
    ".role",
    "['function']",
    ".strip()",
    ".split('b')",
    ".items()",
    ".get('role')",
    ".upper()",
    ".format(",
    ".replace(",
    ".join(",
    ".center(9)",
    "(",
    "trim",
    "upper",
    "tojson",
    "list",
    "join",
    "length",
    "default(",
    "replace(",
    "sort",
    "unique",
    "map(attribute='role')",
    "map('upper')",
    "selectattr('role', 'equalto', 'user')",
    "select('odd')",
    "batch(2)",
    "groupby('role')",
    "dictsort",
    "indent(",
    "truncate(",
    "int",
    "round(",
    "first",
    "last",
    "reverse",
    "format(",
    "e",
    "safe",
    "urlencode",
    "defined",
    "string",
    "mapping",
    "odd",
    "divisibleby(",
    "range(",
    "dict(",
    "cycler(",
    "loop.last",
    "loop.cycle(",
    "loop(x)",
    " recursive %}",
    "*",
    "**",
    "=",
    "text",
};

// The pieces that the bytes stand for, one behind the other.
static size_t assemble(const uint8_t *data, size_t size, char *out, size_t cap) {
    size_t len = 0;
    for (size_t i = 0; i < size; i++) {
        const char *piece = pieces[data[i] % (sizeof pieces / sizeof pieces[0])];
        size_t n = strlen(piece);
        if (n > cap - len) break;
        memcpy(out + len, piece, n);
        len += n;
    }
    return len;
}

// Which pieces make a text: the longest one at each place.
static size_t disassemble(const char *text, uint8_t *out, size_t cap) {
    size_t n = 0;
    while (*text != 0 && n < cap) {
        size_t best = 0, best_len = 0;
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
            size_t len = strlen(pieces[i]);
            if (len > best_len && strncmp(text, pieces[i], len) == 0) {
                best = i;
                best_len = len;
            }
        }
        text += best_len != 0 ? best_len : 1;
        if (best_len != 0) out[n++] = (uint8_t)best;
    }
    return n;
}

// Every seed as text, and once more as pieces.
size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    size_t n = sizeof seeds / sizeof seeds[0];
    if (i >= 2 * n || cap < 2) return 0;
    if (i >= n) {
        out[0] = 0;
        return 1 + disassemble(seeds[i - n], out + 1, cap - 1);
    }
    size_t len = strlen(seeds[i]);
    if (len > cap) len = cap;
    memcpy(out, seeds[i], len);
    return len;
}

// What a render promises: valid text, an origin for each byte, a message that can be sent.
static void check(relay_code code, jinja_value text, const relay_err *e) {
    if (code == RELAY_OK) {
        RELAY_ASSERT(relay_utf8_is_valid(text.s, text.len));
        for (size_t i = 0; text.origin == JINJA_MIXED && i < text.len; i++)
            RELAY_ASSERT(text.from[i] <= 1);
    } else {
        RELAY_ASSERT(code == RELAY_INVALID_ARGUMENT || code == RELAY_RESOURCE_EXHAUSTED);
        RELAY_ASSERT(relay_utf8_is_valid(e->message, strlen(e->message)));
    }
}

static relay_code set_context(jinja_run *run, yyjson_val *json, relay_err *e) {
    size_t i, n;
    yyjson_val *name, *item;
    yyjson_obj_foreach(json, i, n, name, item) {
        jinja_value v;
        if (!jinja_from_json(run, item, &v)) return jinja_run_error(run, e);
        relay_code code = jinja_run_set(run, yyjson_get_str(name), yyjson_get_len(name), v, e);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const jinja_limits limits = {.max_steps = 20000,
                                        .max_depth = 200,
                                        .max_output_bytes = 1 << 16,
                                        .max_memory_bytes = 4 << 20,
                                        .max_time_ms = 10000};
    jinja_template *t;
    jinja_value text = {0};
    relay_err e = {0};
    static char assembled[1 << 16];
    const char *source = (const char *)data;
    if (size > 0 && data[0] == 0) {
        size = assemble(data + 1, size - 1, assembled, sizeof assembled);
        source = assembled;
    }
    relay_code code = jinja_template_compile(&t, source, size, &e);
    check(code, text, &e);
    if (code != RELAY_OK) return 0;
    yyjson_doc *doc;
    RELAY_ASSERT(relay_json_parse(&doc, context, sizeof context - 1, RELAY_JSON_MAX_DEPTH, "context", &e) == RELAY_OK);
    jinja_run *run = jinja_run_create(&limits);
    jinja_run_set_time(run, 1752148800);
    code = set_context(run, yyjson_doc_get_root(doc), &e);
    if (code == RELAY_OK) code = jinja_run_render(run, t, &text, &e);
    check(code, text, &e);
    jinja_run_destroy(run);
    yyjson_doc_free(doc);
    jinja_template_destroy(t);
    return 0;
}
