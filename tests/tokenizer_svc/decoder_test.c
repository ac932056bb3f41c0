#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/spec_vocab.h"
#include "tokenizer_svc/text_stream.h"

#define SP   "\xE2\x96\x81" // U+2581
#define FFFD "\xEF\xBF\xBD"
#define STR(s)                                                                                                         \
    { (s), sizeof(s) - 1 }
#define LENGTH(x) (sizeof(x) / sizeof *(x))

static const char *const pieces[] = {"<unk>", SP "the", "end", SP,  "<0xF0>", "<0x9F>",     "<0x98>",  "<0x80>",
                                     "</s>",  "on</w>", "##s", ".", "n't",    "a</w>b</w>", SP SP "x", "  "};
enum { UNK, THE, END, SPACE, F0, X9F, X98, X80, EOS, ON, S, DOT, NOT, TWICE, WIDE, BLANKS, N_PIECES };

static const relay_decoder_spec replace = {
    .kind = RELAY_DECODE_REPLACE, .pattern = {.text = STR(SP)}, .content = STR(" ")};
static const relay_decoder_spec fallback = {.kind = RELAY_DECODE_BYTE_FALLBACK};
static const relay_decoder_spec fuse = {.kind = RELAY_DECODE_FUSE};
static const relay_decoder_spec strip_one = {.kind = RELAY_DECODE_STRIP, .content = STR(" "), .strip_begin = 1};
static const relay_decoder_spec metaspace = {.kind = RELAY_DECODE_METASPACE, .content = STR(SP)};
static const relay_decoder_spec wordpiece = {.kind = RELAY_DECODE_WORDPIECE, .content = STR("##"), .cleanup = true};
static const relay_decoder_spec bpe = {.kind = RELAY_DECODE_BPE, .content = STR("</w>")};

typedef struct world {
    relay_model_token tokens[N_PIECES];
    relay_added_token added[1];
    relay_decoder_spec decoders[8];
    relay_tokenizer_spec spec;
    relay_vocab *vocab;
    relay_text_decoder *decoder;
    relay_text_stream_opts opts;
} world;

static world *prepare(const relay_decoder_spec *const *decoders) {
    world *w = calloc(1, sizeof *w);
    for (uint32_t id = 0; id < N_PIECES; id++)
        w->tokens[id] = (relay_model_token){{pieces[id], (uint32_t)strlen(pieces[id])}, 0, RELAY_TOKEN_NORMAL};
    w->added[0] = (relay_added_token){.content = STR("</s>"), .id = EOS, .special = true};
    w->spec.model = (relay_model_spec){.kind = RELAY_MODEL_UNIGRAM, .tokens = w->tokens, .n_tokens = N_PIECES};
    w->spec.added = w->added;
    w->spec.n_added = 1;
    for (; decoders[w->spec.n_decoders] != NULL; w->spec.n_decoders++)
        w->decoders[w->spec.n_decoders] = *decoders[w->spec.n_decoders];
    w->spec.decoders = w->decoders;
    return w;
}

static world *make(const relay_decoder_spec *const *decoders) {
    world *w = prepare(decoders);
    relay_err e = {0};
    if (relay_vocab_create_from_spec(&w->vocab, &w->spec, &e) != RELAY_OK) fail_msg("%s", e.message);
    if (relay_text_decoder_create(&w->decoder, &w->spec, &e) != RELAY_OK) fail_msg("%s", e.message);
    w->opts = (relay_text_stream_opts){.vocab = w->vocab, .decoder = w->decoder, .skip_special_tokens = true};
    return w;
}

static void destroy(world *w) {
    relay_text_decoder_destroy(w->decoder);
    relay_vocab_destroy(w->vocab);
    free(w);
}

static relay_text_stream *open_stream(const world *w) {
    relay_text_stream *s = NULL;
    assert_int_equal(relay_text_stream_create(&s, &w->opts, NULL), RELAY_OK);
    return s;
}

// What comes out after each id, and "|" between; then what finish gives.
static void assert_steps(const world *w, const uint32_t *ids, uint32_t n, const char *expected) {
    relay_text_stream *s = open_stream(w);
    relay_buf text;
    relay_text_step step;
    relay_buf_init(&text, 1 << 16);
    for (uint32_t i = 0; i < n; i++) {
        relay_text_stream_push(s, &ids[i], 1, true, &text, &step);
        relay_buf_putc(&text, '|');
    }
    relay_text_stream_finish(s, &text);
    assert_string_equal(text.data, expected);
    relay_buf_fini(&text);
    relay_text_stream_destroy(s);
}
#define assert_text(w, expected, ...)                                                                                  \
    assert_steps(w, (const uint32_t[]){__VA_ARGS__}, LENGTH(((const uint32_t[]){__VA_ARGS__})), expected)

