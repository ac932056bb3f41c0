// A text on its way through the stages of its decoder.
//
// A stage hands on what it makes of its input at once, by calling the next: give_token for a whole token, give_text for
// a part of the one that is open, give_end where the text ends. What is kept back is in the stage's stage_state, and of
// that all that counts can be saved.
//
// ByteFallback makes U+FFFD of every byte of a run that is not UTF-8 as a whole, so a run is kept back until it ends,
// or is known to be bad. One of more than RELAY_STAGE_MAX_RUN bytes comes out in parts: the characters that are whole
// by then stay, whatever follows.
#define _GNU_SOURCE // memmem
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/utf8.h"
#include "tokenizer_svc/decode_stage.h"
#include "tokenizer_svc/decoder.h"

static const char REPLACEMENT[] = "\xEF\xBF\xBD"; // U+FFFD

typedef struct stage_state {
    bool seen;         // METASPACE, WORDPIECE, JOIN: a token has passed. DEDUP: `before` is one's hash
    bool is_bad;       // BYTE_FALLBACK: of the run it is known that it is no UTF-8
    uint8_t n_prompt;  // BYTES, BYTE_FALLBACK: how many of the bytes at the beginning of `bytes` are the prompt's
    uint16_t matched;  // REPLACE, open: bytes of the pattern that the text ends with
    uint16_t stripped; // STRIP, open: characters taken from the beginning
    bool is_inside;    //              the beginning is over
    uint16_t held;     //              characters at the end that may be taken
    XXH128_hash_t before;
    uint32_t n;  // of `bytes`
    char *bytes; // BPE: a token from its suffix on. BYTE_FALLBACK: the run. BYTES: a character that is not whole
    relay_buf scratch;
} stage_state;

struct relay_decode_run {
    const relay_text_decoder *d;
    const relay_vocab *vocab; // the tokens, where `d` has none
    relay_decode_sink sink;
    void *arg;
    bool has_token;      // the next one is not the first
    bool is_muted;       // what comes out is the prompt's
    stage_state *states; // [d->n_stages]
};

// Of those who have a vocabulary and no decoder.
static relay_decode_stage bytes_stage = {.kind = RELAY_STAGE_BYTES, .is_raw = true};
static const relay_text_decoder bytes_decoder = {.stages = &bytes_stage, .n_stages = 1};

static void give_token(relay_decode_run *r, uint32_t k, const char *s, size_t len);
static void give_text(relay_decode_run *r, uint32_t k, const char *s, size_t len);

// ---- Closed input

static void apply_pure(relay_decode_run *r, uint32_t k, const char *s, size_t len) {
    stage_state *state = &r->states[k];
    relay_buf_clear(&state->scratch);
    relay_decode_stage_apply(&r->d->stages[k], s, len, !state->seen, &state->scratch);
    state->seen = true;
    give_token(r, k + 1, state->scratch.data, state->scratch.len);
}

static void dedup(relay_decode_run *r, uint32_t k, const char *s, size_t len) {
    stage_state *state = &r->states[k];
    XXH128_hash_t hash = XXH3_128bits(s, len);
    if (state->seen && XXH128_isEqual(hash, state->before)) return;
    state->seen = true;
    state->before = hash;
    give_token(r, k + 1, s, len);
}

// The token that was kept back, with this for its suffixes.
static void give_rest(relay_decode_run *r, uint32_t k, const char *by) {
    stage_state *state = &r->states[k];
    if (state->n == 0) return;
    relay_decode_stage stage = r->d->stages[k];
    stage.kind = RELAY_STAGE_REPLACE;
    stage.content = (char *)by;
    stage.content_len = (uint32_t)strlen(by);
    relay_buf_clear(&state->scratch);
    relay_decode_stage_apply(&stage, state->bytes, state->n, false, &state->scratch);
    state->n = 0;
    give_token(r, k + 1, state->scratch.data, state->scratch.len);
}

