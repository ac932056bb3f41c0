// TokenizerService: text to ids, ids to text, conversations to prompts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/message.h"
#include "common/utf8.h"
#include "tests/tokenizer_svc/text_world.h"
#include "tokenizer_svc/text_stream.h"

static text_world *w;

static ProtobufCMessage *call(const char *method, const ProtobufCMessage *m, const ProtobufCMessageDescriptor *response,
                              relay_err *e) {
    return text_world_call(w, RELAY_TOKENIZER_SERVICE_NAME, method, m, response, e);
}

static void expect_error(ProtobufCMessage *response, const relay_err *e, relay_code code, const char *text) {
    if (response != NULL) fail_msg("an answer, not %s", text);
    if (e->code != code) fail_msg("%s: %s", relay_code_name(e->code), e->message);
    if (strstr(e->message, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", e->message, text);
}

// ---- Tokenize

typedef struct tokenize_request {
    Relay__V1__TokenizeRequest message;
    Relay__V1__TokenizeOptions options;
} tokenize_request;

static void tokenize_request_init(tokenize_request *r, const char *text) {
    relay__v1__tokenize_request__init(&r->message);
    relay__v1__tokenize_options__init(&r->options);
    RELAY_SET(&r->message, text, relay_message_text(text));
    r->message.options = &r->options;
}

static Relay__V1__TokenizeResponse *tokenize(const tokenize_request *r) {
    relay_err e;
    ProtobufCMessage *m = call("Tokenize", &r->message.base, &relay__v1__tokenize_response__descriptor, &e);
    if (m == NULL) fail_msg("%s", e.message);
    return (Relay__V1__TokenizeResponse *)m;
}

static void expect_tokens(const tokenize_request *r, const char *const *pieces) {
    Relay__V1__TokenizeResponse *response = tokenize(r);
    const Relay__V1__Encoding *enc = response->encoding;
    uint32_t n = 0;
    for (; pieces[n] != NULL; n++) {
        assert_true(n < enc->n_token_ids);
        assert_int_equal(enc->token_ids[n], text_world_id(w, pieces[n]));
    }
    assert_int_equal(enc->n_token_ids, n);
    assert_int_equal(enc->token_count, n);
    assert_int_equal(enc->tokenizer_fingerprint.len, RELAY_FINGERPRINT_BYTES);
    protobuf_c_message_free_unpacked(&response->base, NULL);
}

#define EXPECT_TOKENS(r, ...) expect_tokens(r, (const char *const[]){__VA_ARGS__, NULL})

static void text_becomes_ids(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    tokenize_request r;
    tokenize_request_init(&r, "hello");
    EXPECT_TOKENS(&r, TEXT_BOS, "hello");
    RELAY_SET(&r.options, add_special_tokens, 0);
    EXPECT_TOKENS(&r, "hello");
    tokenize_request_init(&r, "hello" TEXT_EOS "x");
    EXPECT_TOKENS(&r, TEXT_BOS, "hello", "<", "|", "e", "n", "d", "|", ">", "x");
    RELAY_SET(&r.options, parse_special_tokens, 1);
    EXPECT_TOKENS(&r, TEXT_BOS, "hello", TEXT_EOS, "x");
    tokenize_request_init(&r, "");
    EXPECT_TOKENS(&r, TEXT_BOS);
    // NUL is a character like any other.
    RELAY_SET(&r.message, text, relay_message_bytes("a\0b", 3));
    Relay__V1__TokenizeResponse *response = tokenize(&r);
    assert_int_equal(response->encoding->n_token_ids, 4);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    text_world_destroy(w);
}

static void text_is_cut_from_either_side_and_bos_stays(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    tokenize_request r;
    tokenize_request_init(&r, "a1b2");
    RELAY_SET(&r.options, truncate_to, 3);
    EXPECT_TOKENS(&r, TEXT_BOS, "a", "1");
    RELAY_SET(&r.options, truncate_side, RELAY__V1__TRUNCATE_SIDE__TRUNCATE_SIDE_RIGHT);
    EXPECT_TOKENS(&r, TEXT_BOS, "a", "1");
    RELAY_SET(&r.options, truncate_side, RELAY__V1__TRUNCATE_SIDE__TRUNCATE_SIDE_LEFT);
    EXPECT_TOKENS(&r, TEXT_BOS, "b", "2");
    RELAY_SET(&r.options, truncate_to, 1);
    EXPECT_TOKENS(&r, TEXT_BOS);
    RELAY_SET(&r.options, add_special_tokens, 0);
    EXPECT_TOKENS(&r, "2");
    RELAY_SET(&r.options, truncate_to, 100);
    EXPECT_TOKENS(&r, "a", "1", "b", "2");
    text_world_destroy(w);
}

static void offsets_and_pieces_are_told_where_they_are_asked_for(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    tokenize_request r;
    tokenize_request_init(&r, "hello\xc3\xa9x");
    Relay__V1__TokenizeResponse *response = tokenize(&r);
    assert_int_equal(response->encoding->n_offset_begin + response->encoding->n_pieces, 0);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    RELAY_SET(&r.options, want_offsets, 1);
    RELAY_SET(&r.options, want_pieces, 1);
    response = tokenize(&r);
    const Relay__V1__Encoding *enc = response->encoding;
    assert_int_equal(enc->n_token_ids, 5); // BOS hello, two bytes, x
    assert_int_equal(enc->n_offset_begin, 5);
    assert_int_equal(enc->n_offset_end, 5);
    assert_int_equal(enc->n_pieces, 5);
    assert_memory_equal(enc->offset_begin, ((uint32_t[]){0, 0, 5, 5, 7}), 5 * sizeof(uint32_t));
    assert_memory_equal(enc->offset_end, ((uint32_t[]){0, 5, 7, 7, 8}), 5 * sizeof(uint32_t));
    assert_int_equal(enc->pieces[2].len, 1); // a byte that is no text
    assert_int_equal(enc->pieces[2].data[0], 0xc3);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    RELAY_SET(&r.options, truncate_to, 3);
    RELAY_SET(&r.options, truncate_side, RELAY__V1__TRUNCATE_SIDE__TRUNCATE_SIDE_LEFT);
    response = tokenize(&r);
    assert_memory_equal(response->encoding->offset_begin, ((uint32_t[]){0, 5, 7}), 3 * sizeof(uint32_t));
    protobuf_c_message_free_unpacked(&response->base, NULL);
    tokenize_request_init(&r, "hello");
    RELAY_SET(&r.options, count_only, 1);
    response = tokenize(&r);
    assert_int_equal(response->encoding->token_count, 2);
    assert_int_equal(response->encoding->n_token_ids, 0);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    text_world_destroy(w);
}

static void wrong_tokenize_requests_are_refused_by_name(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true, .max_text_bytes = 100});
    const ProtobufCMessageDescriptor *d = &relay__v1__tokenize_response__descriptor;
    relay_err e;
    tokenize_request r;
    tokenize_request_init(&r, "ok\xed\xa0\x80");
    expect_error(call("Tokenize", &r.message.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "text");
    static char long_text[101];
    memset(long_text, 'a', sizeof long_text);
    tokenize_request_init(&r, "");
    RELAY_SET(&r.message, text, relay_message_bytes(long_text, sizeof long_text));
    expect_error(call("Tokenize", &r.message.base, d, &e), &e, RELAY_INVALID_ARGUMENT,
                 "text has 101 bytes; at most 100");
    tokenize_request_init(&r, "x");
    RELAY_SET(&r.message, model, relay_message_text("other"));
    expect_error(call("Tokenize", &r.message.base, d, &e), &e, RELAY_NOT_FOUND, "model \"other\"");
    tokenize_request_init(&r, "x");
    RELAY_SET(&r.options, truncate_to, 0);
    expect_error(call("Tokenize", &r.message.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "options.truncate_to is 0");
    tokenize_request_init(&r, "x");
    RELAY_SET(&r.options, truncate_side, RELAY__V1__TRUNCATE_SIDE__TRUNCATE_SIDE_LEFT);
    expect_error(call("Tokenize", &r.message.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "without options.truncate_to");
    tokenize_request_init(&r, "x");
    RELAY_SET(&r.options, truncate_to, 5);
    RELAY_SET(&r.options, truncate_side, (Relay__V1__TruncateSide)7);
    expect_error(call("Tokenize", &r.message.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "options.truncate_side is 7");
    tokenize_request_init(&r, "x");
    RELAY_SET(&r.options, count_only, 1);
    RELAY_SET(&r.options, want_pieces, 1);
    expect_error(call("Tokenize", &r.message.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "options.count_only");
    text_world_destroy(w);
}

static void a_batch_is_its_texts_one_by_one(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true, .max_text_bytes = 100});
    ProtobufCBinaryData texts[3] = {relay_message_text("hello"), relay_message_text(""), relay_message_text("xy")};
    Relay__V1__TokenizeOptions options = RELAY__V1__TOKENIZE_OPTIONS__INIT;
    RELAY_SET(&options, want_pieces, 1);
    Relay__V1__TokenizeBatchRequest m = RELAY__V1__TOKENIZE_BATCH_REQUEST__INIT;
    m.n_texts = 3;
    m.texts = texts;
    m.options = &options;
    relay_err e;
    const ProtobufCMessageDescriptor *d = &relay__v1__tokenize_batch_response__descriptor;
    ProtobufCMessage *response = call("TokenizeBatch", &m.base, d, &e);
    assert_non_null(response);
    const Relay__V1__TokenizeBatchResponse *r = (Relay__V1__TokenizeBatchResponse *)response;
    assert_int_equal(r->n_encodings, 3);
    assert_int_equal(r->encodings[0]->n_token_ids, 2);
    assert_int_equal(r->encodings[1]->n_token_ids, 1);
    assert_int_equal(r->encodings[2]->n_token_ids, 3);
    assert_int_equal(r->encodings[2]->n_pieces, 3);
    protobuf_c_message_free_unpacked(response, NULL);
    m.n_texts = 0;
    response = call("TokenizeBatch", &m.base, d, &e);
    assert_non_null(response);
    protobuf_c_message_free_unpacked(response, NULL);
    static char long_text[60];
    memset(long_text, 'a', sizeof long_text);
    texts[0] = texts[1] = relay_message_bytes(long_text, sizeof long_text);
    m.n_texts = 2;
    expect_error(call("TokenizeBatch", &m.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "texts has 120 bytes; at most 100");
    texts[1] = relay_message_bytes("\xff", 1);
    expect_error(call("TokenizeBatch", &m.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "texts[1]");
    text_world_destroy(w);
}

// ---- Detokenize

static void bytes_that_are_no_text_become_replacement_characters(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    uint32_t ids[] = {text_world_id(w, TEXT_BOS), text_world_id(w, "hello"), 0xe6, 0x97, 0xff, text_world_id(w, "x")};
    size_t len;
    char *text = text_world_detokenize(w, ids, 6, true, &len);
    static const char expected[] = "hello\xef\xbf\xbd\xef\xbf\xbdx";
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(text, expected, len);
    free(text);
    text = text_world_detokenize(w, ids, 2, false, &len);
    assert_int_equal(len, strlen(TEXT_BOS) + 5);
    free(text);
    text = text_world_detokenize(w, ids, 0, true, &len);
    assert_int_equal(len, 0);
    free(text);
    text_world_destroy(w);
}

static void ids_of_another_vocabulary_are_refused(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    Relay__V1__DetokenizeRequest m = RELAY__V1__DETOKENIZE_REQUEST__INIT;
    uint32_t ids[] = {5, FAKE_VOCAB};
    m.n_token_ids = 2;
    m.token_ids = ids;
    relay_err e;
    const ProtobufCMessageDescriptor *d = &relay__v1__detokenize_response__descriptor;
    expect_error(call("Detokenize", &m.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "token_ids[1] is 1000");
    uint8_t other[RELAY_FINGERPRINT_BYTES] = {0xfe};
    RELAY_SET(&m, tokenizer_fingerprint, relay_message_bytes(other, sizeof other));
    expect_error(call("Detokenize", &m.base, d, &e), &e, RELAY_FAILED_PRECONDITION, "tokenizer_fingerprint is fe00");
    text_world_destroy(w);
}

// ---- DetokenizeStep

// Runs ids through DetokenizeStep in steps of `cut`, as a client without memory of its own would. Returns the text; the
// number of ids consumed is left in *consumed.
static char *step_through(const uint32_t *ids, uint32_t n, uint32_t cut, Relay__V1__DetokenizeOptions *options,
                          const uint32_t *tail, uint32_t n_tail, uint32_t *consumed, size_t *text_len) {
    char *text = relay_calloc(1 << 16, 1), state[RELAY_MAX_DECODE_STATE_BYTES];
    size_t state_len = 0;
    *consumed = 0;
    *text_len = 0;
    for (uint32_t at = 0; at < n || at == 0; at += cut) {
        Relay__V1__DetokenizeStepRequest m = RELAY__V1__DETOKENIZE_STEP_REQUEST__INIT;
        m.options = options;
        m.n_token_ids = n - at < cut ? n - at : cut;
        m.token_ids = (uint32_t *)(uintptr_t)(ids + at);
        if (at == 0) {
            m.n_prompt_tail = n_tail;
            m.prompt_tail = (uint32_t *)(uintptr_t)tail;
        } else {
            RELAY_SET(&m, decode_state, relay_message_bytes(state, state_len));
        }
        RELAY_SET(&m, end_of_sequence, at + cut >= n);
        relay_err e;
        ProtobufCMessage *response =
            call("DetokenizeStep", &m.base, &relay__v1__detokenize_step_response__descriptor, &e);
        if (response == NULL) fail_msg("%s", e.message);
        const Relay__V1__DetokenizeStepResponse *r = (Relay__V1__DetokenizeStepResponse *)response;
        assert_true(relay_utf8_is_valid((const char *)r->text.data, r->text.len));
        if (r->text.len != 0) memcpy(text + *text_len, r->text.data, r->text.len);
        *text_len += r->text.len;
        *consumed += r->tokens_consumed;
        state_len = r->decode_state.len;
        assert_true(state_len <= sizeof state);
        if (state_len != 0) memcpy(state, r->decode_state.data, state_len);
        bool is_stopped = r->stopped;
        if (is_stopped || m.end_of_sequence) assert_int_equal(r->held_bytes, 0);
        protobuf_c_message_free_unpacked(response, NULL);
        if (is_stopped) break;
    }
    return text;
}

static void text_in_steps_is_the_text_in_one(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    Relay__V1__DetokenizeOptions options = RELAY__V1__DETOKENIZE_OPTIONS__INIT;
    for (uint64_t seed = 0; seed < 4; seed++) {
        uint32_t ids[81] = {1};
        fake_continue(ids, 1, 80, seed);
        size_t whole_len, len;
        char *whole = text_world_detokenize(w, ids, 81, true, &whole_len);
        static const uint32_t cuts[] = {1, 3, 7, 200};
        for (uint32_t c = 0; c < 4; c++) {
            uint32_t consumed;
            char *text = step_through(ids, 81, cuts[c], &options, NULL, 0, &consumed, &len);
            assert_int_equal(consumed, 81);
            assert_int_equal(len, whole_len);
            assert_memory_equal(text, whole, len);
            free(text);
        }
        free(whole);
    }
    text_world_destroy(w);
}

static void a_stop_string_is_found_across_steps(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    const char *pieces[] = {"hello", "x", "y", "z", "hello", "hello"};
    uint32_t ids[6];
    for (int i = 0; i < 6; i++)
        ids[i] = text_world_id(w, pieces[i]);
    ProtobufCBinaryData stops[] = {relay_message_text("yzhell")};
    Relay__V1__DetokenizeOptions options = RELAY__V1__DETOKENIZE_OPTIONS__INIT;
    options.n_stop_strings = 1;
    options.stop_strings = stops;
    for (uint32_t cut = 1; cut < 7; cut++) {
        uint32_t consumed;
        size_t len;
        char *text = step_through(ids, 6, cut, &options, NULL, 0, &consumed, &len);
        assert_int_equal(consumed, 5);
        assert_int_equal(len, 6);
        assert_memory_equal(text, "hellox", 6);
        free(text);
        RELAY_SET(&options, include_stop_string, 1);
        text = step_through(ids, 6, cut, &options, NULL, 0, &consumed, &len);
        assert_memory_equal(text, "helloxyzhell", 12);
        assert_int_equal(len, 12);
        free(text);
        options.has_include_stop_string = 0;
    }
    text_world_destroy(w);
}

static void a_character_that_the_prompt_began_is_whole_in_the_answer(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    Relay__V1__DetokenizeOptions options = RELAY__V1__DETOKENIZE_OPTIONS__INIT;
    uint32_t tail[] = {text_world_id(w, "hello"), 0xe6, 0x97}, ids[] = {0xa5, text_world_id(w, "x")};
    uint32_t consumed;
    size_t len;
    char *text = step_through(ids, 2, 1, &options, tail, 3, &consumed, &len);
    assert_int_equal(len, 4);
    assert_memory_equal(text, "\xe6\x97\xa5x", 4);
    free(text);
    text_world_destroy(w);
}

static void a_state_is_refused_where_it_does_not_belong(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    const ProtobufCMessageDescriptor *d = &relay__v1__detokenize_step_response__descriptor;
    uint32_t ids[9] = {0xe6};
    Relay__V1__DetokenizeOptions options = RELAY__V1__DETOKENIZE_OPTIONS__INIT;
    Relay__V1__DetokenizeStepRequest m = RELAY__V1__DETOKENIZE_STEP_REQUEST__INIT;
    m.options = &options;
    m.n_token_ids = 1;
    m.token_ids = ids;
    relay_err e;
    ProtobufCMessage *response = call("DetokenizeStep", &m.base, d, &e);
    assert_non_null(response);
    const Relay__V1__DetokenizeStepResponse *r = (Relay__V1__DetokenizeStepResponse *)response;
    assert_int_equal(r->text.len, 0);
    assert_int_equal(r->held_bytes, 1);
    RELAY_SET(&m, decode_state, r->decode_state);

    RELAY_SET(&options, skip_special_tokens, 0); // other options than before
    expect_error(call("DetokenizeStep", &m.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "decode_state");
    options.has_skip_special_tokens = 0;
    m.n_prompt_tail = 1;
    m.prompt_tail = ids;
    expect_error(call("DetokenizeStep", &m.base, d, &e), &e, RELAY_INVALID_ARGUMENT,
                 "prompt_tail is for the first step");
    m.n_prompt_tail = 0;
    for (size_t i = 0; i < m.decode_state.len; i++) { // any byte of it changed: refused, or taken without harm
        m.decode_state.data[i] ^= 0x55;
        ProtobufCMessage *other = call("DetokenizeStep", &m.base, d, &e);
        if (other == NULL) assert_int_equal(e.code, RELAY_INVALID_ARGUMENT);
        if (other != NULL) protobuf_c_message_free_unpacked(other, NULL);
        m.decode_state.data[i] ^= 0x55;
    }
    m.decode_state.len--;
    expect_error(call("DetokenizeStep", &m.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "decode_state");
    m.decode_state.len++;
    protobuf_c_message_free_unpacked(response, NULL);

    m.has_decode_state = 0;
    m.n_prompt_tail = 9;
    m.prompt_tail = ids;
    expect_error(call("DetokenizeStep", &m.base, d, &e), &e, RELAY_INVALID_ARGUMENT,
                 "prompt_tail has 9 ids; at most 8");
    m.n_prompt_tail = 0;
    ids[0] = FAKE_VOCAB;
    expect_error(call("DetokenizeStep", &m.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "token_ids[0] is 1000");
    ids[0] = 5;
    ProtobufCBinaryData stops[17];
    for (int i = 0; i < 17; i++)
        stops[i] = relay_message_text("x");
    options.n_stop_strings = 17;
    options.stop_strings = stops;
    expect_error(call("DetokenizeStep", &m.base, d, &e), &e, RELAY_INVALID_ARGUMENT, "options.stop_strings has 17");
    options.n_stop_strings = 0;
    uint8_t other[RELAY_FINGERPRINT_BYTES] = {0};
    RELAY_SET(&options, tokenizer_fingerprint, relay_message_bytes(other, sizeof other));
    expect_error(call("DetokenizeStep", &m.base, d, &e), &e, RELAY_FAILED_PRECONDITION, "tokenizer_fingerprint");
    text_world_destroy(w);
}

// ---- RenderChat

typedef struct chat_request {
    Relay__V1__RenderChatRequest message;
    Relay__V1__Chat chat;
    Relay__V1__ChatMessage turns[3], *pointers[3];
} chat_request;

static void chat_request_init(chat_request *r, const char *text) {
    relay__v1__render_chat_request__init(&r->message);
    relay__v1__chat__init(&r->chat);
    for (int i = 0; i < 3; i++) {
        relay__v1__chat_message__init(&r->turns[i]);
        r->pointers[i] = &r->turns[i];
    }
    RELAY_SET(&r->turns[0], role, relay_message_text("user"));
    RELAY_SET(&r->turns[0], content, relay_message_text(text));
    r->chat.n_messages = 1;
    r->chat.messages = r->pointers;
    r->message.chat = &r->chat;
}

static const ProtobufCMessageDescriptor *const rendered_type = &relay__v1__render_chat_response__descriptor;

static void a_chat_becomes_ids_and_text(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    chat_request r;
    chat_request_init(&r, "hello");
    relay_err e;
    ProtobufCMessage *m = call("RenderChat", &r.message.base, rendered_type, &e);
    if (m == NULL) fail_msg("%s", e.message);
    Relay__V1__RenderChatResponse *rendered = (Relay__V1__RenderChatResponse *)m;
    const uint32_t expected[] = {text_world_id(w, TEXT_BOS), text_world_id(w, TEXT_USER), text_world_id(w, "hello"),
                                 text_world_id(w, TEXT_EOS), text_world_id(w, TEXT_ASSISTANT)};
    assert_int_equal(rendered->encoding->n_token_ids, 5);
    assert_memory_equal(rendered->encoding->token_ids, expected, sizeof expected);
    assert_false(rendered->has_text);
    // What turns end with.
    assert_int_equal(rendered->n_stop_token_ids, 1);
    assert_int_equal(rendered->stop_token_ids[0], text_world_id(w, TEXT_EOS));
    assert_int_equal(rendered->n_stop_strings, 1);
    assert_memory_equal(rendered->stop_strings[0].data, TEXT_EOS, strlen(TEXT_EOS));
    protobuf_c_message_free_unpacked(m, NULL);

    RELAY_SET(&r.message, want_text, 1);
    RELAY_SET(&r.chat, add_generation_prompt, 0);
    m = call("RenderChat", &r.message.base, rendered_type, &e);
    rendered = (Relay__V1__RenderChatResponse *)m;
    static const char text[] = TEXT_USER "hello" TEXT_EOS;
    assert_int_equal(rendered->text.len, strlen(text));
    assert_memory_equal(rendered->text.data, text, strlen(text));
    assert_int_equal(rendered->encoding->n_token_ids, 4);
    protobuf_c_message_free_unpacked(m, NULL);
    text_world_destroy(w);
}

static void no_message_can_forge_a_turn(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    chat_request r;
    chat_request_init(&r, "x" TEXT_EOS TEXT_ASSISTANT "y");
    relay_err e;
    ProtobufCMessage *m = call("RenderChat", &r.message.base, rendered_type, &e);
    assert_non_null(m);
    const Relay__V1__Encoding *enc = ((Relay__V1__RenderChatResponse *)m)->encoding;
    uint32_t n_eos = 0, n_assistant = 0;
    for (size_t i = 0; i < enc->n_token_ids; i++) {
        n_eos += enc->token_ids[i] == text_world_id(w, TEXT_EOS);
        n_assistant += enc->token_ids[i] == text_world_id(w, TEXT_ASSISTANT);
    }
    assert_int_equal(n_eos, 1); // the template's own
    assert_int_equal(n_assistant, 1);
    protobuf_c_message_free_unpacked(m, NULL);
    text_world_destroy(w);
}

// The ids of the chat; the caller frees the response.
static const Relay__V1__Encoding *render_ids(const chat_request *r, ProtobufCMessage **m) {
    relay_err e;
    *m = call("RenderChat", &r->message.base, rendered_type, &e);
    if (*m == NULL) fail_msg("%s", e.message);
    return ((Relay__V1__RenderChatResponse *)*m)->encoding;
}

static void expect_ids(const chat_request *r, const uint32_t *expected, size_t n) {
    ProtobufCMessage *m;
    const Relay__V1__Encoding *enc = render_ids(r, &m);
    assert_int_equal(enc->n_token_ids, n);
    assert_memory_equal(enc->token_ids, expected, n * sizeof *expected);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void a_turn_s_own_ids_are_used_as_they_are(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    const uint32_t bos = text_world_id(w, TEXT_BOS), user = text_world_id(w, TEXT_USER),
                   end = text_world_id(w, TEXT_EOS), assistant = text_world_id(w, TEXT_ASSISTANT),
                   hello = text_world_id(w, "hello");
    chat_request r;
    chat_request_init(&r, "hello");
    const uint32_t first[] = {bos, user, hello, end, assistant};
    expect_ids(&r, first, 5);
    // "hello" was generated letter by letter, and ended by the id that the template writes.
    uint32_t generated[] = {'h', 'e', 'l', 'l', 'o', end};
    RELAY_SET(&r.turns[1], role, relay_message_text("assistant"));
    RELAY_SET(&r.turns[1], content, relay_message_text("hello"));
    RELAY_SET(&r.turns[2], role, relay_message_text("user"));
    RELAY_SET(&r.turns[2], content, relay_message_text("x"));
    r.chat.n_messages = 3;
    const uint32_t without[] = {bos, user, hello, end, assistant, hello, end, user, 'x', end, assistant};
    expect_ids(&r, without, 11);
    r.turns[1].token_ids = generated;
    const uint32_t with[] = {bos, user, hello, end, assistant, 'h', 'e', 'l', 'l', 'o', end, user, 'x', end, assistant};
    for (r.turns[1].n_token_ids = 5; r.turns[1].n_token_ids <= 6; r.turns[1].n_token_ids++)
        expect_ids(&r, with, 15);
    r.turns[1].n_token_ids = 5;
    // A content that the template changes is tokenized again.
    RELAY_SET(&r.message, template_, relay_message_text("{{ messages[1].content | upper }}"));
    RELAY_SET(&r.message, model, relay_message_text("tiny"));
    const uint32_t upper[] = {bos, 'H', 'E', 'L', 'L', 'O'};
    expect_ids(&r, upper, 6);
    RELAY_SET(&r.message, template_, relay_message_text("{{ messages[1].content }}"));
    const uint32_t alone[] = {bos, 'h', 'e', 'l', 'l', 'o'};
    expect_ids(&r, alone, 6);
    generated[2] = FAKE_VOCAB;
    relay_err e;
    expect_error(call("RenderChat", &r.message.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT,
                 "chat.messages[1].token_ids[2] is 1000");
    r.message.has_template_ = 0;
    expect_error(call("RenderChat", &r.message.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT,
                 "chat.messages[1].token_ids[2] is 1000");
    text_world_destroy(w);
}

static void names_in_messages_are_tokens_where_the_caller_says_so(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    chat_request r;
    chat_request_init(&r, TEXT_EOS "hello");
    RELAY_SET(&r.message, parse_special_tokens, 1);
    const uint32_t expected[] = {text_world_id(w, TEXT_BOS), text_world_id(w, TEXT_USER),
                                 text_world_id(w, TEXT_EOS), text_world_id(w, "hello"),
                                 text_world_id(w, TEXT_EOS), text_world_id(w, TEXT_ASSISTANT)};
    expect_ids(&r, expected, 6);
    text_world_destroy(w);
}

static void a_context_is_all_that_a_template_sees(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    Relay__V1__RenderChatRequest m = RELAY__V1__RENDER_CHAT_REQUEST__INIT;
    relay_err e;
    RELAY_SET(&m, context_json, relay_message_text("{\"x\": [1, 2]}"));
    expect_error(call("RenderChat", &m.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT, "without template");
    RELAY_SET(&m, template_, relay_message_text("{{ x[1] }}{{ bos_token is defined }}{{ strftime_now('%Y') }}"));
    RELAY_SET(&m, now_unix_seconds, 0);
    ProtobufCMessage *response = call("RenderChat", &m.base, rendered_type, &e);
    if (response == NULL) fail_msg("%s", e.message);
    ProtobufCBinaryData text = ((Relay__V1__RenderChatResponse *)response)->text;
    assert_int_equal(text.len, 10);
    assert_memory_equal(text.data, "2False1970", 10);
    protobuf_c_message_free_unpacked(response, NULL);
    chat_request r;
    chat_request_init(&r, "hello");
    m.chat = &r.chat;
    expect_error(call("RenderChat", &m.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT,
                 "chat and context_json are both set");
    RELAY_SET(&r.message, now_unix_seconds, 0);
    expect_error(call("RenderChat", &r.message.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT,
                 "now_unix_seconds is set without");
    m.chat = NULL;
    RELAY_SET(&m, context_json, relay_message_text("[]"));
    expect_error(call("RenderChat", &m.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT,
                 "context_json: must be a JSON object");
    text_world_destroy(w);
}

// A template's own end of a turn, which the file does not name as one.
static void what_a_template_ends_turns_with_is_told(void **state) {
    static const struct {
        const char *source, *strings[3], *id;
    } cases[] = {
        {"{% for m in messages %}{{ m.content }} <|last|>\n{% endfor %}", {"<|last|>", TEXT_EOS}, "<|last|>"},
        {"{% for m in messages %}{{ m.content }}\n\n### {{ m.role }}:\n{% endfor %}", {"\n\n###", TEXT_EOS}, NULL},
        {"{% for m in messages %}User: {{ m.content }}\n{% endfor %}", {"\nUser:", TEXT_EOS}, NULL},
        {"{% for m in messages %}{{ m.content }} end<|last|>{% endfor %}", {" end", TEXT_EOS}, NULL},
        {"{% for m in messages %}{{ m.content }} {% endfor %}", {TEXT_EOS}, NULL},
        // The model writes <|user|> itself, and more before it that ends with <|last|> as well.
        {"{% for m in messages %}<|assistant|>{{ '<|user|>' if m.role == 'assistant' }}{{ m.content }}<|last|>"
         "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
         {TEXT_EOS},
         NULL},
        {"{% if messages | length > 1 %}{{ raise_exception('no') }}{% endif %}", {TEXT_EOS}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        w = text_world_create((text_world_opts){.has_no_model = true, .chat_template = cases[i].source});
        for (int is_custom = 0; is_custom < 2; is_custom++) {
            chat_request r;
            chat_request_init(&r, "hello");
            if (is_custom) {
                RELAY_SET(&r.message, template_, relay_message_text(cases[i].source));
                RELAY_SET(&r.message, model, relay_message_text("tiny"));
            }
            ProtobufCMessage *m;
            render_ids(&r, &m);
            const Relay__V1__RenderChatResponse *answer = (Relay__V1__RenderChatResponse *)m;
            size_t n = 0;
            for (; cases[i].strings[n] != NULL; n++) {
                assert_true(n < answer->n_stop_strings);
                assert_int_equal(answer->stop_strings[n].len, strlen(cases[i].strings[n]));
                assert_memory_equal(answer->stop_strings[n].data, cases[i].strings[n], strlen(cases[i].strings[n]));
            }
            assert_int_equal(answer->n_stop_strings, n);
            assert_int_equal(answer->n_stop_token_ids, cases[i].id != NULL ? 2 : 1);
            assert_int_equal(answer->stop_token_ids[0], text_world_id(w, cases[i].id != NULL ? cases[i].id : TEXT_EOS));
            protobuf_c_message_free_unpacked(m, NULL);
        }
        text_world_destroy(w);
    }
}

static void a_template_of_the_caller_s_gives_text_and_ids_only_for_a_named_model(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true, .has_no_template = true});
    chat_request r;
    chat_request_init(&r, "hello");
    relay_err e;
    expect_error(call("RenderChat", &r.message.base, rendered_type, &e), &e, RELAY_FAILED_PRECONDITION,
                 "no chat template");
    RELAY_SET(&r.message, template_, relay_message_text("[{{ messages[0].content }}]"));
    ProtobufCMessage *m = call("RenderChat", &r.message.base, rendered_type, &e);
    assert_non_null(m);
    assert_memory_equal(((Relay__V1__RenderChatResponse *)m)->text.data, "[hello]", 7);
    assert_null(((Relay__V1__RenderChatResponse *)m)->encoding);
    protobuf_c_message_free_unpacked(m, NULL);
    RELAY_SET(&r.message, model, relay_message_text("tiny"));
    m = call("RenderChat", &r.message.base, rendered_type, &e);
    assert_int_equal(((Relay__V1__RenderChatResponse *)m)->encoding->n_token_ids, 4);
    assert_false(((Relay__V1__RenderChatResponse *)m)->has_text);
    protobuf_c_message_free_unpacked(m, NULL);
    RELAY_SET(&r.message, template_, relay_message_text("{% for %}"));
    expect_error(call("RenderChat", &r.message.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT, "line 1");
    RELAY_SET(&r.message, template_, relay_message_text("{{ raise_exception('no such role') }}"));
    expect_error(call("RenderChat", &r.message.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT, "no such role");
    RELAY_SET(&r.chat, template_name, relay_message_text("short"));
    expect_error(call("RenderChat", &r.message.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT,
                 "template_name and template are both set");
    r.message.chat = NULL;
    expect_error(call("RenderChat", &r.message.base, rendered_type, &e), &e, RELAY_INVALID_ARGUMENT, "chat is not set");
    text_world_destroy(w);
}

static void a_worker_stops_for_a_call_that_has_ended(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true, .n_workers = 1});
    chat_request r;
    chat_request_init(&r, "hello");
    static const char busy[] = "{% set s = 'a b' * 100000 %}{% for i in range(9999) %}"
                               "{% if s | wordcount == 5 %}{% endif %}{% endfor %}";
    RELAY_SET(&r.message, template_, relay_message_text(busy));
    relay_err e;
    relay_mono_us begin = relay_mono_now();
    expect_error(call("RenderChat", &r.message.base, rendered_type, &e), &e, RELAY_RESOURCE_EXHAUSTED, "takes more");
    relay_mono_us whole = relay_mono_now() - begin;
    // The first is at work when its client goes; the others wait. None holds up who comes behind them.
    for (int i = 0; i < 4; i++) {
        ProtobufCMessage *m = NULL;
        relay_code code =
            relay_rpc_client_unary(w->client, "/" RELAY_TOKENIZER_SERVICE_NAME "/RenderChat", &r.message.base,
                                   rendered_type, NULL, 0, relay_mono_now() + whole / 10, &m, &e);
        assert_int_equal(code, RELAY_DEADLINE_EXCEEDED);
    }
    begin = relay_mono_now();
    RELAY_SET(&r.message, template_, relay_message_text("{{ messages[0].content }}"));
    ProtobufCMessage *m = call("RenderChat", &r.message.base, rendered_type, &e);
    assert_non_null(m);
    protobuf_c_message_free_unpacked(m, NULL);
    assert_true(relay_mono_now() - begin < whole / 2);
    text_world_destroy(w);
}

// ---- What the service says of itself

static void the_tokenizer_s_info_is_told(void **state) {
    w = text_world_create((text_world_opts){.has_no_model = true});
    Relay__V1__GetTokenizerInfoRequest m = RELAY__V1__GET_TOKENIZER_INFO_REQUEST__INIT;
    relay_err e;
    const ProtobufCMessageDescriptor *d = &relay__v1__get_tokenizer_info_response__descriptor;
    ProtobufCMessage *response = call("GetTokenizerInfo", &m.base, d, &e);
    assert_non_null(response);
    const Relay__V1__GetTokenizerInfoResponse *info = (Relay__V1__GetTokenizerInfoResponse *)response;
    assert_memory_equal(info->model.data, "tiny", 4);
    assert_int_equal(info->vocab_size, FAKE_VOCAB);
    assert_int_equal(info->bos_token_id, text_world_id(w, TEXT_BOS));
    assert_int_equal(info->n_eos_token_ids, 1);
    assert_int_equal(info->eos_token_ids[0], text_world_id(w, TEXT_EOS));
    assert_true(info->adds_bos);
    assert_true(info->has_has_chat_template && info->has_chat_template);
    assert_int_equal(info->n_template_names, 2);
    assert_memory_equal(info->template_names[0].data, "short", 5);
    assert_false(info->has_pad_token_id);
    assert_true(info->max_token_bytes >= 5);
    assert_true(info->family.len != 0);
    protobuf_c_message_free_unpacked(response, NULL);
    RELAY_SET(&m, model, relay_message_text("TINY"));
    expect_error(call("GetTokenizerInfo", &m.base, d, &e), &e, RELAY_NOT_FOUND, "\"tiny\" is");
    text_world_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_becomes_ids),
        cmocka_unit_test(text_is_cut_from_either_side_and_bos_stays),
        cmocka_unit_test(offsets_and_pieces_are_told_where_they_are_asked_for),
        cmocka_unit_test(wrong_tokenize_requests_are_refused_by_name),
        cmocka_unit_test(a_batch_is_its_texts_one_by_one),
        cmocka_unit_test(bytes_that_are_no_text_become_replacement_characters),
        cmocka_unit_test(ids_of_another_vocabulary_are_refused),
        cmocka_unit_test(text_in_steps_is_the_text_in_one),
        cmocka_unit_test(a_stop_string_is_found_across_steps),
        cmocka_unit_test(a_character_that_the_prompt_began_is_whole_in_the_answer),
        cmocka_unit_test(a_state_is_refused_where_it_does_not_belong),
        cmocka_unit_test(a_chat_becomes_ids_and_text),
        cmocka_unit_test(no_message_can_forge_a_turn),
        cmocka_unit_test(a_turn_s_own_ids_are_used_as_they_are),
        cmocka_unit_test(names_in_messages_are_tokens_where_the_caller_says_so),
        cmocka_unit_test(a_context_is_all_that_a_template_sees),
        cmocka_unit_test(what_a_template_ends_turns_with_is_told),
        cmocka_unit_test(a_template_of_the_caller_s_gives_text_and_ids_only_for_a_named_model),
        cmocka_unit_test(a_worker_stops_for_a_call_that_has_ended),
        cmocka_unit_test(the_tokenizer_s_info_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
