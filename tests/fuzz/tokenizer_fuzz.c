// A tokenizer of any GGUF file, and any text through it.
//
// Input: length of a text (1 byte), the text, the file. What loads must give tokens of the vocabulary whose offsets are
// in order and in the text.
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/tokenizer.h"

static void encode(const relay_tokenizer *t, const relay_vocab *vocab, const char *text, size_t len) {
    size_t half = len / 2;
    relay_text_span spans[] = {{text, half, true}, {text + half, len - half, false}};
    relay_encode_opts opts = {.add_special_tokens = true, .want_offsets = true};
    relay_encoding enc = {0};
    if (relay_tokenizer_encode(t, spans, 2, &opts, &enc, NULL) == RELAY_OK) {
        size_t at = 0;
        for (uint32_t i = 0; i < enc.n; i++) {
            RELAY_ASSERT(enc.ids[i] < relay_vocab_size(vocab));
            if (enc.offset_end[i] == 0) continue; // stands around the text
            RELAY_ASSERT(enc.offset_begin[i] < enc.offset_end[i] && at <= enc.offset_end[i]);
            at = enc.offset_end[i];
        }
        RELAY_ASSERT(at <= len);
    }
    relay_encoding_fini(&enc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size - 1 < data[0]) return 0;
    const char *text = (const char *)data + 1;
    size_t len = data[0];
    relay_gguf *g;
    relay_vocab *v = NULL;
    relay_tokenizer *t = NULL;
    relay_err e;
    // The file's numbers are read where they lie, which a mapping aligns.
    uint8_t *file = relay_calloc(size, 1);
    memcpy(file, data + 1 + len, size - 1 - len);
    if (relay_gguf_open_memory(&g, file, size - 1 - len, &e) == RELAY_OK) {
        if (relay_vocab_load_gguf(&v, g, &e) == RELAY_OK && small_vocab_tokenizer(&t, g, &e) == RELAY_OK)
            encode(t, v, text, len);
        relay_tokenizer_destroy(t);
        relay_vocab_destroy(v);
        relay_gguf_close(g);
    }
    free(file);
    return 0;
}

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    static const char *const merges[] = {"h e", "l l", "he ll", "\xC4\xA0 w", NULL};
    static const char *const controls[] = {"<s>", "</s>", NULL};
    static const char *const users[] = {"<tool>", "  ", NULL};
    static const char *const pres[] = {"smollm", "qwen2", "llama-bpe", "deepseek-v3", "default"};
    static const char text[] = "hello <s>  world<tool> 12'S \xC3\xA9\xF0\x9F\x98\x80\n";
    if (i >= sizeof pres / sizeof *pres) return 0;
    gguf_writer *w = small_vocab_write(
        &(small_vocab_spec){.pre = pres[i], .merges = merges, .control = controls, .user = users, .n_padding = 1});
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 261);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", i % 2 == 0);
    size_t len, text_len = sizeof text - 1;
    const uint8_t *file = gguf_writer_finish(w, &len);
    RELAY_ASSERT(1 + text_len + len <= cap);
    out[0] = (uint8_t)text_len;
    memcpy(out + 1, text, text_len);
    memcpy(out + 1 + text_len, file, len);
    gguf_writer_destroy(w);
    return 1 + text_len + len;
}