static void take_bpe(relay_decode_run *r, uint32_t k, const char *s, size_t len) {
    const relay_decode_stage *stage = &r->d->stages[k];
    stage_state *state = &r->states[k];
    give_rest(r, k, " ");
    const char *suffix = len == 0 ? NULL : memmem(s, len, stage->pattern, stage->pattern_len);
    size_t now = suffix == NULL ? len : stage->holds_whole ? 0 : (size_t)(suffix - s);
    if (suffix != NULL) {
        RELAY_ASSERT(len - now <= RELAY_STAGE_MAX_REST);
        memcpy(state->bytes, s + now, len - now);
        state->n = (uint32_t)(len - now);
        if (now == 0) return;
    }
    give_token(r, k + 1, s, now);
}

// The bytes of the run, as many as are the answer's, are none of a character.
static void give_bad_run(relay_decode_run *r, uint32_t k) {
    stage_state *state = &r->states[k];
    uint32_t n = state->n - state->n_prompt;
    state->n = state->n_prompt = 0;
    for (uint32_t i = 0; i < n; i++)
        give_token(r, k + 1, REPLACEMENT, sizeof REPLACEMENT - 1);
}

static void end_byte_run(relay_decode_run *r, uint32_t k) {
    stage_state *state = &r->states[k];
    state->is_bad = false;
    if (state->n == 0) return;
    if (!relay_utf8_is_valid(state->bytes, state->n)) {
        give_bad_run(r, k);
        return;
    }
    uint32_t n = state->n;
    state->n = state->n_prompt = 0;
    give_token(r, k + 1, state->bytes, n);
}

static void take_byte(relay_decode_run *r, uint32_t k, int byte) {
    stage_state *state = &r->states[k];
    if (state->is_bad) {
        give_token(r, k + 1, REPLACEMENT, sizeof REPLACEMENT - 1);
        return;
    }
    state->bytes[state->n++] = (char)byte;
    size_t open = relay_utf8_incomplete_suffix(state->bytes, state->n);
    if (!relay_utf8_is_valid(state->bytes, state->n - open)) {
        state->is_bad = true;
        give_bad_run(r, k);
    } else if (state->n == RELAY_STAGE_MAX_RUN) {
        char text[RELAY_STAGE_MAX_RUN];
        size_t whole = state->n - open;
        memcpy(text, state->bytes, whole);
        memmove(state->bytes, state->bytes + whole, open);
        state->n = (uint32_t)open;
        state->n_prompt = 0;
        give_token(r, k + 1, text, whole);
    }
}

static void take_byte_fallback(relay_decode_run *r, uint32_t k, const char *s, size_t len) {
    int byte = relay_decode_byte_of(s, len);
    if (byte >= 0) {
        take_byte(r, k, byte);
        return;
    }
    end_byte_run(r, k);
    give_token(r, k + 1, s, len);
}

// ---- Bytes to characters

static void give_up_pending(relay_decode_run *r, uint32_t k) {
    stage_state *state = &r->states[k];
    bool is_of_answer = state->n > state->n_prompt;
    state->n = state->n_prompt = 0;
    if (is_of_answer) give_text(r, k + 1, REPLACEMENT, sizeof REPLACEMENT - 1);
}

// Adds one byte to the pending ones. False if it does not continue the character: then it is still to be dealt with.
static bool continue_pending(relay_decode_run *r, uint32_t k, char byte) {
    stage_state *state = &r->states[k];
    state->bytes[state->n] = byte;
    size_t n = state->n + 1;
    if (relay_utf8_is_valid(state->bytes, n)) {
        state->n = state->n_prompt = 0;
        give_text(r, k + 1, state->bytes, n);
        return true;
    }
    if (relay_utf8_incomplete_suffix(state->bytes, n) == n) {
        state->n++;
        return true;
    }
    give_up_pending(r, k);
    return false;
}

static void take_bytes(relay_decode_run *r, uint32_t k, const char *bytes, size_t len) {
    stage_state *state = &r->states[k];
    for (size_t i = 0; i < len;) {
        if (state->n > 0) {
            i += continue_pending(r, k, bytes[i]);
            continue;
        }
        size_t valid = relay_utf8_valid_prefix(bytes + i, len - i);
        if (valid > 0) give_text(r, k + 1, bytes + i, valid);
        i += valid;
        if (i == len) break;
        uint32_t code_point;
        size_t bad = relay_utf8_decode(bytes + i, len - i, &code_point);
        if (bad == len - i && relay_utf8_incomplete_suffix(bytes + i, bad) == bad) {
            memcpy(state->bytes, bytes + i, bad);
            state->n = (uint32_t)bad;
        } else {
            give_text(r, k + 1, REPLACEMENT, sizeof REPLACEMENT - 1);
        }
        i += bad;
    }
}

