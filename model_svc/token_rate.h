// Tokens per second over the last seconds: a total, noted now and then. Plain data with the time given, one thread.
#ifndef RELAY_MODEL_SVC_TOKEN_RATE_H
#define RELAY_MODEL_SVC_TOKEN_RATE_H

#include <stdint.h>

#include "common/clock.h"

enum {
    RELAY_TOKEN_RATE_NOTES = 21,
    RELAY_TOKEN_RATE_SPACING_US = 250 * 1000, // between notes: together 5 seconds
    RELAY_TOKEN_RATE_WINDOW_US = (RELAY_TOKEN_RATE_NOTES - 1) * RELAY_TOKEN_RATE_SPACING_US,
};

typedef struct relay_token_rate {
    relay_mono_us at[RELAY_TOKEN_RATE_NOTES]; // a ring of notes
    uint64_t total[RELAY_TOKEN_RATE_NOTES];
    uint32_t n, newest;
} relay_token_rate;

// What a reader needs to tell the rate later on.
typedef struct relay_token_rate_window {
    relay_mono_us begin, end; // of the time it covers
    uint64_t tokens;          // in it
} relay_token_rate_window;

// `total` so far at `now`; neither falls.
void relay_token_rate_note(relay_token_rate *r, uint64_t total, relay_mono_us now);
relay_token_rate_window relay_token_rate_get(const relay_token_rate *r, uint64_t total, relay_mono_us now);
// At `now`, which may be long after the window's end: it falls as time passes without tokens, and is 0 when nothing was
// noted for RELAY_TOKEN_RATE_WINDOW_US.
double relay_token_rate_at(const relay_token_rate_window *w, relay_mono_us now);

#endif
