// The automaton is a trie with failure links. Its nodes keep their children in a list rather than in a table of 256: a
// matcher is made for every request, most hold two or three strings of a few bytes, and a list of at most 16 children
// is walked only where the text is already inside a stop string. Outside, one look into `root_next` settles a byte.
#include "tokenizer_svc/stop_matcher.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"

enum { ROOT = 0 };

typedef struct node {
    uint16_t first_child, next_sibling; // 0: none (the root is nobody's child)
    uint16_t fail;                      // the longest proper suffix of this node's bytes that is a node too
    uint16_t depth;                     // bytes from the root
    uint8_t byte;                       // the last of them
    uint8_t string;                     // a string that this node is a prefix of
    int8_t match;                       // the longest string that ends here, or RELAY_STOP_NO_MATCH
} node;

struct relay_stop_matcher {
    uint16_t root_next[256]; // the root's children by byte; ROOT: none
    uint32_t n_nodes, n_strings;
    node *nodes;                // n_nodes of them, parents before children
    relay_stop_string *strings; // their bytes lie behind the array
};

static uint16_t child_of(const relay_stop_matcher *m, uint16_t at, uint8_t byte) {
    if (at == ROOT) return m->root_next[byte];
    uint16_t c = m->nodes[at].first_child;
    while (c != 0 && m->nodes[c].byte != byte)
        c = m->nodes[c].next_sibling;
    return c;
}

static void add_string(relay_stop_matcher *m, uint32_t index) {
    const relay_stop_string *s = &m->strings[index];
    uint16_t at = ROOT;
    for (size_t i = 0; i < s->len; i++) {
        uint8_t byte = (uint8_t)s->bytes[i];
        uint16_t next = child_of(m, at, byte);
        if (next == 0) {
            next = (uint16_t)m->n_nodes++;
            m->nodes[next] = (node){.next_sibling = m->nodes[at].first_child,
                                    .depth = (uint16_t)(i + 1),
                                    .byte = byte,
                                    .string = (uint8_t)index,
                                    .match = RELAY_STOP_NO_MATCH};
            m->nodes[at].first_child = next;
            if (at == ROOT) m->root_next[byte] = next;
        }
        at = next;
    }
    if (m->nodes[at].match == RELAY_STOP_NO_MATCH) m->nodes[at].match = (int8_t)index;
}

// Failure links in order of depth: a node's link needs those of shallower nodes only.
static void link_failures(relay_stop_matcher *m) {
    uint16_t *queue = relay_calloc(m->n_nodes, sizeof *queue);
    uint32_t head = 0, tail = 0;
    queue[tail++] = ROOT;
    while (head < tail) {
        uint16_t at = queue[head++];
        for (uint16_t c = m->nodes[at].first_child; c != 0; c = m->nodes[c].next_sibling) {
            queue[tail++] = c;
            if (at == ROOT) continue;
            node *child = &m->nodes[c];
            child->fail = relay_stop_matcher_step(m, m->nodes[at].fail, child->byte);
            if (child->match == RELAY_STOP_NO_MATCH) child->match = m->nodes[child->fail].match;
        }
    }
    free(queue);
}

relay_stop_matcher *relay_stop_matcher_create(const relay_stop_string *strings, uint32_t n_strings) {
    RELAY_ASSERT(n_strings <= RELAY_MAX_STOP_STRINGS);
    size_t total = 0;
    for (uint32_t i = 0; i < n_strings; i++) {
        RELAY_ASSERT(strings[i].len > 0 && strings[i].len <= RELAY_MAX_STOP_STRING_BYTES);
        total += strings[i].len;
    }
    relay_stop_matcher *m = relay_calloc(1, sizeof *m);
    m->nodes = relay_calloc(1 + total, sizeof *m->nodes);
    m->nodes[ROOT].match = RELAY_STOP_NO_MATCH;
    m->n_nodes = 1;
    m->n_strings = n_strings;
    m->strings = relay_calloc(1, n_strings * sizeof *m->strings + total);
    char *bytes = (char *)(m->strings + n_strings);
    for (uint32_t i = 0; i < n_strings; i++) {
        memcpy(bytes, strings[i].bytes, strings[i].len);
        m->strings[i] = (relay_stop_string){.bytes = bytes, .len = strings[i].len};
        bytes += strings[i].len;
        add_string(m, i);
    }
    link_failures(m);
    return m;
}

void relay_stop_matcher_destroy(relay_stop_matcher *m) {
    if (m == NULL) return;
    free(m->nodes);
    free(m->strings);
    free(m);
}

relay_stop_state relay_stop_matcher_step(const relay_stop_matcher *m, relay_stop_state state, uint8_t byte) {
    for (;;) {
        uint16_t next = child_of(m, state, byte);
        if (next != 0 || state == ROOT) return next;
        state = m->nodes[state].fail;
    }
}

size_t relay_stop_matcher_skip(const relay_stop_matcher *m, const char *bytes, size_t len) {
    size_t i = 0;
    while (i < len && m->root_next[(uint8_t)bytes[i]] == ROOT)
        i++;
    return i;
}

int relay_stop_matcher_match(const relay_stop_matcher *m, relay_stop_state state) {
    return m->nodes[state].match;
}

relay_stop_state relay_stop_matcher_forget_match(const relay_stop_matcher *m, relay_stop_state state) {
    while (state != ROOT && m->nodes[state].first_child == 0)
        state = m->nodes[state].fail;
    return state;
}

const char *relay_stop_matcher_prefix(const relay_stop_matcher *m, relay_stop_state state, size_t *len) {
    *len = m->nodes[state].depth;
    return state == ROOT ? "" : m->strings[m->nodes[state].string].bytes;
}

uint32_t relay_stop_matcher_n_states(const relay_stop_matcher *m) {
    return m->n_nodes;
}

const relay_stop_string *relay_stop_matcher_string(const relay_stop_matcher *m, uint32_t index) {
    RELAY_ASSERT(index < m->n_strings);
    return &m->strings[index];
}

uint32_t relay_stop_matcher_n_strings(const relay_stop_matcher *m) {
    return m->n_strings;
}
