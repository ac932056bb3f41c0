// What a tokenizer file says, whatever its format: plain data that every reader (formats/) fills in and from which the
// tokenizer is built. The stages and their options are those of HF tokenizers 0.23, which has the most of them; the
// other formats are said in its terms.
//
//   text -> added tokens split off -> normalizers -> (added tokens that are `normalized`) -> pre-tokenizers -> model
//        -> post-processor;   ids -> decoders -> text
//
// A spec holds what the file says and no more: readers check shapes, types and ranges and name what is wrong by its
// path in the file ("model.merges[17]"); what a stage cannot do is refused, by name, where that stage is built.
#ifndef RELAY_TOKENIZER_SVC_TOKENIZER_SPEC_H
#define RELAY_TOKENIZER_SVC_TOKENIZER_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/vocab.h"

// Bytes that need not end with NUL; `s` NULL where there is none.
typedef struct relay_spec_str {
    const char *s;
    uint32_t len;
} relay_spec_str;

// ---- Patterns: of Replace normalizers and decoders, and of Split pre-tokenizers

typedef struct relay_spec_pattern {
    relay_spec_str text;
    bool is_regex; // in Oniguruma's syntax, as HF tokenizers reads it; else the text itself
} relay_spec_pattern;

// ---- Normalizers, in the order they are applied

typedef enum relay_normalizer_kind {
    RELAY_NORMALIZE_NFC,
    RELAY_NORMALIZE_NFD,
    RELAY_NORMALIZE_NFKC,
    RELAY_NORMALIZE_NFKD,
    RELAY_NORMALIZE_NMT,
    RELAY_NORMALIZE_LOWERCASE,
    RELAY_NORMALIZE_STRIP, // strip_left, strip_right
    RELAY_NORMALIZE_STRIP_ACCENTS,
    RELAY_NORMALIZE_REPLACE,     // pattern, content
    RELAY_NORMALIZE_PREPEND,     // content
    RELAY_NORMALIZE_BERT,        // clean_text, handle_chinese_chars, strip_accents, lowercase
    RELAY_NORMALIZE_PRECOMPILED, // content: SentencePiece's precompiled_charsmap, raw bytes
    RELAY_NORMALIZE_BYTE_LEVEL,
    // Of SentencePiece; no file of HF's has them.
    RELAY_NORMALIZE_EXTRA_WHITESPACE, // remove_extra_whitespaces: runs of U+0020 become one, none at either end
    RELAY_NORMALIZE_APPEND,           // content, behind a text that is not empty: treat_whitespace_as_suffix
} relay_normalizer_kind;

typedef struct relay_normalizer_spec {
    relay_normalizer_kind kind;
    relay_spec_pattern pattern;
    relay_spec_str content;
    bool strip_left, strip_right;
    bool clean_text, handle_chinese_chars, lowercase;
    bool strip_accents; // of BERT: a file's null is what lowercase says, resolved by the reader
    // Of PRECOMPILED: whatever of the map is the longest prefix of the rest is replaced, as SentencePiece does. Else
    // graphemes and then characters are looked up, as HF does.
    bool by_longest_prefix;
} relay_normalizer_spec;

// ---- Pre-tokenizers, in the order they are applied

typedef enum relay_pretokenizer_kind {
    RELAY_PRETOKENIZE_BERT,
    RELAY_PRETOKENIZE_BYTE_LEVEL,           // add_prefix_space, trim_offsets, use_regex
    RELAY_PRETOKENIZE_CHAR_DELIMITER_SPLIT, // content: one character
    RELAY_PRETOKENIZE_DIGITS,               // individual_digits
    RELAY_PRETOKENIZE_FIXED_LENGTH,         // length, in characters
    RELAY_PRETOKENIZE_METASPACE,            // content: the replacement, one character; prepend_scheme, split
    RELAY_PRETOKENIZE_PUNCTUATION,          // behavior
    RELAY_PRETOKENIZE_SPLIT,                // pattern, behavior, invert
    RELAY_PRETOKENIZE_UNICODE_SCRIPTS,
    RELAY_PRETOKENIZE_WHITESPACE,
    RELAY_PRETOKENIZE_WHITESPACE_SPLIT,
} relay_pretokenizer_kind;

typedef enum relay_split_behavior {
    RELAY_SPLIT_REMOVED,
    RELAY_SPLIT_ISOLATED,
    RELAY_SPLIT_MERGED_WITH_PREVIOUS,
    RELAY_SPLIT_MERGED_WITH_NEXT,
    RELAY_SPLIT_CONTIGUOUS,
} relay_split_behavior;

typedef enum relay_prepend_scheme {
    RELAY_PREPEND_ALWAYS,
    RELAY_PREPEND_NEVER,
    RELAY_PREPEND_FIRST, // only where a text begins
} relay_prepend_scheme;

typedef struct relay_pretokenizer_spec {
    relay_pretokenizer_kind kind;
    relay_spec_pattern pattern;
    relay_spec_str content;
    relay_split_behavior behavior;
    relay_prepend_scheme prepend_scheme;
    bool invert;
    bool split;                                     // of METASPACE; default true
    bool add_prefix_space, trim_offsets, use_regex; // defaults: all true
    bool individual_digits;
    uint32_t length;
} relay_pretokenizer_spec;

// ---- The model

typedef enum relay_model_kind {
    RELAY_MODEL_BPE,
    RELAY_MODEL_UNIGRAM,
    RELAY_MODEL_WORDPIECE,
    RELAY_MODEL_WORDLEVEL,
} relay_model_kind;

