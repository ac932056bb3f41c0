#include "cli/text_service.h"

#include <stdlib.h>

#include "relay/v1/tokenizer.pb-c.h"
#include "tokenizer_svc/text_methods.h"

struct relay_cli_text {
    const relay_cli_common *common;
    relay_rpc_client *client; // NULL: in this process
    relay_text_model *model;  // NULL: there is none
};

static const struct {
    const char *path;
    const ProtobufCMessageDescriptor *response;
    relay_text_method run;
} methods[] = {
    [RELAY_CLI_TOKENIZE] = {"/relay.v1.TokenizerService/Tokenize", &relay__v1__tokenize_response__descriptor,
                            relay_text_tokenize},
    [RELAY_CLI_DETOKENIZE] = {"/relay.v1.TokenizerService/Detokenize", &relay__v1__detokenize_response__descriptor,
                              relay_text_detokenize},
    [RELAY_CLI_RENDER_CHAT] = {"/relay.v1.TokenizerService/RenderChat", &relay__v1__render_chat_response__descriptor,
                               relay_text_render_chat},
};

relay_config_entry relay_cli_text_flag(const char **tokenizer) {
    return (relay_config_entry){.name = "tokenizer",
                                .kind = RELAY_CONFIG_STRING,
                                .value = tokenizer,
                                .metavar = "FILE",
                                .help =
                                    "work in this process with this file's or folder's tokenizer, and ask no server"};
}

int relay_cli_text_open(relay_cli_text **out, const char *tokenizer, const relay_cli_common *common, bool needs_none) {
    int exit_code = RELAY_EXIT_OK;
    *out = NULL;
    relay_cli_text *t = relay_calloc(1, sizeof *t);
    t->common = common;
    if (tokenizer[0] != 0) {
        relay_err e;
        relay_code code = relay_text_model_load(&t->model, tokenizer, common->model, &e);
        if (code != RELAY_OK) exit_code = relay_cli_error(code, &e);
    } else if (!needs_none || common->is_server_set) {
        exit_code = relay_cli_connect(&t->client, common->server);
    }
    if (exit_code != RELAY_EXIT_OK) {
        relay_cli_text_close(t);
        return exit_code;
    }
    *out = t;
    return RELAY_EXIT_OK;
}

void relay_cli_text_close(relay_cli_text *t) {
    if (t == NULL) return;
    relay_rpc_client_destroy(t->client);
    relay_text_model_destroy(t->model);
    free(t);
}

const char *relay_cli_text_model(const relay_cli_text *t) {
    return t->model != NULL ? relay_text_model_name(t->model) : t->common->model;
}

relay_code relay_cli_text_call(relay_cli_text *t, relay_cli_text_method method, const ProtobufCMessage *request,
                               void (*reply)(void *arg, const ProtobufCMessage *response), void *arg, relay_err *e) {
    if (t->client == NULL) {
        const relay_text_call call = {
            .model = t->model, .max_text_bytes = RELAY_CLI_MAX_INPUT, .reply = reply, .arg = arg};
        return methods[method].run(&call, request, e);
    }
    ProtobufCMessage *response;
    relay_code code = relay_rpc_client_unary(t->client, methods[method].path, request, methods[method].response, NULL,
                                             0, relay_cli_deadline(t->common), &response, e);
    if (code != RELAY_OK) return code;
    reply(arg, response);
    protobuf_c_message_free_unpacked(response, NULL);
    return RELAY_OK;
}
