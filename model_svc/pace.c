#include "model_svc/pace.h"

static const double KEEP = 0.9; // of the weight of what is known, from one step to the next

void relay_pace_init(relay_pace *p, relay_mono_us target) {
    *p = (relay_pace){.target = target};
}

void relay_pace_note(relay_pace *p, uint32_t n_rows, relay_mono_us took) {
    double rows = n_rows, time = (double)took, weight = 1;
    if (took > p->target) weight = (double)p->target / time * ((double)p->target / time);
    p->n = p->n * KEEP + weight;
    p->x = p->x * KEEP + weight * rows;
    p->y = p->y * KEEP + weight * time;
    p->xx = p->xx * KEEP + weight * rows * rows;
    p->xy = p->xy * KEEP + weight * rows * time;
}

uint32_t relay_pace_prompt_rows(const relay_pace *p, uint32_t n_decode) {
    if (p->target == 0) return UINT32_MAX;
    if (p->x <= 0 || p->y <= 0) return RELAY_PACE_FIRST_ROWS;
    // Where all steps had about the same rows, a row is taken to cost its share of the whole: never less than it does.
    double spread = p->n * p->xx - p->x * p->x;
    double b = p->y / p->x, a = 0;
    if (spread > 0.01 * p->x * p->x) {
        double fitted = (p->n * p->xy - p->x * p->y) / spread;
        double rest = (p->y - fitted * p->x) / p->n;
        if (fitted > 0 && rest > 0) {
            b = fitted;
            a = rest;
        }
    }
    double rows = ((double)p->target - a) / b - n_decode;
    if (rows < RELAY_PACE_MIN_ROWS) return RELAY_PACE_MIN_ROWS;
    return rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
}