// ---- Open input

static void replace_open(relay_decode_run *r, uint32_t k, const char *s, size_t len) {
    const relay_decode_stage *stage = &r->d->stages[k];
    stage_state *state = &r->states[k];
    uint32_t matched = state->matched;
    if (matched == 0 && memchr(s, stage->pattern[0], len) == NULL) {
        give_text(r, k + 1, s, len);
        return;
    }
    relay_buf *out = &state->scratch;
    relay_buf_clear(out);
    for (size_t i = 0; i < len;) {
        if (matched == 0) { // on to where the pattern may begin
            const char *next = memchr(s + i, stage->pattern[0], len - i);
            size_t n = next == NULL ? len - i : (size_t)(next - (s + i));
            relay_buf_append(out, s + i, n);
            i += n;
            if (i == len) break;
        }
        if (stage->pattern[matched] == s[i]) {
            matched++;
            i++;
        } else {
            uint32_t shorter = stage->failure[matched];
            relay_buf_append(out, stage->pattern, matched - shorter);
            matched = shorter;
        }
        if (matched == stage->pattern_len) {
            relay_buf_append(out, stage->content, stage->content_len);
            matched = 0;
        }
    }
    state->matched = (uint16_t)matched;
    give_text(r, k + 1, out->data, out->len);
}

static bool has_character(const relay_decode_stage *stage, const char *s, size_t len) {
    return len >= stage->pattern_len && memcmp(s, stage->pattern, stage->pattern_len) == 0;
}

static void strip_open(relay_decode_run *r, uint32_t k, const char *s, size_t len) {
    const relay_decode_stage *stage = &r->d->stages[k];
    stage_state *state = &r->states[k];
    while (!state->is_inside && len > 0) {
        state->is_inside = state->stripped == stage->begin || !has_character(stage, s, len);
        if (state->is_inside) break;
        state->stripped++;
        s += stage->pattern_len;
        len -= stage->pattern_len;
    }
    if (len == 0) return;
    if (stage->end == 0) {
        give_text(r, k + 1, s, len);
        return;
    }
    size_t body = len;
    while (body >= stage->pattern_len && has_character(stage, s + body - stage->pattern_len, stage->pattern_len))
        body -= stage->pattern_len;
    uint32_t at_end = (uint32_t)((len - body) / stage->pattern_len), held = state->held;
    uint32_t before = body > 0 ? held : 0; // what was kept back is inside the text
    held = (body > 0 ? 0 : held) + at_end;
    uint32_t behind = held > stage->end ? held - stage->end : 0;
    state->held = (uint16_t)(held - behind);
    relay_buf *out = &state->scratch;
    relay_buf_clear(out);
    for (uint32_t i = 0; i < before; i++)
        relay_buf_append(out, stage->pattern, stage->pattern_len);
    relay_buf_append(out, s, body);
    for (uint32_t i = 0; i < behind; i++)
        relay_buf_append(out, stage->pattern, stage->pattern_len);
    give_text(r, k + 1, out->data, out->len);
}

// ---- From stage to stage

static void put_out(relay_decode_run *r, const char *s, size_t len) {
    if (len > 0 && !r->is_muted) r->sink(r->arg, s, len);
}

