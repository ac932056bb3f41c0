#include "tokenizer_svc/jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/template.h"

enum { PAUSE_STEPS = 4096 };

static void set_pause(jinja_run *run) {
    uint64_t left = run->limits.max_steps - run->steps;
    run->pause_at = run->steps + (left < PAUSE_STEPS ? left : PAUSE_STEPS);
}

jinja_run *jinja_run_create(const jinja_limits *limits) {
    jinja_run *run = relay_calloc(1, sizeof *run);
    run->limits = *limits;
    run->deadline = relay_mono_now() + (relay_mono_us)limits->max_time_ms * 1000;
    set_pause(run);
    relay_arena_init(&run->arena, limits->max_memory_bytes);
    return run;
}

void jinja_run_destroy(jinja_run *run) {
    if (run == NULL) return;
    relay_arena_fini(&run->arena);
    free(run);
}

void jinja_run_set_time(jinja_run *run, int64_t unix_seconds) {
    run->has_time = true;
    run->unix_seconds = unix_seconds;
}

void *jinja_alloc(jinja_run *run, size_t count, size_t size) {
    size_t bytes;
    void *p = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes)) p = relay_arena_alloc(&run->arena, bytes != 0 ? bytes : 1);
    if (p == NULL)
        jinja_fail_code(run, RELAY_RESOURCE_EXHAUSTED, "needs more than %zu bytes of memory",
                        run->limits.max_memory_bytes);
    return p;
}

static bool fail(jinja_run *run, relay_code code, const char *fmt, va_list args) {
    if (run->has_failed) return false;
    run->has_failed = true;
    char what[RELAY_ERR_MESSAGE_MAX];
    vsnprintf(what, sizeof what, fmt, args);
    if (run->t == NULL) {
        relay_fail(&run->error, code, "chat template: %s", what);
        return false;
    }
    uint32_t line, column;
    jinja_template_place(run->t, run->at, &line, &column);
    relay_fail(&run->error, code, "chat template: line %u, column %u: %s", line, column, what);
    return false;
}

bool jinja_fail(jinja_run *run, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail(run, RELAY_INVALID_ARGUMENT, fmt, args);
    va_end(args);
    return false;
}

bool jinja_fail_code(jinja_run *run, relay_code code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fail(run, code, fmt, args);
    va_end(args);
    return false;
}

bool jinja_fail_text(jinja_run *run, jinja_value text) {
    if (run->has_failed) return false;
    run->has_failed = true;
    relay_fail(&run->error, RELAY_INVALID_ARGUMENT, "%.*s", (int)text.len, text.s);
    return false;
}

bool jinja_fail_undefined(jinja_run *run, jinja_value u) {
    int len = jinja_shown(u.len);
    switch ((jinja_undefined_reason)u.reason) {
    case JINJA_UNDEFINED_NAME:
        return jinja_fail(run, "'%.*s' is undefined", len, u.s);
    case JINJA_UNDEFINED_ATTR:
        return jinja_fail(run, "'%s' has no attribute '%.*s'", u.type_name, len, u.s);
    case JINJA_UNDEFINED_ELEMENT:
        return jinja_fail(run, "%s has no element %.*s", u.type_name, len, u.s);
    case JINJA_UNDEFINED_UNSAFE:
        return jinja_fail(run, "access to attribute '%.*s' of '%s' object is unsafe", len, u.s, u.type_name);
    case JINJA_UNDEFINED_HINT:
        break;
    }
    return jinja_fail(run, "%.*s", len, u.s);
}

bool jinja_pause(jinja_run *run) {
    const jinja_limits *limits = &run->limits;
    if (run->has_failed) return false;
    if (run->steps > limits->max_steps)
        return jinja_fail_code(run, RELAY_RESOURCE_EXHAUSTED, "takes more than %llu steps",
                               (unsigned long long)limits->max_steps);
    if (limits->is_over != NULL && limits->is_over(limits->arg))
        return jinja_fail_code(run, RELAY_CANCELLED, "the call has ended");
    if (relay_mono_now() > run->deadline)
        return jinja_fail_code(run, RELAY_RESOURCE_EXHAUSTED, "takes more than %u ms", limits->max_time_ms);
    set_pause(run);
    return true;
}

bool jinja_fail_depth(jinja_run *run) {
    return jinja_fail_code(run, RELAY_RESOURCE_EXHAUSTED, "nests more than %u levels deep", run->limits.max_depth);
}

relay_code jinja_run_error(const jinja_run *run, relay_err *e) {
    RELAY_ASSERT(run->has_failed);
    return relay_fail(e, run->error.code, "%s", run->error.message);
}

relay_code jinja_run_set(jinja_run *run, const char *name, size_t len, jinja_value v, relay_err *e) {
    bool ok = (run->context.kind == JINJA_DICT || jinja_dict_make(run, JINJA_DICT, 16, &run->context)) &&
              jinja_dict_set(run, run->context.dict, jinja_str(name, len, JINJA_TEMPLATE), v);
    return ok ? RELAY_OK : jinja_run_error(run, e);
}

relay_code jinja_run_render(jinja_run *run, const jinja_template *t, jinja_value *text, relay_err *e) {
    RELAY_ASSERT(run->t == NULL);
    run->t = t;
    jinja_text out;
    jinja_text_init(&out, run);
    run->out = &out;
    bool ok = (run->context.kind == JINJA_DICT || jinja_dict_make(run, JINJA_DICT, 0, &run->context)) &&
              jinja_eval_template(run, t) && jinja_text_finish(&out, text);
    return ok ? RELAY_OK : jinja_run_error(run, e);
}