// ---- What is held, and how long

static void a_run_of_bytes_is_held_until_it_ends_or_is_bad(void **state) {
    world *w = make((const relay_decoder_spec *const[]){&replace, &fallback, &fuse, &strip_one, NULL});
    assert_text(w,
                "the|||||\xF0\x9F\x98\x80"
                "end|",
                THE, F0, X9F, X98, X80, END);
    assert_text(w, "||||\xF0\x9F\x98\x80", F0, X9F, X98, X80);
    assert_text(w, "|||||||||\xF0\x9F\x98\x80\xF0\x9F\x98\x80 the|", F0, X9F, X98, X80, EOS, F0, X9F, X98, X80, THE);
    destroy(w);
}

static void a_bad_run_is_one_replacement_for_each_byte(void **state) {
    world *w = make((const relay_decoder_spec *const[]){&fallback, NULL});
    assert_text(w, "||" FFFD FFFD FFFD "|" FFFD "|end|", F0, X9F, F0, X80, END);
    assert_text(w, "||" FFFD FFFD "end|", F0, X9F, END);
    assert_text(w, "||" FFFD FFFD, F0, X9F);
    destroy(w);
}

static void a_long_run_comes_out_in_parts(void **state) {
    world *w = make((const relay_decoder_spec *const[]){&fallback, NULL});
    relay_text_stream *s = open_stream(w);
    relay_buf text;
    relay_text_step step;
    relay_buf_init(&text, 1 << 16);
    for (uint32_t i = 0; i < 4 * 300; i++) {
        uint32_t id = F0 + i % 4;
        relay_text_stream_push(s, &id, 1, true, &text, &step);
        assert_true(step.held_bytes < 256);
        relay_buf saved;
        relay_buf_init(&saved, RELAY_MAX_DECODE_STATE_BYTES);
        relay_text_stream_save(s, &saved);
        assert_false(saved.is_failed);
        assert_int_equal(relay_text_stream_restore(s, (const uint8_t *)saved.data, saved.len, NULL), RELAY_OK);
        relay_buf_fini(&saved);
    }
    relay_text_stream_finish(s, &text);
    assert_int_equal(text.len, 1200);
    relay_buf_fini(&text);
    relay_text_stream_destroy(s);
    destroy(w);
}

static void the_first_token_is_the_first_that_is_shown(void **state) {
    world *w = make((const relay_decoder_spec *const[]){&metaspace, NULL});
    assert_text(w, "|the| the|  x|", EOS, THE, THE, WIDE);
    w->opts.skip_special_tokens = false;
    assert_text(w, "</s>| the|", EOS, THE);
    destroy(w);
    w = make((const relay_decoder_spec *const[]){&wordpiece, NULL});
    assert_text(w, "end|s|.| end|n't|", END, S, DOT, END, NOT);
    destroy(w);
    w = make((const relay_decoder_spec *const[]){NULL});
    assert_text(w, "end| ##s| .|", END, S, DOT);
    destroy(w);
}

static void a_suffix_is_a_space_once_another_token_follows(void **state) {
    world *w = make((const relay_decoder_spec *const[]){&bpe, NULL});
    assert_text(w, "on| end|", ON, END);
    assert_text(w, "on|", ON);
    assert_text(w, "a| b on|", TWICE, ON);
    assert_text(w, "a|b", TWICE);
    destroy(w);
}

static void clean_up_holds_what_may_lose_its_space(void **state) {
    world *w = prepare((const relay_decoder_spec *const[]){&metaspace, NULL});
    w->spec.clean_up_tokenization_spaces = true;
    relay_err e = {0};
    assert_int_equal(relay_vocab_create_from_spec(&w->vocab, &w->spec, &e), RELAY_OK);
    assert_int_equal(relay_text_decoder_create(&w->decoder, &w->spec, &e), RELAY_OK);
    w->opts = (relay_text_stream_opts){.vocab = w->vocab, .decoder = w->decoder};
    assert_text(w, "end||.| the||n't|| ", END, SPACE, DOT, THE, SPACE, NOT, SPACE);
    destroy(w);
}

static void blanks_at_an_end_are_held_as_many_as_may_go(void **state) {
    static const relay_decoder_spec ends = {
        .kind = RELAY_DECODE_STRIP, .content = STR(" "), .strip_begin = 3, .strip_end = 3};
    world *w = make((const relay_decoder_spec *const[]){&fuse, &ends, NULL});
    assert_text(w, "|| end|| |   end|", BLANKS, BLANKS, END, BLANKS, BLANKS, END);
    assert_text(w, "|| end|| |", BLANKS, BLANKS, END, BLANKS, BLANKS);
    destroy(w);
}