// How the pieces of a BPE come to be joined: two ways to say the same kind of list.
typedef enum relay_bpe_order {
    RELAY_BPE_BY_MERGES, // merges[] by their place (HF, GPT-2)
    RELAY_BPE_BY_RANK,   // any two neighbours whose concatenation is a token, the lowest id first (tiktoken, tekken)
    RELAY_BPE_BY_SCORE,  // any two neighbours whose concatenation is a token, the highest score first (SentencePiece)
} relay_bpe_order;

typedef struct relay_merge_spec {
    uint32_t left, right, result; // ids
} relay_merge_spec;

typedef struct relay_model_token {
    relay_spec_str piece; // as in the file: byte-level pieces in GPT-2's alphabet where byte_alphabet; s NULL: no token
    double score;         // of UNIGRAM: log probability; of RELAY_BPE_BY_SCORE: the higher joins first
    // NORMAL, BYTE (<0x0A>), or what the file marks: CONTROL, USER, UNKNOWN, PADDING. A USER token that is not among
    // the added tokens is SentencePiece's user-defined piece: BY_SCORE takes it out of the text first, the longest one
    // wherever one begins; UNIGRAM scores it so that it wins (its length in characters times the highest score, less
    // 0.1).
    relay_token_kind kind;
} relay_model_token;

typedef struct relay_model_spec {
    relay_model_kind kind;
    relay_model_token *tokens; // [n_tokens], by id; holes where no token has the id
    uint32_t n_tokens;
    bool has_unk;
    uint32_t unk_id;
    bool byte_fallback;
    // UNIGRAM: to the bit as the sentencepiece library: sums in 32-bit floats, only NORMAL and USER pieces are found in
    // text, USER ones before all others. Else as HF tokenizers: sums in 64-bit floats, every piece is found
    bool is_sentencepiece;
    // BPE
    relay_bpe_order order;
    relay_merge_spec *merges; // [n_merges]
    uint32_t n_merges;
    bool byte_alphabet; // pieces are written in GPT-2's alphabet of printable characters; else they are raw bytes
    bool ignore_merges, fuse_unk;
    bool is_byte_level; // a word begins as its bytes and not as its characters
    relay_spec_str end_of_word_suffix;
    // BPE and WORDPIECE ("##")
    relay_spec_str continuing_subword_prefix;
    // WORDPIECE
    uint32_t max_input_chars_per_word;
} relay_model_spec;

// ---- Added tokens

typedef struct relay_added_token {
    relay_spec_str content;
    uint32_t id;
    bool special;        // CONTROL: found in text only where the caller says so; else USER
    bool single_word;    // no match inside a word
    bool lstrip, rstrip; // takes the whitespace before, behind it
    bool normalized;     // matched in the normalized text
} relay_added_token;

// ---- The post-processor: what stands around a text. Templates for one text only; pairs have no caller here.

typedef struct relay_template_piece {
    bool is_text; // the text's own tokens, exactly one piece of a template; else `id`
    uint32_t id;
} relay_template_piece;

// ---- Decoders, in the order they are applied

typedef enum relay_decoder_kind {
    RELAY_DECODE_BPE, // content: the end-of-word suffix
    RELAY_DECODE_BYTE_FALLBACK,
    RELAY_DECODE_BYTE_LEVEL,
    RELAY_DECODE_CTC, // pad_token: content; word_delimiter_token: pattern.text; cleanup
    RELAY_DECODE_FUSE,
    RELAY_DECODE_METASPACE, // content: the replacement; prepend_scheme
    RELAY_DECODE_REPLACE,   // pattern, content
    RELAY_DECODE_STRIP,     // content: one character; strip_begin, strip_end: how many
    RELAY_DECODE_WORDPIECE, // content: the prefix; cleanup
} relay_decoder_kind;

typedef struct relay_decoder_spec {
    relay_decoder_kind kind;
    relay_spec_pattern pattern;
    relay_spec_str content;
    relay_prepend_scheme prepend_scheme;
    uint32_t strip_begin, strip_end;
    bool cleanup;
} relay_decoder_spec;

// ---- The whole

typedef struct relay_named_template {
    relay_spec_str name; // "default" is the default one
    relay_spec_str source;
} relay_named_template;

typedef struct relay_tokenizer_spec {
    relay_arena arena; // owns everything below, together with `file`
    void *file;        // what strings point into, or NULL; freed by file_free
    void (*file_free)(void *file);
    const char *format;  // "tokenizer.json", "GGUF", "SentencePiece", "tiktoken", "tekken", ...
    relay_spec_str name; // the model's, where the file has one

    relay_added_token *added; // [n_added]; ids may be within or behind the model's
    uint32_t n_added;
    relay_normalizer_spec *normalizers;
    uint32_t n_normalizers;
    relay_pretokenizer_spec *pretokenizers;
    uint32_t n_pretokenizers;
    relay_model_spec model;
    relay_template_piece *post; // [n_post]; none: the text alone. What add_special_tokens puts around a text
    uint32_t n_post;
    bool post_trim_offsets; // of the ByteLevel and Roberta post-processors: offsets without the whitespace of a token
    bool post_add_prefix_space;
    relay_decoder_spec *decoders; // [n_decoders]; none: pieces joined by a space, as HF does
    uint32_t n_decoders;
    bool clean_up_tokenization_spaces; // of tokenizer_config.json

    uint32_t n_ids; // ids are below: rows of the output matrix where the file knows them
    relay_special_id bos, eos, unk, pad, sep, cls, mask;
    uint32_t
        *end_ids; // [n_end_ids] further ids that end an answer, as generation_config.json or GGUF's eot and eom say
    uint32_t n_end_ids;
    bool add_bos, add_eos; // whether `post` puts them there: what GetTokenizerInfo tells

    relay_named_template *templates; // [n_templates] chat templates
    uint32_t n_templates;
} relay_tokenizer_spec;

void relay_tokenizer_spec_fini(relay_tokenizer_spec *s);

#endif
