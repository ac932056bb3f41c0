#include "tests/tokenizer_svc/small_vocab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/formats/gguf_tokenizer.h"

enum { MAX_TOKENS = 1024, NORMAL = 1, CONTROL = 3, USER = 4, UNUSED = 5 };

typedef struct token_list {
    char *pieces[MAX_TOKENS];
    uint32_t types[MAX_TOKENS];
    uint32_t n;
} token_list;

static void add(token_list *l, const char *piece, size_t len, uint32_t type) {
    assert_true(l->n < MAX_TOKENS);
    l->pieces[l->n] = relay_strndup(piece, len);
    l->types[l->n++] = type;
}

// The code point that stands for a byte: its own where that is printable, else the next from U+0100 on.
static uint32_t code_point_of(uint8_t byte) {
    uint32_t next = 0x100;
    for (uint32_t b = 0;; b++) {
        bool is_printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
        if (b == byte) return is_printable ? b : next;
        if (!is_printable) next++;
    }
}

// Raw bytes in the byte alphabet.
static void add_raw(token_list *l, const char *bytes, size_t len) {
    char piece[1024];
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += relay_utf8_encode(code_point_of((uint8_t)bytes[i]), piece + n);
    add(l, piece, n, NORMAL);
}

static bool is_missing(const small_vocab_spec *spec, int byte) {
    for (uint32_t i = 0; i < spec->n_missing_bytes; i++)
        if (spec->missing_bytes[i] == byte) return true;
    return false;
}

static void add_bytes(token_list *l, const small_vocab_spec *spec) {
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte, name[16];
        if (is_missing(spec, byte))
            add(l, name, (size_t)snprintf(name, sizeof name, "missing%d", byte), NORMAL);
        else
            add_raw(l, &c, 1);
    }
}

static void add_merged(token_list *l, const char *merge) {
    char piece[256];
    const char *space = strchr(merge, ' ');
    int n = snprintf(piece, sizeof piece, "%.*s%s", (int)(space - merge), merge, space + 1);
    for (uint32_t i = 0; i < l->n; i++)
        if (strcmp(l->pieces[i], piece) == 0) return; // two merges with one result
    add(l, piece, (size_t)n, NORMAL);
}

static uint32_t length(const char *const *list) {
    uint32_t n = 0;
    while (list != NULL && list[n] != NULL)
        n++;
    return n;
}

gguf_writer *small_vocab_write(const small_vocab_spec *spec) {
    token_list l = {.n = 0};
    add_bytes(&l, spec);
    uint32_t n_merges = length(spec->merges);
    for (uint32_t i = 0; i < n_merges; i++)
        add_merged(&l, spec->merges[i]);
    for (uint32_t i = 0; i < length(spec->pieces); i++)
        add_raw(&l, spec->pieces[i], strlen(spec->pieces[i]));
    for (uint32_t i = 0; i < length(spec->control); i++)
        add(&l, spec->control[i], strlen(spec->control[i]), CONTROL);
    for (uint32_t i = 0; i < length(spec->user); i++)
        add(&l, spec->user[i], strlen(spec->user[i]), USER);
    for (uint32_t i = 0; i < spec->n_padding; i++) {
        char name[32];
        add(&l, name, (size_t)snprintf(name, sizeof name, "[PAD%u]", l.n), UNUSED);
    }

    gguf_writer *w = gguf_writer_create();
    gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
    if (spec->pre != NULL) gguf_writer_string(w, "tokenizer.ggml.pre", spec->pre);
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", (const char *const *)l.pieces, l.n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_UINT32, l.types, l.n);
    gguf_writer_string_array(w, "tokenizer.ggml.merges", spec->merges, n_merges);
    for (uint32_t i = 0; i < l.n; i++)
        free(l.pieces[i]);
    return w;
}

small_vocab small_vocab_open(gguf_writer *w) {
    small_vocab v = {.writer = w};
    size_t len;
    const uint8_t *data = gguf_writer_finish(w, &len);
    relay_err e = {0};
    if (relay_gguf_open_memory(&v.gguf, data, len, &e) != RELAY_OK) fail_msg("%s", e.message);
    if (relay_vocab_load_gguf(&v.vocab, v.gguf, &e) != RELAY_OK) fail_msg("%s", e.message);
    return v;
}

small_vocab small_vocab_make(const small_vocab_spec *spec) {
    return small_vocab_open(small_vocab_write(spec));
}

relay_code small_vocab_tokenizer(relay_tokenizer **out, const relay_gguf *g, relay_err *e) {
    relay_tokenizer_spec s = {0};
    *out = NULL;
    relay_arena_init(&s.arena, SIZE_MAX / 2);
    relay_code code = relay_gguf_tokenizer_read(&s, g, e);
    if (code == RELAY_OK) code = relay_tokenizer_create(out, &s, e);
    relay_tokenizer_spec_fini(&s);
    return code;
}

void small_vocab_fini(small_vocab *v) {
    relay_vocab_destroy(v->vocab);
    relay_gguf_close(v->gguf);
    gguf_writer_destroy(v->writer);
    *v = (small_vocab){0};
}

uint32_t small_vocab_id(const small_vocab *v, const char *bytes) {
    uint32_t id;
    if (relay_vocab_find(v->vocab, bytes, strlen(bytes), &id)) return id;
    if (relay_vocab_find_special(v->vocab, bytes, strlen(bytes), &id)) return id;
    fail_msg("no token \"%s\"", bytes);
    return 0;
}

uint32_t test_random_below(test_random *r, uint32_t n) {
    uint64_t z = r->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(((z ^ z >> 31) >> 32) * n >> 32);
}
