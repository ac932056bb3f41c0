// The check of text fields that come in.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "common/rpc_server.h"
#include "relay/v1/generation.pb-c.h"
#include "relay/v1/model.pb-c.h"
#include "relay/v1/tokenizer.pb-c.h"

#define BYTES(s) ((ProtobufCBinaryData){.data = (uint8_t *)(s), .len = sizeof(s) - 1})

static void expect_bad(const ProtobufCMessage *m, const char *message) {
    relay_err e;
    assert_int_equal(relay_rpc_check_utf8(m, &e), RELAY_INVALID_ARGUMENT);
    assert_int_equal(e.code, RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, message);
}

static void expect_good(const ProtobufCMessage *m) {
    relay_err e;
    assert_int_equal(relay_rpc_check_utf8(m, &e), RELAY_OK);
}

static void takes_text_with_nul_and_four_byte_characters(void **state) {
    Relay__V1__TokenizeRequest m = RELAY__V1__TOKENIZE_REQUEST__INIT;
    m.has_text = 1;
    m.text = BYTES("a\0b \xF0\x9F\x8F\x83 \xE4\xBD\xA0");
    expect_good(&m.base);
}

static void takes_a_message_with_nothing_set(void **state) {
    Relay__V1__GenerateRequest m = RELAY__V1__GENERATE_REQUEST__INIT;
    expect_good(&m.base);
}

static void names_the_field_and_the_byte(void **state) {
    Relay__V1__TokenizeRequest m = RELAY__V1__TOKENIZE_REQUEST__INIT;
    m.has_text = 1;
    m.text = BYTES("abc\xFFxyz");
    expect_bad(&m.base, "text is not valid UTF-8: byte 3 of 7 is 0xFF");
}

static void a_character_that_is_cut_off_is_refused(void **state) {
    Relay__V1__TokenizeRequest m = RELAY__V1__TOKENIZE_REQUEST__INIT;
    m.has_text = 1;
    m.text = BYTES("abc\xF0\x9F\x8F");
    expect_bad(&m.base, "text is not valid UTF-8: byte 3 of 6 is 0xF0");
}

static void a_surrogate_is_refused(void **state) {
    Relay__V1__TokenizeRequest m = RELAY__V1__TOKENIZE_REQUEST__INIT;
    m.has_text = 1;
    m.text = BYTES("\xED\xA0\x80");
    expect_bad(&m.base, "text is not valid UTF-8: byte 0 of 3 is 0xED");
}

static void names_the_path_through_submessages_and_lists(void **state) {
    Relay__V1__ChatMessage good = RELAY__V1__CHAT_MESSAGE__INIT, bad = RELAY__V1__CHAT_MESSAGE__INIT;
    Relay__V1__ToolCall call = RELAY__V1__TOOL_CALL__INIT, *calls[] = {&call};
    good.has_content = 1;
    good.content = BYTES("fine");
    call.has_arguments_json = 1;
    call.arguments_json = BYTES("{\"a\": \"\xC0\"}");
    bad.n_tool_calls = 1;
    bad.tool_calls = calls;
    Relay__V1__ChatMessage *messages[] = {&good, &good, &bad};
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    chat.n_messages = 3;
    chat.messages = messages;
    Relay__V1__GenerateRequest m = RELAY__V1__GENERATE_REQUEST__INIT;
    m.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_CHAT;
    m.chat = &chat;
    expect_bad(&m.base, "chat.messages[2].tool_calls[0].arguments_json is not valid UTF-8: byte 7 of 10 is 0xC0");
}

static void names_the_item_of_a_list_of_texts(void **state) {
    ProtobufCBinaryData texts[] = {BYTES("one"), BYTES(""), BYTES("\x80")};
    Relay__V1__TokenizeBatchRequest m = RELAY__V1__TOKENIZE_BATCH_REQUEST__INIT;
    m.n_texts = 3;
    m.texts = texts;
    expect_bad(&m.base, "texts[2] is not valid UTF-8: byte 0 of 1 is 0x80");
}

static void only_the_chosen_member_of_a_oneof_is_looked_at(void **state) {
    Relay__V1__GenerateRequest m = RELAY__V1__GENERATE_REQUEST__INIT;
    m.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT;
    m.prompt = BYTES("a prompt\xFE");
    expect_bad(&m.base, "prompt is not valid UTF-8: byte 8 of 9 is 0xFE");
    // The same memory as another member: the bytes of `prompt` must not be read as text then.
    Relay__V1__TokenIds ids = RELAY__V1__TOKEN_IDS__INIT;
    m.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
    m.token_ids = &ids;
    expect_good(&m.base);
}

static void bytes_fields_may_hold_anything(void **state) {
    Relay__V1__GenerateTokensRequest m = RELAY__V1__GENERATE_TOKENS_REQUEST__INIT;
    m.has_tokenizer_fingerprint = 1;
    m.tokenizer_fingerprint = BYTES("\xFF\xFE\xFD");
    expect_good(&m.base);
    m.has_sequence_id = 1;
    m.sequence_id = BYTES("\xFF");
    expect_bad(&m.base, "sequence_id is not valid UTF-8: byte 0 of 1 is 0xFF");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_text_with_nul_and_four_byte_characters),
        cmocka_unit_test(takes_a_message_with_nothing_set),
        cmocka_unit_test(names_the_field_and_the_byte),
        cmocka_unit_test(a_character_that_is_cut_off_is_refused),
        cmocka_unit_test(a_surrogate_is_refused),
        cmocka_unit_test(names_the_path_through_submessages_and_lists),
        cmocka_unit_test(names_the_item_of_a_list_of_texts),
        cmocka_unit_test(only_the_chosen_member_of_a_oneof_is_looked_at),
        cmocka_unit_test(bytes_fields_may_hold_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
