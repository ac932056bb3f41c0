#include "model_svc/constraint/pushdown.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "model_svc/constraint/pages.h"
#include "model_svc/constraint/sort.h"

enum {
    MAX_CONFIGS = 1 << 16,
    MAX_LISTS = 1 << 17,
    MAX_PAIRS = 1 << 19,
    TABLE_SIZE = 1 << 18, // a power of two, well over MAX_LISTS
    MAX_ITEMS = 512,      // pairs of one configuration
    MAX_CALLS = 4096,     // that one configuration makes
    MAX_OPEN = 8,         // frames of a local configuration
    EMPTY_LIST = 0,
};

typedef struct list {
    uint32_t first, n;
    uint32_t config; // that has these pairs; UNKNOWN before it is made
    uint32_t depth;  // as a frame: 1 more than that of the deepest frame it returns to
    uint32_t hash;
} list;

// A call that a configuration makes: the rule by its place in the automaton's order, and where it goes on.
typedef struct call {
    uint32_t place, rule;
    relay_pair to;
} call;

struct relay_pushdown_memory {
    const char *start_after;
    uint32_t start_after_len;
    uint32_t *failure; // [start_after_len]: Knuth, Morris, Pratt (1977)
    list *lists;
    relay_pair *pairs;
    uint32_t *table; // by hash: 1 + list
    uint32_t n_lists, n_pairs;
    uint32_t open[MAX_OPEN]; // frames that return to LEAK
    uint32_t root;           // the frame of the root rule: to ACCEPT
    relay_pair items[MAX_ITEMS];
    uint32_t n_items;
    call calls[MAX_CALLS];
    uint32_t n_calls;
    relay_pair frame[MAX_CALLS]; // being put together
    bool has_too_many;           // the configuration being made
};

// ---- Lists

static int compare_pairs(const void *a, const void *b) {
    const relay_pair *x = a, *y = b;
    if (x->state != y->state) return x->state < y->state ? -1 : 1;
    return (x->frame > y->frame) - (x->frame < y->frame);
}

// Sorts, takes out doubles; how many are left.
static uint32_t sort_pairs(relay_pair *pairs, uint32_t n) {
    relay_sort(pairs, n, sizeof pairs[0], compare_pairs);
    uint32_t out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (out == 0 || compare_pairs(&pairs[out - 1], &pairs[i]) != 0) pairs[out++] = pairs[i];
    }
    return out;
}

static uint32_t hash_pairs(const relay_pair *pairs, uint32_t n) {
    uint64_t h = 0x9E3779B97F4A7C15ull ^ n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ ((uint64_t)pairs[i].state << 32 | pairs[i].frame)) * 0xFF51AFD7ED558CCDull;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

// The list of these pairs, which must be sorted and not lie in the pool; EMPTY_LIST where it is full.
static uint32_t intern(relay_pushdown *p, const relay_pair *pairs, uint32_t n) {
    struct relay_pushdown_memory *m = p->memory;
    if (n == 0) return EMPTY_LIST;
    uint32_t hash = hash_pairs(pairs, n), at = hash & (TABLE_SIZE - 1);
    for (; m->table[at] != 0; at = (at + 1) & (TABLE_SIZE - 1)) {
        const list *l = &m->lists[m->table[at] - 1];
        if (l->hash == hash && l->n == n && memcmp(m->pairs + l->first, pairs, n * sizeof pairs[0]) == 0) {
            return m->table[at] - 1;
        }
    }
    if (m->n_lists == MAX_LISTS || m->n_pairs + n > MAX_PAIRS) {
        p->is_full = true;
        return EMPTY_LIST;
    }
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (pairs[i].state < RELAY_FIRST_STATE) continue; // its frame is none
        uint32_t below = m->lists[pairs[i].frame].depth;
        if (below + 1 > depth) depth = below + 1;
    }
    m->lists[m->n_lists] = (list){.first = m->n_pairs, .n = n, .depth = depth, .hash = hash};
    memcpy(m->pairs + m->n_pairs, pairs, n * sizeof pairs[0]);
    m->n_pairs += n;
    m->table[at] = m->n_lists + 1;
    return m->n_lists++;
}

// ---- Configurations

static void begin_items(relay_pushdown *p) {
    p->memory->n_items = 0;
    p->memory->has_too_many = false;
}

static void add_item(relay_pushdown *p, relay_pair item) {
    struct relay_pushdown_memory *m = p->memory;
    for (uint32_t i = 0; i < m->n_items; i++) {
        if (m->items[i].state == item.state && m->items[i].frame == item.frame) return;
    }
    if (m->n_items == MAX_ITEMS) {
        p->memory->has_too_many = p->is_ambiguous = true;
        return;
    }
    m->items[m->n_items++] = item;
}

