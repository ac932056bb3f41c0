// The models' answers on words that a test sends, for comparison with the reference: one line a command, texts in hex.
//
//   model KIND UNK BYTE_FALLBACK SENTENCEPIECE MAX_CHARS PREFIX N    KIND unigram|wordpiece|wordlevel; UNK -1: none
//   (then N lines) PIECE SCORE TYPE                              TYPE as relay_token_kind
//   word TEXT                                             -> "ID,BEGIN,END ID,BEGIN,END ..." or "error"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_svc/unigram.h"
#include "tokenizer_svc/wordlevel.h"
#include "tokenizer_svc/wordpiece.h"

static relay_arena arena;

static relay_spec_str unhex(const char *hex) {
    size_t n = strcmp(hex, "-") == 0 ? 0 : strlen(hex) / 2;
    char *s = relay_arena_alloc(&arena, n + 1);
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

static relay_word_model *make_model(const char *args) {
    char kind[16], prefix[64], *line = NULL;
    size_t cap = 0;
    int unk, byte_fallback, sentencepiece;
    relay_tokenizer_spec spec = {0};
    relay_model_spec *m = &spec.model;
    RELAY_ASSERT(sscanf(args, "%15s %d %d %d %" SCNu32 " %63s %" SCNu32, kind, &unk, &byte_fallback, &sentencepiece,
                        &m->max_input_chars_per_word, prefix, &m->n_tokens) == 7);
    m->has_unk = unk >= 0;
    m->unk_id = unk >= 0 ? (uint32_t)unk : 0;
    m->byte_fallback = byte_fallback != 0;
    m->is_sentencepiece = sentencepiece != 0;
    m->continuing_subword_prefix = unhex(prefix);
    m->tokens = relay_calloc(m->n_tokens, sizeof *m->tokens);
    for (uint32_t id = 0; id < m->n_tokens; id++) {
        RELAY_ASSERT(read_line(&line, &cap) != NULL);
        char *piece = strtok(line, " "), *score = strtok(NULL, " "), *type = strtok(NULL, " ");
        m->tokens[id] = (relay_model_token){unhex(piece), strtod(score, NULL), (relay_token_kind)atoi(type)};
    }
    relay_word_model *model = NULL;
    relay_err e = {0};
    relay_code code = strcmp(kind, "unigram") == 0     ? relay_unigram_create(&model, &spec, &e)
                      : strcmp(kind, "wordpiece") == 0 ? relay_wordpiece_create(&model, &spec, &e)
                                                       : relay_wordlevel_create(&model, &spec, &e);
    if (code != RELAY_OK) fprintf(stderr, "%s\n", e.message);
    RELAY_ASSERT(code == RELAY_OK);
    free(m->tokens);
    free(line);
    return model;
}

static void answer(const relay_word_model *model, void *work, relay_spec_str word) {
    relay_encoding enc = {.has_offsets = true};
    if (model->encode(model, work, word.s, word.len, 0, &enc, NULL) == RELAY_OK) {
        for (uint32_t i = 0; i < enc.n; i++)
            printf("%s%u,%u,%u", i == 0 ? "" : " ", enc.ids[i], enc.offset_begin[i], enc.offset_end[i]);
        putchar('\n');
    } else {
        puts("error");
    }
    relay_encoding_fini(&enc);
}

int main(void) {
    relay_word_model *model = NULL;
    void *work = NULL;
    char *line = NULL;
    size_t cap = 0;
    relay_arena_init(&arena, SIZE_MAX / 2);
    while (read_line(&line, &cap) != NULL) {
        if (strncmp(line, "model ", 6) == 0) {
            if (model != NULL) {
                model->work_destroy(work);
                model->destroy(model);
            }
            model = make_model(line + 6);
            work = model->work_create(model, 1024);
        } else if (strncmp(line, "word ", 5) == 0 && model != NULL) {
            answer(model, work, unhex(line + 5));
        }
    }
    if (model != NULL) {
        model->work_destroy(work);
        model->destroy(model);
    }
    relay_arena_fini(&arena);
    free(line);
    return 0;
}
