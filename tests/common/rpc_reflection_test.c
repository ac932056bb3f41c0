// grpc.reflection.v1 and v1alpha, as grpcurl and its like use them.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/descriptor_set.h"
#include "common/pb_wire.h"
#include "common/rpc_client.h"
#include "common/rpc_standard.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "grpc/reflection/v1alpha/reflection.pb-c.h"

#define V1      "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define V1ALPHA "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

#define ASK(what)    GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define ANSWER(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

typedef struct world {
    relay_rpc_server *server;
    relay_rpc_reflection *reflection;
    relay_rpc_client *client;
    relay_rpc_stream *stream;
} world;

static relay_mono_us soon(void) {
    return relay_mono_now() + 20 * 1000000;
}

static relay_rpc_stream *open_stream(world *w, const char *path) {
    relay_rpc_stream *s;
    relay_err e;
    assert_int_equal(relay_rpc_stream_open(&s, w->client, path,
                                           &grpc__reflection__v1__server_reflection_response__descriptor, NULL, 0,
                                           soon(), NULL, NULL, &e),
                     RELAY_OK);
    return s;
}

static int set_up(void **state) {
    world *w = relay_calloc(1, sizeof *w);
    relay_err e;
    assert_int_equal(relay_rpc_server_create(&w->server, &(relay_rpc_server_opts){.listen = "127.0.0.1:0"}, &e),
                     RELAY_OK);
    const char *const services[] = {"relay.v1.ModelService"};
    w->reflection = relay_rpc_reflection_create(w->server, services, 1);
    assert_int_equal(relay_rpc_server_start(w->server, &e), RELAY_OK);
    char target[64];
    snprintf(target, sizeof target, "127.0.0.1:%u", relay_rpc_server_port(w->server));
    assert_int_equal(relay_rpc_client_create(&w->client, &(relay_rpc_client_opts){.target = target}, &e), RELAY_OK);
    w->stream = open_stream(w, V1);
    *state = w;
    return 0;
}

static int tear_down(void **state) {
    world *w = *state;
    relay_rpc_stream_half_close(w->stream);
    ProtobufCMessage *message;
    assert_int_equal(relay_rpc_stream_next(w->stream, soon(), &message, NULL, NULL), RELAY_OK);
    assert_null(message);
    relay_rpc_stream_release(w->stream);
    relay_rpc_client_destroy(w->client);
    relay_rpc_server_drain(w->server, 10 * 1000000);
    relay_rpc_server_destroy(w->server);
    relay_rpc_reflection_destroy(w->reflection);
    free(w);
    return 0;
}

static ProtobufCBinaryData bytes(const char *s) {
    return (ProtobufCBinaryData){.data = (uint8_t *)s, .len = strlen(s)};
}

static bool equals(ProtobufCBinaryData b, const char *s) {
    return b.len == strlen(s) && (b.len == 0 || memcmp(b.data, s, b.len) == 0);
}

// Asks on a stream; the caller frees the answer.
static reflection_response *ask_on(relay_rpc_stream *s, const reflection_request *request) {
    assert_int_equal(relay_rpc_stream_send(s, &request->base), RELAY_OK);
    ProtobufCMessage *message;
    relay_err e;
    assert_int_equal(relay_rpc_stream_next(s, soon(), &message, NULL, &e), RELAY_OK);
    assert_non_null(message);
    reflection_response *response = (reflection_response *)message;
    assert_non_null(response->original_request);
    assert_int_equal(response->original_request->message_request_case, request->message_request_case);
    return response;
}

static reflection_response *ask(void **state, int what, const char *name) {
    world *w = *state;
    reflection_request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    request.has_host = 1;
    request.host = bytes("a.host");
    request.message_request_case = what;
    request.file_by_filename = bytes(name); // every text member of the oneof lies here
    reflection_response *response = ask_on(w->stream, &request);
    assert_true(equals(response->valid_host, "a.host"));
    if (what != 0) assert_true(equals(response->original_request->file_by_filename, name));
    return response;
}

