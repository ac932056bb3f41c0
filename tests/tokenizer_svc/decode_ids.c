// The decoders' answers on ids that a test sends, for comparison with the reference: one line a command, texts in hex
// ("-": empty).
//
//   tokens N                      (then N lines) PIECE KIND        KIND n: a piece, a: an added token, s: a special one
//   decoder CLEAN_UP              (then lines until "end") bpe SUFFIX | fallback | bytelevel | ctc PAD DELIMITER
//   CLEANUP |
//                                 fuse | metaspace CHARACTER SCHEME | replace PATTERN CONTENT | strip CHARACTER N N |
//                                 wordpiece PREFIX CLEANUP
//   decode SKIP SEED ID ...       -> the text; it goes through a saved state after some of the ids, as SEED says
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/spec_vocab.h"
#include "tokenizer_svc/text_stream.h"

enum { MAX_DECODERS = 32, MAX_IDS = 1 << 16 };

typedef struct world {
    relay_arena arena;
    relay_model_token *tokens;
    relay_added_token *added;
    relay_decoder_spec decoders[MAX_DECODERS];
    relay_tokenizer_spec spec;
    relay_vocab *vocab;
    relay_text_decoder *decoder;
} world;

static relay_spec_str unhex(world *w, const char *hex) {
    size_t n = strcmp(hex, "-") == 0 ? 0 : strlen(hex) / 2;
    char *s = relay_arena_alloc(&w->arena, n + 1);
    for (size_t i = 0; i < n; i++) {
        unsigned byte = 0;
        RELAY_ASSERT(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        s[i] = (char)byte;
    }
    return (relay_spec_str){s, (uint32_t)n};
}

static char *read_line(char **line, size_t *cap) {
    ssize_t n = getline(line, cap, stdin);
    if (n <= 0) return NULL;
    if ((*line)[n - 1] == '\n') (*line)[n - 1] = 0;
    return *line;
}

static void read_tokens(world *w, uint32_t n) {
    char *line = NULL;
    size_t cap = 0;
    w->spec.model.n_tokens = n;
    w->spec.model.tokens = w->tokens = relay_realloc(w->tokens, (n + 1) * sizeof *w->tokens);
    w->spec.added = w->added = relay_realloc(w->added, (n + 1) * sizeof *w->added);
    w->spec.n_added = 0;
    for (uint32_t id = 0; id < n; id++) {
        RELAY_ASSERT(read_line(&line, &cap) != NULL);
        char *piece = strtok(line, " "), *kind = strtok(NULL, " ");
        w->tokens[id] = (relay_model_token){unhex(w, piece), 0, RELAY_TOKEN_NORMAL};
        if (kind[0] != 'n')
            w->added[w->spec.n_added++] =
                (relay_added_token){.content = w->tokens[id].piece, .id = id, .special = kind[0] == 's'};
    }
    free(line);
}

static relay_decoder_spec read_decoder(world *w, char *line) {
    char *kind = strtok(line, " "), *a = strtok(NULL, " "), *b = strtok(NULL, " "), *c = strtok(NULL, " ");
    if (strcmp(kind, "bpe") == 0) return (relay_decoder_spec){.kind = RELAY_DECODE_BPE, .content = unhex(w, a)};
    if (strcmp(kind, "fallback") == 0) return (relay_decoder_spec){.kind = RELAY_DECODE_BYTE_FALLBACK};
    if (strcmp(kind, "bytelevel") == 0) return (relay_decoder_spec){.kind = RELAY_DECODE_BYTE_LEVEL};
    if (strcmp(kind, "fuse") == 0) return (relay_decoder_spec){.kind = RELAY_DECODE_FUSE};
    if (strcmp(kind, "ctc") == 0)
        return (relay_decoder_spec){
            .kind = RELAY_DECODE_CTC, .content = unhex(w, a), .pattern = {.text = unhex(w, b)}, .cleanup = c[0] == '1'};
    if (strcmp(kind, "metaspace") == 0)
        return (relay_decoder_spec){.kind = RELAY_DECODE_METASPACE,
                                    .content = unhex(w, a),
                                    .prepend_scheme = b[0] == 'n' ? RELAY_PREPEND_NEVER : RELAY_PREPEND_ALWAYS};
    if (strcmp(kind, "replace") == 0)
        return (relay_decoder_spec){
            .kind = RELAY_DECODE_REPLACE, .pattern = {.text = unhex(w, a)}, .content = unhex(w, b)};
    if (strcmp(kind, "strip") == 0)
        return (relay_decoder_spec){.kind = RELAY_DECODE_STRIP,
                                    .content = unhex(w, a),
                                    .strip_begin = (uint32_t)atoi(b),
                                    .strip_end = (uint32_t)atoi(c)};
    RELAY_ASSERT(strcmp(kind, "wordpiece") == 0);
    return (relay_decoder_spec){.kind = RELAY_DECODE_WORDPIECE, .content = unhex(w, a), .cleanup = b[0] == '1'};
}

static void end_decoder(world *w) {
    relay_vocab_destroy(w->vocab);
    relay_text_decoder_destroy(w->decoder);
    w->vocab = NULL;
    w->decoder = NULL;
}

static void make_decoder(world *w, bool clean_up) {
    char *line = NULL;
    size_t cap = 0;
    end_decoder(w);
    w->spec.clean_up_tokenization_spaces = clean_up;
    w->spec.decoders = w->decoders;
    w->spec.n_decoders = 0;
    w->spec.model.byte_alphabet = false;
    w->spec.model.kind = RELAY_MODEL_WORDLEVEL;
    while (read_line(&line, &cap) != NULL && strcmp(line, "end") != 0) {
        RELAY_ASSERT(w->spec.n_decoders < MAX_DECODERS);
        w->decoders[w->spec.n_decoders++] = read_decoder(w, line);
    }
    relay_err e = {0};
    if (relay_vocab_create_from_spec(&w->vocab, &w->spec, &e) != RELAY_OK) RELAY_ASSERT(!"vocabulary");
    if (relay_text_decoder_create(&w->decoder, &w->spec, &e) != RELAY_OK) printf("refused %s\n", e.message);
    free(line);
}

static relay_text_stream *change_streams(relay_text_stream *s, const relay_text_stream_opts *opts) {
    relay_buf state;
    relay_text_stream *other;
    relay_buf_init(&state, RELAY_MAX_DECODE_STATE_BYTES);
    relay_text_stream_save(s, &state);
    RELAY_ASSERT(!state.is_failed);
    RELAY_ASSERT(relay_text_stream_create(&other, opts, NULL) == RELAY_OK);
    RELAY_ASSERT(relay_text_stream_restore(other, (const uint8_t *)state.data, state.len, NULL) == RELAY_OK);
    relay_buf_fini(&state);
    relay_text_stream_destroy(s);
    return other;
}

static void decode(world *w, char *args) {
    relay_text_stream_opts opts = {.vocab = w->vocab, .decoder = w->decoder};
    opts.skip_special_tokens = strtok(args, " ")[0] == '1';
    test_random r = {strtoull(strtok(NULL, " "), NULL, 10)};
    relay_text_stream *s;
    relay_text_step step;
    relay_buf text;
    relay_buf_init(&text, 1 << 24);
    RELAY_ASSERT(relay_text_stream_create(&s, &opts, NULL) == RELAY_OK);
    for (char *word; (word = strtok(NULL, " ")) != NULL;) {
        uint32_t id = (uint32_t)strtoul(word, NULL, 10);
        relay_text_stream_push(s, &id, 1, true, &text, &step);
        if (test_random_below(&r, 3) == 0) s = change_streams(s, &opts);
    }
    relay_text_stream_finish(s, &text);
    for (size_t i = 0; i < text.len; i++)
        printf("%02x", (uint8_t)text.data[i]);
    puts(text.len == 0 ? "-" : "");
    relay_buf_fini(&text);
    relay_text_stream_destroy(s);
}

int main(void) {
    world w = {.tokens = NULL};
    char *line = NULL;
    size_t cap = 0;
    relay_arena_init(&w.arena, SIZE_MAX / 2);
    while (read_line(&line, &cap) != NULL) {
        if (strncmp(line, "tokens ", 7) == 0)
            read_tokens(&w, (uint32_t)strtoul(line + 7, NULL, 10));
        else if (strncmp(line, "decoder ", 8) == 0)
            make_decoder(&w, line[8] == '1');
        else if (strncmp(line, "decode ", 7) == 0 && w.decoder != NULL)
            decode(&w, line + 7);
    }
    end_decoder(&w);
    relay_arena_fini(&w.arena);
    free(w.tokens);
    free(w.added);
    free(line);
    return 0;
}
