#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/text_stream.h"

#define FFFD "\xEF\xBF\xBD"

static const char *const pieces[] = {
    "stop",  " the",      "END",  "\xF0\x9F\x98", "\x80!",  "\xE2\x82\xACuro",
    "a\xC3", "\xA9t\xE2", "abab", "\xFF\xFE",     "aSTOPb", NULL,
};
static const char *const controls[] = {"<|im_end|>", "<s>", NULL};
static const char *const users[] = {"<tool_call>", NULL};
static const small_vocab_spec spec = {
    .pre = "gpt-2", .pieces = pieces, .control = controls, .user = users, .n_padding = 2};

static small_vocab world;

static int make_world(void **state) {
    world = small_vocab_make(&spec);
    return 0;
}

static int end_world(void **state) {
    small_vocab_fini(&world);
    return 0;
}

// ---- One stream, by hand

typedef struct fixture {
    relay_text_stream *stream;
    relay_buf text;
    relay_text_step step; // the last one
} fixture;

static fixture open_stream(const relay_text_stream_opts *opts) {
    fixture f = {.stream = NULL};
    relay_buf_init(&f.text, 1 << 20);
    relay_err e = {0};
    if (relay_text_stream_create(&f.stream, opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    return f;
}

static void close_stream(fixture *f) {
    relay_text_stream_destroy(f->stream);
    relay_buf_fini(&f->text);
}

// Pushes the token with these bytes or this name.
static void push(fixture *f, const char *token) {
    uint32_t id = small_vocab_id(&world, token);
    relay_text_stream_push(f->stream, &id, 1, true, &f->text, &f->step);
}

// The bytes of `text` as one-byte tokens, in one push.
static void push_bytes(fixture *f, const char *text) {
    uint32_t ids[256], n = 0;
    for (; *text != 0; text++)
        ids[n++] = (uint8_t)*text;
    relay_text_stream_push(f->stream, ids, n, true, &f->text, &f->step);
}

static void assert_text(fixture *f, const char *expected) {
    assert_string_equal(f->text.data == NULL ? "" : f->text.data, expected);
}

static relay_text_stream_opts with_stops(const relay_stop_string *stops, uint32_t n) {
    return (relay_text_stream_opts){
        .vocab = world.vocab, .skip_special_tokens = true, .stop_strings = stops, .n_stop_strings = n};
}

#define STOP(s)                                                                                                        \
    { .bytes = s, .len = sizeof s - 1 }

static void holds_a_character_until_it_is_whole(void **state) {
    relay_text_stream_opts opts = with_stops(NULL, 0);
    fixture f = open_stream(&opts);
    push(&f, "\xF0\x9F\x98");
    assert_text(&f, "");
    assert_int_equal(f.step.held_bytes, 3);
    push(&f, "\x80!");
    assert_text(&f, "\xF0\x9F\x98\x80!");
    assert_int_equal(f.step.held_bytes, 0);
    close_stream(&f);
}

static void replaces_each_maximal_invalid_part_at_once(void **state) {
    relay_text_stream_opts opts = with_stops(NULL, 0);
    fixture f = open_stream(&opts);
    push_bytes(&f, "\xF0\x9F");
    push_bytes(&f, "x"); // F0 9F was a beginning: one part
    assert_text(&f, FFFD "x");
    push_bytes(&f, "\xED\xA0\x80"); // a surrogate: ED, A0 and 80 are three parts
    assert_text(&f, FFFD "x" FFFD FFFD FFFD);
    push_bytes(&f, "\xE2\x82\xE2\x82\xAC"); // a part, then a whole one
    assert_text(&f, FFFD "x" FFFD FFFD FFFD FFFD "\xE2\x82\xAC");
    push_bytes(&f, "\xC3");
    assert_int_equal(f.step.held_bytes, 1);
    relay_text_stream_finish(f.stream, &f.text);
    relay_text_stream_finish(f.stream, &f.text); // once more adds nothing
    assert_text(&f, FFFD "x" FFFD FFFD FFFD FFFD "\xE2\x82\xAC" FFFD);
    close_stream(&f);
}

static void skips_special_tokens_or_shows_them(void **state) {
    for (int skip = 0; skip < 2; skip++) {
        relay_text_stream_opts opts = with_stops(NULL, 0);
        opts.skip_special_tokens = skip;
        fixture f = open_stream(&opts);
        push(&f, "<s>");
        push(&f, "<tool_call>");
        push(&f, " the");
        push(&f, "<|im_end|>");
        uint32_t padding = relay_vocab_size(world.vocab) - 1;
        relay_text_stream_push(f.stream, &padding, 1, true, &f.text, &f.step);
        assert_int_equal(f.step.tokens_consumed, 1);
        assert_text(&f, skip ? "<tool_call> the" : "<s><tool_call> the<|im_end|>");
        close_stream(&f);
    }
}

static void joins_a_character_across_a_skipped_token(void **state) {
    relay_text_stream_opts opts = with_stops(NULL, 0);
    fixture f = open_stream(&opts);
    push_bytes(&f, "\xC3");
    push(&f, "<s>");
    push_bytes(&f, "\xA9");
    assert_text(&f, "\xC3\xA9");
    close_stream(&f);
}

static void stops_across_token_borders_and_inside_one(void **state) {
    static const relay_stop_string stops[] = {STOP("STOP"), STOP(" theEND")};
    relay_text_stream_opts opts = with_stops(stops, 2);
    fixture f = open_stream(&opts);
    push(&f, "stop");
    push(&f, " the");
    assert_text(&f, "stop");
    assert_int_equal(f.step.held_bytes, 4);
    push(&f, "END");
    assert_text(&f, "stop");
    assert_true(f.step.is_stopped);
    assert_int_equal(f.step.stop_index, 1);
    assert_int_equal(f.step.held_bytes, 0);
    push(&f, " the"); // nothing more is taken
    assert_int_equal(f.step.tokens_consumed, 0);
    assert_true(f.step.is_stopped);
    relay_text_stream_finish(f.stream, &f.text);
    assert_text(&f, "stop");
    close_stream(&f);

    f = open_stream(&opts);
    push(&f, "aSTOPb");
    assert_text(&f, "a");
    assert_int_equal(f.step.stop_index, 0);
    close_stream(&f);
}

static void takes_the_stop_that_completes_first_and_counts_its_tokens(void **state) {
    // In the list's order "END" would win; in the text " the" completes first.
    static const relay_stop_string stops[] = {STOP("END"), STOP(" the"), STOP("e")};
    relay_text_stream_opts opts = with_stops(stops, 2);
    fixture f = open_stream(&opts);
    uint32_t ids[] = {'x', small_vocab_id(&world, " the"), small_vocab_id(&world, "END"), 'y'};
    relay_text_stream_push(f.stream, ids, 4, true, &f.text, &f.step);
    assert_text(&f, "x");
    assert_int_equal(f.step.stop_index, 1);
    assert_int_equal(f.step.tokens_consumed, 2);
    close_stream(&f);

    opts.n_stop_strings = 3; // "e" ends where " the" does: the longest
    f = open_stream(&opts);
    relay_text_stream_push(f.stream, ids, 4, true, &f.text, &f.step);
    assert_int_equal(f.step.stop_index, 1);
    close_stream(&f);
}

static void ends_the_text_behind_the_stop_where_asked(void **state) {
    static const relay_stop_string stops[] = {STOP("ab"), STOP("<|im_end|>")};
    relay_text_stream_opts opts = with_stops(stops, 2);
    opts.include_stop_string = true;
    fixture f = open_stream(&opts);
    push(&f, "END");
    push(&f, "abab");
    assert_text(&f, "ENDab");
    close_stream(&f);
    f = open_stream(&opts);
    push(&f, "END");
    push(&f, "<|im_end|>");
    assert_text(&f, "END<|im_end|>");
    assert_int_equal(f.step.stop_index, 1);
    close_stream(&f);
}

static void stops_at_the_name_of_a_skipped_token(void **state) {
    static const relay_stop_string stops[] = {STOP("abc"), STOP("<|im_end|>"), STOP("x" FFFD)};
    relay_text_stream_opts opts = with_stops(stops, 3);
    fixture f = open_stream(&opts);
    push_bytes(&f, "ab\xC3");
    assert_text(&f, "");
    push(&f, "<|im_end|>");
    assert_text(&f, "ab" FFFD); // what was held stands before the stop
    assert_true(f.step.is_stopped);
    assert_int_equal(f.step.stop_index, 1);
    assert_int_equal(f.step.held_bytes, 0);
    close_stream(&f);

    f = open_stream(&opts);
    push_bytes(&f, "x\xC3");
    push(&f, "<|im_end|>"); // the U+FFFD before it completes another
    assert_text(&f, "");
    assert_int_equal(f.step.stop_index, 2);
    close_stream(&f);

    opts.skip_special_tokens = false; // then it is text like any other
    f = open_stream(&opts);
    push(&f, "END");
    push(&f, "<|im_end|>");
    assert_text(&f, "END");
    assert_int_equal(f.step.stop_index, 1);
    close_stream(&f);
}

static void holds_only_what_may_become_a_stop(void **state) {
    static const relay_stop_string stops[] = {STOP("\xC3\xA9t\xC3\xA9"), STOP("ababc")};
    relay_text_stream_opts opts = with_stops(stops, 2);
    fixture f = open_stream(&opts);
    push(&f, "abab");
    assert_int_equal(f.step.held_bytes, 4);
    push_bytes(&f, "ab"); // ab|abab -> the first two are text
    assert_text(&f, "ab");
    assert_int_equal(f.step.held_bytes, 4);
    push_bytes(&f, "x");
    assert_text(&f, "abababx");
    assert_int_equal(f.step.held_bytes, 0);
    push_bytes(&f, "\xC3\xA8"); // shares its first byte with a stop string: no reason to hold it
    assert_text(&f, "abababx\xC3\xA8");
    push_bytes(&f, "\xC3\xA9t\xC3");
    assert_int_equal(f.step.held_bytes, 4);
    relay_text_stream_finish(f.stream, &f.text);
    assert_text(&f, "abababx\xC3\xA8\xC3\xA9t" FFFD);
    close_stream(&f);
}

static void looks_for_stops_only_where_told(void **state) {
    static const relay_stop_string stops[] = {STOP("ab")};
    relay_text_stream_opts opts = with_stops(stops, 1);
    fixture f = open_stream(&opts);
    uint32_t ids[] = {'a', 'b', 'a', small_vocab_id(&world, "<s>")};
    relay_text_stream_push(f.stream, ids, 2, false, &f.text, &f.step);
    assert_text(&f, "ab");
    assert_int_equal(f.step.held_bytes, 0); // it cannot become anything more
    relay_text_stream_push(f.stream, ids + 2, 2, false, &f.text, &f.step);
    assert_text(&f, "ab");
    assert_int_equal(f.step.tokens_consumed, 2);
    assert_false(f.step.is_stopped);
    push_bytes(&f, "b"); // begun before, completed now
    assert_true(f.step.is_stopped);
    assert_text(&f, "ab");
    close_stream(&f);
}

static void begins_with_the_prompts_unfinished_character(void **state) {
    uint32_t tail[] = {small_vocab_id(&world, " the"), small_vocab_id(&world, "\xF0\x9F\x98"),
                       small_vocab_id(&world, "<s>")};
    relay_text_stream_opts opts = with_stops(NULL, 0);
    opts.prompt_tail = tail;
    opts.n_prompt_tail = 3;
    fixture f = open_stream(&opts);
    push(&f, "\x80!");
    assert_text(&f, "\xF0\x9F\x98\x80!"); // and not the prompt's " the"
    close_stream(&f);
    f = open_stream(&opts);
    push(&f, "END"); // never becomes whole: its U+FFFD is the prompt's
    assert_text(&f, "END");
    relay_text_stream_finish(f.stream, &f.text);
    assert_text(&f, "END");
    close_stream(&f);
    opts.n_prompt_tail = 1; // a whole character at the end
    f = open_stream(&opts);
    push(&f, "\x80!");
    assert_text(&f, FFFD "!");
    close_stream(&f);
    tail[1] = 0xE2; // one byte of the prompt, one of the answer
    opts.n_prompt_tail = 2;
    f = open_stream(&opts);
    push_bytes(&f, "\x82z");
    assert_text(&f, FFFD "z");
    close_stream(&f);
}

static void refuses_bad_stop_strings_by_name(void **state) {
    static char long_one[RELAY_MAX_STOP_STRING_BYTES + 1];
    memset(long_one, 'x', sizeof long_one);
    relay_stop_string many[RELAY_MAX_STOP_STRINGS + 1];
    for (uint32_t i = 0; i < RELAY_MAX_STOP_STRINGS + 1; i++)
        many[i] = (relay_stop_string)STOP("x");
    const struct {
        relay_stop_string second;
        uint32_t n;
        const char *message;
    } cases[] = {
        {{.bytes = "", .len = 0}, 2, "stop_strings[1] is empty"},
        {{.bytes = long_one, .len = sizeof long_one}, 2, "stop_strings[1] has 257 bytes, at most 256 are allowed"},
        {STOP("ok\xC3"), 2, "stop_strings[1] is not valid UTF-8 at byte 2"},
        {STOP("x"), 17, "stop_strings: 17 strings, at most 16 are allowed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        many[1] = cases[i].second;
        relay_text_stream_opts opts = with_stops(many, cases[i].n);
        relay_text_stream *s;
        relay_err e;
        assert_int_equal(relay_text_stream_create(&s, &opts, &e), RELAY_INVALID_ARGUMENT);
        assert_null(s);
        assert_string_equal(e.message, cases[i].message);
    }
}

// ---- States outside

static void assert_refused(relay_text_stream *s, const relay_buf *state, const char *part) {
    relay_err e;
    assert_int_equal(relay_text_stream_restore(s, (const uint8_t *)state->data, state->len, &e),
                     RELAY_INVALID_ARGUMENT);
    if (strstr(e.message, "decode_state") == NULL || strstr(e.message, part) == NULL) fail_msg("%s", e.message);
}

static void refuses_a_state_of_something_else(void **state) {
    static const relay_stop_string stops[] = {STOP("END"), STOP("\xC3\xA9z")};
    relay_text_stream_opts opts = with_stops(stops, 2);
    fixture f = open_stream(&opts);
    relay_buf saved;
    relay_buf_init(&saved, RELAY_MAX_DECODE_STATE_BYTES);
    relay_text_stream_save(f.stream, &saved);
    relay_err e;
    assert_int_equal(relay_text_stream_restore(f.stream, (const uint8_t *)saved.data, saved.len, &e), RELAY_OK);

    for (int kind = 0; kind < 4; kind++) {
        relay_text_stream_opts other = opts;
        if (kind == 0) other.n_stop_strings = 1;
        if (kind == 1) other.skip_special_tokens = false;
        if (kind == 2) other.include_stop_string = true;
        relay_stop_string renamed[] = {STOP("ENDe"), STOP("\xC3\xA9z")};
        if (kind == 3) other.stop_strings = renamed;
        fixture g = open_stream(&other);
        assert_refused(g.stream, &saved, "other options");
        close_stream(&g);
    }
    small_vocab_spec changed = spec;
    changed.n_missing_bytes = 1;
    changed.missing_bytes = (const uint8_t[]){7};
    small_vocab other_vocab = small_vocab_make(&changed);
    relay_text_stream_opts other = opts;
    other.vocab = other_vocab.vocab;
    fixture g = open_stream(&other);
    assert_refused(g.stream, &saved, "another vocabulary");
    close_stream(&g);
    small_vocab_fini(&other_vocab);

    size_t len = saved.len;
    saved.len = 44;
    assert_refused(f.stream, &saved, "has 44 bytes");
    saved.len = len - 1;
    assert_refused(f.stream, &saved, "is damaged");
    saved.len = len;
    saved.data[0]++;
    assert_refused(f.stream, &saved, "version");
    relay_buf_fini(&saved);
    close_stream(&f);
}

// States that no tokens lead to.
static void refuses_a_damaged_state(void **state) {
    static const relay_stop_string stops[] = {STOP("ab\xC3\xA9"), STOP("END")};
    relay_text_stream_opts opts = with_stops(stops, 2);
    fixture f = open_stream(&opts);
    relay_buf saved;
    relay_buf_init(&saved, RELAY_MAX_DECODE_STATE_BYTES);
    relay_text_stream_save(f.stream, &saved);
    enum { HEAD = 45 }; // what is before the decoder's state
    static const struct {
        char head[4];  // is_stopped, stop_index, the matcher's state
        char tail[16]; // whether a token was there, bytes of the prompt's character, held bytes: how many, and they
        size_t n_tail;
    } cases[] = {
        {"\x02\0\0", "\0\0\0\0", 4},                   // is_stopped is no truth value
        {"\x01\x02\0", "\0\0\0\0", 4},                 // the third of two stop strings
        {"\0\x01\0", "\0\0\0\0", 4},                   // one without having stopped
        {"\x01\0\0", "\x01\0\x01\0\xC3", 5},           // something pending behind the stop
        {"\x01\0\x01", "\0\0\0\0", 4},                 // and something held
        {"\0\0\0", "\x01\0\x02\0xy", 6},               // a character that is whole
        {"\0\0\0", "\x01\0\x02\0\xE2\xC3", 6},         // or can never be
        {"\0\0\0", "\x01\0\x04\0\xF0\x9F\x98\x80", 8}, // more bytes than there is room for
        {"\0\0\0", "\x01\x02\x01\0\xC3", 5},           // more of the prompt than there are
        {"\0\0\0", "\x01\0\x02\0\xC3", 5},             // fewer bytes than it says
        {"\0\0\0", "\x01\0\x01\0\xC3\xC3", 6},         // or more
        {"\0\0\0", "\x02\0\0\0", 4},                   // no truth value
        {"\0\0\0", "\0\0", 2},
        {"\0\0\0", "", 0},
        {"\0\0\x03", "\0\0\0\0", 4}, // half a character of a stop string
        {"\0\0\x04", "\0\0\0\0", 4}, // a whole stop string
        {"\0\0\x08", "\0\0\0\0", 4}, // a state that the matcher does not have
        {"\0\0\0\x01", "\0\0\0\0", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(saved.data + 1, cases[i].head, sizeof cases[i].head);
        saved.len = HEAD;
        relay_buf_append(&saved, cases[i].tail, cases[i].n_tail);
        assert_refused(f.stream, &saved, "is damaged");
    }
    relay_buf_fini(&saved);
    close_stream(&f);
}

// Every value of every byte: a state is refused, or what follows is still whole characters.
static void survives_any_changed_state(void **state) {
    static const relay_stop_string stops[] = {STOP("\xC3\xA9z\xE2\x82\xAC!"), STOP("END")};
    relay_text_stream_opts opts = with_stops(stops, 2);
    fixture f = open_stream(&opts);
    relay_buf saved;
    relay_buf_init(&saved, RELAY_MAX_DECODE_STATE_BYTES);
    push_bytes(&f, "EN\xF0\x9F");
    relay_text_stream_save(f.stream, &saved);
    uint32_t n_accepted = 0;
    for (size_t i = 0; i < saved.len; i++) {
        char before = saved.data[i];
        for (int value = 0; value < 256; value++) {
            saved.data[i] = (char)value;
            if (relay_text_stream_restore(f.stream, (const uint8_t *)saved.data, saved.len, NULL) != RELAY_OK) continue;
            n_accepted++;
            relay_buf_clear(&f.text);
            push_bytes(&f, "\x98\x80z\xE2\x82\xAC!END");
            relay_text_stream_finish(f.stream, &f.text);
            assert_true(relay_utf8_is_valid(f.text.data, f.text.len));
        }
        saved.data[i] = before;
    }
    assert_true(n_accepted > saved.len && n_accepted < 256 * saved.len / 4);
    relay_buf_fini(&saved);
    close_stream(&f);
}

// ---- Against a plain description of what is asked, on random tokens in random cuts

typedef struct expectation {
    relay_buf text;      // of the whole answer
    uint32_t n_consumed; // tokens, where it stops
    bool is_stopped;
    uint32_t stop_index;
} expectation;

// The text of bytes[0..len) as far as it is decided, or to the end where `at_end`.
static void decode(const relay_buf *bytes, bool at_end, relay_buf *text) {
    size_t len = bytes->len - (at_end ? 0 : relay_utf8_incomplete_suffix(bytes->data, bytes->len));
    relay_buf_clear(text);
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        char out[4];
        i += relay_utf8_decode(bytes->data + i, len - i, &cp);
        relay_buf_append(text, out, relay_utf8_encode(cp, out));
    }
}

// The first place where a stop string ends in the text, and the longest of those; false if none.
static bool find_stop(const relay_text_stream_opts *o, const relay_buf *text, size_t *end, uint32_t *index) {
    for (*end = 1; *end <= text->len; (*end)++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < o->n_stop_strings; i++) {
            const relay_stop_string *s = &o->stop_strings[i];
            if (s->len > *end || s->len <= longest || memcmp(text->data + *end - s->len, s->bytes, s->len) != 0)
                continue;
            longest = s->len;
            *index = i;
        }
        if (longest > 0) return true;
    }
    return false;
}

static expectation expect(const relay_text_stream_opts *o, const uint32_t *ids, uint32_t n) {
    expectation x = {.n_consumed = n};
    relay_buf bytes;
    relay_buf_init(&bytes, 1 << 20);
    relay_buf_init(&x.text, 1 << 20);
    for (uint32_t i = 0; i <= n; i++) {
        size_t end;
        const relay_token *t = i < n ? relay_vocab_token(world.vocab, ids[i]) : NULL;
        bool is_named_stop = false;
        if (t != NULL && (t->kind != RELAY_TOKEN_CONTROL || !o->skip_special_tokens)) {
            if (t->kind != RELAY_TOKEN_PADDING) relay_buf_append(&bytes, t->bytes, t->len);
        } else if (t != NULL) {
            for (uint32_t k = o->n_stop_strings; k-- > 0;)
                if (o->stop_strings[k].len == t->len && memcmp(o->stop_strings[k].bytes, t->bytes, t->len) == 0) {
                    is_named_stop = true;
                    x.stop_index = k;
                }
        }
        uint32_t named_index = x.stop_index;
        decode(&bytes, i == n || is_named_stop, &x.text);
        bool is_found = (i < n || is_named_stop) && find_stop(o, &x.text, &end, &x.stop_index);
        if (!is_found && !is_named_stop) continue;
        if (is_found) {
            size_t stop_len = o->stop_strings[x.stop_index].len;
            x.text.len = o->include_stop_string ? end : end - stop_len;
        } else {
            x.stop_index = named_index;
            if (o->include_stop_string) relay_buf_append(&x.text, t->bytes, t->len);
        }
        x.n_consumed = i + 1;
        x.is_stopped = true;
        break;
    }
    relay_buf_fini(&bytes);
    return x;
}

static uint32_t random_token(test_random *r) {
    switch (test_random_below(r, 4)) {
    case 0:
        return 0x80 + test_random_below(r, 0x80);
    case 1:
        return 'a' + test_random_below(r, 2);
    case 2:
        return "\xF0\x9F\x98\x80\xC3\xA9\xE2\x82\xAC"[test_random_below(r, 9)] & 0xFF;
    default:
        return 256 + test_random_below(r, relay_vocab_size(world.vocab) - 256);
    }
}

// Moves the state of *s into another stream, which has seen other tokens.
static void change_streams(relay_text_stream **s, const relay_text_stream_opts *opts, test_random *r) {
    relay_buf saved, rubbish;
    relay_buf_init(&saved, RELAY_MAX_DECODE_STATE_BYTES);
    relay_buf_init(&rubbish, 1 << 16);
    relay_text_stream_save(*s, &saved);
    assert_false(saved.is_failed);
    relay_text_stream *other;
    assert_int_equal(relay_text_stream_create(&other, opts, NULL), RELAY_OK);
    for (uint32_t i = test_random_below(r, 4); i > 0; i--) {
        relay_text_step step;
        uint32_t id = random_token(r);
        relay_text_stream_push(other, &id, 1, true, &rubbish, &step);
    }
    relay_err e = {0};
    if (relay_text_stream_restore(other, (const uint8_t *)saved.data, saved.len, &e) != RELAY_OK)
        fail_msg("%s", e.message);
    relay_text_stream_destroy(*s);
    *s = other;
    relay_buf_fini(&saved);
    relay_buf_fini(&rubbish);
}

static void gives_one_text_in_any_cut_through_any_objects(void **state) {
    static const relay_stop_string all[] = {
        STOP("abab"),
        STOP("\xC3\xA9"),
        STOP("ba"),
        STOP("\xE2\x82\xAC\xC3\xA9"),
        STOP("<|im_end|>"),
        STOP(FFFD FFFD),
        STOP("aba" FFFD),
        STOP("the<|im_end|>"),
        STOP("b\xF0\x9F\x98\x80"),
        STOP("<tool"),
    };
    enum { N_ALL = sizeof all / sizeof *all, MAX_IDS = 40 };
    test_random r = {7};
    uint32_t n_stopped = 0;
    for (int round = 0; round < 20000; round++) {
        relay_stop_string stops[4];
        relay_text_stream_opts opts = with_stops(stops, test_random_below(&r, 4));
        for (uint32_t i = 0; i < opts.n_stop_strings; i++)
            stops[i] = all[test_random_below(&r, N_ALL)];
        opts.skip_special_tokens = test_random_below(&r, 2);
        opts.include_stop_string = test_random_below(&r, 2);
        uint32_t ids[MAX_IDS], n = test_random_below(&r, MAX_IDS);
        for (uint32_t i = 0; i < n; i++)
            ids[i] = random_token(&r);
        expectation x = expect(&opts, ids, n);

        fixture f = open_stream(&opts);
        uint32_t at = 0, consumed = 0;
        size_t shown = 0;
        while (at < n) {
            uint32_t k = 1 + test_random_below(&r, round % 2 == 0 ? 1 : 6);
            if (k > n - at) k = n - at;
            relay_text_stream_push(f.stream, ids + at, k, true, &f.text, &f.step);
            assert_true(relay_utf8_is_valid(f.text.data + shown, f.text.len - shown));
            shown = f.text.len;
            consumed += f.step.tokens_consumed;
            at += k;
            if (test_random_below(&r, 2)) change_streams(&f.stream, &opts, &r);
        }
        relay_text_stream_finish(f.stream, &f.text);
        assert_int_equal(f.text.len, x.text.len);
        if (x.text.len > 0) assert_memory_equal(f.text.data, x.text.data, x.text.len);
        assert_int_equal(consumed, x.n_consumed);
        assert_int_equal(n > 0 && f.step.is_stopped, x.is_stopped);
        if (x.is_stopped) assert_int_equal(f.step.stop_index, x.stop_index);
        n_stopped += x.is_stopped;
        relay_buf_fini(&x.text);
        close_stream(&f);
    }
    assert_in_range(n_stopped, 2000, 18000); // both outcomes were really tried
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_a_character_until_it_is_whole),
        cmocka_unit_test(replaces_each_maximal_invalid_part_at_once),
        cmocka_unit_test(skips_special_tokens_or_shows_them),
        cmocka_unit_test(joins_a_character_across_a_skipped_token),
        cmocka_unit_test(stops_across_token_borders_and_inside_one),
        cmocka_unit_test(takes_the_stop_that_completes_first_and_counts_its_tokens),
        cmocka_unit_test(ends_the_text_behind_the_stop_where_asked),
        cmocka_unit_test(stops_at_the_name_of_a_skipped_token),
        cmocka_unit_test(holds_only_what_may_become_a_stop),
        cmocka_unit_test(looks_for_stops_only_where_told),
        cmocka_unit_test(begins_with_the_prompts_unfinished_character),
        cmocka_unit_test(refuses_bad_stop_strings_by_name),
        cmocka_unit_test(refuses_a_state_of_something_else),
        cmocka_unit_test(refuses_a_damaged_state),
        cmocka_unit_test(survives_any_changed_state),
        cmocka_unit_test(gives_one_text_in_any_cut_through_any_objects),
    };
    return cmocka_run_group_tests(tests, make_world, end_world);
}
