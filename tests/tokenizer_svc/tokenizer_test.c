#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/text_stream.h"
#include "tokenizer_svc/tokenizer.h"

static const char *const merges[] = {
    "h e", "l l", "he ll", "hell o", "\xC4\xA0 w", "o r", "\xC4\xA0w or", "l d", "\xC4\xA0wor ld", "\xC3\x83 \xC2\xA9",
    "1 2", NULL}; // U+0120 is a space
static const char *const controls[] = {"<s>", "</s>", "<|im_end|>", NULL};
static const char *const users[] = {"<tool>", "  ", NULL};
static const small_vocab_spec spec = {
    .pre = "smollm", .merges = merges, .control = controls, .user = users, .n_padding = 1};

typedef struct world {
    small_vocab v;
    relay_tokenizer *t;
} world;

static world open_world(gguf_writer *writer) {
    world w = {.v = small_vocab_open(writer)};
    relay_err e = {0};
    if (small_vocab_tokenizer(&w.t, w.v.gguf, &e) != RELAY_OK) fail_msg("%s", e.message);
    return w;
}

static void close_world(world *w) {
    relay_tokenizer_destroy(w->t);
    small_vocab_fini(&w->v);
}

static world shared;

static int make_shared(void **state) {
    shared = open_world(small_vocab_write(&spec));
    return 0;
}

static int end_shared(void **state) {
    close_world(&shared);
    return 0;
}

#define SPAN(s, special)                                                                                               \
    { .text = s, .len = sizeof s - 1, .parse_special = special }

static size_t char_begin(const relay_buf *text, size_t at) {
    while (at > 0 && at < text->len && (text->data[at] & 0xC0) == 0x80)
        at--;
    return at;
}

static size_t char_end(const relay_buf *text, size_t at) {
    while (at < text->len && (text->data[at] & 0xC0) == 0x80)
        at++;
    return at;
}

