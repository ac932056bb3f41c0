// Two machines in a row, each with a few bytes of memory:
//
//   token bytes -> UTF-8 (at most 3 bytes of an unfinished character) -> stop matcher (one state number) -> text
//
// What is held back is never stored as text: an unfinished character is in `pending`, and the beginning of a stop
// string is the matcher's state, which can say its own bytes. So the whole state is about fifty bytes, whatever the
// options.
//
// The text is a function of the concatenated bytes alone, in whatever cut they come: a skipped special token between
// two halves of a character does not break it. The bytes of an unfinished character at the end of the prompt begin the
// answer's first character; should it never become whole, its U+FFFD belongs to the prompt's text and is not repeated
// here.
#include "tokenizer_svc/text_stream.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/utf8.h"

enum { MAX_PENDING = 3 };

static const char REPLACEMENT[] = "\xEF\xBF\xBD"; // U+FFFD

struct relay_text_stream {
    const relay_vocab *vocab;
    relay_stop_matcher *stops;
    bool skip_special_tokens, include_stop_string;
    uint64_t options_hash;

    // The state; pending[0..n_pending) is a proper beginning of a character.
    char pending[MAX_PENDING + 1]; // with room for the byte that decides
    uint32_t n_pending;
    uint32_t n_pending_of_prompt; // how many of them came from the prompt
    relay_stop_state stop_state;
    bool is_stopped;
    uint32_t stop_index;
};

// ---- Stop strings

// Of `before` (what was held) followed by `bytes`, the first `n` bytes are text.
static void append_front(relay_buf *text, const char *before, size_t before_len, const char *bytes, size_t n) {
    size_t from_before = n < before_len ? n : before_len;
    relay_buf_append(text, before, from_before);
    relay_buf_append(text, bytes, n - from_before);
}

// Takes whole characters. Returns false when a stop string completed.
static bool emit(relay_text_stream *s, const char *bytes, size_t len, bool look_for_stops, relay_buf *text) {
    if (relay_stop_matcher_n_strings(s->stops) == 0) {
        relay_buf_append(text, bytes, len);
        return true;
    }
    size_t held;
    const char *held_bytes = relay_stop_matcher_prefix(s->stops, s->stop_state, &held);
    relay_stop_state state = s->stop_state;
    for (size_t i = 0; i < len; i++) {
        state = relay_stop_matcher_step(s->stops, state, (uint8_t)bytes[i]);
        int match = look_for_stops ? relay_stop_matcher_match(s->stops, state) : RELAY_STOP_NO_MATCH;
        if (match == RELAY_STOP_NO_MATCH) continue;
        size_t end = held + i + 1;
        size_t stop_len = relay_stop_matcher_string(s->stops, (uint32_t)match)->len;
        append_front(text, held_bytes, held, bytes, s->include_stop_string ? end : end - stop_len);
        s->stop_state = 0;
        s->is_stopped = true;
        s->stop_index = (uint32_t)match;
        return false;
    }
    s->stop_state = relay_stop_matcher_forget_match(s->stops, state);
    size_t still_held;
    relay_stop_matcher_prefix(s->stops, s->stop_state, &still_held);
    append_front(text, held_bytes, held, bytes, held + len - still_held);
    return true;
}

// The beginning of a stop string turned out to be text.
static void release_held(relay_text_stream *s, relay_buf *text) {
    size_t held;
    const char *bytes = relay_stop_matcher_prefix(s->stops, s->stop_state, &held);
    relay_buf_append(text, bytes, held);
    s->stop_state = 0;
}

// ---- Characters

// The pending bytes can no longer become a character.
static bool give_up_pending(relay_text_stream *s, bool look_for_stops, relay_buf *text) {
    bool is_of_answer = s->n_pending > s->n_pending_of_prompt;
    s->n_pending = s->n_pending_of_prompt = 0;
    return !is_of_answer || emit(s, REPLACEMENT, sizeof REPLACEMENT - 1, look_for_stops, text);
}

