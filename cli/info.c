// `relay info`: what the services say of themselves, and with --check only whether they serve.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/message_json.h"
#include "common/message.h"
#include "grpc/health/v1/health.pb-c.h"
#include "relay/v1/generation.pb-c.h"
#include "relay/v1/model.pb-c.h"
#include "relay/v1/tokenizer.pb-c.h"

typedef struct question {
    const char *name;
    const char *path;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *response;
} question;

static relay_mono_us deadline_or(const relay_cli_common *common, relay_mono_us fallback_us) {
    return common->timeout > 0 ? relay_cli_deadline(common) : relay_mono_now() + fallback_us;
}

static int ask(relay_rpc_client *client, const relay_cli_common *common, const question *q,
               ProtobufCMessage **response) {
    relay_err e;
    relay_code code = relay_rpc_client_unary(client, q->path, q->request, q->response, NULL, 0,
                                             deadline_or(common, 10 * 1000000), response, &e);
    return code == RELAY_OK ? RELAY_EXIT_OK : relay_cli_error(code, &e);
}

// Whether the whole server is SERVING; prints what it is otherwise.
static int check_health(relay_rpc_client *client, const relay_cli_common *common, const char *address) {
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    const question q = {"health", "/grpc.health.v1.Health/Check", &request.base,
                        &grpc__health__v1__health_check_response__descriptor};
    ProtobufCMessage *response = NULL;
    int exit_code = ask(client, common, &q, &response);
    if (exit_code != RELAY_EXIT_OK) return exit_code;
    int status = ((Grpc__Health__V1__HealthCheckResponse *)response)->status;
    protobuf_c_message_free_unpacked(response, NULL);
    if (status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING) return RELAY_EXIT_OK;
    fprintf(stderr, "relay: UNAVAILABLE: %s is not SERVING\n", address);
    return RELAY_EXIT_UNAVAILABLE;
}

// Prints every answer of one server, as `NAME {JSON}` lines or as members of one JSON object.
static int show(const relay_cli_common *common, const char *address, const question *questions, size_t n, bool as_json,
                bool check) {
    relay_rpc_client *client;
    int exit_code = relay_cli_connect(&client, address);
    if (exit_code != RELAY_EXIT_OK) return exit_code;
    if (check) {
        exit_code = check_health(client, common, address);
        relay_rpc_client_destroy(client);
        return exit_code;
    }
    relay_buf line;
    relay_buf_init(&line, 64 << 20);
    for (size_t i = 0; i < n && exit_code == RELAY_EXIT_OK; i++) {
        ProtobufCMessage *response = NULL;
        exit_code = ask(client, common, &questions[i], &response);
        if (exit_code != RELAY_EXIT_OK) break;
        relay_buf_printf(&line, as_json ? "%s\"%s\":" : "%s%s ", as_json && i != 0 ? "," : "", questions[i].name);
        relay_message_json(response, &line);
        if (!as_json) relay_buf_putc(&line, '\n');
        protobuf_c_message_free_unpacked(response, NULL);
    }
    if (exit_code == RELAY_EXIT_OK && as_json)
        printf("{%.*s}\n", (int)line.len, line.data);
    else if (exit_code == RELAY_EXIT_OK)
        fwrite(line.data, 1, line.len, stdout);
    relay_buf_fini(&line);
    relay_rpc_client_destroy(client);
    return exit_code;
}

int relay_cli_info(int argc, char **argv) {
    relay_cli_common common;
    const char *model_server = "";
    bool as_json = false, check = false;
    relay_config_entry entries[RELAY_CLI_COMMON_FLAGS + 3] = {0};
    relay_cli_common_flags(&common, entries);
    relay_config_entry *own = entries + RELAY_CLI_COMMON_FLAGS;
    own[0] = (relay_config_entry){.name = "model-server",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &model_server,
                                  .metavar = "ADDRESS",
                                  .help = "where relay-model listens, to ask it as well"};
    own[1] = (relay_config_entry){
        .name = "json", .kind = RELAY_CONFIG_BOOL, .value = &as_json, .help = "one JSON object a server"};
    own[2] = (relay_config_entry){.name = "check",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &check,
                                  .help = "print nothing; exit with 0 when what is asked is SERVING, else 3"};
    const relay_config config = {
        .program = "relay info",
        .env_prefix = "RELAY",
        .usage = "[flags]",
        .summary = "Prints what the text service, and with --model-server the model service, say of themselves.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    int exit_code;
    if (!relay_cli_parse(&config, argc, argv, NULL, NULL, &exit_code)) return exit_code;
    Relay__V1__GetTokenizerInfoRequest tokenizer_info = RELAY__V1__GET_TOKENIZER_INFO_REQUEST__INIT;
    if (common.model[0] != 0) RELAY_SET(&tokenizer_info, model, relay_message_text(common.model));
    Relay__V1__ListModelsRequest list_models = RELAY__V1__LIST_MODELS_REQUEST__INIT;
    Relay__V1__GetModelInfoRequest model_info = RELAY__V1__GET_MODEL_INFO_REQUEST__INIT;
    Relay__V1__GetLoadRequest load = RELAY__V1__GET_LOAD_REQUEST__INIT;
    const question text_service[] = {
        {"models", "/relay.v1.GenerationService/ListModels", &list_models.base,
         &relay__v1__list_models_response__descriptor},
        {"tokenizer", "/relay.v1.TokenizerService/GetTokenizerInfo", &tokenizer_info.base,
         &relay__v1__get_tokenizer_info_response__descriptor},
    };
    const question model_service[] = {
        {"model", "/relay.v1.ModelService/GetModelInfo", &model_info.base,
         &relay__v1__get_model_info_response__descriptor},
        {"load", "/relay.v1.ModelService/GetLoad", &load.base, &relay__v1__get_load_response__descriptor},
    };
    exit_code = show(&common, common.server, text_service, 2, as_json, check);
    if (exit_code == RELAY_EXIT_OK && model_server[0] != 0)
        exit_code = show(&common, model_server, model_service, 2, as_json, check);
    return exit_code;
}
