// How a vocabulary is loaded.
//
// All tokens' bytes lie in one block, behind each other, in the form that they add to the output: a byte-level piece
// decoded to raw bytes, a SentencePiece piece with its spaces, a byte token as its byte, everything special by its
// name. Two indexes find a token by these bytes, one of text (NORMAL, BYTE) and one of special names (CONTROL, USER,
// UNKNOWN): a text that spells a special token's name is not that token.
//
// The fingerprint is the sha256 of this byte string, integers little-endian: "relay vocabulary 1\n"; for each token
// that is no padding, in id order: 'T', id (4 bytes), kind (1), length (4), the bytes; then for bos, unk, pad and each
// eos id, where there is one: 'B', 'U', 'P' or 'E', id (4).
#include "common/vocab.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/byte_level.h"
#include "common/str_index.h"

enum {
    MAX_TOKENS = 1 << 22,
    MAX_TOKEN_BYTES = 1 << 16,
    MAX_EOS = 32,
    SHOWN_BYTES = 64, // of a token, in messages
};

#define KEY_MODEL  "tokenizer.ggml.model"
#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES  "tokenizer.ggml.token_type"

typedef struct special_id {
    bool is_set;
    uint32_t id;
} special_id;

struct relay_vocab {
    relay_vocab_family family;
    uint32_t size;
    uint32_t max_token_bytes;
    relay_token *tokens;
    char *bytes; // what tokens[].bytes point into
    relay_str_index text, special;
    special_id bos, unk, pad;
    uint32_t eos[MAX_EOS];
    uint32_t n_eos;
    uint8_t fingerprint[RELAY_FINGERPRINT_BYTES];
};

// ---- Kinds and bytes of tokens

static relay_code read_family(const relay_gguf *g, relay_vocab_family *family, relay_err *e) {
    const char *s;
    size_t len;
    bool found;
    relay_code code = relay_gguf_string(g, KEY_MODEL, &s, &len, &found, e);
    if (code != RELAY_OK) return code;
    if (!found) return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" KEY_MODEL "\" is missing");
    if (len == 4 && memcmp(s, "gpt2", 4) == 0) {
        *family = RELAY_VOCAB_BYTE_LEVEL;
    } else if (len == 5 && memcmp(s, "llama", 5) == 0) {
        *family = RELAY_VOCAB_SENTENCEPIECE;
    } else {
        return relay_fail(e, RELAY_UNIMPLEMENTED,
                          "key \"" KEY_MODEL "\" is \"%.*s\"; Relay knows \"gpt2\" and \"llama\"",
                          len < SHOWN_BYTES ? (int)len : SHOWN_BYTES, s);
    }
    return RELAY_OK;
}

// Converters fill a vocabulary up to the matrix's rows with "[PAD<id>]"; older ones mark these as user-defined.
static bool is_padding_name(const char *piece, size_t len, uint32_t id) {
    char name[24];
    int n = snprintf(name, sizeof name, "[PAD%" PRIu32 "]", id);
    return len == (size_t)n && memcmp(piece, name, len) == 0;
}