// ---- After a prompt

static void an_answer_goes_on_where_its_prompt_ended(void **state) {
    world *w = make((const relay_decoder_spec *const[]){&replace, &fallback, &fuse, &strip_one, NULL});
    const uint32_t prompt[] = {THE, END, F0, X9F};
    w->opts.prompt_tail = prompt;
    w->opts.n_prompt_tail = 2;
    assert_text(w, " the|", THE); // not the text's first token, so its space stays
    w->opts.n_prompt_tail = 4;
    assert_text(w, "||\xF0\x9F\x98\x80 the|", X98, X80, THE);
    assert_text(w, FFFD "|", F0); // the prompt's half character is the prompt's, and its U+FFFD too
    assert_text(w, " the|", THE);
    const uint32_t hidden[] = {EOS};
    w->opts.prompt_tail = hidden;
    w->opts.n_prompt_tail = 1;
    assert_text(w, "the|", THE); // all of the prompt is hidden
    const uint32_t many[RELAY_PROMPT_TAIL] = {EOS, EOS, EOS, EOS, EOS, EOS, EOS, EOS};
    w->opts.prompt_tail = many;
    w->opts.n_prompt_tail = RELAY_PROMPT_TAIL;
    assert_text(w, " the|", THE); // there may be more of it
    destroy(w);

    w = make((const relay_decoder_spec *const[]){&bpe, NULL});
    const uint32_t words[] = {ON};
    w->opts.prompt_tail = words;
    w->opts.n_prompt_tail = 1;
    assert_text(w, " end|", END); // the space shows only where something follows
    destroy(w);
}

// ---- What is refused

static void assert_refused(const relay_decoder_spec *const *decoders, relay_code code, const char *says) {
    world *w = prepare(decoders);
    relay_err e = {0};
    assert_int_equal(relay_text_decoder_create(&w->decoder, &w->spec, &e), code);
    if (strstr(e.message, says) == NULL) fail_msg("expected \"%s\", got \"%s\"", says, e.message);
    assert_null(w->decoder);
    destroy(w);
}

static void what_no_stream_can_do_is_refused_by_name(void **state) {
    static const relay_decoder_spec byte_level = {.kind = RELAY_DECODE_BYTE_LEVEL};
    static const relay_decoder_spec regex = {
        .kind = RELAY_DECODE_REPLACE, .pattern = {.text = STR("a+"), .is_regex = true}, .content = STR(" ")};
    static const relay_decoder_spec empty = {.kind = RELAY_DECODE_REPLACE, .pattern = {.text = STR("")}};
    static const relay_decoder_spec no_suffix = {.kind = RELAY_DECODE_BPE, .content = STR("")};
    static const relay_decoder_spec no_character = {.kind = RELAY_DECODE_STRIP, .strip_end = 1};
    static const relay_decoder_spec strange = {.kind = (relay_decoder_kind)99};
    assert_refused((const relay_decoder_spec *const[]){&fuse, &byte_level, NULL}, RELAY_UNIMPLEMENTED,
                   "ByteLevel behind");
    assert_refused((const relay_decoder_spec *const[]){&fuse, &fallback, NULL}, RELAY_UNIMPLEMENTED,
                   "ByteFallback behind");
    assert_refused((const relay_decoder_spec *const[]){&fallback, &fallback, NULL}, RELAY_UNIMPLEMENTED,
                   "second ByteFallback");
    assert_refused((const relay_decoder_spec *const[]){&fallback, &bpe, NULL}, RELAY_UNIMPLEMENTED,
                   "behind ByteFallback");
    assert_refused((const relay_decoder_spec *const[]){&bpe, &bpe, &bpe, &bpe, NULL}, RELAY_UNIMPLEMENTED,
                   "bytes of state");
    assert_refused((const relay_decoder_spec *const[]){&regex, NULL}, RELAY_UNIMPLEMENTED, "regular expression \"a+\"");
    assert_refused((const relay_decoder_spec *const[]){&empty, NULL}, RELAY_UNIMPLEMENTED, "empty pattern");
    assert_refused((const relay_decoder_spec *const[]){&no_suffix, NULL}, RELAY_UNIMPLEMENTED, "empty suffix");
    assert_refused((const relay_decoder_spec *const[]){&no_character, NULL}, RELAY_INVALID_ARGUMENT, "Strip");
    assert_refused((const relay_decoder_spec *const[]){&strange, NULL}, RELAY_UNIMPLEMENTED, "kind 99");

    world *w = prepare((const relay_decoder_spec *const[]){&bpe, NULL});
    char longest[160] = "a</w>";
    memset(longest + 5, 'b', 140);
    w->tokens[END].piece = (relay_spec_str){longest, 145};
    relay_err e = {0};
    assert_int_equal(relay_text_decoder_create(&w->decoder, &w->spec, &e), RELAY_UNIMPLEMENTED);
    assert_non_null(strstr(e.message, "token 2 has 144 bytes from its suffix on"));
    w->added[0].id = UINT32_MAX;
    assert_int_equal(relay_text_decoder_create(&w->decoder, &w->spec, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "id 4294967295"));
    destroy(w);
}

