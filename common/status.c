#include "common/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

const char *relay_code_name(relay_code code) {
    switch (code) {
#define RELAY_CODE_NAME(name, value)                                                                                   \
    case RELAY_##name:                                                                                                 \
        return #name;
        RELAY_CODES(RELAY_CODE_NAME)
#undef RELAY_CODE_NAME
    }
    return "UNKNOWN";
}

relay_code relay_fail(relay_err *e, relay_code code, const char *fmt, ...) {
    if (e == NULL) return code;
    e->code = code;
    e->retry_after_ms = 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    // Messages quote input, which may have been cut inside a character or be no UTF-8 at all.
    relay_utf8_repair(e->message, strlen(e->message));
    return code;
}

void relay_assert_failed(const char *cond, const char *file, int line) {
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, cond);
    abort();
}

static void *or_abort(void *p, uint64_t size) {
    if (p == NULL && size != 0) {
        fprintf(stderr, "out of memory: %llu bytes\n", (unsigned long long)size);
        abort();
    }
    return p;
}

void *relay_calloc(uint64_t count, uint64_t size) {
    return or_abort(calloc(count, size), count * size);
}

void *relay_realloc(void *p, uint64_t size) {
    return or_abort(realloc(p, size), size);
}

char *relay_strndup(const char *s, uint64_t len) {
    char *copy = relay_calloc(len + 1, 1);
    if (len != 0) memcpy(copy, s, len);
    return copy;
}