// From the numbers of tokenizer.ggml.token_type; 0 for one that is none.
static relay_token_kind kind_of(double type, const char *piece, size_t len, uint32_t id) {
    static const relay_token_kind kinds[] = {
        [1] = RELAY_TOKEN_NORMAL, [2] = RELAY_TOKEN_UNKNOWN, [3] = RELAY_TOKEN_CONTROL,
        [4] = RELAY_TOKEN_USER,   [5] = RELAY_TOKEN_PADDING, [6] = RELAY_TOKEN_BYTE,
    };
    for (uint32_t i = 1; i < sizeof kinds / sizeof *kinds; i++)
        if (type == i)
            return kinds[i] == RELAY_TOKEN_USER && is_padding_name(piece, len, id) ? RELAY_TOKEN_PADDING : kinds[i];
    return 0;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "<0x0A>" -> 10; -1 if it has another form.
static int byte_of_name(const char *s, size_t len) {
    if (len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// U+2581, which stands for a space.
static size_t decode_sentencepiece(const char *piece, size_t len, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        bool is_space = len - i >= 3 && memcmp(piece + i, "\xE2\x96\x81", 3) == 0;
        out[n++] = is_space ? ' ' : piece[i];
        i += is_space ? 3 : 1;
    }
    return n;
}

// Writes what the token adds to the output to `out`, which has room for the piece; returns the number of bytes.
// *is_text: encoding these bytes as text can give the token.
static size_t decode_piece(relay_vocab_family family, relay_token_kind kind, const char *piece, size_t len, char *out,
                           bool *is_text) {
    *is_text = kind == RELAY_TOKEN_NORMAL || kind == RELAY_TOKEN_BYTE;
    if (kind == RELAY_TOKEN_BYTE) {
        out[0] = (char)byte_of_name(piece, len);
        return 1;
    }
    if (kind == RELAY_TOKEN_NORMAL) {
        size_t n;
        if (family == RELAY_VOCAB_SENTENCEPIECE) return decode_sentencepiece(piece, len, out);
        // A piece that is not of the alphabet stands for itself, as in Hugging Face's ByteLevel decoder, but no text
        // leads to it: Command R has U+200D both as such a piece and in the alphabet.
        if (relay_byte_level_decode(piece, len, out, &n)) return n;
        *is_text = false;
    }
    memcpy(out, piece, len);
    return len;
}

// Enters a token where it is found by its bytes. Two NORMAL pieces of one text (" x" and U+2581 "x") and a BYTE beside
// a NORMAL token of that byte do occur: text finds the NORMAL one, and the lowest id.
static void index_token(relay_vocab *v, uint32_t id, bool is_text) {
    const relay_token *t = &v->tokens[id];
    bool is_plain = t->kind == RELAY_TOKEN_NORMAL || t->kind == RELAY_TOKEN_BYTE;
    if (t->kind == RELAY_TOKEN_PADDING || (is_plain && !is_text)) return;
    uint32_t before = relay_str_index_add(is_text ? &v->text : &v->special, t->bytes, t->len, id);
    if (before == RELAY_STR_NONE || !is_text) return;
    if (t->kind == RELAY_TOKEN_NORMAL && v->tokens[before].kind == RELAY_TOKEN_BYTE)
        relay_str_index_replace(&v->text, t->bytes, t->len, id);
}

static relay_code check_piece(const char *piece, size_t len, double type, relay_token_kind kind, uint32_t id,
                              relay_err *e) {
    if (kind == 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TYPES "\": token %u has type %.15g; it must be 1 to 6", id, type);
    if (kind == RELAY_TOKEN_PADDING) return RELAY_OK;
    if (len == 0 || len > MAX_TOKEN_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TOKENS "\": token %u has %zu bytes; it must have 1 to %d", id, len,
                          MAX_TOKEN_BYTES);
    if (kind == RELAY_TOKEN_BYTE && byte_of_name(piece, len) < 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TOKENS "\": byte token %u is \"%.*s\"; it must be of the form <0x0A>", id,
                          len < SHOWN_BYTES ? (int)len : SHOWN_BYTES, piece);
    return RELAY_OK;
}

// Reads all tokens; `pieces` finds a piece that is there twice.
static relay_code read_tokens(relay_vocab *v, const relay_gguf *g, relay_str_index *pieces, relay_err *e) {
    char *out = v->bytes;
    for (uint32_t id = 0; id < v->size; id++) {
        const char *piece;
        size_t len;
        relay_gguf_string_at(g, KEY_TOKENS, id, &piece, &len);
        double type = relay_gguf_number_at(g, KEY_TYPES, id);
        relay_token_kind kind = kind_of(type, piece, len, id);
        relay_code code = check_piece(piece, len, type, kind, id, e);
        if (code != RELAY_OK) return code;
        if (kind != RELAY_TOKEN_PADDING) {
            uint32_t before = relay_str_index_add(pieces, piece, (uint32_t)len, id);
            if (before != RELAY_STR_NONE)
                return relay_fail(e, RELAY_INVALID_ARGUMENT,
                                  "key \"" KEY_TOKENS "\": tokens %u and %u are both \"%.*s\"", before, id,
                                  len < SHOWN_BYTES ? (int)len : SHOWN_BYTES, piece);
        }
        bool is_text;
        size_t n = decode_piece(v->family, kind, piece, len, out, &is_text);
        v->tokens[id] = (relay_token){.bytes = out, .len = (uint32_t)n, .kind = kind};
        if (n > v->max_token_bytes) v->max_token_bytes = (uint32_t)n;
        out += n;
        index_token(v, id, is_text);
    }
    return RELAY_OK;
}

static relay_code load_tokens(relay_vocab *v, const relay_gguf *g, relay_err *e) {
    uint64_t n_tokens, n_types;
    relay_code code = relay_gguf_string_array(g, KEY_TOKENS, &n_tokens, NULL, e);
    if (code == RELAY_OK) code = relay_gguf_number_array(g, KEY_TYPES, &n_types, NULL, e);
    if (code != RELAY_OK) return code;
    if (n_tokens == 0 || n_tokens > MAX_TOKENS)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TOKENS "\" has %" PRIu64 " tokens; it must have 1 to %d", n_tokens, MAX_TOKENS);
    if (n_types != n_tokens)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" KEY_TYPES "\" has %" PRIu64 " entries for %" PRIu64 " tokens", n_types, n_tokens);
    v->size = (uint32_t)n_tokens;
    v->tokens = relay_calloc(v->size, sizeof *v->tokens);

    uint64_t n_bytes = 0;
    for (uint32_t id = 0; id < v->size; id++) {
        const char *piece;
        size_t len;
        relay_gguf_string_at(g, KEY_TOKENS, id, &piece, &len);
        n_bytes += len;
    }
    v->bytes = relay_calloc(n_bytes, 1);
    relay_str_index_init(&v->text, v->size);
    relay_str_index_init(&v->special, v->size);
    relay_str_index pieces;
    relay_str_index_init(&pieces, v->size);
    code = read_tokens(v, g, &pieces, e);
    relay_str_index_fini(&pieces);
    return code;
}

