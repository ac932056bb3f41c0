// One render, from the inside: its memory, its budget and its first error. Private to this folder.
//
// Functions that can fail return a bool, false with the error set in the run. The error names the place in the template
// that was evaluated last (run->at).
#ifndef RELAY_TOKENIZER_SVC_JINJA_RUN_H
#define RELAY_TOKENIZER_SVC_JINJA_RUN_H

#include "common/arena.h"
#include "common/clock.h"
#include "tokenizer_svc/jinja/jinja.h"
#include "tokenizer_svc/jinja/text.h"

// The largest strings are those that a template grows piece by piece. These are the last few of them: a piece that is
// appended to one goes where it ends, and a loop of appends costs what it appends. The same for lists.
enum { JINJA_TAILS = 4, JINJA_TAIL_BYTES = 512 };

typedef struct jinja_tail {
    char *s;       // the string's bytes
    uint8_t *from; // their origins
    size_t len, cap;
} jinja_tail;

typedef struct jinja_list_tail {
    jinja_value *items; // of the list
    uint32_t n, cap;
} jinja_list_tail;

struct jinja_run {
    relay_arena arena;
    jinja_limits limits;
    const jinja_template *t; // NULL until rendered
    uint64_t steps;          // spent
    uint64_t pause_at;       // past so many the bounds are looked at: at most max_steps
    relay_mono_us deadline;
    uint32_t depth;
    uint32_t at; // offset in the template's source of what is evaluated
    bool has_failed;
    relay_err error;             // the first one, when has_failed
    jinja_text *out;             // where output goes: the render's text, or that of the macro or block being captured
    jinja_value *context_values; // of the template's names, [t->n_names]
    jinja_value context;         // DICT: what the caller set
    jinja_tail tails[JINJA_TAILS];
    jinja_list_tail list_tails[JINJA_TAILS];
    uint32_t next_tail;
    bool has_time;
    int64_t unix_seconds;
};

// Zeroed memory of the run, NULL with the error set.
void *jinja_alloc(jinja_run *run, size_t count, size_t size) RELAY_NODISCARD;

// The first failure wins. Both return false.
bool jinja_fail(jinja_run *run, const char *fmt, ...) RELAY_PRINTF(2, 3);
bool jinja_fail_code(jinja_run *run, relay_code code, const char *fmt, ...) RELAY_PRINTF(3, 4);
// What raise_exception says, without a place.
bool jinja_fail_text(jinja_run *run, jinja_value text);
bool jinja_fail_undefined(jinja_run *run, jinja_value undefined);
// Past pause_at: false where a bound is passed or the call is over, else sets the next pause.
bool jinja_pause(jinja_run *run);
bool jinja_fail_depth(jinja_run *run);

static inline bool jinja_spend(jinja_run *run, uint64_t steps) {
    run->steps += steps;
    return __builtin_expect(run->steps <= run->pause_at, 1) || jinja_pause(run);
}
// For copying and searching.
static inline bool jinja_spend_bytes(jinja_run *run, uint64_t bytes) {
    return jinja_spend(run, 1 + bytes / 64);
}
// For looking at characters one by one.
static inline bool jinja_spend_chars(jinja_run *run, uint64_t bytes) {
    return jinja_spend(run, 1 + bytes / 4);
}
// How much of a name or a text a message shows.
static inline int jinja_shown(size_t len) {
    return len < 160 ? (int)len : 160;
}
// Every function that recurses on values or calls goes in and out through these.
static inline bool jinja_enter(jinja_run *run) {
    if (__builtin_expect(run->depth >= run->limits.max_depth, 0)) return jinja_fail_depth(run);
    run->depth++;
    return true;
}
static inline void jinja_leave(jinja_run *run) {
    run->depth--;
}

#endif
