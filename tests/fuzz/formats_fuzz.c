// Tokenizer files of every format but tokenizer.json, each through its reader.
//
// Input: the format (1 byte), and the file; of two files the first one's length (2 bytes) before it. What a reader
// takes must be a specification whose ids and numbers are in range, and make a vocabulary or be refused.
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/pb_wire.h"
#include "tests/fuzz/fuzz.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/formats/gguf_tokenizer.h"
#include "tokenizer_svc/formats/sentencepiece.h"
#include "tokenizer_svc/formats/tekken.h"
#include "tokenizer_svc/formats/tiktoken.h"
#include "tokenizer_svc/formats/vocab_files.h"
#include "tokenizer_svc/spec_vocab.h"

enum { SENTENCEPIECE, TIKTOKEN, TEKKEN, GPT2_FILES, BERT_FILES, GGUF, N_FORMATS };

static relay_code read_json(relay_tokenizer_spec *spec, const char *text, size_t len, const char *second,
                            size_t second_len, int format) {
    yyjson_doc *doc;
    relay_code code = relay_json_parse(&doc, text, len, RELAY_JSON_MAX_DEPTH, "JSON", NULL);
    if (code != RELAY_OK) return code;
    yyjson_val *root = yyjson_doc_get_root(doc);
    code = format == TEKKEN
               ? relay_tekken_read(spec, root, NULL)
               : relay_gpt2_files_read(spec, root, second, second_len, yyjson_obj_get(root, "config"), NULL);
    yyjson_doc_free(doc);
    return code;
}

static relay_code read_gguf(relay_tokenizer_spec *spec, const char *file, size_t len) {
    relay_gguf *g;
    relay_code code = relay_gguf_open_memory(&g, file, len, NULL);
    if (code != RELAY_OK) return code;
    code = relay_gguf_tokenizer_read(spec, g, NULL);
    relay_gguf_close(g);
    return code;
}

static void check_id(const relay_tokenizer_spec *s, uint32_t id) {
    RELAY_ASSERT(id < s->n_ids);
}

static void check(const relay_tokenizer_spec *s) {
    const relay_model_spec *m = &s->model;
    RELAY_ASSERT(s->format != NULL && s->n_ids >= m->n_tokens);
    for (uint32_t i = 0; i < m->n_merges; i++)
        RELAY_ASSERT(m->merges[i].left < m->n_tokens && m->merges[i].right < m->n_tokens &&
                     m->merges[i].result < m->n_tokens);
    for (uint32_t i = 0; i < s->n_added; i++)
        check_id(s, s->added[i].id);
    for (uint32_t i = 0; i < s->n_post; i++)
        if (!s->post[i].is_text) check_id(s, s->post[i].id);
    for (uint32_t i = 0; i < s->n_end_ids; i++)
        check_id(s, s->end_ids[i]);
    const relay_special_id special[] = {s->bos, s->eos, s->unk, s->pad, s->sep, s->cls, s->mask};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].is_set) check_id(s, special[i].id);
    if (m->has_unk) RELAY_ASSERT(m->unk_id < m->n_tokens);
    relay_vocab *v = NULL;
    if (relay_vocab_create_from_spec(&v, s, NULL) == RELAY_OK) RELAY_ASSERT(relay_vocab_size(v) >= s->n_ids);
    relay_vocab_destroy(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    int format = data[0] % N_FORMATS;
    size_t first = data[1] | (size_t)data[2] << 8, len = size - 3;
    if (first > len) first = len;
    // A copy of its own, so that a read past its end is found; the file's numbers are read where they lie.
    char *file = relay_calloc(len + 1, 1);
    memcpy(file, data + 3, len);
    relay_tokenizer_spec spec = {0};
    relay_arena_init(&spec.arena, SIZE_MAX / 2);
    relay_code code = RELAY_OK;
    switch (format) {
    case SENTENCEPIECE:
        (void)relay_sentencepiece_is(file, len);
        code = relay_sentencepiece_read(&spec, file, len, NULL);
        break;
    case TIKTOKEN:
        (void)relay_tiktoken_is(file, len);
        code = relay_tiktoken_read(&spec, file, len, NULL, NULL);
        break;
    case TEKKEN:
    case GPT2_FILES:
        code = read_json(&spec, file, first, file + first, len - first, format);
        break;
    case BERT_FILES:
        code = relay_bert_files_read(&spec, file, len, NULL, NULL);
        break;
    default:
        code = read_gguf(&spec, file, len);
    }
    if (code == RELAY_OK) check(&spec);
    relay_tokenizer_spec_fini(&spec);
    free(file);
    return 0;
}