static void give_token(relay_decode_run *r, uint32_t k, const char *s, size_t len) {
    if (k == r->d->n_stages) {
        put_out(r, s, len);
        return;
    }
    const relay_decode_stage *stage = &r->d->stages[k];
    switch (stage->kind) {
    case RELAY_STAGE_DEDUP:
        dedup(r, k, s, len);
        return;
    case RELAY_STAGE_DROP_EMPTY:
        if (len > 0) give_token(r, k + 1, s, len);
        return;
    case RELAY_STAGE_BPE:
        take_bpe(r, k, s, len);
        return;
    case RELAY_STAGE_BYTE_FALLBACK:
        take_byte_fallback(r, k, s, len);
        return;
    case RELAY_STAGE_FUSE:
        give_text(r, k + 1, s, len);
        return;
    case RELAY_STAGE_BYTES:
        if (!stage->is_raw) {
            relay_buf *out = &r->states[k].scratch;
            relay_buf_clear(out);
            relay_decode_alphabet(s, len, out);
            s = out->data;
            len = out->len;
        }
        take_bytes(r, k, s, len);
        return;
    default:
        apply_pure(r, k, s, len);
    }
}

static void give_text(relay_decode_run *r, uint32_t k, const char *s, size_t len) {
    if (len == 0) return;
    if (k == r->d->n_stages)
        put_out(r, s, len);
    else if (r->d->stages[k].kind == RELAY_STAGE_REPLACE)
        replace_open(r, k, s, len);
    else
        strip_open(r, k, s, len); // no other stage is behind one that opens a token
}

static void give_end(relay_decode_run *r, uint32_t k) {
    for (; k < r->d->n_stages; k++) {
        const relay_decode_stage *stage = &r->d->stages[k];
        stage_state *state = &r->states[k];
        switch (stage->kind) {
        case RELAY_STAGE_BPE:
            give_rest(r, k, "");
            break;
        case RELAY_STAGE_BYTE_FALLBACK:
            end_byte_run(r, k);
            break;
        case RELAY_STAGE_BYTES:
            if (state->n > 0) give_up_pending(r, k);
            break;
        case RELAY_STAGE_REPLACE:
            if (stage->is_open) give_text(r, k + 1, stage->pattern, state->matched);
            break;
        default: // what STRIP holds is what it takes away
            break;
        }
    }
}

// ---- The run

static void push_of_vocab(relay_decode_run *r, uint32_t id) {
    if (id >= relay_vocab_size(r->vocab)) return;
    const relay_token *t = relay_vocab_token(r->vocab, id);
    if (t->kind != RELAY_TOKEN_PADDING) give_token(r, 0, t->bytes, t->len);
}

void relay_decode_run_push(relay_decode_run *r, uint32_t id) {
    const relay_text_decoder *d = r->d;
    if (d == &bytes_decoder) {
        push_of_vocab(r, id);
        return;
    }
    if (id >= d->n_ids) return;
    const relay_decode_token *t = r->has_token ? &d->rest[id] : &d->first[id];
    if ((t->flags & RELAY_TOKEN_IS_THERE) == 0) return;
    r->has_token = true;
    bool is_text = d->n_stages > 0 && d->stages[0].kind == RELAY_STAGE_BYTES && (t->flags & RELAY_TOKEN_IS_WHOLE) &&
                   r->states[0].n == 0;
    if (is_text)
        give_text(r, 1, d->bytes + t->at, t->len);
    else
        give_token(r, 0, d->bytes + t->at, t->len);
}

void relay_decode_run_reset(relay_decode_run *r) {
    r->has_token = r->is_muted = false;
    for (uint32_t k = 0; k < r->d->n_stages; k++) {
        stage_state *s = &r->states[k];
        *s = (stage_state){.bytes = s->bytes, .scratch = s->scratch};
    }
}

void relay_decode_run_finish(relay_decode_run *r) {
    give_end(r, 0);
    relay_decode_run_reset(r);
}

void relay_decode_run_follow(relay_decode_run *r, const uint32_t *ids, uint32_t n, bool is_all) {
    relay_decode_run_reset(r);
    if (!is_all) {
        r->has_token = true;
        for (uint32_t k = 0; k < r->d->n_stages; k++) {
            r->states[k].seen = r->d->stages[k].kind != RELAY_STAGE_DEDUP;
            r->states[k].is_inside = true;
        }
    }
    r->is_muted = true;
    for (uint32_t i = 0; i < n; i++)
        relay_decode_run_push(r, ids[i]);
    r->is_muted = false;
    for (uint32_t k = 0; k < r->d->n_stages; k++) {
        stage_state *s = &r->states[k];
        relay_stage_kind kind = r->d->stages[k].kind;
        s->matched = 0;
        if (kind == RELAY_STAGE_BYTE_FALLBACK) {
            uint32_t open = s->is_bad ? 0 : (uint32_t)relay_utf8_incomplete_suffix(s->bytes, s->n);
            memmove(s->bytes, s->bytes + s->n - open, open);
            s->n = open;
            s->is_bad = false;
        }
        if (kind == RELAY_STAGE_BYTES || kind == RELAY_STAGE_BYTE_FALLBACK) s->n_prompt = (uint8_t)s->n;
    }
}

