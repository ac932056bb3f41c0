// An array that is searched from its begin, and a list through it from the oldest to the newest. What a lease holds is
// found again by going from its entry to the begin of the chain: entries in use do not lose blocks that are held.
#include "model_svc/leases.h"

#include <stdlib.h>

#include "common/status.h"

enum { NONE = UINT32_MAX };

typedef struct lease {
    relay_sequence_key key;
    relay_lease_hold hold;
    relay_mono_us expires_at;
    uint32_t older, newer; // `newer` also links the places that are not in use
    bool is_in_use;
} lease;

struct relay_leases {
    relay_prefix_index *index;
    relay_block_pool *pools[RELAY_MAX_KV_GROUPS];
    uint32_t n_groups;
    uint32_t n, max;
    uint32_t oldest, newest, unused;
    lease leases[];
};

relay_leases *relay_leases_create(relay_prefix_index *index, relay_block_pool *const *pools, uint32_t n_groups,
                                  uint32_t max_leases) {
    relay_leases *l = relay_calloc(1, sizeof *l + (uint64_t)max_leases * sizeof l->leases[0]);
    l->index = index;
    l->n_groups = n_groups;
    for (uint32_t g = 0; g < n_groups; g++)
        l->pools[g] = pools[g];
    l->max = max_leases;
    l->oldest = l->newest = l->unused = NONE;
    for (uint32_t i = max_leases; i-- > 0;) {
        l->leases[i].newer = l->unused;
        l->unused = i;
    }
    return l;
}

void relay_leases_destroy(relay_leases *l) {
    free(l);
}

// Calls for each block that is held.
static void for_each_block(const relay_leases *l, const relay_lease_hold *h,
                           void (*act)(const relay_leases *l, uint32_t group, uint32_t block, void *arg), void *arg) {
    uint32_t entry = h->entry;
    for (uint32_t b = h->n_blocks; b-- > 0; entry = relay_prefix_index_parent(l->index, entry)) {
        for (uint32_t g = 0; g < l->n_groups; g++) {
            if (b >= h->first_block[g]) act(l, g, relay_prefix_index_block(l->index, entry, g), arg);
        }
    }
}

static void hold_block(const relay_leases *l, uint32_t group, uint32_t block, void *arg) {
    relay_block_pool_hold(l->pools[group], block);
}

static void release_block(const relay_leases *l, uint32_t group, uint32_t block, void *arg) {
    relay_block_pool_release(l->pools[group], block);
}

static uint32_t find(const relay_leases *l, relay_sequence_key key) {
    uint32_t i = l->newest;
    while (i != NONE && !(l->leases[i].key.high == key.high && l->leases[i].key.low == key.low))
        i = l->leases[i].older;
    return i;
}

static void end(relay_leases *l, uint32_t i) {
    lease *x = &l->leases[i];
    for_each_block(l, &x->hold, release_block, NULL);
    relay_prefix_index_leave(l->index, x->hold.entry);
    *(x->older != NONE ? &l->leases[x->older].newer : &l->oldest) = x->newer;
    *(x->newer != NONE ? &l->leases[x->newer].older : &l->newest) = x->older;
    x->is_in_use = false;
    x->newer = l->unused;
    l->unused = i;
    l->n--;
}

void relay_leases_add(relay_leases *l, relay_sequence_key key, const relay_lease_hold *hold, relay_mono_us expires_at) {
    if (l->max == 0) return;
    const relay_lease_hold h = *hold; // which may be that of a lease that ends here
    for_each_block(l, &h, hold_block, NULL);
    relay_prefix_index_use(l->index, h.entry);
    uint32_t same = find(l, key);
    if (same != NONE) end(l, same);
    if (l->unused == NONE) end(l, l->oldest);
    uint32_t i = l->unused;
    lease *x = &l->leases[i];
    l->unused = x->newer;
    *x = (lease){.key = key, .hold = h, .expires_at = expires_at, .older = l->newest, .newer = NONE, .is_in_use = true};
    *(x->older != NONE ? &l->leases[x->older].newer : &l->oldest) = i;
    l->newest = i;
    l->n++;
}

const relay_lease_hold *relay_leases_find(const relay_leases *l, relay_sequence_key key) {
    uint32_t i = find(l, key);
    return i != NONE ? &l->leases[i].hold : NULL;
}

bool relay_leases_remove(relay_leases *l, relay_sequence_key key) {
    uint32_t i = find(l, key);
    if (i != NONE) end(l, i);
    return i != NONE;
}

bool relay_leases_remove_oldest(relay_leases *l) {
    if (l->oldest == NONE) return false;
    end(l, l->oldest);
    return true;
}

relay_mono_us relay_leases_expire(relay_leases *l, relay_mono_us now) {
    relay_mono_us next = RELAY_NEVER_US;
    for (uint32_t i = 0; i < l->max; i++) {
        lease *x = &l->leases[i];
        if (!x->is_in_use) continue;
        if (x->expires_at <= now) {
            end(l, i);
        } else if (x->expires_at < next) {
            next = x->expires_at;
        }
    }
    return next;
}

uint32_t relay_leases_count(const relay_leases *l) {
    return l->n;
}

static void count_block(const relay_leases *l, uint32_t group, uint32_t block, void *arg) {
    uint32_t *const *holders = arg;
    holders[group][block]++;
}

void relay_leases_count_holds(const relay_leases *l, uint32_t *const *holders, uint32_t *users) {
    for (uint32_t i = l->oldest; i != NONE; i = l->leases[i].newer) {
        for_each_block(l, &l->leases[i].hold, count_block, (void *)(uintptr_t)holders);
        users[l->leases[i].hold.entry]++;
    }
}