// Whoever may end returns to its frame, at once; who can do nothing but end is no longer needed.
static void return_items(relay_pushdown *p) {
    struct relay_pushdown_memory *m = p->memory;
    for (uint32_t i = 0; i < m->n_items; i++) {
        relay_pair item = m->items[i];
        if (!p->a->states[item.state].is_final) continue;
        const list *frame = &m->lists[item.frame];
        for (uint32_t k = 0; k < frame->n; k++)
            add_item(p, m->pairs[frame->first + k]);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_items; i++) {
        if (!p->a->states[m->items[i].state].is_end) m->items[n++] = m->items[i];
    }
    m->n_items = sort_pairs(m->items, n);
}

static void add_call(relay_pushdown *p, uint32_t rule, relay_pair to) {
    struct relay_pushdown_memory *m = p->memory;
    if (m->n_calls == MAX_CALLS) {
        p->memory->has_too_many = p->is_ambiguous = true;
        return;
    }
    m->calls[m->n_calls++] = (call){.place = p->a->order[rule], .rule = rule, .to = to};
}

static void add_calls_of(relay_pushdown *p, relay_pair item) {
    struct relay_pushdown_memory *m = p->memory;
    const relay_automaton_state *s = &p->a->states[item.state];
    for (uint32_t i = 0; i < s->n_calls; i++) {
        relay_call_edge edge = p->a->calls[s->first_call + i];
        if (!p->a->states[edge.to].is_end) {
            add_call(p, edge.rule, (relay_pair){.state = edge.to, .frame = item.frame});
            continue;
        }
        const list *frame = &m->lists[item.frame];
        for (uint32_t k = 0; k < frame->n; k++)
            add_call(p, edge.rule, m->pairs[frame->first + k]);
    }
}

static bool add_reader(relay_pushdown *p, relay_config *c, relay_pair item) {
    struct relay_pushdown_memory *m = p->memory;
    if (!p->a->states[item.state].has_bytes) return true;
    if (m->n_pairs == MAX_PAIRS) {
        p->is_full = true;
        return false;
    }
    m->pairs[m->n_pairs++] = item;
    c->n_readers++;
    if (m->lists[item.frame].depth > c->depth) c->depth = (uint16_t)m->lists[item.frame].depth;
    return true;
}

// Takes out the calls of the rule that is first in order; their places to go on are m->frame.
static uint32_t take_calls(struct relay_pushdown_memory *m, uint32_t *rule) {
    uint32_t place = UINT32_MAX, n = 0, left = 0;
    for (uint32_t i = 0; i < m->n_calls; i++) {
        if (m->calls[i].place < place) place = m->calls[i].place, *rule = m->calls[i].rule;
    }
    for (uint32_t i = 0; i < m->n_calls; i++) {
        if (m->calls[i].place == place) {
            m->frame[n++] = m->calls[i].to;
        } else {
            m->calls[left++] = m->calls[i];
        }
    }
    m->n_calls = left;
    return sort_pairs(m->frame, n);
}

// Fills in the readers of `c` from its pairs: the rules that are called, those that these call, and so on, each once,
// with all that called it in its frame. A rule comes after everyone who may call it here.
static void put_readers(relay_pushdown *p, relay_config *c) {
    struct relay_pushdown_memory *m = p->memory;
    const list *l = &m->lists[c->list];
    m->n_calls = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        relay_pair item = m->pairs[l->first + i];
        c->is_complete |= item.state == RELAY_STATE_ACCEPT;
        c->is_leaking |= item.state == RELAY_STATE_LEAK;
        if (item.state < RELAY_FIRST_STATE) continue;
        add_calls_of(p, item);
    }
    relay_pair starts[MAX_ITEMS]; // put in at the end: frames take pairs of the pool too
    uint32_t n_starts = 0;
    while (m->n_calls > 0 && !p->is_full && !m->has_too_many) {
        uint32_t rule = 0, n = take_calls(m, &rule);
        uint32_t frame = intern(p, m->frame, n);
        if (p->is_full || m->lists[frame].depth > RELAY_MAX_FRAME_DEPTH) continue;
        relay_pair start = {.state = p->a->starts[rule], .frame = frame};
        if (n_starts == MAX_ITEMS) {
            p->memory->has_too_many = p->is_ambiguous = true;
            return;
        }
        starts[n_starts++] = start;
        add_calls_of(p, start);
    }
    c->first = m->n_pairs;
    for (uint32_t i = 0; i < l->n; i++) {
        relay_pair item = m->pairs[l->first + i];
        if (item.state >= RELAY_FIRST_STATE && !add_reader(p, c, item)) return;
    }
    for (uint32_t i = 0; i < n_starts; i++) {
        if (!add_reader(p, c, starts[i])) return;
    }
}