uint32_t relay_decode_run_held(const relay_decode_run *r) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < r->d->n_stages; k++)
        n += r->states[k].n + r->states[k].matched + r->states[k].held * r->d->stages[k].pattern_len;
    return n;
}

relay_decode_run *relay_decode_run_create(const relay_text_decoder *d, const relay_vocab *vocab, relay_decode_sink sink,
                                          void *arg) {
    relay_decode_run *r = relay_calloc(1, sizeof *r);
    if (d == NULL) d = &bytes_decoder;
    *r = (relay_decode_run){.d = d, .vocab = vocab, .sink = sink, .arg = arg};
    r->states = relay_calloc(d->n_stages, sizeof *r->states);
    for (uint32_t k = 0; k < d->n_stages; k++) {
        relay_stage_kind kind = d->stages[k].kind;
        uint32_t n = kind == RELAY_STAGE_BPE             ? RELAY_STAGE_MAX_REST
                     : kind == RELAY_STAGE_BYTE_FALLBACK ? RELAY_STAGE_MAX_RUN
                     : kind == RELAY_STAGE_BYTES         ? 4 // with room for the byte that decides
                                                         : 0;
        if (n > 0) r->states[k].bytes = relay_calloc(n, 1);
        relay_buf_init(&r->states[k].scratch, SIZE_MAX / 2); // bounded by a token and what is held
    }
    return r;
}

void relay_decode_run_destroy(relay_decode_run *r) {
    if (r == NULL) return;
    for (uint32_t k = 0; k < r->d->n_stages; k++) {
        free(r->states[k].bytes);
        relay_buf_fini(&r->states[k].scratch);
    }
    free(r->states);
    free(r);
}

// ---- The state outside
//
// One byte for `has_token`, then for each stage what it has. Whatever is accepted is a state that some tokens lead to,
// but for DEDUP's hash and BPE's text, with which a forger changes only the text that follows.

static void put_u16(relay_buf *out, uint32_t value) {
    relay_buf_putc(out, (char)(value & 0xFF));
    relay_buf_putc(out, (char)(value >> 8));
}

void relay_decode_run_save(const relay_decode_run *r, relay_buf *out) {
    relay_buf_putc(out, r->has_token);
    for (uint32_t k = 0; k < r->d->n_stages; k++) {
        const relay_decode_stage *stage = &r->d->stages[k];
        const stage_state *s = &r->states[k];
        switch (stage->kind) {
        case RELAY_STAGE_METASPACE:
        case RELAY_STAGE_WORDPIECE:
        case RELAY_STAGE_JOIN:
            relay_buf_putc(out, s->seen);
            break;
        case RELAY_STAGE_REPLACE:
            if (stage->is_open) put_u16(out, s->matched);
            break;
        case RELAY_STAGE_STRIP:
            if (!stage->is_open) break;
            relay_buf_putc(out, s->is_inside);
            put_u16(out, s->stripped);
            put_u16(out, s->held);
            break;
        case RELAY_STAGE_DEDUP: {
            XXH128_canonical_t hash;
            XXH128_canonicalFromHash(&hash, s->before);
            relay_buf_putc(out, s->seen);
            relay_buf_append(out, &hash, sizeof hash);
            break;
        }
        case RELAY_STAGE_BYTE_FALLBACK:
            relay_buf_putc(out, s->is_bad);
            // fall through
        case RELAY_STAGE_BYTES:
            relay_buf_putc(out, (char)s->n_prompt);
            // fall through
        case RELAY_STAGE_BPE:
            put_u16(out, s->n);
            relay_buf_append(out, s->bytes, s->n);
            break;
        default:
            break;
        }
    }
}