static void release(reflection_response *r) {
    protobuf_c_message_free_unpacked(&r->base, NULL);
}

static void expect_services(const reflection_response *r) {
    static const char *const want[] = {"relay.v1.ModelService", "grpc.health.v1.Health",
                                       "grpc.reflection.v1.ServerReflection",
                                       "grpc.reflection.v1alpha.ServerReflection"};
    assert_int_equal(r->message_response_case, ANSWER(LIST_SERVICES_RESPONSE));
    assert_int_equal(r->list_services_response->n_service, 4);
    for (int i = 0; i < 4; i++)
        assert_true(equals(r->list_services_response->service[i]->name, want[i]));
}

static void reflection_lists_services(void **state) {
    reflection_response *r = ask(state, ASK(LIST_SERVICES), "");
    expect_services(r);
    release(r);
}

static void v1alpha_answers_the_same(void **state) {
    world *w = *state;
    relay_rpc_stream *s = open_stream(w, V1ALPHA);
    reflection_request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    request.message_request_case = ASK(LIST_SERVICES);
    reflection_response *r = ask_on(s, &request);
    expect_services(r);
    release(r);
    relay_rpc_stream_release(s);
}

// The names of the files in an answer, in order.
static void expect_files(const reflection_response *r, const char *const *names, size_t n) {
    assert_int_equal(r->message_response_case, ANSWER(FILE_DESCRIPTOR_RESPONSE));
    assert_int_equal(r->file_descriptor_response->n_file_descriptor_proto, n);
    for (size_t i = 0; i < n; i++) {
        ProtobufCBinaryData file = r->file_descriptor_response->file_descriptor_proto[i];
        relay_pb_reader reader = relay_pb_read(file.data, file.len);
        relay_pb_field f;
        assert_true(relay_pb_next(&reader, &f));
        assert_int_equal(f.number, 1);
        assert_true(equals((ProtobufCBinaryData){.data = (uint8_t *)f.data, .len = f.size}, names[i]));
    }
}

static void a_symbol_brings_its_file_and_what_that_imports(void **state) {
    static const char *const symbols[] = {"relay.v1.GenerationService", "relay.v1.GenerationService.Generate",
                                          "relay.v1.GenerateRequest", "relay.v1.GenerateRequest.prompt"};
    for (int i = 0; i < 4; i++) {
        reflection_response *r = ask(state, ASK(FILE_CONTAINING_SYMBOL), symbols[i]);
        expect_files(r, (const char *[]){"relay/v1/generation.proto", "relay/v1/chat.proto", "relay/v1/sampling.proto"},
                     3);
        release(r);
    }
}

static void a_file_is_found_by_its_name(void **state) {
    reflection_response *r = ask(state, ASK(FILE_BY_FILENAME), "grpc/health/v1/health.proto");
    expect_files(r, (const char *[]){"grpc/health/v1/health.proto"}, 1);
    release(r);
}

static void expect_error(void **state, int what, const char *name, relay_code code, const char *text) {
    reflection_response *r = ask(state, what, name);
    assert_int_equal(r->message_response_case, ANSWER(ERROR_RESPONSE));
    assert_int_equal(r->error_response->error_code, code);
    assert_true(equals(r->error_response->error_message, text));
    release(r);
}

static void what_is_unknown_is_an_error_and_the_stream_goes_on(void **state) {
    expect_error(state, ASK(FILE_CONTAINING_SYMBOL), "no.Such", RELAY_NOT_FOUND, "no symbol \"no.Such\"");
    expect_error(state, ASK(FILE_BY_FILENAME), "no.proto", RELAY_NOT_FOUND, "no file \"no.proto\"");
    expect_error(state, ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "no.Type", RELAY_NOT_FOUND, "no message type \"no.Type\"");
    expect_error(state, ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "relay.v1.ModelService", RELAY_NOT_FOUND,
                 "no message type \"relay.v1.ModelService\"");
    expect_error(state, 0, "", RELAY_INVALID_ARGUMENT, "no question in the request for host \"a.host\"");
    reflection_lists_services(state);
}

