#include "tokenizer_svc/service.h"

#include <stdlib.h>

#include "relay/v1/tokenizer.pb-c.h"
#include "tokenizer_svc/dispatch.h"
#include "tokenizer_svc/text_methods.h"

struct relay_tokenizer_service {
    relay_tokenizer_service_opts opts;
};

static void reply(void *call, const ProtobufCMessage *response) {
    relay_rpc_call_reply(call, response);
}

static relay_code run(relay_rpc_call *call, relay_text_method method, const ProtobufCMessage *message, relay_err *e) {
    const relay_tokenizer_service *s = relay_rpc_call_service(call);
    const relay_render_watch watch = {.is_over = relay_dispatch_is_over, .arg = call};
    const relay_text_call text_call = {
        .model = s->opts.model,
        .max_text_bytes = s->opts.max_text_bytes,
        .watch = &watch,
        .reply = reply,
        .arg = call,
    };
    return method(&text_call, message, e);
}

// A template that a client brings may take its time.
static bool is_long(const ProtobufCMessage *message) {
    return message->descriptor == &relay__v1__render_chat_request__descriptor &&
           ((const Relay__V1__RenderChatRequest *)message)->has_template_;
}

static void dispatch(relay_rpc_call *call, const ProtobufCMessage *message, relay_handler handler) {
    const relay_tokenizer_service *s = relay_rpc_call_service(call);
    relay_dispatch(s->opts.workers, call, is_long(message), handler);
}

#define RELAY_METHOD(name, Name, request_type, response_type)                                                          \
    static relay_code name(relay_rpc_call *call, const ProtobufCMessage *message, relay_err *e) {                      \
        return run(call, relay_text_##name, message, e);                                                               \
    }                                                                                                                  \
    static void name##_on_message(relay_rpc_call *call, ProtobufCMessage *message) {                                   \
        dispatch(call, message, name);                                                                                 \
    }                                                                                                                  \
    static const relay_rpc_method name##_method = {                                                                    \
        .path = "/" RELAY_TOKENIZER_SERVICE_NAME "/" #Name,                                                            \
        .kind = RELAY_RPC_UNARY,                                                                                       \
        .request = &relay__v1__##request_type##__descriptor,                                                           \
        .response = &relay__v1__##response_type##__descriptor,                                                         \
        .on_message = name##_on_message,                                                                               \
    };
RELAY_METHOD(tokenize, Tokenize, tokenize_request, tokenize_response)
RELAY_METHOD(tokenize_batch, TokenizeBatch, tokenize_batch_request, tokenize_batch_response)
RELAY_METHOD(render_chat, RenderChat, render_chat_request, render_chat_response)
RELAY_METHOD(detokenize, Detokenize, detokenize_request, detokenize_response)
RELAY_METHOD(detokenize_step, DetokenizeStep, detokenize_step_request, detokenize_step_response)
RELAY_METHOD(get_tokenizer_info, GetTokenizerInfo, get_tokenizer_info_request, get_tokenizer_info_response)
#undef RELAY_METHOD

relay_tokenizer_service *relay_tokenizer_service_create(relay_rpc_server *server,
                                                        const relay_tokenizer_service_opts *opts) {
    relay_tokenizer_service *s = relay_calloc(1, sizeof *s);
    s->opts = *opts;
    const relay_rpc_method *const methods[] = {&tokenize_method,   &tokenize_batch_method,  &render_chat_method,
                                               &detokenize_method, &detokenize_step_method, &get_tokenizer_info_method};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        relay_rpc_method own = *methods[i];
        own.service = s;
        relay_rpc_server_add(server, &own, 1);
    }
    return s;
}

void relay_tokenizer_service_destroy(relay_tokenizer_service *s) {
    free(s);
}