// Adds one byte to the pending ones, n_pending > 0. *taken is false if it does not continue the character: then the
// byte is still to be dealt with.
static bool continue_pending(relay_text_stream *s, char byte, bool look_for_stops, relay_buf *text, bool *taken) {
    s->pending[s->n_pending] = byte;
    size_t n = s->n_pending + 1;
    *taken = true;
    if (relay_utf8_is_valid(s->pending, n)) {
        s->n_pending = s->n_pending_of_prompt = 0;
        return emit(s, s->pending, n, look_for_stops, text);
    }
    if (relay_utf8_incomplete_suffix(s->pending, n) == n) {
        s->n_pending++;
        return true;
    }
    *taken = false;
    return give_up_pending(s, look_for_stops, text);
}

// Returns false when a stop string completed.
static bool push_bytes(relay_text_stream *s, const char *bytes, size_t len, bool look_for_stops, relay_buf *text) {
    size_t i = 0;
    while (i < len) {
        if (s->n_pending > 0) {
            bool taken;
            if (!continue_pending(s, bytes[i], look_for_stops, text, &taken)) return false;
            i += taken;
            continue;
        }
        size_t valid = relay_utf8_valid_prefix(bytes + i, len - i);
        if (valid > 0 && !emit(s, bytes + i, valid, look_for_stops, text)) return false;
        i += valid;
        if (i == len) break;
        uint32_t code_point;
        size_t bad = relay_utf8_decode(bytes + i, len - i, &code_point);
        if (bad == len - i && relay_utf8_incomplete_suffix(bytes + i, bad) == bad) {
            memcpy(s->pending, bytes + i, bad);
            s->n_pending = (uint32_t)bad;
        } else if (!emit(s, REPLACEMENT, sizeof REPLACEMENT - 1, look_for_stops, text)) {
            return false;
        }
        i += bad;
    }
    return true;
}

// ---- Tokens

// What a token adds to the text: nothing for a skipped special token and for an id that only fills up the matrix.
static size_t token_text(const relay_text_stream *s, uint32_t id, const relay_token **token) {
    const relay_token *t = *token = relay_vocab_token(s->vocab, id);
    bool is_special = t->kind == RELAY_TOKEN_CONTROL || t->kind == RELAY_TOKEN_UNKNOWN;
    if (t->kind == RELAY_TOKEN_PADDING || (is_special && s->skip_special_tokens)) return 0;
    return t->len;
}

// A skipped special token stops the stream if its name is a stop string, which the text would never show. Returns false
// when it does.
static bool stop_at_special(relay_text_stream *s, const relay_token *t, relay_buf *text) {
    if (t->kind != RELAY_TOKEN_CONTROL && t->kind != RELAY_TOKEN_UNKNOWN) return true;
    for (uint32_t i = 0; i < relay_stop_matcher_n_strings(s->stops); i++) {
        const relay_stop_string *stop = relay_stop_matcher_string(s->stops, i);
        if (stop->len != t->len || memcmp(stop->bytes, t->bytes, t->len) != 0) continue;
        // What is held stands before the stop, so it is text. Its U+FFFD may be what another stop string waits for.
        if (s->n_pending > 0 && !give_up_pending(s, true, text)) return false;
        release_held(s, text);
        if (s->include_stop_string) relay_buf_append(text, t->bytes, t->len);
        s->is_stopped = true;
        s->stop_index = i;
        return false;
    }
    return true;
}

void relay_text_stream_push(relay_text_stream *s, const uint32_t *ids, uint32_t n, bool look_for_stops, relay_buf *text,
                            relay_text_step *step) {
    uint32_t consumed = 0;
    while (consumed < n && !s->is_stopped) {
        const relay_token *token;
        size_t len = token_text(s, ids[consumed], &token);
        consumed++;
        if (len > 0) {
            push_bytes(s, token->bytes, len, look_for_stops, text);
        } else if (look_for_stops) {
            stop_at_special(s, token, text);
        }
    }
    size_t held;
    relay_stop_matcher_prefix(s->stops, s->stop_state, &held);
    *step = (relay_text_step){.tokens_consumed = consumed,
                              .is_stopped = s->is_stopped,
                              .stop_index = s->stop_index,
                              .held_bytes = (uint32_t)held + s->n_pending};
}