static void a_state_of_another_decoder_is_refused(void **state) {
    world *a = make((const relay_decoder_spec *const[]){&metaspace, NULL});
    world *b = make((const relay_decoder_spec *const[]){&replace, NULL});
    relay_text_stream *s = open_stream(a);
    relay_buf saved;
    relay_buf_init(&saved, RELAY_MAX_DECODE_STATE_BYTES);
    relay_text_stream_save(s, &saved);
    relay_text_stream_destroy(s);
    s = open_stream(b);
    relay_err e = {0};
    assert_int_equal(relay_text_stream_restore(s, (const uint8_t *)saved.data, saved.len, &e), RELAY_INVALID_ARGUMENT);
    relay_buf_fini(&saved);
    relay_text_stream_destroy(s);
    destroy(a);
    destroy(b);
}

// ---- Any cut

static void any_cut_through_any_objects_gives_one_text(void **state) {
    static const relay_decoder_spec ctc = {
        .kind = RELAY_DECODE_CTC, .content = STR("end"), .pattern = {.text = STR(SP)}, .cleanup = true};
    const relay_decoder_spec *const rows[][5] = {{&replace, &fallback, &fuse, &strip_one, NULL},
                                                 {&metaspace, NULL},
                                                 {&wordpiece, NULL},
                                                 {&bpe, NULL},
                                                 {&ctc, NULL},
                                                 {&fallback, &metaspace, &ctc, NULL},
                                                 {&bpe, &strip_one, NULL},
                                                 {NULL}};
    test_random r = {5};
    for (size_t row = 0; row < LENGTH(rows); row++) {
        world *w = make(rows[row]);
        for (int round = 0; round < 200; round++) {
            uint32_t ids[40], n = test_random_below(&r, 40);
            for (uint32_t i = 0; i < n; i++)
                ids[i] = test_random_below(&r, N_PIECES);
            relay_buf whole, cut, saved;
            relay_text_step step;
            relay_buf_init(&whole, 1 << 16);
            relay_buf_init(&cut, 1 << 16);
            relay_buf_init(&saved, RELAY_MAX_DECODE_STATE_BYTES);
            relay_text_stream *s = open_stream(w);
            relay_text_stream_push(s, ids, n, true, &whole, &step);
            relay_text_stream_finish(s, &whole);
            relay_text_stream_destroy(s);
            s = open_stream(w);
            for (uint32_t i = 0; i < n; i++) {
                relay_text_stream_push(s, &ids[i], 1, true, &cut, &step);
                relay_buf_clear(&saved);
                relay_text_stream_save(s, &saved);
                relay_text_stream_destroy(s);
                s = open_stream(w);
                assert_int_equal(relay_text_stream_restore(s, (const uint8_t *)saved.data, saved.len, NULL), RELAY_OK);
            }
            relay_text_stream_finish(s, &cut);
            relay_text_stream_destroy(s);
            assert_int_equal(whole.len, cut.len);
            if (whole.len > 0) assert_memory_equal(whole.data, cut.data, cut.len);
            relay_buf_fini(&whole);
            relay_buf_fini(&cut);
            relay_buf_fini(&saved);
        }
        destroy(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_of_bytes_is_held_until_it_ends_or_is_bad),
        cmocka_unit_test(a_bad_run_is_one_replacement_for_each_byte),
        cmocka_unit_test(a_long_run_comes_out_in_parts),
        cmocka_unit_test(the_first_token_is_the_first_that_is_shown),
        cmocka_unit_test(a_suffix_is_a_space_once_another_token_follows),
        cmocka_unit_test(clean_up_holds_what_may_lose_its_space),
        cmocka_unit_test(blanks_at_an_end_are_held_as_many_as_may_go),
        cmocka_unit_test(an_answer_goes_on_where_its_prompt_ended),
        cmocka_unit_test(what_no_stream_can_do_is_refused_by_name),
        cmocka_unit_test(a_state_of_another_decoder_is_refused),
        cmocka_unit_test(any_cut_through_any_objects_gives_one_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
