// The canonical table.
//
// All tokens' bytes lie in one block, behind each other, in the form that they add to the output. Two indexes find a
// token by these bytes, one of text (NORMAL, BYTE) and one of names (CONTROL, USER, UNKNOWN): a text that spells a
// special token's name is not that token.
//
// The fingerprint is the sha256 of this byte string, integers little-endian: "relay vocabulary 2\n"; for each token
// that is no padding, in id order: 'T' if it is text or 'N' if it is a name, id (4 bytes), length (4), the bytes, in a
// name each U+2581 as a space; then for each id that ends an answer 'E', id (4).
//
// It holds what all formats of one vocabulary say, and so not all that they say. Whether a name is CONTROL, USER or
// UNKNOWN is a matter of the format (GGUF converters call <|fim_prefix|> control, tokenizer.json does not), they write
// a user-defined U+2581 as a space, and bos, pad and unk are set, or not, by whoever wrote the file; no id means other
// text for that.
#include "common/vocab.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/str_index.h"

enum { MAX_EOS = 32 };

struct relay_vocab {
    uint32_t size;
    uint32_t max_token_bytes;
    relay_token *tokens;
    char *bytes; // what tokens[].bytes point into
    relay_str_index text, names;
    relay_special_id bos, unk, pad;
    uint32_t eos[MAX_EOS];
    uint32_t n_eos;
    uint8_t fingerprint[RELAY_FINGERPRINT_BYTES];
};

// ---- Pieces

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int relay_vocab_byte_of_name(const char *s, size_t len) {
    if (len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

size_t relay_vocab_unescape_spaces(const char *piece, size_t len, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        bool is_space = len - i >= 3 && memcmp(piece + i, "\xE2\x96\x81", 3) == 0;
        out[n++] = is_space ? ' ' : piece[i];
        i += is_space ? 3 : 1;
    }
    return n;
}

// ---- The table

static bool is_text(relay_token_kind kind) {
    return kind == RELAY_TOKEN_NORMAL || kind == RELAY_TOKEN_BYTE;
}

// Enters a token where it is found by its bytes. Two NORMAL pieces of one text (" x" and U+2581 "x") and a BYTE beside
// a NORMAL token of that byte do occur: text finds the NORMAL one, and the lowest id.
static void index_token(relay_vocab *v, uint32_t id) {
    const relay_token *t = &v->tokens[id];
    if (t->len == 0) return;
    if (!is_text(t->kind)) {
        relay_str_index_add(&v->names, t->bytes, t->len, id);
        return;
    }
    uint32_t before = relay_str_index_add(&v->text, t->bytes, t->len, id);
    if (before != RELAY_STR_NONE && t->kind == RELAY_TOKEN_NORMAL && v->tokens[before].kind == RELAY_TOKEN_BYTE)
        relay_str_index_replace(&v->text, t->bytes, t->len, id);
}

static relay_code copy_tokens(relay_vocab *v, const relay_vocab_table *table, relay_err *e) {
    if (table->size == 0 || table->size > RELAY_VOCAB_MAX_TOKENS)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocabulary: %u tokens; it must have 1 to %d", table->size,
                          RELAY_VOCAB_MAX_TOKENS);
    uint64_t n_bytes = 0;
    for (uint32_t id = 0; id < table->size; id++) {
        if (table->tokens[id].len > RELAY_VOCAB_MAX_TOKEN_BYTES)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocabulary: token %u has %u bytes; it may have %d", id,
                              table->tokens[id].len, RELAY_VOCAB_MAX_TOKEN_BYTES);
        n_bytes += table->tokens[id].len;
    }
    v->size = table->size;
    v->tokens = relay_calloc(v->size, sizeof *v->tokens);
    v->bytes = relay_calloc(n_bytes, 1);
    relay_str_index_init(&v->text, v->size);
    relay_str_index_init(&v->names, v->size);
    char *out = v->bytes;
    for (uint32_t id = 0; id < v->size; id++) {
        const relay_vocab_entry *t = &table->tokens[id];
        if (t->len > 0) memcpy(out, t->bytes, t->len);
        v->tokens[id] = (relay_token){.bytes = out, .len = t->len, .kind = t->kind};
        if (t->len > v->max_token_bytes) v->max_token_bytes = t->len;
        out += t->len;
        if (t->kind != RELAY_TOKEN_PADDING && !(t->is_unreachable && is_text(t->kind))) index_token(v, id);
    }
    return RELAY_OK;
}

// ---- Special ids

