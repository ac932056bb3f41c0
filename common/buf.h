// Growable bytes with a limit that is set when they are made: nothing in Relay grows without one.
//
// A struct in the caller's hands; one thread at a time. An append that would pass the limit, or one after a failed one,
// changes nothing and marks the buffer as failed, so a run of appends needs one check at its end.
#ifndef RELAY_COMMON_BUF_H
#define RELAY_COMMON_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef struct relay_buf {
    char *data;     // owned; data[len] is NUL once anything was appended; NULL before
    size_t len;     // bytes used
    size_t cap;     // bytes allocated
    size_t limit;   // bytes that `len` may not pass
    bool is_failed; // an append did not fit
} relay_buf;

void relay_buf_init(relay_buf *b, size_t limit);
// Frees the bytes; the buffer is as after init.
void relay_buf_fini(relay_buf *b);
// Empties it and clears the failure; keeps the memory.
void relay_buf_clear(relay_buf *b);
void relay_buf_append(relay_buf *b, const void *data, size_t len);
void relay_buf_puts(relay_buf *b, const char *s);
void relay_buf_putc(relay_buf *b, char c);
void relay_buf_printf(relay_buf *b, const char *fmt, ...) RELAY_PRINTF(2, 3);
// Gives the bytes to the caller, who frees them (never NULL, NUL behind the end); the buffer is as after init.
char *relay_buf_take(relay_buf *b, size_t *len);
// The bytes as a JSON string with its quotes. `s` must be valid UTF-8.
void relay_buf_put_json_string(relay_buf *b, const char *s, size_t len);

#endif