typedef struct reader {
    const uint8_t *data;
    size_t len;
    bool is_bad;
} reader;

static const uint8_t *take(reader *in, size_t n) {
    static const uint8_t nothing[sizeof(XXH128_canonical_t)];
    if (in->len < n) {
        in->is_bad = true;
        in->len = 0;
        return nothing; // of those who read a fixed number of bytes
    }
    const uint8_t *at = in->data;
    in->data += n;
    in->len -= n;
    return at;
}

static uint32_t take_number(reader *in, size_t n, uint32_t max) {
    const uint8_t *at = take(in, n);
    uint32_t value = at[0];
    if (n == 2) value |= (uint32_t)at[1] << 8;
    in->is_bad |= value > max;
    return value > max ? 0 : value;
}

static void take_held_bytes(reader *in, stage_state *s, uint32_t max) {
    s->n = take_number(in, 2, max);
    const uint8_t *at = take(in, s->n);
    if (in->is_bad) s->n = 0;
    if (s->n > 0) memcpy(s->bytes, at, s->n);
}

static bool is_held_right(const relay_decode_stage *stage, const stage_state *s) {
    size_t open = relay_utf8_incomplete_suffix(s->bytes, s->n);
    if (stage->kind == RELAY_STAGE_BYTES) return open == s->n && s->n_prompt <= s->n;
    if (stage->kind == RELAY_STAGE_BYTE_FALLBACK)
        return relay_utf8_is_valid(s->bytes, s->n - open) && s->n < RELAY_STAGE_MAX_RUN && s->n_prompt <= s->n &&
               !(s->is_bad && s->n > 0);
    return s->n == 0 ||
           (relay_utf8_is_valid(s->bytes, s->n) && memmem(s->bytes, s->n, stage->pattern, stage->pattern_len) != NULL);
}

static void restore_stage(reader *in, const relay_decode_stage *stage, stage_state *s) {
    switch (stage->kind) {
    case RELAY_STAGE_METASPACE:
    case RELAY_STAGE_WORDPIECE:
    case RELAY_STAGE_JOIN:
        s->seen = take_number(in, 1, 1) != 0;
        return;
    case RELAY_STAGE_REPLACE:
        if (!stage->is_open) return;
        s->matched = (uint16_t)take_number(in, 2, stage->pattern_len - 1);
        in->is_bad |= !relay_utf8_is_valid(stage->pattern, s->matched);
        return;
    case RELAY_STAGE_STRIP:
        if (!stage->is_open) return;
        s->is_inside = take_number(in, 1, 1) != 0;
        s->stripped = (uint16_t)take_number(in, 2, stage->begin);
        s->held = (uint16_t)take_number(in, 2, stage->end);
        return;
    case RELAY_STAGE_DEDUP:
        s->seen = take_number(in, 1, 1) != 0;
        s->before = XXH128_hashFromCanonical((const XXH128_canonical_t *)take(in, sizeof(XXH128_canonical_t)));
        return;
    case RELAY_STAGE_BYTE_FALLBACK:
        s->is_bad = take_number(in, 1, 1) != 0;
        s->n_prompt = (uint8_t)take_number(in, 1, 3);
        take_held_bytes(in, s, RELAY_STAGE_MAX_RUN);
        break;
    case RELAY_STAGE_BYTES:
        s->n_prompt = (uint8_t)take_number(in, 1, 3);
        take_held_bytes(in, s, 3);
        break;
    case RELAY_STAGE_BPE:
        take_held_bytes(in, s, RELAY_STAGE_MAX_REST);
        break;
    default:
        return;
    }
    in->is_bad |= !is_held_right(stage, s);
}

bool relay_decode_run_restore(relay_decode_run *r, const uint8_t *state, size_t len) {
    reader in = {state, len, false};
    relay_decode_run_reset(r);
    r->has_token = take_number(&in, 1, 1) != 0;
    for (uint32_t k = 0; k < r->d->n_stages && !in.is_bad; k++)
        restore_stage(&in, &r->d->stages[k], &r->states[k]);
    if (!in.is_bad && in.len == 0) return true;
    relay_decode_run_reset(r);
    return false;
}
