// Opens the input as a GGUF file, reads all that can be read of it, and loads the vocabulary in it.
#include <math.h>
#include <string.h>

#include "common/gguf.h"
#include "common/vocab.h"
#include "tests/common/gguf_hostile.h"
#include "tests/common/gguf_writer.h"
#include "tests/fuzz/fuzz.h"

static volatile uint8_t sink;

static void touch(const void *data, uint64_t len) {
    const uint8_t *bytes = data;
    if (len != 0) sink = bytes[0] ^ bytes[len - 1];
}

static void read_key(const relay_gguf *g, const char *key) {
    uint64_t n;
    double d;
    bool b;
    const char *s;
    size_t len;
    bool found = false;
    (void)!relay_gguf_u64(g, key, 0, UINT64_MAX, &n, NULL, NULL);
    (void)!relay_gguf_f64(g, key, -INFINITY, INFINITY, &d, NULL, NULL);
    (void)!relay_gguf_bool(g, key, &b, NULL, NULL);
    if (relay_gguf_string(g, key, &s, &len, &found, NULL) == RELAY_OK && found) touch(s, len);
    if (relay_gguf_string_array(g, key, &n, NULL, NULL) == RELAY_OK)
        for (uint64_t i = 0; i < n; i++) {
            relay_gguf_string_at(g, key, i, &s, &len);
            touch(s, len);
        }
    if (relay_gguf_number_array(g, key, &n, NULL, NULL) == RELAY_OK && n != 0)
        (void)relay_gguf_number_at(g, key, n - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const keys[] = {
        "general.architecture",
        "general.alignment",
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.scores",
        "filler",
        "list",
        "text",
        "flag",
    };
    relay_gguf *g;
    relay_err e;
    if (relay_gguf_open_memory(&g, data, size, &e) != RELAY_OK) return 0;
    for (uint32_t i = 0; i < relay_gguf_tensor_count(g); i++) {
        const relay_gguf_tensor *t = relay_gguf_tensor_at(g, i);
        RELAY_ASSERT(relay_gguf_tensor_find(g, t->name) == t);
        touch(t->data, t->n_bytes);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        read_key(g, keys[i]);
    relay_vocab *v;
    if (relay_vocab_load_gguf(&v, g, &e) == RELAY_OK) {
        for (uint32_t id = 0; id < relay_vocab_size(v); id++)
            touch(relay_vocab_token(v, id)->bytes, relay_vocab_token(v, id)->len);
        relay_vocab_destroy(v);
    }
    relay_gguf_close(g);
    return 0;
}

// ---- Seeds: a small model with a byte-level vocabulary, one with a SentencePiece one, and every hostile file.

static void write_model(gguf_writer *w, bool is_byte_level) {
    static const char *const byte_level[] = {"<|endoftext|>",
                                             "<|im_end|>",
                                             "a",
                                             "\xC4\xA0"
                                             "b",
                                             "\xC4\x8A",
                                             "[PAD5]"};
    static const char *const sentencepiece[] = {"<unk>",
                                                "</s>",
                                                "a",
                                                "\xE2\x96\x81"
                                                "b",
                                                "<0x0A>",
                                                "[PAD5]"};
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_u32(w, "llama.block_count", 1);
    gguf_writer_f32(w, "llama.rope.freq_base", 10000);
    gguf_writer_string(w, "tokenizer.ggml.model", is_byte_level ? "gpt2" : "llama");
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", is_byte_level ? byte_level : sentencepiece, 6);
    const int32_t types[] = {is_byte_level ? 3 : 2, 3, 1, 1, is_byte_level ? 1 : 6, 5};
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_INT32, types, 6);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 1);
    gguf_writer_bool(w, "flag", true);
    static const float weights[32];
    gguf_writer_tensor(w, "token_embd.weight", RELAY_GGML_F32, 2, (uint64_t[]){4, 6}, weights, 96);
    gguf_writer_tensor(w, "output.weight", RELAY_GGML_Q4_1, 2, (uint64_t[]){32, 2}, weights, 40);
    gguf_writer_tensor(w, "odd.weight", 23, 1, (uint64_t[]){32}, weights, 20);
}

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    if (i >= gguf_hostile_count + 2) return 0;
    gguf_writer *w = gguf_writer_create();
    if (i < 2)
        write_model(w, i == 0);
    else
        gguf_hostile_files[i - 2].write(w);
    size_t len;
    const uint8_t *bytes = gguf_writer_finish(w, &len);
    if (len > cap) len = cap;
    memcpy(out, bytes, len);
    gguf_writer_destroy(w);
    return len;
}
