// What is kept of sequences by name, beyond their end.
#include <string.h>

#include "model_svc/scheduler_internal.h"

static void add(relay_scheduler *s, relay_sequence_key key, const relay_lease_hold *hold, int64_t lease_us,
                relay_mono_us now) {
    relay_mono_us expires_at = now + lease_us;
    relay_leases_add(s->leases, key, hold, expires_at);
    if (expires_at < s->next_expiry) s->next_expiry = expires_at;
}

// What the index knows of `q`. False where that is nothing.
static bool hold_of(const relay_sequence *q, relay_lease_hold *out) {
    if (q->entry == RELAY_NO_ENTRY || q->n_stored == 0) return false;
    *out = (relay_lease_hold){.entry = q->entry, .n_blocks = q->n_stored};
    memcpy(out->first_block, q->first_block, sizeof out->first_block);
    return true;
}

void relay_scheduler_lease(relay_scheduler *s, const relay_sequence *q, relay_mono_us now) {
    relay_lease_hold hold;
    bool is_first = q == &s->sequences[q->id];
    if (!is_first || q->request->lease_us == 0 || !hold_of(q, &hold)) return;
    add(s, q->request->sequence_key, &hold, q->request->lease_us, now);
}

uint32_t relay_scheduler_fork(relay_scheduler *s, relay_sequence_key from, relay_sequence_key to, int64_t lease_us,
                              relay_mono_us now) {
    relay_lease_hold hold = {0};
    const relay_lease_hold *leased = relay_leases_find(s->leases, from);
    if (leased != NULL) hold = *leased;
    // One that runs may have got further.
    for (const relay_sequence *q = s->running.head; q != NULL; q = q->next) {
        relay_lease_hold running;
        bool is_it = q->request->sequence_key.high == from.high && q->request->sequence_key.low == from.low;
        if (is_it && hold_of(q, &running) && running.n_blocks > hold.n_blocks) hold = running;
    }
    if (hold.n_blocks > 0) add(s, to, &hold, lease_us, now);
    return hold.n_blocks * RELAY_BLOCK_TOKENS;
}

bool relay_scheduler_release(relay_scheduler *s, relay_sequence_key key) {
    return relay_leases_remove(s->leases, key);
}