// Tokens joined by '|'. The offsets are checked: each token's bytes are those of the text, none is left out, and its
// offsets are those of the characters that it has a part of. Tokens around a text have 0, 0.
static void assert_encodes(const world *w, const relay_text_span *spans, size_t n_spans, bool add_special,
                           const char *expected) {
    relay_encode_opts opts = {.add_special_tokens = add_special, .want_offsets = true};
    relay_encoding enc = {0};
    relay_err e = {0};
    if (relay_tokenizer_encode(w->t, spans, n_spans, &opts, &enc, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_buf text, got;
    relay_buf_init(&text, 1 << 16);
    relay_buf_init(&got, 1 << 16);
    for (size_t i = 0; i < n_spans; i++)
        relay_buf_append(&text, spans[i].text, spans[i].len);
    size_t at = 0;
    for (uint32_t i = 0; i < enc.n; i++) {
        const relay_token *t = relay_vocab_token(w->v.vocab, enc.ids[i]);
        relay_buf_printf(&got, i == 0 ? "%.*s" : "|%.*s", (int)t->len, t->bytes);
        if (enc.offset_end[i] == 0) continue; // an added BOS or EOS
        assert_true(at + t->len <= text.len);
        assert_memory_equal(text.data + at, t->bytes, t->len);
        assert_int_equal(enc.offset_begin[i], char_begin(&text, at));
        at += t->len;
        assert_int_equal(enc.offset_end[i], char_end(&text, at));
    }
    assert_int_equal(at, text.len);
    assert_string_equal(got.data == NULL ? "" : got.data, expected);
    relay_buf_fini(&text);
    relay_buf_fini(&got);
    relay_encoding_fini(&enc);
}

static void encodes_words_numbers_and_marks(void **state) {
    const relay_text_span text = SPAN("hello world 12 \xC3\xA9!", false);
    assert_encodes(&shared, &text, 1, true, "hello| world| |1|2| |\xC3\xA9|!");
    const relay_text_span nul = SPAN("he\0he", false);
    relay_encoding enc = {0};
    assert_int_equal(relay_tokenizer_encode(shared.t, &nul, 1, &(relay_encode_opts){0}, &enc, NULL), RELAY_OK);
    assert_int_equal(enc.n, 3);
    assert_int_equal(enc.ids[1], 0);
    assert_null(enc.offset_begin);
    relay_encoding_fini(&enc);
}

static void encodes_nothing_as_nothing(void **state) {
    const relay_text_span empty[] = {SPAN("", true), SPAN("", false)};
    assert_encodes(&shared, NULL, 0, true, "");
    assert_encodes(&shared, empty, 1, true, "");
    assert_encodes(&shared, empty, 2, true, "");
}

static void joins_spans_before_it_splits_words(void **state) {
    const relay_text_span spans[] = {SPAN("hel", true), SPAN("", true), SPAN("lo wo", false), SPAN("rld", true)};
    assert_encodes(&shared, spans, 4, false, "hello| world");
}

static void makes_control_tokens_only_of_spans_that_say_so(void **state) {
    const relay_text_span spans[] = {SPAN("<s>he", true), SPAN("<s>", false), SPAN("he</s>", true)};
    assert_encodes(&shared, spans, 3, false, "<s>|he|<|s|>|he|</s>");
    // What a user types cannot finish what a template began, nor begin what it finishes.
    const relay_text_span forged[] = {SPAN("<|im_", true), SPAN("end|>", false), SPAN("<|im_", false),
                                      SPAN("end|>", true)};
    assert_encodes(&shared, forged, 4, false, "<|||i|m|_|e|n|d|||>|<|||i|m|_|e|n|d|||>");
    const relay_text_span halves[] = {SPAN("x<|im_", true), SPAN("", false), SPAN("end|>", true)};
    assert_encodes(&shared, halves, 3, false, "x|<|im_end|>");
}

static void makes_added_tokens_everywhere(void **state) {
    const relay_text_span spans[] = {SPAN("he<to", false), SPAN("ol>  1", true)};
    assert_encodes(&shared, spans, 2, false, "he|<tool>|  |1");
}

static void splits_words_afresh_behind_a_special_token(void **state) {
    const relay_text_span span = SPAN("hel<s>lo <s> world", true);
    assert_encodes(&shared, &span, 1, false, "he|l|<s>|l|o| |<s>| world");
}

static void adds_what_the_file_says(void **state) {
    gguf_writer *w = small_vocab_write(&spec);
    uint32_t bos = small_vocab_id(&shared.v, "<s>"), eos = small_vocab_id(&shared.v, "</s>");
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", bos);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", eos);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", true);
    world both = open_world(w);
    assert_true(relay_tokenizer_adds_bos(both.t));
    const relay_text_span text = SPAN("hello", false);
    assert_encodes(&both, &text, 1, true, "<s>|hello|</s>");
    assert_encodes(&both, &text, 1, false, "hello");
    assert_encodes(&both, NULL, 0, true, "<s>|</s>");
    close_world(&both);
    assert_false(relay_tokenizer_adds_bos(shared.t));

    small_vocab_spec llama = spec;
    llama.pre = "llama-bpe"; // adds BOS where the file does not say
    w = small_vocab_write(&llama);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", bos);
    world by_name = open_world(w);
    assert_encodes(&by_name, &text, 1, true, "<s>|hello");
    assert_string_equal(relay_tokenizer_family(by_name.t), "byte-level BPE (GGUF)");
    close_world(&by_name);
    w = small_vocab_write(&llama);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", bos);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false);
    world not_so = open_world(w);
    assert_encodes(&not_so, &text, 1, true, "hello");
    close_world(&not_so);
}

static void appends(void **state) {
    relay_encoding enc = {0};
    relay_encode_opts opts = {0};
    relay_err e = {0};
    const relay_text_span text = SPAN("hello world", false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(relay_tokenizer_encode(shared.t, &text, 1, &opts, &enc, &e), RELAY_OK);
    assert_int_equal(enc.n, 6);
    assert_int_equal(enc.ids[4], enc.ids[0]);
    relay_encoding_fini(&enc);
}

static void refuses_what_is_no_utf8_and_says_where(void **state) {
    const relay_text_span spans[] = {SPAN("abc", false), SPAN("d\xC3", false), SPAN("\xA9", false)};
    relay_encoding enc = {0};
    relay_err e = {0};
    assert_int_equal(relay_tokenizer_encode(shared.t, spans, 3, &(relay_encode_opts){0}, &enc, &e),
                     RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "text: not valid UTF-8 at byte 4");
    relay_encoding_fini(&enc);
}

// ---- Files that Relay does not take

static void assert_not_loaded(gguf_writer *writer, relay_code code, const char *message) {
    small_vocab v = small_vocab_open(writer);
    relay_tokenizer *t;
    relay_err e = {0};
    assert_int_equal(small_vocab_tokenizer(&t, v.gguf, &e), code);
    assert_null(t);
    if (strstr(e.message, message) == NULL) fail_msg("%s", e.message);
    small_vocab_fini(&v);
}

static void refuses_by_name_what_it_does_not_know(void **state) {
    small_vocab_spec other = spec;
    other.pre = "superbpe";
    assert_not_loaded(small_vocab_write(&other), RELAY_UNIMPLEMENTED,
                      "key \"tokenizer.ggml.pre\" is \"superbpe\", a pre-tokenizer Relay does not know");
    other.pre = NULL;
    assert_not_loaded(small_vocab_write(&other), RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.pre\" is missing");
    gguf_writer *w = small_vocab_write(&spec);
    gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", true);
    assert_not_loaded(w, RELAY_UNIMPLEMENTED, "key \"tokenizer.ggml.add_space_prefix\" is true");
    w = small_vocab_write(&spec);
    gguf_writer_string(w, "tokenizer.ggml.add_bos_token", "yes");
    assert_not_loaded(w, RELAY_INVALID_ARGUMENT, "tokenizer.ggml.add_bos_token");
    w = small_vocab_write(&spec);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", true);
    assert_not_loaded(w, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.bos_token_id\" is missing");
    w = small_vocab_write(&spec);
    gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", true);
    assert_not_loaded(w, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.eos_token_id\" is missing");
    relay_tokenizer_destroy(NULL);
}

// ---- Any text

static size_t random_text(test_random *r, char *text, size_t cap) {
    size_t len = 0;
    while (len + 16 <= cap) {
        static const char *const parts[] = {"hello", " world", "<s>",        "<tool>", "  ",
                                            "\n",    "12",     "<|im_end|>", "'s",     "\t"};
        switch (test_random_below(r, 4)) {
        case 0: {
            const char *part = parts[test_random_below(r, sizeof parts / sizeof *parts)];
            memcpy(text + len, part, strlen(part));
            len += strlen(part);
            break;
        }
        case 1:
            len += relay_utf8_encode(test_random_below(r, 0x110000), text + len);
            break;
        case 2:
            len += relay_utf8_encode(test_random_below(r, 0x600), text + len);
            break;
        default:
            text[len++] = (char)test_random_below(r, 0x80);
        }
    }
    return len;
}

static void assert_text_of(const relay_vocab *vocab, const relay_encoding *enc, const char *text, size_t len) {
    relay_text_stream_opts opts = {.vocab = vocab};
    relay_text_stream *s;
    assert_int_equal(relay_text_stream_create(&s, &opts, NULL), RELAY_OK);
    relay_buf out;
    relay_buf_init(&out, 1 << 20);
    relay_text_step step;
    relay_text_stream_push(s, enc->ids, enc->n, true, &out, &step);
    relay_text_stream_finish(s, &out);
    assert_int_equal(out.len, len);
    if (len > 0) assert_memory_equal(out.data, text, len);
    relay_buf_fini(&out);
    relay_text_stream_destroy(s);
}

static void gives_back_any_text_whatever_the_spans(void **state) {
    test_random r = {17};
    for (uint32_t round = 0; round < 6000; round++) {
        char text[600];
        size_t len = random_text(&r, text, 16 + test_random_below(&r, round % 100 == 0 ? sizeof text - 16 : 64));
        relay_encode_opts opts = {.want_offsets = round % 2 == 0};
        relay_text_span whole = {.text = text, .len = len, .parse_special = round % 3 == 0};
        relay_encoding one = {0}, many = {0};
        relay_err e = {0};
        assert_int_equal(relay_tokenizer_encode(shared.t, &whole, 1, &opts, &one, &e), RELAY_OK);
        assert_text_of(shared.v.vocab, &one, text, len);
        uint32_t at = 0;
        for (uint32_t i = 0; opts.want_offsets && i < one.n; i++) {
            assert_true(one.offset_begin[i] <= at && one.offset_end[i] >= at); // tokens may share a character
            at = one.offset_end[i];
        }

        relay_text_span spans[20];
        size_t n_spans = 0, from = 0;
        while (from < len && n_spans < 19) {
            size_t n = test_random_below(&r, 12); // to the end of a character
            while (from + n < len && (text[from + n] & 0xC0) == 0x80)
                n++;
            if (n > len - from) n = len - from;
            spans[n_spans++] = (relay_text_span){.text = text + from, .len = n, .parse_special = whole.parse_special};
            from += n;
        }
        spans[n_spans++] =
            (relay_text_span){.text = text + from, .len = len - from, .parse_special = whole.parse_special};
        assert_int_equal(relay_tokenizer_encode(shared.t, spans, n_spans, &opts, &many, &e), RELAY_OK);
        assert_int_equal(many.n, one.n);
        if (one.n > 0) assert_memory_equal(many.ids, one.ids, one.n * sizeof *one.ids);
        relay_encoding_fini(&one);
        relay_encoding_fini(&many);
    }
}

typedef struct thread_work {
    pthread_t thread;
    uint64_t sum;
} thread_work;

static void *encode_much(void *arg) {
    thread_work *work = arg;
    test_random r = {19};
    for (int i = 0; i < 500; i++) {
        char text[600];
        relay_text_span span = {.text = text, .len = random_text(&r, text, sizeof text), .parse_special = i % 2};
        relay_encoding enc = {0};
        if (relay_tokenizer_encode(shared.t, &span, 1, &(relay_encode_opts){0}, &enc, NULL) != RELAY_OK) return NULL;
        for (uint32_t k = 0; k < enc.n; k++)
            work->sum = work->sum * 31 + enc.ids[k];
        relay_encoding_fini(&enc);
    }
    return work;
}

static void serves_many_threads_at_once(void **state) {
    enum { N = 4 };
    thread_work work[N] = {0};
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&work[i].thread, NULL, encode_much, &work[i]), 0);
    for (int i = 0; i < N; i++) {
        void *result;
        pthread_join(work[i].thread, &result);
        assert_ptr_equal(result, &work[i]);
        assert_true(work[i].sum == work[0].sum);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodes_words_numbers_and_marks),
        cmocka_unit_test(encodes_nothing_as_nothing),
        cmocka_unit_test(joins_spans_before_it_splits_words),
        cmocka_unit_test(makes_control_tokens_only_of_spans_that_say_so),
        cmocka_unit_test(makes_added_tokens_everywhere),
        cmocka_unit_test(splits_words_afresh_behind_a_special_token),
        cmocka_unit_test(adds_what_the_file_says),
        cmocka_unit_test(appends),
        cmocka_unit_test(refuses_what_is_no_utf8_and_says_where),
        cmocka_unit_test(refuses_by_name_what_it_does_not_know),
        cmocka_unit_test(gives_back_any_text_whatever_the_spans),
        cmocka_unit_test(serves_many_threads_at_once),
    };
    return cmocka_run_group_tests(tests, make_shared, end_shared);
}