static uint32_t add_config(relay_pushdown *p) {
    if (p->n_configs == MAX_CONFIGS) {
        p->is_full = true;
        return RELAY_CONFIG_DEAD;
    }
    p->configs[p->n_configs] = (relay_config){0};
    return p->n_configs++;
}

// The configuration of m->items.
static uint32_t config_of_items(relay_pushdown *p) {
    struct relay_pushdown_memory *m = p->memory;
    if (m->has_too_many || m->n_items == 0) return RELAY_CONFIG_DEAD;
    uint32_t l = intern(p, m->items, m->n_items);
    if (p->is_full) return RELAY_CONFIG_DEAD;
    if (m->lists[l].config != RELAY_CONFIG_UNKNOWN) return m->lists[l].config;
    uint32_t i = add_config(p);
    if (p->is_full) return RELAY_CONFIG_DEAD;
    relay_config *c = &p->configs[i];
    c->list = l;
    put_readers(p, c);
    bool is_alive = c->is_complete || c->is_leaking || c->n_readers > 0;
    if (p->is_full || m->has_too_many || !is_alive) {
        p->n_configs--;
        if (!p->is_full) m->lists[l].config = RELAY_CONFIG_DEAD;
        return RELAY_CONFIG_DEAD;
    }
    m->lists[l].config = i;
    return i;
}

static uint32_t begin_automaton(relay_pushdown *p) {
    begin_items(p);
    add_item(p, (relay_pair){.state = p->a->starts[p->a->root], .frame = p->memory->root});
    return_items(p);
    return config_of_items(p);
}

// ---- Waiting for start_after

static uint32_t scan_config(relay_pushdown *p, uint32_t n_seen) {
    if (n_seen == p->memory->start_after_len) return begin_automaton(p);
    // One behind the other from the first on: they are made at reset.
    return RELAY_FIRST_CONFIG + n_seen;
}

static void make_failure(struct relay_pushdown_memory *m) {
    uint32_t k = 0;
    for (uint32_t i = 1; i < m->start_after_len; i++) {
        while (k > 0 && m->start_after[i] != m->start_after[k])
            k = m->failure[k - 1];
        if (m->start_after[i] == m->start_after[k]) k++;
        m->failure[i] = k;
    }
}

static uint32_t scan(relay_pushdown *p, uint32_t n_seen, char byte) {
    const struct relay_pushdown_memory *m = p->memory;
    while (n_seen > 0 && m->start_after[n_seen] != byte)
        n_seen = m->failure[n_seen - 1];
    return scan_config(p, m->start_after[n_seen] == byte ? n_seen + 1 : 0);
}

// ---- Steps

uint32_t relay_pushdown_step_slow(relay_pushdown *p, uint32_t config, uint8_t byte) {
    if (config == RELAY_CONFIG_DEAD || p->is_full) return RELAY_CONFIG_DEAD;
    struct relay_pushdown_memory *m = p->memory;
    const relay_config *c = &p->configs[config];
    uint32_t class = p->a->classes[byte], to;
    if (c->scanned > 0) {
        to = scan(p, c->scanned - 1, (char)byte);
    } else {
        begin_items(p);
        for (uint32_t i = 0; i < c->n_readers; i++) {
            relay_pair reader = m->pairs[c->first + i];
            uint32_t state = p->a->rows[(size_t)reader.state * p->a->n_classes + class];
            if (state != RELAY_STATE_DEAD) add_item(p, (relay_pair){.state = state, .frame = reader.frame});
        }
        return_items(p);
        to = config_of_items(p);
    }
    if (!p->is_full) p->rows[(size_t)config * p->a->n_classes + class] = to;
    return to;
}

uint32_t relay_pushdown_begin(relay_pushdown *p) {
    return scan_config(p, 0);
}

static bool is_of_root(const relay_pushdown *p, uint32_t state) {
    return state >= p->a->starts[p->a->root] && state < p->a->root_end;
}

