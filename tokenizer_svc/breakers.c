#define _GNU_SOURCE // memmem
#include "tokenizer_svc/breakers.h"

#include <stdlib.h>
#include <string.h>

// Those that text-generation-webui and llama.cpp begin with.
static const char *const DEFAULTS[] = {"\n", ":", "\"", "*"};
enum { N_DEFAULTS = sizeof DEFAULTS / sizeof DEFAULTS[0] };

typedef struct breaker {
    const uint8_t *bytes;
    size_t len;
    bool is_found;
} breaker;

// Whether the token holds one of them; each that it holds is marked.
static bool holds_breaker(const relay_token *t, breaker *breakers, size_t n) {
    bool holds = false;
    for (size_t i = 0; i < n; i++) {
        if (memmem(t->bytes, t->len, breakers[i].bytes, breakers[i].len) == NULL) continue;
        breakers[i].is_found = true;
        holds = true;
    }
    return holds;
}

static relay_code check(const Relay__V1__Dry *dry, relay_err *e) {
    if (dry->n_breakers > RELAY_MAX_BREAKERS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.dry.breakers has %zu strings; at most %d are allowed",
                          dry->n_breakers, RELAY_MAX_BREAKERS);
    }
    for (size_t i = 0; i < dry->n_breakers; i++) {
        size_t len = dry->breakers[i].len;
        if (len == 0 || len > RELAY_MAX_BREAKER_BYTES) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.dry.breakers[%zu] has %zu bytes; allowed is [1, %d]",
                              i, len, RELAY_MAX_BREAKER_BYTES);
        }
    }
    return RELAY_OK;
}

relay_code relay_breakers_make(uint32_t **ids, size_t *n_ids, const Relay__V1__Dry *dry, const relay_vocab *vocab,
                               relay_err *e) {
    *ids = NULL;
    *n_ids = 0;
    relay_code code = check(dry, e);
    if (code != RELAY_OK) return code;
    breaker breakers[RELAY_MAX_BREAKERS];
    size_t n = dry->n_breakers;
    const bool uses_defaults = n == 0 && dry->n_breaker_token_ids == 0;
    for (size_t i = 0; i < n; i++)
        breakers[i] = (breaker){.bytes = dry->breakers[i].data, .len = dry->breakers[i].len};
    for (; uses_defaults && n < N_DEFAULTS; n++)
        breakers[n] = (breaker){.bytes = (const uint8_t *)DEFAULTS[n], .len = strlen(DEFAULTS[n])};
    const uint32_t size = relay_vocab_size(vocab);
    uint32_t *out = relay_calloc(dry->n_breaker_token_ids + size + 1, sizeof *out);
    size_t n_out = dry->n_breaker_token_ids;
    if (n_out != 0) memcpy(out, dry->breaker_token_ids, n_out * sizeof *out);
    for (uint32_t id = 0; id < size && n != 0; id++) {
        if (holds_breaker(relay_vocab_token(vocab, id), breakers, n)) out[n_out++] = id;
    }
    for (size_t i = 0; i < n && !uses_defaults; i++) {
        if (breakers[i].is_found) continue;
        free(out);
        return relay_fail(
            e, RELAY_INVALID_ARGUMENT,
            "sampling.dry.breakers[%zu] is \"%.*s\"; allowed is what a token of the vocabulary holds as a whole", i,
            (int)breakers[i].len, (const char *)breakers[i].bytes);
    }
    *ids = out;
    *n_ids = n_out;
    return RELAY_OK;
}
