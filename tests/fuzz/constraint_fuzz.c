// From bytes to a constraint, and along it: the first byte is the kind. Whatever compiles can be followed, and the mask
// says the same of each id as reading it does.
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/utf8.h"
#include "model_svc/constraint/constraint.h"
#include "tests/fuzz/fuzz.h"
#include "tests/model_svc/constraint/byte_vocab.h"

enum { MAX_STEPS = 8, MAX_BYTES = 2000 };

static relay_token_table *tokens;

// Reads, of the ids that are allowed, the one that the input's bytes choose.
static void follow(relay_constraint *c, const uint8_t *choices, size_t n) {
    static uint32_t words[64];
    RELAY_ASSERT(tokens->n_words <= 64);
    relay_matcher at;
    relay_matcher_begin(c, &at);
    for (size_t step = 0; step < MAX_STEPS && step < n; step++) {
        if (!relay_matcher_mask(c, &at, words)) return; // does not fit
        uint32_t chosen = UINT32_MAX;
        for (uint32_t i = 0; i < tokens->n_vocab; i++) {
            uint32_t id = (i + choices[step] * 7u) % tokens->n_vocab;
            bool is_allowed = words[id / 32] >> id % 32 & 1;
            relay_matcher fork = at;
            bool is_read = relay_matcher_read(c, &fork, id);
            if (relay_matcher_is_stale(c, &at)) return;
            RELAY_ASSERT(is_read == is_allowed);
            if (is_allowed && chosen == UINT32_MAX) chosen = id;
        }
        if (chosen == UINT32_MAX) {
            RELAY_ASSERT(relay_matcher_is_complete(c, &at)); // every byte is a token: no dead end
            return;
        }
        RELAY_ASSERT(!relay_matcher_is_over(c, &at));
        RELAY_ASSERT(relay_matcher_read(c, &at, chosen));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (tokens == NULL) {
        relay_vocab *v = byte_vocab_create();
        tokens = relay_token_table_create(v, relay_vocab_size(v));
    }
    if (size < 2 || size > MAX_BYTES) return 0;
    relay_constraint_text text = {.bytes = (const char *)data + 1, .len = size - 1};
    relay_constraint_spec spec = {.kind = (relay_constraint_kind)(data[0] % 5), .text = text};
    if (spec.kind == RELAY_CONSTRAINT_CHOICES) {
        spec.text = (relay_constraint_text){"", 0};
        spec.choices = &text;
        spec.n_choices = 1;
    }
    if (data[0] & 0x80) spec.start_after = (relay_constraint_text){"a\nab", 4};
    relay_constraint *c;
    relay_err e = {0};
    if (relay_constraint_compile(&c, &spec, tokens, &e) == RELAY_OK) {
        follow(c, data, size);
        relay_constraint_destroy(c);
    } else {
        RELAY_ASSERT(e.code == RELAY_INVALID_ARGUMENT && e.message[0] != 0);
        RELAY_ASSERT(relay_utf8_is_valid(e.message, strlen(e.message)));
    }
    return 0;
}

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    static const struct {
        uint8_t kind;
        const char *text;
    } seeds[] = {
        {0, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12},"
            "\"b\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1}},\"required\":[\"a\"],"
            "\"additionalProperties\":true}"},
        {0, "{\"$defs\":{\"x\":{\"enum\":[1,\"a\",null,[2]]}},\"anyOf\":[{\"$ref\":\"#/$defs/x\"},{\"type\":\"string\","
            "\"pattern\":\"^a[^b]{2}$\",\"maxLength\":4}]}"},
        {0, "{\"type\":[\"string\",\"number\"],\"format\":\"date\",\"exclusiveMinimum\":0.25,\"maximum\":1e3}"},
        {1, "^(a|[b-d\xC3\xA4]{1,3}?)*\\d+\\.\\p{Lu}|x$"},
        {0x81, "(?<n>foo|ba+r)[^0-9]{2,4}\\u00e4(?:x|y)?"},
        {2, "root ::= (\"a\" b | [^x-z] root?){1,2} # c\nb ::= \"\\x41\"* | root \"q\" | .\n"},
        {0x83, "choice"},
        {4, "?"},
    };
    if (i >= sizeof seeds / sizeof seeds[0]) return 0;
    size_t n = strlen(seeds[i].text) + 1;
    RELAY_ASSERT(n <= cap);
    out[0] = seeds[i].kind;
    memcpy(out + 1, seeds[i].text, n - 1);
    return n;
}
