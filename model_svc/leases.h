// Finished sequences whose blocks are kept for a while, by promise and not by chance: a lease holds the full blocks
// that the prefix index knows of a sequence, so that its next turn finds them.
//
// A promise that gives way: when blocks are needed, the lease that was made longest ago goes first, and its blocks are
// cached as any others. A fixed number; one thread; nothing allocates after create.
#ifndef RELAY_MODEL_SVC_LEASES_H
#define RELAY_MODEL_SVC_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "model_svc/prefix_index.h"
#include "model_svc/request.h"

typedef struct relay_leases relay_leases;

// What is held: the blocks of the entries on the way to `entry`, n_blocks of them, in each group from first_block on.
typedef struct relay_lease_hold {
    uint32_t entry;
    uint32_t n_blocks;
    uint32_t first_block[RELAY_MAX_KV_GROUPS];
} relay_lease_hold;

// Pools and index are borrowed.
relay_leases *relay_leases_create(relay_prefix_index *index, relay_block_pool *const *pools, uint32_t n_groups,
                                  uint32_t max_leases);
void relay_leases_destroy(relay_leases *l);
// Holds more of what is held already: `hold` is what a sequence or another lease has. Takes the place of a lease of the
// same key, and where all places are taken, that of the oldest.
void relay_leases_add(relay_leases *l, relay_sequence_key key, const relay_lease_hold *hold, relay_mono_us expires_at);
// Valid until the next change; NULL where there is none.
const relay_lease_hold *relay_leases_find(const relay_leases *l, relay_sequence_key key);
// False where there is none.
bool relay_leases_remove(relay_leases *l, relay_sequence_key key);
bool relay_leases_remove_oldest(relay_leases *l);
// Ends those whose time has come; returns when the next one's will, or RELAY_NEVER_US.
relay_mono_us relay_leases_expire(relay_leases *l, relay_mono_us now);

uint32_t relay_leases_count(const relay_leases *l);
// For tests: adds what leases hold to holders [n_groups][blocks] and users [entries].
void relay_leases_count_holds(const relay_leases *l, uint32_t *const *holders, uint32_t *users);

#endif
