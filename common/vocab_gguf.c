// The vocabulary of a GGUF file: tokenizer.ggml.tokens in the words of its family, made the canonical table.
//
//   gpt2            pieces in GPT-2's byte alphabet
//   llama, t5       SentencePiece pieces: U+2581 is a space, <0x0A> a byte
//   gemma4          the same pieces, joined by merges
//   bert            WordPiece as the converters write it: U+2581 where a word begins, nothing where one goes on
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/byte_level.h"
#include "common/str_index.h"
#include "common/vocab.h"

enum {
    SHOWN_BYTES = 64, // of a token, in messages
    N_END_KEYS = 3,
};

#define KEY_MODEL  "tokenizer.ggml.model"
#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES  "tokenizer.ggml.token_type"

// What is read, until the table takes copies.
typedef struct reading {
    const relay_gguf *g;
    bool is_byte_level;
    relay_vocab_entry *tokens;
    uint32_t size;
    char *bytes; // of all tokens
} reading;

static relay_code read_family(reading *r, relay_err *e) {
    static const char *const families[] = {"gpt2", "llama", "t5", "gemma4", "bert"};
    const char *s;
    size_t len;
    bool found;
    relay_code code = relay_gguf_string(r->g, KEY_MODEL, &s, &len, &found, e);
    if (code != RELAY_OK) return code;
    if (!found) return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" KEY_MODEL "\" is missing");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strlen(families[i]) != len || memcmp(families[i], s, len) != 0) continue;
        r->is_byte_level = i == 0;
        return RELAY_OK;
    }
    return relay_fail(e, RELAY_UNIMPLEMENTED,
                      "key \"" KEY_MODEL
                      "\" is \"%.*s\"; Relay knows \"gpt2\", \"llama\", \"t5\", \"gemma4\" and \"bert\"",
                      len < SHOWN_BYTES ? (int)len : SHOWN_BYTES, s);
}

// Converters fill a vocabulary up to the matrix's rows with "[PAD<id>]"; older ones mark these as user-defined.
static bool is_padding_name(const char *piece, size_t len, uint32_t id) {
    char name[24];
    int n = snprintf(name, sizeof name, "[PAD%" PRIu32 "]", id);
    return len == (size_t)n && memcmp(piece, name, len) == 0;
}

relay_token_kind relay_vocab_gguf_kind(double type, const char *piece, size_t len, uint32_t id) {
    static const relay_token_kind kinds[] = {
        [1] = RELAY_TOKEN_NORMAL, [2] = RELAY_TOKEN_UNKNOWN, [3] = RELAY_TOKEN_CONTROL,
        [4] = RELAY_TOKEN_USER,   [5] = RELAY_TOKEN_PADDING, [6] = RELAY_TOKEN_BYTE,
    };
    for (uint32_t i = 1; i < sizeof kinds / sizeof *kinds; i++)
        if (type == i)
            return kinds[i] == RELAY_TOKEN_USER && is_padding_name(piece, len, id) ? RELAY_TOKEN_PADDING : kinds[i];
    return 0;
}

// Writes what the token adds to the output to `out`, which has room for the piece; returns the number of bytes.
static size_t decode_piece(bool is_byte_level, relay_vocab_entry *t, const char *piece, size_t len, char *out) {
    if (t->kind == RELAY_TOKEN_BYTE) {
        out[0] = (char)relay_vocab_byte_of_name(piece, len);
        return 1;
    }
    bool is_text = t->kind == RELAY_TOKEN_NORMAL || t->kind == RELAY_TOKEN_USER;
    if (is_text && !is_byte_level) return relay_vocab_unescape_spaces(piece, len, out);
    if (t->kind == RELAY_TOKEN_NORMAL) {
        size_t n;
        // A piece that is not of the alphabet stands for itself, as in Hugging Face's ByteLevel decoder, but no text
        // leads to it: Command R has U+200D both as such a piece and in the alphabet.
        if (relay_byte_level_decode(piece, len, out, &n)) return n;
        t->is_unreachable = true;
    }
    memcpy(out, piece, len);
    return len;
}

static relay_code check_piece(const char *piece, size_t len, double type, relay_token_kind kind, uint32_t id,
                              relay_err *e) {
    if (kind == 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TYPES "\": token %u has type %.15g; it must be 1 to 6", id, type);
    if (kind == RELAY_TOKEN_PADDING) return RELAY_OK;
    if (len == 0 || len > RELAY_VOCAB_MAX_TOKEN_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TOKENS "\": token %u has %zu bytes; it must have 1 to %d", id, len,
                          RELAY_VOCAB_MAX_TOKEN_BYTES);
    if (kind == RELAY_TOKEN_BYTE && relay_vocab_byte_of_name(piece, len) < 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TOKENS "\": byte token %u is \"%.*s\"; it must be of the form <0x0A>", id,
                          len < SHOWN_BYTES ? (int)len : SHOWN_BYTES, piece);
    return RELAY_OK;
}