// ---- Special ids

static relay_code read_special(const relay_vocab *v, const relay_gguf *g, const char *name, special_id *out,
                               relay_err *e) {
    uint64_t id = 0;
    relay_code code = relay_gguf_u64(g, name, 0, v->size - 1, &id, &out->is_set, e);
    out->id = (uint32_t)id;
    return code;
}

// Keeps the list ascending and without duplicates.
static relay_code add_eos(relay_vocab *v, uint32_t id, relay_err *e) {
    uint32_t i = v->n_eos;
    while (i > 0 && v->eos[i - 1] >= id)
        i--;
    if (i < v->n_eos && v->eos[i] == id) return RELAY_OK;
    if (v->n_eos == MAX_EOS)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "token %u: more than %d tokens that end an answer", id, MAX_EOS);
    memmove(&v->eos[i + 1], &v->eos[i], (v->n_eos - i) * sizeof v->eos[0]);
    v->eos[i] = id;
    v->n_eos++;
    return RELAY_OK;
}

// Names under which model makers' control tokens end a turn or an answer (collected in llama.cpp's vocabulary loader).
static const char *const end_names[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<turn|>",
    "<eos>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
};

static bool find_control(const relay_vocab *v, const char *name, uint32_t *id) {
    return relay_vocab_find_special(v, name, strlen(name), id) && v->tokens[*id].kind == RELAY_TOKEN_CONTROL;
}

static relay_code load_special_ids(relay_vocab *v, const relay_gguf *g, relay_err *e) {
    special_id eos[3];
    relay_code code = read_special(v, g, "tokenizer.ggml.bos_token_id", &v->bos, e);
    if (code == RELAY_OK) code = read_special(v, g, "tokenizer.ggml.unknown_token_id", &v->unk, e);
    if (code == RELAY_OK) code = read_special(v, g, "tokenizer.ggml.padding_token_id", &v->pad, e);
    if (code == RELAY_OK) code = read_special(v, g, "tokenizer.ggml.eos_token_id", &eos[0], e);
    if (code == RELAY_OK) code = read_special(v, g, "tokenizer.ggml.eot_token_id", &eos[1], e);
    if (code == RELAY_OK) code = read_special(v, g, "tokenizer.ggml.eom_token_id", &eos[2], e);
    for (size_t i = 0; i < 3 && code == RELAY_OK; i++)
        if (eos[i].is_set) code = add_eos(v, eos[i].id, e);

    uint32_t id;
    // In the harmony format <|end|> ends a message, and only <|return|> and <|call|> the answer.
    bool is_harmony = find_control(v, "<|return|>", &id) && find_control(v, "<|call|>", &id);
    for (size_t i = 0; i < sizeof end_names / sizeof *end_names && code == RELAY_OK; i++) {
        if (is_harmony && strcmp(end_names[i], "<|end|>") == 0) continue;
        if (find_control(v, end_names[i], &id)) code = add_eos(v, id, e);
    }
    return code;
}

// ---- The fingerprint