uint32_t relay_pushdown_local(relay_pushdown *p, uint32_t config) {
    relay_config *c = &p->configs[config];
    if (c->local != RELAY_CONFIG_UNKNOWN) return c->local;
    struct relay_pushdown_memory *m = p->memory;
    uint32_t frames[MAX_OPEN], n_frames = 0;
    begin_items(p);
    for (uint32_t i = 0; i < m->lists[c->list].n; i++) {
        relay_pair pair = m->pairs[m->lists[c->list].first + i];
        if (pair.state < RELAY_FIRST_STATE) continue;
        if (pair.frame == m->root && is_of_root(p, pair.state)) { // below it there is nothing to know
            add_item(p, (relay_pair){.state = p->a->alike[pair.state], .frame = m->root});
            continue;
        }
        uint32_t k = 0;
        while (k < n_frames && frames[k] != pair.frame)
            k++;
        if (k == MAX_OPEN) return c->local = RELAY_CONFIG_DEAD;
        if (k == n_frames) frames[n_frames++] = pair.frame;
        add_item(p, (relay_pair){.state = p->a->alike[pair.state], .frame = m->open[k]});
    }
    m->n_items = sort_pairs(m->items, m->n_items);
    uint32_t local = config_of_items(p);
    if (!p->is_full) p->configs[config].local = local;
    return local;
}

uint32_t relay_pushdown_local_state(relay_pushdown *p, uint32_t state) {
    begin_items(p);
    add_item(p, (relay_pair){.state = p->a->alike[state],
                             .frame = is_of_root(p, state) ? p->memory->root : p->memory->open[0]});
    return config_of_items(p);
}

// ---- Create

static void begin_memory(relay_pushdown *p) {
    struct relay_pushdown_memory *m = p->memory;
    m->n_lists = 1; // EMPTY_LIST
    m->n_pairs = 0;
    for (uint32_t k = 0; k < MAX_OPEN; k++)
        m->open[k] = intern(p, &(relay_pair){.state = RELAY_STATE_LEAK, .frame = k}, 1);
    m->root = intern(p, &(relay_pair){.state = RELAY_STATE_ACCEPT}, 1);
    p->n_configs = RELAY_FIRST_CONFIG;
    for (uint32_t c = 0; c < p->a->n_classes; c++)
        p->rows[RELAY_CONFIG_DEAD * p->a->n_classes + c] = RELAY_CONFIG_DEAD;
    for (uint32_t i = 0; i < m->start_after_len; i++)
        p->configs[add_config(p)].scanned = i + 1;
    p->epoch++;
}

static uint64_t rows_bytes(const relay_automaton *a) {
    return (uint64_t)MAX_CONFIGS * a->n_classes * sizeof(uint32_t);
}

relay_pushdown *relay_pushdown_create(const relay_automaton *a, const char *start_after, size_t start_after_len) {
    RELAY_ASSERT(start_after_len < MAX_CONFIGS / 2);
    relay_pushdown *p = relay_calloc(1, sizeof *p);
    struct relay_pushdown_memory *m = relay_calloc(1, sizeof *m);
    p->a = a;
    p->memory = m;
    p->rows = relay_pages_map(rows_bytes(a));
    p->configs = relay_pages_map(MAX_CONFIGS * sizeof p->configs[0]);
    m->start_after = start_after;
    m->start_after_len = (uint32_t)start_after_len;
    m->failure = relay_calloc(start_after_len + 1, sizeof m->failure[0]);
    make_failure(m);
    m->lists = relay_pages_map(MAX_LISTS * sizeof m->lists[0]);
    m->pairs = relay_pages_map(MAX_PAIRS * sizeof m->pairs[0]);
    m->table = relay_pages_map(TABLE_SIZE * sizeof m->table[0]);
    begin_memory(p);
    return p;
}

void relay_pushdown_reset(relay_pushdown *p) {
    memset(p->rows, 0, (size_t)p->n_configs * p->a->n_classes * sizeof p->rows[0]);
    memset(p->memory->table, 0, TABLE_SIZE * sizeof p->memory->table[0]);
    p->is_full = p->is_ambiguous = false;
    begin_memory(p);
}

void relay_pushdown_destroy(relay_pushdown *p) {
    if (p == NULL) return;
    free(p->memory->failure);
    relay_pages_unmap(p->memory->lists, MAX_LISTS * sizeof p->memory->lists[0]);
    relay_pages_unmap(p->memory->pairs, MAX_PAIRS * sizeof p->memory->pairs[0]);
    relay_pages_unmap(p->memory->table, TABLE_SIZE * sizeof p->memory->table[0]);
    free(p->memory);
    relay_pages_unmap(p->rows, rows_bytes(p->a));
    relay_pages_unmap(p->configs, MAX_CONFIGS * sizeof p->configs[0]);
    free(p);
}
