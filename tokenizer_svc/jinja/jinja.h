// Jinja as HF's chat templates use it: the entrance to this folder.
//
// A template is compiled once and rendered by any number of threads, each with a run of its own. The run owns every
// byte that a render makes (one arena, freed at once) and counts what it spends: steps, time, depth, output and memory
// are bounded, so a hostile template or message costs an error and nothing else. The measure of right is Python's
// jinja2 in an immutable sandbox with trim_blocks and lstrip_blocks, the loop controls, `{% generation %}`,
// raise_exception, strftime_now and a tojson that is json.dumps(ensure_ascii=False).
//
// What is left out is refused when the template is compiled, by name: blocks (a chat template has no loader for what
// would fill them), autoescape, and the filters for web pages (filesizeformat, pprint, random, striptags, urlize,
// wordwrap, xmlattr). Integers have 64 bits; a larger one in a caller's JSON can be printed and nothing else.
//
// Names in this folder begin with jinja_ and not with relay_jinja_: nothing outside tokenizer_svc sees them.
//
//   lexer -> parser -> scope (names become slots) -> evaluator over value, text, filters, tests, functions and methods
#ifndef RELAY_TOKENIZER_SVC_JINJA_JINJA_H
#define RELAY_TOKENIZER_SVC_JINJA_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/jinja/value.h"

typedef struct jinja_template jinja_template;

// Bytes of source that a template may have, and levels of nesting.
enum { JINJA_MAX_SOURCE = 256 << 10, JINJA_MAX_NESTING = 200 };

// Errors are INVALID_ARGUMENT and name line and column (in characters, from 1). `source` is copied.
relay_code jinja_template_compile(jinja_template **out, const char *source, size_t len, relay_err *e) RELAY_NODISCARD;
void jinja_template_destroy(jinja_template *t);

// What one render may cost. A step is a node evaluated, an item visited, 64 bytes of text copied or searched, 4 looked
// at one by one, or one looked up in Unicode's tables: some 50 ns, so that the default is about a second; a search in
// text made for it may cost twenty times its steps, and meets the time. Depth counts calls inside calls: a level needs
// at most 1 KiB of the thread's stack. The time counts from the run's creation; it and is_over are looked at every few
// thousand steps, but not inside one search or copy.
typedef struct jinja_limits {
    uint64_t max_steps;
    uint32_t max_depth;
    size_t max_output_bytes;
    size_t max_memory_bytes;
    uint32_t max_time_ms;
    bool (*is_over)(void *arg); // nobody wants the result any more: CANCELLED; NULL: somebody always does
    void *arg;
} jinja_limits;

#define JINJA_LIMITS_DEFAULT                                                                                           \
    (jinja_limits) {                                                                                                   \
        .max_steps = 20 * 1000 * 1000, .max_depth = 1000, .max_output_bytes = 16u << 20,                               \
        .max_memory_bytes = 64u << 20, .max_time_ms = 2000                                                             \
    }

jinja_run *jinja_run_create(const jinja_limits *limits);
void jinja_run_destroy(jinja_run *run);
// The time that strftime_now shows, in seconds since 1970, as UTC. Without it: the clock's, at the first use.
void jinja_run_set_time(jinja_run *run, int64_t unix_seconds);
// A variable of the template; `name` must outlive the run. A later value replaces an earlier one.
relay_code jinja_run_set(jinja_run *run, const char *name, size_t len, jinja_value v, relay_err *e) RELAY_NODISCARD;
// What made a function of value.h or from_json.h fail; for callers that build values.
relay_code jinja_run_error(const jinja_run *run, relay_err *e);
// Once a run. The result is a string of the run. INVALID_ARGUMENT is the template's or the caller's doing (what
// raise_exception says is the whole message), RESOURCE_EXHAUSTED a bound that was passed, CANCELLED is_over.
relay_code jinja_run_render(jinja_run *run, const jinja_template *t, jinja_value *text, relay_err *e) RELAY_NODISCARD;

#endif