void relay_text_stream_finish(relay_text_stream *s, relay_buf *text) {
    if (s->n_pending > 0) give_up_pending(s, false, text);
    release_held(s, text);
}

// ---- Making one

// The bytes at the prompt's end that are an unfinished character. Three bytes of text decide it.
static void take_prompt_tail(relay_text_stream *s, const uint32_t *ids, uint32_t n) {
    char tail[MAX_PENDING];
    size_t have = 0; // at the end of `tail`
    while (n > 0 && have < sizeof tail) {
        const relay_token *token;
        size_t len = token_text(s, ids[--n], &token);
        while (len > 0 && have < sizeof tail)
            tail[sizeof tail - ++have] = token->bytes[--len];
    }
    size_t open = relay_utf8_incomplete_suffix(tail + sizeof tail - have, have);
    memcpy(s->pending, tail + sizeof tail - open, open);
    s->n_pending = s->n_pending_of_prompt = (uint32_t)open;
}

// Everything that gives a saved state its meaning, the vocabulary aside.
static uint64_t hash_options(const relay_text_stream_opts *o) {
    uint8_t flags[2] = {o->skip_special_tokens, o->include_stop_string};
    uint64_t h = XXH3_64bits_withSeed(flags, sizeof flags, o->n_stop_strings);
    for (uint32_t i = 0; i < o->n_stop_strings; i++) {
        h = XXH3_64bits_withSeed(&h, sizeof h, o->stop_strings[i].len);
        h = XXH3_64bits_withSeed(o->stop_strings[i].bytes, o->stop_strings[i].len, h);
    }
    return h;
}

static relay_code check_stop_strings(const relay_text_stream_opts *opts, relay_err *e) {
    const char *field = opts->stop_strings_field != NULL ? opts->stop_strings_field : "stop_strings";
    uint32_t n = opts->n_stop_strings;
    if (n > RELAY_MAX_STOP_STRINGS)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: %u strings, at most %d are allowed", field, n,
                          RELAY_MAX_STOP_STRINGS);
    for (uint32_t i = 0; i < n; i++) {
        const relay_stop_string *s = &opts->stop_strings[i];
        if (s->len == 0) return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s[%u] is empty", field, i);
        if (s->len > RELAY_MAX_STOP_STRING_BYTES)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s[%u] has %zu bytes, at most %d are allowed", field, i,
                              s->len, RELAY_MAX_STOP_STRING_BYTES);
        size_t valid = relay_utf8_valid_prefix(s->bytes, s->len);
        if (valid != s->len)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s[%u] is not valid UTF-8 at byte %zu", field, i, valid);
    }
    return RELAY_OK;
}

relay_code relay_text_stream_create(relay_text_stream **out, const relay_text_stream_opts *opts, relay_err *e) {
    *out = NULL;
    relay_code code = check_stop_strings(opts, e);
    if (code != RELAY_OK) return code;
    relay_text_stream *s = relay_calloc(1, sizeof *s);
    s->vocab = opts->vocab;
    s->stops = relay_stop_matcher_create(opts->stop_strings, opts->n_stop_strings);
    s->skip_special_tokens = opts->skip_special_tokens;
    s->include_stop_string = opts->include_stop_string;
    s->options_hash = hash_options(opts);
    take_prompt_tail(s, opts->prompt_tail, opts->n_prompt_tail);
    *out = s;
    return RELAY_OK;
}

void relay_text_stream_destroy(relay_text_stream *s) {
    if (s == NULL) return;
    relay_stop_matcher_destroy(s->stops);
    free(s);
}

