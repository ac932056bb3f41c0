// A hash table with chains, over an array of entries. The chain of a hash runs through the entries, as does the list of
// those not in use. A salt's key is its bytes in place of ids, behind no parent.
//
// A block's label in its pool is its entry, so that a pool that gives a cached block away leads to who must forget it.
#include "model_svc/prefix_index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/status.h"

typedef struct key {
    uint32_t parent;
    uint32_t ids[RELAY_BLOCK_TOKENS];
} key;

typedef struct entry {
    key key;
    uint32_t next;   // in its bucket, or of those not in use
    uint32_t bucket; // RELAY_NO_ENTRY: not in use
    uint32_t n_children;
    uint32_t n_users;
    uint32_t n_blocks; // those it has
} entry;

struct relay_prefix_index {
    relay_block_pool *pools[RELAY_MAX_KV_GROUPS];
    uint32_t n_groups;
    uint32_t max_entries;
    uint32_t n_entries; // in use
    uint32_t unused;    // the first of those
    uint64_t hash_seed;
    uint32_t bucket_mask;
    uint32_t *buckets; // [bucket_mask + 1] the first entry of each
    uint32_t *blocks;  // [max_entries][n_groups]
    entry *entries;    // [max_entries]
};

relay_prefix_index *relay_prefix_index_create(relay_block_pool *const *pools, uint32_t n_groups, uint32_t max_entries,
                                              uint64_t hash_seed) {
    RELAY_ASSERT(n_groups >= 1 && n_groups <= RELAY_MAX_KV_GROUPS && max_entries < UINT32_MAX / 2);
    relay_prefix_index *x = relay_calloc(1, sizeof *x);
    memcpy(x->pools, pools, n_groups * sizeof(relay_block_pool *));
    x->n_groups = n_groups;
    x->max_entries = max_entries;
    x->hash_seed = hash_seed;
    uint32_t n_buckets = 1;
    while (n_buckets < max_entries)
        n_buckets *= 2;
    x->bucket_mask = n_buckets - 1;
    x->buckets = relay_calloc(n_buckets, sizeof x->buckets[0]);
    memset(x->buckets, 0xff, n_buckets * sizeof x->buckets[0]);
    x->blocks = relay_calloc((uint64_t)max_entries * n_groups, sizeof x->blocks[0]);
    x->entries = relay_calloc(max_entries, sizeof x->entries[0]);
    x->unused = RELAY_NO_ENTRY;
    for (uint32_t i = max_entries; i-- > 0;) {
        x->entries[i].bucket = RELAY_NO_ENTRY;
        x->entries[i].next = x->unused;
        x->unused = i;
    }
    return x;
}

void relay_prefix_index_destroy(relay_prefix_index *x) {
    if (x == NULL) return;
    free(x->buckets);
    free(x->blocks);
    free(x->entries);
    free(x);
}

static uint32_t *blocks_of(const relay_prefix_index *x, uint32_t id) {
    return x->blocks + (uint64_t)id * x->n_groups;
}

// ---- Entries

static uint32_t bucket_of(const relay_prefix_index *x, const key *k) {
    return (uint32_t)XXH3_64bits_withSeed(k, sizeof *k, x->hash_seed) & x->bucket_mask;
}

static uint32_t find(const relay_prefix_index *x, uint32_t bucket, const key *k) {
    uint32_t id = x->buckets[bucket];
    while (id != RELAY_NO_ENTRY && memcmp(&x->entries[id].key, k, sizeof *k) != 0)
        id = x->entries[id].next;
    return id;
}

// RELAY_NO_ENTRY where all are in use.
static uint32_t add(relay_prefix_index *x, uint32_t bucket, const key *k) {
    uint32_t id = x->unused;
    if (id == RELAY_NO_ENTRY) return id;
    entry *e = &x->entries[id];
    x->unused = e->next;
    *e = (entry){.key = *k, .next = x->buckets[bucket], .bucket = bucket};
    x->buckets[bucket] = id;
    memset(blocks_of(x, id), 0xff, x->n_groups * sizeof x->blocks[0]);
    if (k->parent != RELAY_NO_ENTRY) x->entries[k->parent].n_children++;
    x->n_entries++;
    return id;
}

// Gives up entries that nothing keeps any more, from `id` towards the begin of its chain.
static void drop_unneeded(relay_prefix_index *x, uint32_t id) {
    while (id != RELAY_NO_ENTRY) {
        entry *e = &x->entries[id];
        if (e->n_users > 0 || e->n_children > 0 || e->n_blocks > 0) return;
        uint32_t *link = &x->buckets[e->bucket];
        while (*link != id)
            link = &x->entries[*link].next;
        *link = e->next;
        uint32_t parent = e->key.parent;
        e->bucket = RELAY_NO_ENTRY;
        e->next = x->unused;
        x->unused = id;
        x->n_entries--;
        if (parent != RELAY_NO_ENTRY) x->entries[parent].n_children--;
        id = parent;
    }
}

// ---- Use

uint32_t relay_prefix_index_take(relay_prefix_index *x, uint32_t group) {
    uint32_t forgotten;
    uint32_t block = relay_block_pool_take(x->pools[group], &forgotten);
    if (forgotten != RELAY_NO_LABEL) {
        blocks_of(x, forgotten)[group] = RELAY_NO_BLOCK;
        x->entries[forgotten].n_blocks--;
        drop_unneeded(x, forgotten);
    }
    return block;
}

