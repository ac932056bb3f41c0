// The seams between the pipeline (tokenizer.c) and what makes tokens.
//
// After added tokens are split off and the rest is normalized, stretches of text are left. A stretch goes to
//
//   a stretch encoder, where the tokenizer's pre-tokenizers and model are known together (bpe): it finds the words and
//     their tokens in one go, over the caller's own bytes wherever nothing had to be normalized; or else
//   the pre-tokenizers (pretokenizer.h), which cut it into words, each of which goes to the word model.
//
// Both append to a relay_encoding. Offsets are bytes of the text they were given plus `base`; the pipeline turns them
// into offsets of the caller's text (whole characters of it, right through normalizers). They are written only where
// enc->has_offsets.
//
// Text is valid UTF-8 and not empty, in the form that the model's pieces have in the spec: where
// spec->model.byte_alphabet is set (the last pre-tokenizer is ByteLevel, which then is left to the model), raw bytes
// stand for the alphabet's characters.
//
// Each implementation embeds its interface as the first member. Immutable after creation; any thread, each with working
// memory of its own, which it may use for any number of texts.
#ifndef RELAY_TOKENIZER_SVC_WORD_MODEL_H
#define RELAY_TOKENIZER_SVC_WORD_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/encoding.h"

typedef struct relay_word_model relay_word_model;

struct relay_word_model {
    void (*destroy)(relay_word_model *m);
    // `text_len`: about how much text is to come, for those who cache where it pays.
    void *(*work_create)(const relay_word_model *m, size_t text_len);
    void (*work_destroy)(void *work);
    relay_code (*encode)(const relay_word_model *m, void *work, const char *word, size_t len, uint32_t base,
                         relay_encoding *enc, relay_err *e);
    // The same for a word that the caller remembers and will not ask for again: the model need not. NULL: there is no
    // difference.
    relay_code (*encode_once)(const relay_word_model *m, void *work, const char *word, size_t len, uint32_t base,
                              relay_encoding *enc, relay_err *e);
};

typedef struct relay_stretch_encoder relay_stretch_encoder;

struct relay_stretch_encoder {
    void (*destroy)(relay_stretch_encoder *s);
    void *(*work_create)(const relay_stretch_encoder *s, size_t text_len);
    void (*work_destroy)(void *work);
    relay_code (*encode)(const relay_stretch_encoder *s, void *work, const char *text, size_t len, uint32_t base,
                         relay_encoding *enc, relay_err *e);
};

// How one is made: relay_<model>_create(relay_word_model **out, const relay_tokenizer_spec *spec, relay_err *e), and
// relay_<model>_stretch_create for stretch encoders, which gives NULL and OK where it does not know the pre-tokenizers
// of the spec. What is kept of the spec is copied: it may be freed afterwards.

#endif
