// grpc.reflection.v1.ServerReflection, and v1alpha, which is the same on the wire: both paths are served with the
// messages of v1.
//
// Answers come from the descriptor set in the binary. A file is answered with everything it imports behind it, so that
// one answer is enough. What is not found is an error inside its answer; the stream goes on.
#include <stdlib.h>
#include <string.h>

#include "common/descriptor_set.h"
#include "common/rpc_standard.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;
typedef Grpc__Reflection__V1__ServiceResponse service_response;

#define ASKS(what)    GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define ANSWERS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

static const char *const standard_services[] = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
};
enum { N_STANDARD_SERVICES = sizeof standard_services / sizeof *standard_services };

struct relay_rpc_reflection {
    const relay_descriptor_set *set;
    service_response *services; // immutable, one allocation each: the name's bytes
    service_response **service_list;
    size_t n_services;
};

// What one answer is built of; lives while it is sent.
typedef struct answer {
    reflection_response response;
    Grpc__Reflection__V1__FileDescriptorResponse files;
    Grpc__Reflection__V1__ExtensionNumberResponse extensions;
    Grpc__Reflection__V1__ListServiceResponse services;
    Grpc__Reflection__V1__ErrorResponse error;
    relay_err e;
} answer;

static void answer_error(answer *a, relay_code code, const char *what, const ProtobufCBinaryData *name) {
    relay_fail(&a->e, code, "%s \"%.*s\"", what, (int)name->len, name->len != 0 ? (const char *)name->data : "");
    a->error = (Grpc__Reflection__V1__ErrorResponse)GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    a->error.has_error_code = 1;
    a->error.error_code = code;
    a->error.has_error_message = 1;
    a->error.error_message = (ProtobufCBinaryData){.data = (uint8_t *)a->e.message, .len = strlen(a->e.message)};
    a->response.message_response_case = ANSWERS(ERROR_RESPONSE);
    a->response.error_response = &a->error;
}

// The file, and behind it each file that it imports, directly or not, once.
static void answer_file(answer *a, const relay_rpc_reflection *r, uint32_t index) {
    uint32_t n_files = relay_descriptor_set_n_files(r->set), n = 0;
    bool *is_listed = relay_calloc(n_files, sizeof *is_listed);
    uint32_t *list = relay_calloc(n_files, sizeof *list);
    list[n++] = index;
    is_listed[index] = true;
    for (uint32_t i = 0; i < n; i++) {
        const relay_descriptor_file *file = relay_descriptor_set_file(r->set, list[i]);
        for (uint32_t j = 0; j < file->n_imports; j++) {
            if (is_listed[file->imports[j]]) continue;
            is_listed[file->imports[j]] = true;
            list[n++] = file->imports[j];
        }
    }
    a->files = (Grpc__Reflection__V1__FileDescriptorResponse)GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    a->files.file_descriptor_proto = relay_calloc(n, sizeof *a->files.file_descriptor_proto);
    a->files.n_file_descriptor_proto = n;
    for (uint32_t i = 0; i < n; i++) {
        const relay_descriptor_file *file = relay_descriptor_set_file(r->set, list[i]);
        a->files.file_descriptor_proto[i] = (ProtobufCBinaryData){.data = (uint8_t *)file->data, .len = file->size};
    }
    a->response.message_response_case = ANSWERS(FILE_DESCRIPTOR_RESPONSE);
    a->response.file_descriptor_response = &a->files;
    free(list);
    free(is_listed);
}

static const relay_symbol *find_symbol(const relay_rpc_reflection *r, const ProtobufCBinaryData *name) {
    return relay_descriptor_set_find_symbol(r->set, (const char *)name->data, name->len);
}