// ---- Seeds

static void put_piece(relay_buf *b, const char *text, int type) {
    relay_buf piece;
    relay_buf_init(&piece, 1 << 10);
    relay_pb_put_bytes(&piece, 1, text, strlen(text));
    relay_buf_append(&piece, "\x15\x00\x00\x80\xBF", 5); // score: -1
    relay_pb_put_varint(&piece, 3, (uint64_t)type);
    relay_pb_put_bytes(b, 1, piece.data, piece.len);
    relay_buf_fini(&piece);
}

static void put_sentencepiece(relay_buf *b, int model_type) {
    static const char *const names[] = {"<unk>",
                                        "<s>",
                                        "</s>",
                                        "<tool>",
                                        "\xE2\x96\x81",
                                        "a",
                                        "\xE2\x96\x81"
                                        "a"};
    static const int types[] = {2, 3, 3, 4, 1, 1, 1};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        put_piece(b, names[i], types[i]);
    char trainer[] = {0x18, (char)model_type};
    relay_pb_put_bytes(b, 2, trainer, sizeof trainer);
    relay_pb_put_bytes(b, 3, "\x12\x03MAP\x18\x00\x20\x00", 9);
}

static void put_base64_byte(relay_buf *b, int byte) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    relay_buf_printf(b, "%c%c==", digits[byte >> 2], digits[(byte & 3) << 4]);
}

static void put_ranks(relay_buf *b, const char *before, const char *between, bool rank_first) {
    for (int byte = 0; byte < 256; byte++) {
        relay_buf_puts(b, byte == 0 && rank_first ? before + 1 : before); // without the comma
        if (rank_first) relay_buf_printf(b, "%d%s", byte, between);
        put_base64_byte(b, byte);
        if (rank_first)
            relay_buf_puts(b, "\"}");
        else
            relay_buf_printf(b, "%s%d\n", between, byte);
    }
}

static void put_gguf(relay_buf *b, const char *pre) {
    static const char *const merges[] = {"h e", "l l", "he ll", NULL};
    static const char *const controls[] = {"<s>", "</s>", NULL};
    gguf_writer *w =
        small_vocab_write(&(small_vocab_spec){.pre = pre, .merges = merges, .control = controls, .n_padding = 1});
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 259);
    size_t len;
    const uint8_t *file = gguf_writer_finish(w, &len);
    relay_buf_append(b, file, len);
    gguf_writer_destroy(w);
}

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    static const char vocab[] =
        "{\"a\": 0, \"b\": 1, \"ab\": 2, \"<|endoftext|>\": 3, \"config\": {\"tokenizer_class\": "
        "\"GPT2Tokenizer\", \"add_bos_token\": true}}";
    static const uint8_t formats[] = {SENTENCEPIECE, SENTENCEPIECE, TIKTOKEN, TEKKEN,
                                      GPT2_FILES,    BERT_FILES,    GGUF,     GGUF};
    if (i >= sizeof formats) return 0;
    relay_buf b;
    relay_buf_init(&b, 1 << 20);
    size_t first = 0;
    switch (i) {
    case 0:
    case 1:
        put_sentencepiece(&b, i == 0 ? 1 : 2);
        break;
    case 2:
        put_ranks(&b, "", " ", false);
        break;
    case 3:
        relay_buf_puts(
            &b, "{\"config\": {\"pattern\": \"x\", \"default_vocab_size\": 258, \"default_num_special_tokens\": 2}, "
                "\"special_tokens\": [{\"rank\": 1, \"token_str\": \"<s>\"}], \"vocab\": [");
        put_ranks(&b, ",{\"rank\": ", ", \"token_bytes\": \"", true);
        relay_buf_puts(&b, "]}");
        first = b.len;
        break;
    case 4:
        relay_buf_puts(&b, vocab);
        first = b.len;
        relay_buf_puts(&b, "#version: 0.2\na b\n");
        break;
    case 5:
        relay_buf_puts(&b, "[PAD]\n[UNK]\n[CLS]\n[SEP]\nplay\n##ing\n");
        break;
    default:
        put_gguf(&b, i == 6 ? "llama-bpe" : "deepseek-llm");
    }
    RELAY_ASSERT(3 + b.len <= cap && first <= UINT16_MAX);
    out[0] = formats[i];
    out[1] = first & 0xFF;
    out[2] = (uint8_t)(first >> 8);
    memcpy(out + 3, b.data, b.len);
    size_t n = 3 + b.len;
    relay_buf_fini(&b);
    return n;
}
