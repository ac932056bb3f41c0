#include "model_svc/token_rate.h"

void relay_token_rate_note(relay_token_rate *r, uint64_t total, relay_mono_us now) {
    if (r->n > 0 && now - r->at[r->newest] < RELAY_TOKEN_RATE_SPACING_US) return;
    r->newest = (r->newest + 1) % RELAY_TOKEN_RATE_NOTES;
    r->at[r->newest] = now;
    r->total[r->newest] = total;
    if (r->n < RELAY_TOKEN_RATE_NOTES) r->n++;
}

relay_token_rate_window relay_token_rate_get(const relay_token_rate *r, uint64_t total, relay_mono_us now) {
    // The oldest note that is not too old; after a pause that is one of the newest.
    relay_token_rate_window w = {.begin = now, .end = now};
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t at = (r->newest + RELAY_TOKEN_RATE_NOTES - i) % RELAY_TOKEN_RATE_NOTES;
        if (now - r->at[at] > RELAY_TOKEN_RATE_WINDOW_US + RELAY_TOKEN_RATE_SPACING_US) break;
        w.begin = r->at[at];
        w.tokens = total - r->total[at];
    }
    return w;
}

double relay_token_rate_at(const relay_token_rate_window *w, relay_mono_us now) {
    if (w->tokens == 0 || now <= w->begin || now - w->end > RELAY_TOKEN_RATE_WINDOW_US) return 0;
    return (double)w->tokens * 1e6 / (double)(now - w->begin);
}
