// Descriptor sets: the one in the binary, and malformed ones.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/descriptor_set.h"
#include "common/pb_wire.h"
#include "proto/descriptors.h"

static const relay_symbol *find(const char *name) {
    return relay_descriptor_set_find_symbol(relay_descriptor_set_builtin(), name, strlen(name));
}

static void expect_symbol(const char *name, relay_symbol_kind kind, const char *file) {
    const relay_symbol *s = find(name);
    assert_non_null(s);
    assert_int_equal(s->kind, kind);
    assert_string_equal(s->name, name);
    assert_string_equal(relay_descriptor_set_file(relay_descriptor_set_builtin(), s->file)->name, file);
}

static void builtin_set_knows_every_kind_of_symbol(void **state) {
    expect_symbol("relay.v1.ModelService", RELAY_SYMBOL_SERVICE, "relay/v1/model.proto");
    expect_symbol("relay.v1.ModelService.Session", RELAY_SYMBOL_METHOD, "relay/v1/model.proto");
    expect_symbol("relay.v1.Chat", RELAY_SYMBOL_MESSAGE, "relay/v1/chat.proto");
    expect_symbol("relay.v1.Chat.tools_json", RELAY_SYMBOL_TEXT_FIELD, "relay/v1/chat.proto");
    expect_symbol("relay.v1.Chat.messages", RELAY_SYMBOL_FIELD, "relay/v1/chat.proto");
    expect_symbol("relay.v1.ContentPart.part", RELAY_SYMBOL_ONEOF, "relay/v1/chat.proto");
    expect_symbol("relay.v1.FinishReason", RELAY_SYMBOL_ENUM, "relay/v1/sampling.proto");
    expect_symbol("relay.v1.FINISH_REASON_EOS", RELAY_SYMBOL_ENUM_VALUE, "relay/v1/sampling.proto");
    expect_symbol("grpc.health.v1.HealthCheckResponse.ServingStatus", RELAY_SYMBOL_ENUM, "grpc/health/v1/health.proto");
}

static void unknown_names_are_not_found(void **state) {
    assert_null(find("relay.v1.Cha"));
    assert_null(find("relay.v1.Chatter"));
    assert_null(find("relay.v1"));
    assert_null(find(""));
    assert_null(find("zzz"));
    // A NUL inside the name ends no comparison.
    assert_null(relay_descriptor_set_find_symbol(relay_descriptor_set_builtin(), "relay.v1.Chat\0x", 15));
    uint32_t index;
    assert_false(relay_descriptor_set_find_file(relay_descriptor_set_builtin(), "relay/v1/none.proto", 19, &index));
}

static void imports_point_to_their_files(void **state) {
    const relay_descriptor_set *d = relay_descriptor_set_builtin();
    uint32_t index;
    assert_true(relay_descriptor_set_find_file(d, "relay/v1/generation.proto", 25, &index));
    const relay_descriptor_file *file = relay_descriptor_set_file(d, index);
    assert_int_equal(file->n_imports, 2);
    assert_string_equal(relay_descriptor_set_file(d, file->imports[0])->name, "relay/v1/chat.proto");
    assert_string_equal(relay_descriptor_set_file(d, file->imports[1])->name, "relay/v1/sampling.proto");
}

static void every_cut_and_every_changed_byte_is_survived(void **state) {
    // The set's largest file is enough; copies make reads past the end visible to a sanitizer.
    const relay_descriptor_set *builtin = relay_descriptor_set_builtin();
    uint32_t index;
    assert_true(relay_descriptor_set_find_file(builtin, "relay/v1/chat.proto", 19, &index));
    const relay_descriptor_file *file = relay_descriptor_set_file(builtin, index);
    relay_buf b;
    relay_buf_init(&b, 1 << 20);
    relay_pb_put_bytes(&b, 1, file->data, file->size);
    for (size_t cut = 0; cut < b.len; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, b.data, cut);
        relay_descriptor_set *d;
        relay_err e;
        relay_code code = relay_descriptor_set_parse(&d, copy, cut, &e);
        assert_int_equal(code, cut == 0 ? RELAY_OK : RELAY_INVALID_ARGUMENT);
        relay_descriptor_set_destroy(d);
        free(copy);
    }
    for (size_t i = 0; i < b.len; i++) {
        uint8_t *copy = malloc(b.len);
        memcpy(copy, b.data, b.len);
        copy[i] ^= 0x80;
        relay_descriptor_set *d;
        if (relay_descriptor_set_parse(&d, copy, b.len, NULL) == RELAY_OK) relay_descriptor_set_destroy(d);
        free(copy);
    }
    relay_buf_fini(&b);
}

// A set of one file called "a.proto" with these fields.
static relay_code parse_file(const relay_buf *fields, relay_err *e) {
    relay_buf set;
    relay_buf_init(&set, 1 << 20);
    relay_pb_put_bytes(&set, 1, fields->data, fields->len);
    relay_descriptor_set *d;
    relay_code code = relay_descriptor_set_parse(&d, (uint8_t *)set.data, set.len, e);
    assert_true((code == RELAY_OK) == (d != NULL));
    relay_descriptor_set_destroy(d);
    relay_buf_fini(&set);
    return code;
}

static void a_missing_import_is_refused(void **state) {
    relay_buf file;
    relay_buf_init(&file, 1 << 20);
    relay_pb_put_bytes(&file, 1, "a.proto", 7);
    relay_pb_put_bytes(&file, 3, "b.proto", 7);
    relay_err e;
    assert_int_equal(parse_file(&file, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "a.proto: the import \"b.proto\" is not in the set");
    relay_buf_fini(&file);
}

static void a_name_declared_twice_is_refused(void **state) {
    relay_buf file, message;
    relay_buf_init(&file, 1 << 20);
    relay_buf_init(&message, 1 << 10);
    relay_pb_put_bytes(&message, 1, "M", 1);
    relay_pb_put_bytes(&file, 1, "a.proto", 7);
    relay_pb_put_bytes(&file, 4, message.data, message.len);
    relay_err e;
    assert_int_equal(parse_file(&file, &e), RELAY_OK);
    relay_pb_put_bytes(&file, 4, message.data, message.len);
    assert_int_equal(parse_file(&file, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "\"M\" is declared twice");
    relay_buf_fini(&message);
    relay_buf_fini(&file);
}

static void deep_nesting_is_refused(void **state) {
    relay_buf message, file;
    relay_buf_init(&message, 1 << 20);
    relay_buf_init(&file, 1 << 20);
    relay_pb_put_bytes(&message, 1, "M", 1);
    for (int depth = 0; depth < 1000; depth++) {
        relay_buf outer;
        relay_buf_init(&outer, 1 << 20);
        relay_pb_put_bytes(&outer, 1, "M", 1);
        relay_pb_put_bytes(&outer, 3, message.data, message.len);
        relay_buf_fini(&message);
        message = outer;
    }
    relay_pb_put_bytes(&file, 4, message.data, message.len);
    relay_err e;
    assert_int_equal(parse_file(&file, &e), RELAY_INVALID_ARGUMENT);
    relay_buf_fini(&message);
    relay_buf_fini(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builtin_set_knows_every_kind_of_symbol),
        cmocka_unit_test(unknown_names_are_not_found),
        cmocka_unit_test(imports_point_to_their_files),
        cmocka_unit_test(every_cut_and_every_changed_byte_is_survived),
        cmocka_unit_test(a_missing_import_is_refused),
        cmocka_unit_test(a_name_declared_twice_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
