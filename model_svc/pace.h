// How many prompt rows a step may take so that those who decode beside them keep their pace: as many as the time that a
// step should last leaves, by what steps took so far.
//
// A step's time is taken as a + b * rows, fitted by least squares over past steps, in which older ones count less and
// less: prompts' rows get dearer as their contexts grow, and machines are shared. Of a step that took longer than the
// target its relative error counts, or one long step, of a prompt alone, would outweigh fifty of those that the fit is
// for. Pure: the times are the caller's.
#ifndef RELAY_MODEL_SVC_PACE_H
#define RELAY_MODEL_SVC_PACE_H

#include <stdint.h>

#include "common/clock.h"

enum {
    RELAY_PACE_MIN_ROWS = 16,   // a prompt gets on even where no time is left
    RELAY_PACE_FIRST_ROWS = 64, // before the first step was seen
};

typedef struct relay_pace {
    relay_mono_us target;   // of a step; 0: no limit
    double n, x, y, xx, xy; // weighted sums over the steps: of 1, rows, time, rows^2, rows * time
} relay_pace;

void relay_pace_init(relay_pace *p, relay_mono_us target);
void relay_pace_note(relay_pace *p, uint32_t n_rows, relay_mono_us took);
// Prompt rows beside `n_decode` rows.
uint32_t relay_pace_prompt_rows(const relay_pace *p, uint32_t n_decode);

#endif