static void put_u32(relay_buf *b, uint32_t v) {
    uint8_t le[4] = {v & 0xFF, v >> 8 & 0xFF, v >> 16 & 0xFF, v >> 24};
    relay_buf_append(b, le, sizeof le);
}

static void put_special(relay_buf *b, char tag, special_id s) {
    if (!s.is_set) return;
    relay_buf_putc(b, tag);
    put_u32(b, s.id);
}

static relay_code compute_fingerprint(relay_vocab *v, relay_err *e) {
    relay_buf b;
    relay_buf_init(&b, SIZE_MAX / 2); // bounded by the tokens it is made of
    relay_buf_puts(&b, "relay vocabulary 1\n");
    for (uint32_t id = 0; id < v->size; id++) {
        const relay_token *t = &v->tokens[id];
        if (t->kind == RELAY_TOKEN_PADDING) continue;
        relay_buf_putc(&b, 'T');
        put_u32(&b, id);
        relay_buf_putc(&b, (char)t->kind);
        put_u32(&b, t->len);
        relay_buf_append(&b, t->bytes, t->len);
    }
    put_special(&b, 'B', v->bos);
    put_special(&b, 'U', v->unk);
    put_special(&b, 'P', v->pad);
    for (uint32_t i = 0; i < v->n_eos; i++)
        put_special(&b, 'E', (special_id){true, v->eos[i]});
    bool ok = EVP_Digest(b.data, b.len, v->fingerprint, NULL, EVP_sha256(), NULL) == 1;
    relay_buf_fini(&b);
    return ok ? RELAY_OK : relay_fail(e, RELAY_INTERNAL, "libcrypto: sha256 failed");
}

// ---- The object

relay_code relay_vocab_load_gguf(relay_vocab **out, const relay_gguf *g, relay_err *e) {
    relay_vocab *v = relay_calloc(1, sizeof *v);
    relay_code code = read_family(g, &v->family, e);
    if (code == RELAY_OK) code = load_tokens(v, g, e);
    if (code == RELAY_OK) code = load_special_ids(v, g, e);
    if (code == RELAY_OK) code = compute_fingerprint(v, e);
    if (code != RELAY_OK) {
        relay_vocab_destroy(v);
        v = NULL;
    }
    *out = v;
    return code;
}

void relay_vocab_destroy(relay_vocab *v) {
    if (v == NULL) return;
    relay_str_index_fini(&v->text);
    relay_str_index_fini(&v->special);
    free(v->tokens);
    free(v->bytes);
    free(v);
}

relay_vocab_family relay_vocab_get_family(const relay_vocab *v) {
    return v->family;
}

uint32_t relay_vocab_size(const relay_vocab *v) {
    return v->size;
}

const relay_token *relay_vocab_token(const relay_vocab *v, uint32_t id) {
    RELAY_ASSERT(id < v->size);
    return &v->tokens[id];
}

uint32_t relay_vocab_max_token_bytes(const relay_vocab *v) {
    return v->max_token_bytes;
}

static bool find(const relay_str_index *x, const char *s, size_t len, uint32_t *id) {
    uint32_t value = len <= MAX_TOKEN_BYTES ? relay_str_index_find(x, s, (uint32_t)len) : RELAY_STR_NONE;
    if (value != RELAY_STR_NONE) *id = value;
    return value != RELAY_STR_NONE;
}

bool relay_vocab_find(const relay_vocab *v, const char *bytes, size_t len, uint32_t *id) {
    return find(&v->text, bytes, len, id);
}

bool relay_vocab_find_special(const relay_vocab *v, const char *name, size_t len, uint32_t *id) {
    return find(&v->special, name, len, id);
}

static bool get_special(special_id s, uint32_t *id) {
    if (s.is_set) *id = s.id;
    return s.is_set;
}

bool relay_vocab_bos(const relay_vocab *v, uint32_t *id) {
    return get_special(v->bos, id);
}

bool relay_vocab_unk(const relay_vocab *v, uint32_t *id) {
    return get_special(v->unk, id);
}

bool relay_vocab_pad(const relay_vocab *v, uint32_t *id) {
    return get_special(v->pad, id);
}

const uint32_t *relay_vocab_eos(const relay_vocab *v, uint32_t *count) {
    *count = v->n_eos;
    return v->eos;
}

const uint8_t *relay_vocab_fingerprint(const relay_vocab *v) {
    return v->fingerprint;
}
