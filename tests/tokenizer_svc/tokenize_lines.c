// What the oracles in tests/oracle and the benchmark ask: texts in, ids or words out; ids in, texts out.
//
//   tokenize_lines ids MODEL.gguf      the ids of each text
//   tokenize_lines special MODEL.gguf  the same with names of control tokens made tokens
//   tokenize_lines text MODEL.gguf     the text of ids (4 bytes each in the input) in hexadecimal, nothing skipped
//   tokenize_lines words SCHEME        the lengths in bytes of the words that a pre-tokenizer splits each text into
//   tokenize_lines schemes             the names of all pre-tokenizers, and no input
//   tokenize_lines time MODEL.gguf N   processor seconds for N times over all texts, tokens of one time, on one line
//
// Input: any number of texts, each its length in 4 bytes, little-endian, and its bytes. Output: a line of decimal
// numbers a text.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/buf.h"
#include "tokenizer_svc/formats/formats.h"
#include "tokenizer_svc/formats/gguf_pre.h"
#include "tokenizer_svc/spec_vocab.h"
#include "tokenizer_svc/splitter.h"
#include "tokenizer_svc/text_stream.h"
#include "tokenizer_svc/tokenizer.h"

enum { MAX_TEXT_BYTES = 1 << 28 };

static _Noreturn void die(const char *what) {
    fprintf(stderr, "tokenize_lines: %s\n", what);
    exit(1);
}

// False at the end of the input. The caller frees the text.
static bool read_text(char **text, size_t *len) {
    uint8_t n[4];
    size_t got = fread(n, 1, sizeof n, stdin);
    if (got == 0) return false;
    *len = n[0] | (uint32_t)n[1] << 8 | (uint32_t)n[2] << 16 | (uint32_t)n[3] << 24;
    if (got != sizeof n || *len > MAX_TEXT_BYTES) die("bad length");
    *text = relay_calloc(*len + 1, 1);
    if (fread(*text, 1, *len, stdin) != *len) die("short text");
    return true;
}

typedef struct model {
    relay_vocab *vocab;
    relay_tokenizer *tokenizer;
} model;

static model load(const char *path) {
    model m;
    relay_err e;
    relay_tokenizer_spec spec;
    if (relay_tokenizer_spec_read(&spec, path, &e) != RELAY_OK ||
        relay_vocab_create_from_spec(&m.vocab, &spec, &e) != RELAY_OK ||
        relay_tokenizer_create(&m.tokenizer, &spec, &e) != RELAY_OK)
        die(e.message);
    relay_tokenizer_spec_fini(&spec);
    return m;
}

static void unload(model m) {
    relay_tokenizer_destroy(m.tokenizer);
    relay_vocab_destroy(m.vocab);
}

static void encode(model m, const char *text, size_t len, bool parse_special, relay_encoding *enc) {
    relay_text_span span = {.text = text, .len = len, .parse_special = parse_special};
    relay_encode_opts opts = {0};
    relay_err e;
    enc->n = 0;
    if (relay_tokenizer_encode(m.tokenizer, &span, 1, &opts, enc, &e) != RELAY_OK) die(e.message);
}

static void print_ids(const char *path, bool parse_special) {
    model m = load(path);
    relay_encoding enc = {0};
    char *text;
    size_t len;
    while (read_text(&text, &len)) {
        encode(m, text, len, parse_special, &enc);
        for (uint32_t i = 0; i < enc.n; i++)
            printf(i == 0 ? "%u" : " %u", enc.ids[i]);
        putchar('\n');
        free(text);
    }
    relay_encoding_fini(&enc);
    unload(m);
}

