#include "tests/model_svc/constraint/byte_vocab.h"

#include <string.h>

#include "common/status.h"

static const char *const words[] = {
    "\"",        "{\"",      "\":",          "\": \"", "\",",    "\",\"", "\", \"", "\"}",         "\"]",
    "}}",        "]}",       "],",           "},",     "}, {\"", "{}",    "[]",     "[[",          "[\"",
    "\n",        "\n  ",     "\n    ",       "  ",     "    ",   "\t\t",  "true",   "false",       "null",
    "tr",        "alse",     "12",           "123",    "00",     "0.",    "1.5",    "-1",          "e+",
    "E10",       "abc",      "ab",           "foo",    "bar",    "name",  "\"na",   "me\"",        "\"age\":",
    "\\\"",      "\\n",      "\\u",          "\\u00",  "d83d",   "\\ud",  "e0\\",   "\xC3\xA4",    "\xC3",
    "\xF0\x9F",  "\x98\x80", "\xE2\x82\xAC", " a",     " b",     "a b",   "the ",   ", ",          ": ",
    "2020-",     "-01",      "T12:",         "+1",     "(1",     "))",    "+(",     "hello world", "aaaaaaaaaaaaaaaa",
    "</think>{", "k>",       "nk>[",
};

enum { N_WORDS = sizeof words / sizeof words[0] };

relay_vocab *byte_vocab_create(void) {
    static relay_vocab_entry entries[BYTE_VOCAB_WORDS + N_WORDS];
    static char bytes[256];
    for (uint32_t b = 0; b < 256; b++) {
        bytes[b] = (char)b;
        entries[b] = (relay_vocab_entry){.bytes = &bytes[b], .len = 1, .kind = RELAY_TOKEN_BYTE};
    }
    entries[BYTE_VOCAB_END] = (relay_vocab_entry){.bytes = "<|im_end|>", .len = 10, .kind = RELAY_TOKEN_CONTROL};
    entries[BYTE_VOCAB_THINK] = (relay_vocab_entry){.bytes = "</think>", .len = 8, .kind = RELAY_TOKEN_CONTROL};
    for (uint32_t i = 0; i < N_WORDS; i++) {
        entries[BYTE_VOCAB_WORDS + i] =
            (relay_vocab_entry){.bytes = words[i], .len = (uint32_t)strlen(words[i]), .kind = RELAY_TOKEN_NORMAL};
    }
    relay_vocab_table table = {.tokens = entries, .size = BYTE_VOCAB_WORDS + N_WORDS};
    relay_vocab *v = NULL;
    RELAY_ASSERT(relay_vocab_create(&v, &table, NULL) == RELAY_OK);
    return v;
}

uint32_t byte_vocab_encode(const relay_vocab *v, const char *text, size_t len, uint32_t *ids) {
    uint32_t n = 0;
    for (size_t at = 0; at < len; n++) {
        ids[n] = (uint8_t)text[at];
        size_t best = 1;
        for (uint32_t id = BYTE_VOCAB_WORDS; id < relay_vocab_size(v); id++) {
            const relay_token *t = relay_vocab_token(v, id);
            if (t->len <= best || t->len > len - at || memcmp(t->bytes, text + at, t->len) != 0) continue;
            best = t->len;
            ids[n] = id;
        }
        at += best;
    }
    return n;
}
