// The log: one line an event, to standard error, as key=value or as JSON.
//
//   RELAY_LOG(RELAY_LOG_INFO, "request finished", "request_id=%s tokens=%u", id, n);
//
// prints `ts=2026-01-02T03:04:05.678901Z level=info msg="request finished" request_id=abc tokens=7`, or in JSON form
// `{"ts":"2026-01-02T03:04:05.678901Z","level":"info","msg":"request finished","request_id":"abc","tokens":7}`.
//
// The pairs are those of the format string, so that no value can forge another pair or another line: a value may be any
// text and is quoted and escaped where its bytes need it. Thread-safe; a line is one write of at most
// RELAY_LOG_LINE_MAX bytes, which is what a pipe takes whole. Never called from the engine's step.
#ifndef RELAY_COMMON_LOG_H
#define RELAY_COMMON_LOG_H

#include <stdbool.h>

#include "common/status.h"

enum {
    RELAY_LOG_LINE_MAX =
        4096, // bytes, newline included; pairs that do not fit are left out and truncated=true is added
    RELAY_LOG_VALUE_MAX = 1024, // bytes of one value before quoting; a longer one is cut and ends in "..."
};

typedef enum relay_log_level {
    RELAY_LOG_DEBUG,
    RELAY_LOG_INFO,
    RELAY_LOG_WARN,
    RELAY_LOG_ERROR,
} relay_log_level;

typedef enum relay_log_format {
    RELAY_LOG_KEY_VALUE,
    RELAY_LOG_JSON,
} relay_log_format;

// Call once before threads start; before it: INFO, key=value. Lines below `level` are dropped before they are
// formatted.
void relay_log_init(relay_log_level level, relay_log_format format);
// "debug", "info", "warn", "error"; false if it is none of them.
bool relay_log_level_parse(const char *name, relay_log_level *out);
bool relay_log_enabled(relay_log_level level);
// `fields` is a printf format of key=value pairs with a space between them ("" for none): a key is plain text, a value
// is text and conversions of %d %i %u %x %c %s %p %f %e %g with their flags, widths, precisions and lengths. A value
// that is one numeric conversion (not %x) and nothing else is a number in JSON, and one that is %s may be NULL.
void relay_log_write(relay_log_level level, const char *msg, const char *fields, ...) RELAY_PRINTF(3, 4);

#define RELAY_LOG(level, msg, ...)                                                                                     \
    do {                                                                                                               \
        if (relay_log_enabled(level)) relay_log_write(level, msg, __VA_ARGS__);                                        \
    } while (0)

#endif
