// Fields and enum values that this build does not know, at any depth and in any kind of field.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "common/message.h"
#include "relay/v1/generation.pb-c.h"
#include "relay/v1/tokenizer.pb-c.h"

static uint8_t one = 1;

static void add_unknown(ProtobufCMessage *m, ProtobufCMessageUnknownField *field, uint32_t tag) {
    *field =
        (ProtobufCMessageUnknownField){.tag = tag, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = &one};
    m->n_unknown_fields = 1;
    m->unknown_fields = field;
}

static void expect_refusal(const ProtobufCMessage *m, relay_code code, const char *text) {
    relay_err e;
    assert_int_equal(relay_message_check(m, &e), code);
    if (strstr(e.message, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.message, text);
}

static void unknown_fields_are_named_with_their_path(void **state) {
    Relay__V1__GenerateRequest m = RELAY__V1__GENERATE_REQUEST__INIT;
    assert_int_equal(relay_message_check(&m.base, NULL), RELAY_OK);
    ProtobufCMessageUnknownField field;
    add_unknown(&m.base, &field, 50);
    expect_refusal(&m.base, RELAY_UNIMPLEMENTED, "GenerateRequest holds field number 50");
    m.base.n_unknown_fields = 0;

    Relay__V1__SamplingParams sampling = RELAY__V1__SAMPLING_PARAMS__INIT;
    Relay__V1__Dry dry = RELAY__V1__DRY__INIT;
    m.sampling = &sampling;
    sampling.dry = &dry;
    assert_int_equal(relay_message_check(&m.base, NULL), RELAY_OK);
    add_unknown(&dry.base, &field, 51);
    expect_refusal(&m.base, RELAY_UNIMPLEMENTED, "sampling.dry holds field number 51");
    dry.base.n_unknown_fields = 0;

    // In a member of a oneof, in an element of an array of it.
    Relay__V1__ChatMessage message = RELAY__V1__CHAT_MESSAGE__INIT, other = RELAY__V1__CHAT_MESSAGE__INIT;
    Relay__V1__ChatMessage *messages[] = {&other, &message};
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    chat.n_messages = 2;
    chat.messages = messages;
    m.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_CHAT;
    m.chat = &chat;
    assert_int_equal(relay_message_check(&m.base, NULL), RELAY_OK);
    add_unknown(&message.base, &field, 52);
    expect_refusal(&m.base, RELAY_UNIMPLEMENTED, "chat.messages[1] holds field number 52");
    // What the oneof does not hold is not looked at.
    m.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT;
    m.prompt = relay_message_text("x");
    assert_int_equal(relay_message_check(&m.base, NULL), RELAY_OK);
}

static void unknown_enum_values_are_named(void **state) {
    Relay__V1__TokenizeRequest m = RELAY__V1__TOKENIZE_REQUEST__INIT;
    Relay__V1__TokenizeOptions options = RELAY__V1__TOKENIZE_OPTIONS__INIT;
    m.options = &options;
    RELAY_SET(&options, truncate_side, RELAY__V1__TRUNCATE_SIDE__TRUNCATE_SIDE_LEFT);
    assert_int_equal(relay_message_check(&m.base, NULL), RELAY_OK);
    options.truncate_side = (Relay__V1__TruncateSide)3;
    expect_refusal(&m.base, RELAY_INVALID_ARGUMENT, "options.truncate_side is 3, which is no value of TruncateSide");
    options.truncate_side = (Relay__V1__TruncateSide)-1;
    expect_refusal(&m.base, RELAY_INVALID_ARGUMENT, "options.truncate_side is -1");
    options.has_truncate_side = 0;
    assert_int_equal(relay_message_check(&m.base, NULL), RELAY_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_fields_are_named_with_their_path),
        cmocka_unit_test(unknown_enum_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