uint32_t relay_prefix_index_enter(relay_prefix_index *x, const uint8_t salt[RELAY_SALT_BYTES]) {
    key k = {.parent = RELAY_NO_ENTRY};
    memcpy(k.ids, salt, RELAY_SALT_BYTES);
    uint32_t bucket = bucket_of(x, &k);
    uint32_t id = find(x, bucket, &k);
    if (id == RELAY_NO_ENTRY) id = add(x, bucket, &k);
    if (id != RELAY_NO_ENTRY) x->entries[id].n_users++;
    return id;
}

uint32_t relay_prefix_index_find(const relay_prefix_index *x, uint32_t parent, const uint32_t ids[RELAY_BLOCK_TOKENS]) {
    key k = {.parent = parent};
    memcpy(k.ids, ids, sizeof k.ids);
    return find(x, bucket_of(x, &k), &k);
}

uint32_t relay_prefix_index_block(const relay_prefix_index *x, uint32_t id, uint32_t group) {
    return blocks_of(x, id)[group];
}

uint32_t relay_prefix_index_store(relay_prefix_index *x, uint32_t parent, const uint32_t ids[RELAY_BLOCK_TOKENS],
                                  uint32_t *blocks) {
    key k = {.parent = parent};
    memcpy(k.ids, ids, sizeof k.ids);
    uint32_t bucket = bucket_of(x, &k);
    uint32_t id = find(x, bucket, &k);
    if (id == RELAY_NO_ENTRY) id = add(x, bucket, &k);
    if (id != RELAY_NO_ENTRY) {
        entry *e = &x->entries[id];
        e->n_users++;
        for (uint32_t g = 0; g < x->n_groups; g++) {
            uint32_t *known = &blocks_of(x, id)[g];
            if (blocks[g] == RELAY_NO_BLOCK || blocks[g] == *known) continue;
            if (*known != RELAY_NO_BLOCK) {
                relay_block_pool_hold(x->pools[g], *known);
                relay_block_pool_release(x->pools[g], blocks[g]);
                blocks[g] = *known;
            } else {
                *known = blocks[g];
                e->n_blocks++;
                relay_block_pool_set_label(x->pools[g], blocks[g], id);
            }
        }
    }
    relay_prefix_index_leave(x, parent);
    return id;
}

void relay_prefix_index_use(relay_prefix_index *x, uint32_t id) {
    x->entries[id].n_users++;
}

void relay_prefix_index_leave(relay_prefix_index *x, uint32_t id) {
    if (id == RELAY_NO_ENTRY) return;
    RELAY_ASSERT(x->entries[id].n_users > 0);
    x->entries[id].n_users--;
    drop_unneeded(x, id);
}

uint32_t relay_prefix_index_parent(const relay_prefix_index *x, uint32_t id) {
    return x->entries[id].key.parent;
}

uint32_t relay_prefix_index_entries(const relay_prefix_index *x) {
    return x->n_entries;
}

// ---- Check

static const char *check_entry(const relay_prefix_index *x, uint32_t id, uint32_t n_children) {
    const entry *e = &x->entries[id];
    if (e->n_children != n_children) return "an entry does not know how many are behind it";
    if (find(x, bucket_of(x, &e->key), &e->key) != id) return "an entry is not found by its key";
    if (e->key.parent != RELAY_NO_ENTRY && x->entries[e->key.parent].bucket == RELAY_NO_ENTRY)
        return "an entry's parent is not in use";
    uint32_t n_blocks = 0;
    for (uint32_t g = 0; g < x->n_groups; g++) {
        uint32_t block = blocks_of(x, id)[g];
        if (block == RELAY_NO_BLOCK) continue;
        n_blocks++;
        if (relay_block_pool_label(x->pools[g], block) != id) return "a block does not name the entry that names it";
    }
    if (n_blocks != e->n_blocks) return "an entry does not know how many blocks it has";
    if (n_blocks == 0 && e->n_children == 0 && e->n_users == 0) return "an entry is kept by nothing";
    return NULL;
}

const char *relay_prefix_index_check(const relay_prefix_index *x, const uint32_t *users) {
    uint32_t *n_children = relay_calloc(x->max_entries, sizeof n_children[0]);
    uint32_t n_used = 0, n_unused = 0, n_labels = 0, n_blocks = 0;
    for (uint32_t id = 0; id < x->max_entries; id++) {
        const entry *e = &x->entries[id];
        if (e->bucket != RELAY_NO_ENTRY && e->key.parent != RELAY_NO_ENTRY) n_children[e->key.parent]++;
    }
    const char *why = NULL;
    for (uint32_t id = 0; why == NULL && id < x->max_entries; id++) {
        const entry *e = &x->entries[id];
        if (e->bucket == RELAY_NO_ENTRY) continue;
        n_used++;
        n_blocks += e->n_blocks;
        why = check_entry(x, id, n_children[id]);
        if (why == NULL && users != NULL && e->n_users != users[id]) why = "an entry has another number of users";
    }
    free(n_children);
    if (why != NULL) return why;
    for (uint32_t id = x->unused; id != RELAY_NO_ENTRY && n_unused <= x->max_entries; id = x->entries[id].next)
        n_unused++;
    if (n_used != x->n_entries || n_used + n_unused != x->max_entries) return "an entry is neither in use nor unused";
    for (uint32_t g = 0; g < x->n_groups; g++) {
        for (uint32_t b = 0; b < relay_block_pool_total(x->pools[g]); b++) {
            bool is_labelled =
                b < relay_block_pool_touched(x->pools[g]) && relay_block_pool_label(x->pools[g], b) != RELAY_NO_LABEL;
            if (is_labelled) n_labels++;
        }
    }
    return n_labels == n_blocks ? NULL : "a block names an entry that does not name it";
}
