// Finding the first of several stop strings in a stream of bytes that comes in any cut.
//
// Aho-Corasick (Aho and Corasick, 1975) over bytes. One byte a step; the whole memory of what came before is a small
// state number, so it costs nothing to save. Immutable once made: any thread. The matcher says how much of the text is
// still a possible beginning of a stop string, and what those bytes are, so its user need not keep them.
#ifndef RELAY_TOKENIZER_SVC_STOP_MATCHER_H
#define RELAY_TOKENIZER_SVC_STOP_MATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RELAY_MAX_STOP_STRINGS = 16,
    RELAY_MAX_STOP_STRING_BYTES = 256,
};

typedef struct relay_stop_string {
    const char *bytes; // valid UTF-8, 1..RELAY_MAX_STOP_STRING_BYTES
    size_t len;
} relay_stop_string;

typedef struct relay_stop_matcher relay_stop_matcher;

// How far the bytes so far have come into a stop string. 0: not at all, which is the state to begin with.
typedef uint16_t relay_stop_state;

enum { RELAY_STOP_NO_MATCH = -1 };

// Within the limits above (programmer error if not). The strings are copied; equal ones count as the first of them.
relay_stop_matcher *relay_stop_matcher_create(const relay_stop_string *strings, uint32_t n_strings);
void relay_stop_matcher_destroy(relay_stop_matcher *m);

relay_stop_state relay_stop_matcher_step(const relay_stop_matcher *m, relay_stop_state state, uint8_t byte);
// How many bytes at the beginning can be in no stop string that begins among them: they leave the state at 0.
size_t relay_stop_matcher_skip(const relay_stop_matcher *m, const char *bytes, size_t len);
// The index of the longest stop string that ends with the last byte, or RELAY_STOP_NO_MATCH.
int relay_stop_matcher_match(const relay_stop_matcher *m, relay_stop_state state);
// The state without what can no longer grow into a match: forgets a stop string that completed and was not wanted.
relay_stop_state relay_stop_matcher_forget_match(const relay_stop_matcher *m, relay_stop_state state);
// The bytes that led into the state: the last *len bytes of the text. Borrowed from the matcher.
const char *relay_stop_matcher_prefix(const relay_stop_matcher *m, relay_stop_state state, size_t *len);
// States are below this.
uint32_t relay_stop_matcher_n_states(const relay_stop_matcher *m);
// The strings it was made of.
const relay_stop_string *relay_stop_matcher_string(const relay_stop_matcher *m, uint32_t index);
uint32_t relay_stop_matcher_n_strings(const relay_stop_matcher *m);

#endif