static void messages_have_no_extensions(void **state) {
    world *w = *state;
    reflection_response *r = ask(state, ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "relay.v1.Chat");
    assert_int_equal(r->message_response_case, ANSWER(ALL_EXTENSION_NUMBERS_RESPONSE));
    assert_true(equals(r->all_extension_numbers_response->base_type_name, "relay.v1.Chat"));
    assert_int_equal(r->all_extension_numbers_response->n_extension_number, 0);
    release(r);

    Grpc__Reflection__V1__ExtensionRequest extension = GRPC__REFLECTION__V1__EXTENSION_REQUEST__INIT;
    extension.has_containing_type = 1;
    extension.containing_type = bytes("relay.v1.Chat");
    reflection_request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    request.message_request_case = ASK(FILE_CONTAINING_EXTENSION);
    request.file_containing_extension = &extension;
    r = ask_on(w->stream, &request);
    assert_int_equal(r->message_response_case, ANSWER(ERROR_RESPONSE));
    assert_int_equal(r->error_response->error_code, RELAY_NOT_FOUND);
    release(r);
}

static void invalid_utf8_ends_the_stream(void **state) {
    world *w = *state;
    relay_rpc_stream *s = open_stream(w, V1);
    reflection_request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    request.message_request_case = ASK(FILE_CONTAINING_SYMBOL);
    request.file_containing_symbol = bytes("relay.\xFF");
    assert_int_equal(relay_rpc_stream_send(s, &request.base), RELAY_OK);
    ProtobufCMessage *message;
    relay_err e;
    assert_int_equal(relay_rpc_stream_next(s, soon(), &message, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "file_containing_symbol is not valid UTF-8: byte 6 of 7 is 0xFF");
    relay_rpc_stream_release(s);
}

static void v1_and_v1alpha_are_the_same_on_the_wire(void **state) {
    // What lets one set of messages serve both: each field has the same number, type and name.
    const ProtobufCMessageDescriptor *pairs[][2] = {
        {&grpc__reflection__v1__server_reflection_request__descriptor,
         &grpc__reflection__v1alpha__server_reflection_request__descriptor},
        {&grpc__reflection__v1__server_reflection_response__descriptor,
         &grpc__reflection__v1alpha__server_reflection_response__descriptor},
        {&grpc__reflection__v1__extension_request__descriptor,
         &grpc__reflection__v1alpha__extension_request__descriptor},
        {&grpc__reflection__v1__file_descriptor_response__descriptor,
         &grpc__reflection__v1alpha__file_descriptor_response__descriptor},
        {&grpc__reflection__v1__extension_number_response__descriptor,
         &grpc__reflection__v1alpha__extension_number_response__descriptor},
        {&grpc__reflection__v1__list_service_response__descriptor,
         &grpc__reflection__v1alpha__list_service_response__descriptor},
        {&grpc__reflection__v1__service_response__descriptor, &grpc__reflection__v1alpha__service_response__descriptor},
        {&grpc__reflection__v1__error_response__descriptor, &grpc__reflection__v1alpha__error_response__descriptor},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const ProtobufCMessageDescriptor *a = pairs[i][0], *b = pairs[i][1];
        assert_string_equal(a->short_name, b->short_name);
        assert_int_equal(a->n_fields, b->n_fields);
        for (unsigned k = 0; k < a->n_fields; k++) {
            assert_string_equal(a->fields[k].name, b->fields[k].name);
            assert_int_equal(a->fields[k].id, b->fields[k].id);
            assert_int_equal(a->fields[k].type, b->fields[k].type);
            assert_int_equal(a->fields[k].label, b->fields[k].label);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(reflection_lists_services),
        TEST(v1alpha_answers_the_same),
        TEST(a_symbol_brings_its_file_and_what_that_imports),
        TEST(a_file_is_found_by_its_name),
        TEST(what_is_unknown_is_an_error_and_the_stream_goes_on),
        TEST(messages_have_no_extensions),
        TEST(invalid_utf8_ends_the_stream),
        cmocka_unit_test(v1_and_v1alpha_are_the_same_on_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