// Of this thread: what others do on the machine does not count.
static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void time_ids(const char *path, long n_times) {
    model m = load(path);
    size_t n_texts = 0, cap = 0;
    relay_text_span *texts = NULL;
    char *text;
    size_t len;
    while (read_text(&text, &len)) {
        if (n_texts == cap) {
            cap = cap == 0 ? 64 : 2 * cap;
            texts = relay_realloc(texts, cap * sizeof *texts);
        }
        texts[n_texts++] = (relay_text_span){.text = text, .len = len};
    }
    relay_encoding enc = {0};
    uint64_t n_tokens = 0;
    double begin = processor_seconds();
    for (long t = 0; t < n_times; t++) {
        n_tokens = 0;
        for (size_t i = 0; i < n_texts; i++) {
            encode(m, texts[i].text, texts[i].len, false, &enc);
            n_tokens += enc.n;
        }
    }
    printf("%.6f %llu\n", processor_seconds() - begin, (unsigned long long)n_tokens);
    for (size_t i = 0; i < n_texts; i++)
        free((char *)texts[i].text);
    free(texts);
    relay_encoding_fini(&enc);
    unload(m);
}

static void print_text(const char *path) {
    model m = load(path);
    relay_text_stream_opts opts = {.vocab = m.vocab};
    relay_buf out;
    relay_buf_init(&out, MAX_TEXT_BYTES);
    char *ids;
    size_t len;
    while (read_text(&ids, &len)) {
        relay_text_stream *stream;
        relay_text_step step;
        relay_err e;
        if (relay_text_stream_create(&stream, &opts, &e) != RELAY_OK) die(e.message);
        relay_buf_clear(&out);
        for (size_t i = 0; i + 4 <= len; i += 4) {
            uint32_t id;
            memcpy(&id, ids + i, 4);
            if (id >= relay_vocab_size(m.vocab)) die("no such id");
            relay_text_stream_push(stream, &id, 1, false, &out, &step);
        }
        relay_text_stream_finish(stream, &out);
        for (size_t i = 0; i < out.len; i++)
            printf("%02x", (uint8_t)out.data[i]);
        putchar('\n');
        relay_text_stream_destroy(stream);
        free(ids);
    }
    relay_buf_fini(&out);
    unload(m);
}

static void print_words(const char *name) {
    const relay_gguf_pre *pre = relay_gguf_pre_find(name, strlen(name));
    if (pre == NULL) die("no such name of tokenizer.ggml.pre");
    relay_splitter *splitter;
    relay_splitter_work work = {0};
    relay_err e;
    if (relay_splitter_create(&splitter, pre->stages, pre->n_stages, true, &e) != RELAY_OK) die(e.message);
    char *text;
    size_t len;
    while (read_text(&text, &len)) {
        relay_split split = {0};
        if (len > 0 &&
            relay_splitter_apply(splitter, &work, text, (uint32_t)len, NULL, 0, false, &split, &e) != RELAY_OK)
            die(e.message);
        for (uint32_t i = 0; i < split.n_words; i++)
            printf(i == 0 ? "%u" : " %u", split.words[i].end - split.words[i].begin);
        putchar('\n');
        free(text);
    }
    relay_splitter_work_fini(&work);
    relay_splitter_destroy(splitter);
}

int main(int argc, char **argv) {
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "ids") == 0 && argc == 3) {
        print_ids(argv[2], false);
    } else if (strcmp(command, "special") == 0 && argc == 3) {
        print_ids(argv[2], true);
    } else if (strcmp(command, "text") == 0 && argc == 3) {
        print_text(argv[2]);
    } else if (strcmp(command, "words") == 0 && argc == 3) {
        print_words(argv[2]);
    } else if (strcmp(command, "time") == 0 && argc == 4) {
        time_ids(argv[2], strtol(argv[3], NULL, 10));
    } else if (strcmp(command, "schemes") == 0 && argc == 2) {
        for (uint32_t i = 0; i < relay_gguf_pre_count(); i++)
            puts(relay_gguf_pre_at(i)->name);
    } else {
        die("usage: ids|special|text MODEL, words SCHEME, time MODEL N, schemes");
    }
    return 0;
}
