// Two machines in a row, each with a few bytes of memory:
//
//   tokens -> the decoder's stages (decoder.h) -> whole characters -> stop matcher (one state number) -> text
//
// The beginning of a stop string is not stored as text: it is the matcher's state, which can say its own bytes. So the
// whole state is some fifty bytes for most tokenizers, and bounded for all.
//
// The text is a function of the tokens alone, in whatever cut they come: a skipped special token between two halves of
// a character does not break it. The bytes of an unfinished character at the end of the prompt begin the answer's first
// character; should it never become whole, its U+FFFD belongs to the prompt's text and is not repeated here.
#include "tokenizer_svc/text_stream.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/utf8.h"

struct relay_text_stream {
    const relay_vocab *vocab;
    const relay_text_decoder *decoder; // may be NULL
    relay_stop_matcher *stops;
    bool skip_special_tokens, include_stop_string;
    uint64_t options_hash;

    // Of the push that is going on.
    bool look_for_stops;
    relay_buf *text;
    // The state.
    relay_decode_run *run;
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

// Takes whole characters from the decoder; those behind a stop string are not wanted any more.
static void emit(void *arg, const char *bytes, size_t len) {
    relay_text_stream *s = arg;
    if (s->is_stopped) return;
    size_t skipped = s->stop_state == 0 ? relay_stop_matcher_skip(s->stops, bytes, len) : 0;
    relay_buf_append(s->text, bytes, skipped);
    bytes += skipped;
    len -= skipped;
    if (len == 0) return;
    size_t held;
    const char *held_bytes = relay_stop_matcher_prefix(s->stops, s->stop_state, &held);
    relay_stop_state state = s->stop_state;
    for (size_t i = 0; i < len; i++) {
        state = relay_stop_matcher_step(s->stops, state, (uint8_t)bytes[i]);
        int match = s->look_for_stops ? relay_stop_matcher_match(s->stops, state) : RELAY_STOP_NO_MATCH;
        if (match == RELAY_STOP_NO_MATCH) continue;
        size_t end = held + i + 1;
        size_t stop_len = relay_stop_matcher_string(s->stops, (uint32_t)match)->len;
        append_front(s->text, held_bytes, held, bytes, s->include_stop_string ? end : end - stop_len);
        s->stop_state = 0;
        s->is_stopped = true;
        s->stop_index = (uint32_t)match;
        return;
    }
    s->stop_state = relay_stop_matcher_forget_match(s->stops, state);
    size_t still_held;
    relay_stop_matcher_prefix(s->stops, s->stop_state, &still_held);
    append_front(s->text, held_bytes, held, bytes, held + len - still_held);
}

// The beginning of a stop string turned out to be text.
static void release_held(relay_text_stream *s) {
    size_t held;
    const char *bytes = relay_stop_matcher_prefix(s->stops, s->stop_state, &held);
    relay_buf_append(s->text, bytes, held);
    s->stop_state = 0;
}

// ---- Tokens

static bool is_special(const relay_text_stream *s, uint32_t id) {
    if (s->decoder != NULL) return relay_text_decoder_is_special(s->decoder, id);
    relay_token_kind kind = relay_vocab_token(s->vocab, id)->kind;
    return kind == RELAY_TOKEN_CONTROL || kind == RELAY_TOKEN_UNKNOWN;
}

// A skipped special token stops the stream if its name is a stop string, which the text would never show.
static void stop_at_special(relay_text_stream *s, uint32_t id) {
    const relay_token *t = relay_vocab_token(s->vocab, id);
    for (uint32_t i = 0; i < relay_stop_matcher_n_strings(s->stops); i++) {
        const relay_stop_string *stop = relay_stop_matcher_string(s->stops, i);
        if (stop->len != t->len || memcmp(stop->bytes, t->bytes, t->len) != 0) continue;
        // What is held stands before the stop, so it is text. Its U+FFFD may be what another stop string waits for.
        relay_decode_run_finish(s->run);
        if (s->is_stopped) return;
        release_held(s);
        if (s->include_stop_string) relay_buf_append(s->text, t->bytes, t->len);
        s->is_stopped = true;
        s->stop_index = i;
        return;
    }
}

void relay_text_stream_push(relay_text_stream *s, const uint32_t *ids, uint32_t n, bool look_for_stops, relay_buf *text,
                            relay_text_step *step) {
    s->look_for_stops = look_for_stops;
    s->text = text;
    uint32_t consumed = 0;
    while (consumed < n && !s->is_stopped) {
        uint32_t id = ids[consumed++];
        if (!s->skip_special_tokens || !is_special(s, id))
            relay_decode_run_push(s->run, id);
        else if (look_for_stops)
            stop_at_special(s, id);
    }
    if (s->is_stopped) relay_decode_run_reset(s->run);
    size_t held;
    relay_stop_matcher_prefix(s->stops, s->stop_state, &held);
    *step = (relay_text_step){.tokens_consumed = consumed,
                              .is_stopped = s->is_stopped,
                              .stop_index = s->stop_index,
                              .held_bytes = (uint32_t)held + relay_decode_run_held(s->run)};
}

void relay_text_stream_finish(relay_text_stream *s, relay_buf *text) {
    s->look_for_stops = false;
    s->text = text;
    relay_decode_run_finish(s->run);
    release_held(s);
}

// ---- Making one

// Fewer than RELAY_PROMPT_TAIL ids are all of a prompt.
static void follow_prompt(relay_text_stream *s, const uint32_t *ids, uint32_t n) {
    if (n == 0) return;
    uint32_t from = n > RELAY_PROMPT_TAIL ? n - RELAY_PROMPT_TAIL : 0;
    uint32_t visible[RELAY_PROMPT_TAIL], n_visible = 0;
    for (uint32_t i = from; i < n; i++)
        if (!s->skip_special_tokens || !is_special(s, ids[i])) visible[n_visible++] = ids[i];
    relay_decode_run_follow(s->run, visible, n_visible, n < RELAY_PROMPT_TAIL);
}

// Everything that gives a saved state its meaning, the vocabulary aside.
static uint64_t hash_options(const relay_text_stream_opts *o) {
    uint8_t flags[2] = {o->skip_special_tokens, o->include_stop_string};
    uint64_t h = XXH3_64bits_withSeed(flags, sizeof flags, o->n_stop_strings);
    uint64_t decoder = o->decoder == NULL ? 0 : relay_text_decoder_hash(o->decoder);
    h = XXH3_64bits_withSeed(&decoder, sizeof decoder, h);
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
    s->decoder = opts->decoder;
    s->stops = relay_stop_matcher_create(opts->stop_strings, opts->n_stop_strings);
    s->skip_special_tokens = opts->skip_special_tokens;
    s->include_stop_string = opts->include_stop_string;
    s->options_hash = hash_options(opts);
    s->run = relay_decode_run_create(opts->decoder, opts->vocab, emit, s);
    follow_prompt(s, opts->prompt_tail, opts->n_prompt_tail);
    *out = s;
    return RELAY_OK;
}

void relay_text_stream_destroy(relay_text_stream *s) {
    if (s == NULL) return;
    relay_stop_matcher_destroy(s->stops);
    relay_decode_run_destroy(s->run);
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
    uint8_t stop_state[2];   // little-endian
    uint8_t options_hash[8]; // little-endian
    uint8_t fingerprint[RELAY_FINGERPRINT_BYTES];
    // Behind it the decoder's state.
} saved_state;

enum { STATE_VERSION = 2 };

_Static_assert(sizeof(saved_state) == 45, "bytes only: no padding");
_Static_assert(sizeof(saved_state) + RELAY_MAX_DECODE_RUN_BYTES <= RELAY_MAX_DECODE_STATE_BYTES, "the promised limit");

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
    saved_state out = {.version = STATE_VERSION, .is_stopped = s->is_stopped, .stop_index = (uint8_t)s->stop_index};
    put_le(out.stop_state, s->stop_state, sizeof out.stop_state);
    put_le(out.options_hash, s->options_hash, sizeof out.options_hash);
    memcpy(out.fingerprint, relay_vocab_fingerprint(s->vocab), sizeof out.fingerprint);
    relay_buf_append(state, &out, sizeof out);
    relay_decode_run_save(s->run, state);
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
    if (len < sizeof in || len > RELAY_MAX_DECODE_STATE_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "decode_state has %zu bytes, a state has %zu to %d", len,
                          sizeof in, RELAY_MAX_DECODE_STATE_BYTES);
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
    bool is_stop_ok =
        in.is_stopped == 0 ? in.stop_index == 0 : in.is_stopped == 1 && in.stop_index < n_strings && stop_state == 0;
    bool is_run_ok = relay_decode_run_restore(s->run, state + sizeof in, len - sizeof in) &&
                     (in.is_stopped == 0 || relay_decode_run_held(s->run) == 0);
    if (!is_stop_ok || !is_run_ok || !is_state_between_pushes(s->stops, stop_state))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "decode_state is damaged");
    s->is_stopped = in.is_stopped;
    s->stop_index = in.stop_index;
    s->stop_state = (relay_stop_state)stop_state;
    return RELAY_OK;
}