static void answer_request(answer *a, const relay_rpc_reflection *r, const reflection_request *request) {
    const ProtobufCBinaryData *name;
    const relay_symbol *symbol;
    uint32_t index;
    switch (request->message_request_case) {
    case ASKS(LIST_SERVICES):
        a->services = (Grpc__Reflection__V1__ListServiceResponse)GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
        a->services.service = r->service_list;
        a->services.n_service = r->n_services;
        a->response.message_response_case = ANSWERS(LIST_SERVICES_RESPONSE);
        a->response.list_services_response = &a->services;
        return;
    case ASKS(FILE_BY_FILENAME):
        name = &request->file_by_filename;
        if (!relay_descriptor_set_find_file(r->set, (const char *)name->data, name->len, &index)) {
            answer_error(a, RELAY_NOT_FOUND, "no file", name);
            return;
        }
        answer_file(a, r, index);
        return;
    case ASKS(FILE_CONTAINING_SYMBOL):
        name = &request->file_containing_symbol;
        symbol = find_symbol(r, name);
        if (symbol == NULL) {
            answer_error(a, RELAY_NOT_FOUND, "no symbol", name);
            return;
        }
        answer_file(a, r, symbol->file);
        return;
    // Relay's contract has no extensions: a known type has none.
    case ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE):
        name = &request->all_extension_numbers_of_type;
        symbol = find_symbol(r, name);
        if (symbol == NULL || symbol->kind != RELAY_SYMBOL_MESSAGE) {
            answer_error(a, RELAY_NOT_FOUND, "no message type", name);
            return;
        }
        a->extensions =
            (Grpc__Reflection__V1__ExtensionNumberResponse)GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;
        a->extensions.has_base_type_name = 1;
        a->extensions.base_type_name = *name;
        a->response.message_response_case = ANSWERS(ALL_EXTENSION_NUMBERS_RESPONSE);
        a->response.all_extension_numbers_response = &a->extensions;
        return;
    case ASKS(FILE_CONTAINING_EXTENSION):
        answer_error(a, RELAY_NOT_FOUND, "no extension of", &request->file_containing_extension->containing_type);
        return;
    default:
        answer_error(a, RELAY_INVALID_ARGUMENT, "no question in the request for host", &request->host);
    }
}

static void on_message(relay_rpc_call *call, ProtobufCMessage *message) {
    const relay_rpc_reflection *r = relay_rpc_call_service(call);
    reflection_request *request = (reflection_request *)message;
    relay_err e;
    // What the client says is sent back to it, as text.
    if (relay_rpc_check_utf8(message, &e) != RELAY_OK) {
        relay_rpc_call_finish(call, e.code, &e);
        return;
    }
    answer a = {.response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT};
    a.response.has_valid_host = request->has_host;
    a.response.valid_host = request->host;
    a.response.original_request = request;
    answer_request(&a, r, request);
    if (relay_rpc_call_send(call, &a.response.base) == RELAY_RESOURCE_EXHAUSTED) {
        relay_fail(&e, RELAY_RESOURCE_EXHAUSTED, "the client does not read its answers: %llu bytes are waiting for it",
                   (unsigned long long)relay_rpc_call_outbox_used(call));
        relay_rpc_call_abort(call, e.code, &e);
    }
    free(a.files.file_descriptor_proto);
}

static void on_half_close(relay_rpc_call *call) {
    relay_rpc_call_finish(call, RELAY_OK, NULL);
}

relay_rpc_reflection *relay_rpc_reflection_create(relay_rpc_server *s, const char *const *services, size_t n_services) {
    relay_rpc_reflection *r = relay_calloc(1, sizeof *r);
    r->set = relay_descriptor_set_builtin();
    r->n_services = n_services + N_STANDARD_SERVICES;
    r->services = relay_calloc(r->n_services, sizeof *r->services);
    r->service_list = relay_calloc(r->n_services, sizeof *r->service_list);
    for (size_t i = 0; i < r->n_services; i++) {
        const char *name = i < n_services ? services[i] : standard_services[i - n_services];
        size_t len = strlen(name);
        service_response *service = r->service_list[i] = &r->services[i];
        *service = (service_response)GRPC__REFLECTION__V1__SERVICE_RESPONSE__INIT;
        service->has_name = 1;
        service->name = (ProtobufCBinaryData){.data = (uint8_t *)relay_strndup(name, len), .len = len};
    }
    static const char *const paths[] = {
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        relay_rpc_method method = {
            .path = paths[i],
            .kind = RELAY_RPC_BIDI,
            .request = &grpc__reflection__v1__server_reflection_request__descriptor,
            .response = &grpc__reflection__v1__server_reflection_response__descriptor,
            .service = r,
            .on_message = on_message,
            .on_half_close = on_half_close,
        };
        relay_rpc_server_add(s, &method, 1);
    }
    return r;
}

void relay_rpc_reflection_destroy(relay_rpc_reflection *r) {
    if (r == NULL) return;
    for (size_t i = 0; i < r->n_services; i++)
        free(r->services[i].name.data);
    free(r->services);
    free(r->service_list);
    free(r);
}