// Reads all tokens; `pieces` finds a piece that is there twice.
static relay_code read_tokens(reading *r, relay_str_index *pieces, relay_err *e) {
    char *out = r->bytes;
    for (uint32_t id = 0; id < r->size; id++) {
        const char *piece;
        size_t len;
        relay_gguf_string_at(r->g, KEY_TOKENS, id, &piece, &len);
        double type = relay_gguf_number_at(r->g, KEY_TYPES, id);
        relay_token_kind kind = relay_vocab_gguf_kind(type, piece, len, id);
        relay_code code = check_piece(piece, len, type, kind, id, e);
        if (code != RELAY_OK) return code;
        relay_vocab_entry *t = &r->tokens[id];
        *t = (relay_vocab_entry){.bytes = out, .kind = kind};
        if (kind == RELAY_TOKEN_PADDING) { // its bytes may be of any length, and say nothing
            if (len > RELAY_VOCAB_MAX_TOKEN_BYTES) len = 0;
        } else {
            uint32_t before = relay_str_index_add(pieces, piece, (uint32_t)len, id);
            if (before != RELAY_STR_NONE)
                return relay_fail(e, RELAY_INVALID_ARGUMENT,
                                  "key \"" KEY_TOKENS "\": tokens %u and %u are both \"%.*s\"", before, id,
                                  len < SHOWN_BYTES ? (int)len : SHOWN_BYTES, piece);
        }
        t->len = (uint32_t)decode_piece(r->is_byte_level, t, piece, len, out);
        out += t->len;
    }
    return RELAY_OK;
}

static relay_code load_tokens(reading *r, relay_err *e) {
    uint64_t n_tokens, n_types;
    relay_code code = relay_gguf_string_array(r->g, KEY_TOKENS, &n_tokens, NULL, e);
    if (code == RELAY_OK) code = relay_gguf_number_array(r->g, KEY_TYPES, &n_types, NULL, e);
    if (code != RELAY_OK) return code;
    if (n_tokens == 0 || n_tokens > RELAY_VOCAB_MAX_TOKENS)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TOKENS "\" has %" PRIu64 " tokens; it must have 1 to %d", n_tokens,
                          RELAY_VOCAB_MAX_TOKENS);
    if (n_types != n_tokens)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TYPES "\" has %" PRIu64 " entries for %" PRIu64 " tokens", n_types, n_tokens);
    r->size = (uint32_t)n_tokens;
    r->tokens = relay_calloc(r->size, sizeof *r->tokens);

    uint64_t n_bytes = 0;
    for (uint32_t id = 0; id < r->size; id++) {
        const char *piece;
        size_t len;
        relay_gguf_string_at(r->g, KEY_TOKENS, id, &piece, &len);
        n_bytes += len;
    }
    r->bytes = relay_calloc(n_bytes, 1);
    relay_str_index pieces;
    relay_str_index_init(&pieces, r->size);
    code = read_tokens(r, &pieces, e);
    relay_str_index_fini(&pieces);
    return code;
}

static relay_code read_special(const reading *r, const char *name, relay_special_id *out, relay_err *e) {
    uint64_t id = 0;
    relay_code code = relay_gguf_u64(r->g, name, 0, r->size - 1, &id, &out->is_set, e);
    out->id = (uint32_t)id;
    return code;
}

static relay_code read_special_ids(const reading *r, relay_vocab_table *table, uint32_t *ends, relay_err *e) {
    static const char *const end_keys[N_END_KEYS] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                                     "tokenizer.ggml.eom_token_id"};
    relay_code code = read_special(r, "tokenizer.ggml.bos_token_id", &table->bos, e);
    if (code == RELAY_OK) code = read_special(r, "tokenizer.ggml.unknown_token_id", &table->unk, e);
    if (code == RELAY_OK) code = read_special(r, "tokenizer.ggml.padding_token_id", &table->pad, e);
    for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys && code == RELAY_OK; i++) {
        relay_special_id end;
        code = read_special(r, end_keys[i], &end, e);
        if (code == RELAY_OK && end.is_set) ends[table->n_end_ids++] = end.id;
    }
    return code;
}

relay_code relay_vocab_load_gguf(relay_vocab **out, const relay_gguf *g, relay_err *e) {
    *out = NULL;
    reading r = {.g = g};
    uint32_t ends[N_END_KEYS];
    relay_vocab_table table = {.end_ids = ends};
    relay_code code = read_family(&r, e);
    if (code == RELAY_OK) code = load_tokens(&r, e);
    if (code == RELAY_OK) code = read_special_ids(&r, &table, ends, e);
    if (code == RELAY_OK) {
        table.tokens = r.tokens;
        table.size = r.size;
        code = relay_vocab_create(out, &table, e);
    }
    free(r.tokens);
    free(r.bytes);
    return code;
}