static relay_code check_id(const relay_vocab *v, const char *name, relay_special_id s, relay_err *e) {
    if (!s.is_set || s.id < v->size) return RELAY_OK;
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocabulary: the %s id is %u; ids are below %u", name, s.id, v->size);
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

// Whatever flags a file gives the name: formats differ.
static bool find_name(const relay_vocab *v, const char *name, uint32_t *id) {
    return relay_vocab_find_special(v, name, strlen(name), id);
}

static relay_code load_special_ids(relay_vocab *v, const relay_vocab_table *table, relay_err *e) {
    v->bos = table->bos;
    v->unk = table->unk;
    v->pad = table->pad;
    relay_code code = check_id(v, "bos", v->bos, e);
    if (code == RELAY_OK) code = check_id(v, "unk", v->unk, e);
    if (code == RELAY_OK) code = check_id(v, "pad", v->pad, e);
    for (uint32_t i = 0; i < table->n_end_ids && code == RELAY_OK; i++) {
        code = check_id(v, "end", (relay_special_id){true, table->end_ids[i]}, e);
        if (code == RELAY_OK) code = add_eos(v, table->end_ids[i], e);
    }

    uint32_t id;
    // In the harmony format <|end|> ends a message, and only <|return|> and <|call|> the answer.
    bool is_harmony = find_name(v, "<|return|>", &id) && find_name(v, "<|call|>", &id);
    for (size_t i = 0; i < sizeof end_names / sizeof *end_names && code == RELAY_OK; i++) {
        if (is_harmony && strcmp(end_names[i], "<|end|>") == 0) continue;
        if (find_name(v, end_names[i], &id)) code = add_eos(v, id, e);
    }
    return code;
}

// ---- The fingerprint

static void put_u32(relay_buf *b, uint32_t v) {
    uint8_t le[4] = {v & 0xFF, v >> 8 & 0xFF, v >> 16 & 0xFF, v >> 24};
    relay_buf_append(b, le, sizeof le);
}

static relay_code compute_fingerprint(relay_vocab *v, relay_err *e) {
    char name[RELAY_VOCAB_MAX_TOKEN_BYTES];
    relay_buf b;
    relay_buf_init(&b, SIZE_MAX / 2); // bounded by the tokens it is made of
    relay_buf_puts(&b, "relay vocabulary 2\n");
    for (uint32_t id = 0; id < v->size; id++) {
        const relay_token *t = &v->tokens[id];
        if (t->kind == RELAY_TOKEN_PADDING) continue;
        const char *bytes = t->bytes;
        size_t len = t->len;
        if (!is_text(t->kind)) {
            len = relay_vocab_unescape_spaces(t->bytes, t->len, name);
            bytes = name;
        }
        relay_buf_putc(&b, is_text(t->kind) ? 'T' : 'N');
        put_u32(&b, id);
        put_u32(&b, (uint32_t)len);
        relay_buf_append(&b, bytes, len);
    }
    for (uint32_t i = 0; i < v->n_eos; i++) {
        relay_buf_putc(&b, 'E');
        put_u32(&b, v->eos[i]);
    }
    bool ok = EVP_Digest(b.data, b.len, v->fingerprint, NULL, EVP_sha256(), NULL) == 1;
    relay_buf_fini(&b);
    return ok ? RELAY_OK : relay_fail(e, RELAY_INTERNAL, "libcrypto: sha256 failed");
}

// ---- The object

relay_code relay_vocab_create(relay_vocab **out, const relay_vocab_table *table, relay_err *e) {
    relay_vocab *v = relay_calloc(1, sizeof *v);
    relay_code code = copy_tokens(v, table, e);
    if (code == RELAY_OK) code = load_special_ids(v, table, e);
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
    relay_str_index_fini(&v->names);
    free(v->tokens);
    free(v->bytes);
    free(v);
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
    uint32_t value = len <= RELAY_VOCAB_MAX_TOKEN_BYTES ? relay_str_index_find(x, s, (uint32_t)len) : RELAY_STR_NONE;
    if (value != RELAY_STR_NONE) *id = value;
    return value != RELAY_STR_NONE;
}

bool relay_vocab_find(const relay_vocab *v, const char *bytes, size_t len, uint32_t *id) {
    return find(&v->text, bytes, len, id);
}

bool relay_vocab_find_special(const relay_vocab *v, const char *name, size_t len, uint32_t *id) {
    return find(&v->names, name, len, id);
}

static bool get_special(relay_special_id s, uint32_t *id) {
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