// ---- The state outside
//
// The caller may hand in any bytes. Each field is checked so that whatever is accepted is a state that some tokens lead
// to; a forged one only gives its forger other text.

typedef struct saved_state {
    uint8_t version;
    uint8_t is_stopped;
    uint8_t stop_index;
    uint8_t n_pending, n_pending_of_prompt;
    char pending[MAX_PENDING];
    uint8_t stop_state[2];   // little-endian
    uint8_t options_hash[8]; // little-endian
    uint8_t fingerprint[RELAY_FINGERPRINT_BYTES];
} saved_state;

enum { STATE_VERSION = 1 };

_Static_assert(sizeof(saved_state) == 50, "bytes only: no padding");
_Static_assert(sizeof(saved_state) <= RELAY_MAX_DECODE_STATE_BYTES, "the promised limit");

static void put_le(uint8_t *out, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_le(const uint8_t *in, size_t n) {
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

void relay_text_stream_save(const relay_text_stream *s, relay_buf *state) {
    saved_state out = {.version = STATE_VERSION,
                       .is_stopped = s->is_stopped,
                       .stop_index = (uint8_t)s->stop_index,
                       .n_pending = (uint8_t)s->n_pending,
                       .n_pending_of_prompt = (uint8_t)s->n_pending_of_prompt};
    memcpy(out.pending, s->pending, s->n_pending);
    put_le(out.stop_state, s->stop_state, sizeof out.stop_state);
    put_le(out.options_hash, s->options_hash, sizeof out.options_hash);
    memcpy(out.fingerprint, relay_vocab_fingerprint(s->vocab), sizeof out.fingerprint);
    relay_buf_append(state, &out, sizeof out);
}

// The matcher's states that can be between two pushes: a possible beginning of a stop string, in whole characters.
static bool is_state_between_pushes(const relay_stop_matcher *m, uint64_t state) {
    if (state >= relay_stop_matcher_n_states(m)) return false;
    if (relay_stop_matcher_forget_match(m, (relay_stop_state)state) != state) return false;
    size_t len;
    const char *prefix = relay_stop_matcher_prefix(m, (relay_stop_state)state, &len);
    return relay_utf8_is_valid(prefix, len);
}

relay_code relay_text_stream_restore(relay_text_stream *s, const uint8_t *state, size_t len, relay_err *e) {
    saved_state in;
    if (len != sizeof in)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "decode_state has %zu bytes, a state has %zu", len, sizeof in);
    memcpy(&in, state, sizeof in);
    if (in.version != STATE_VERSION)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "decode_state is of version %u, this is version %d", in.version,
                          STATE_VERSION);
    if (memcmp(in.fingerprint, relay_vocab_fingerprint(s->vocab), sizeof in.fingerprint) != 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "decode_state is of another vocabulary");
    if (get_le(in.options_hash, sizeof in.options_hash) != s->options_hash)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "decode_state is of other options: skip_special_tokens, stop_strings or include_stop_string");
    uint64_t stop_state = get_le(in.stop_state, sizeof in.stop_state);
    uint32_t n_strings = relay_stop_matcher_n_strings(s->stops);
    bool is_pending_ok = in.n_pending <= MAX_PENDING && in.n_pending_of_prompt <= in.n_pending &&
                         relay_utf8_incomplete_suffix(in.pending, in.n_pending) == in.n_pending;
    bool is_stop_ok = in.is_stopped == 0
                          ? in.stop_index == 0
                          : in.is_stopped == 1 && in.stop_index < n_strings && in.n_pending == 0 && stop_state == 0;
    if (!is_pending_ok || !is_stop_ok || !is_state_between_pushes(s->stops, stop_state))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "decode_state is damaged");
    memcpy(s->pending, in.pending, in.n_pending);
    s->n_pending = in.n_pending;
    s->n_pending_of_prompt = in.n_pending_of_prompt;
    s->stop_state = (relay_stop_state)stop_state;
    s->is_stopped = in.is_stopped;
    s->stop_index = in.stop_index;
    return RELAY_OK;
}
