// `relay tokenize` and `relay detokenize`: the text service's two directions on the command line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/message_json.h"
#include "common/message.h"
#include "relay/v1/tokenizer.pb-c.h"

// A unary call with its errors printed; the response is to be freed with protobuf_c_message_free_unpacked.
static int call(const relay_cli_common *common, const char *path, const ProtobufCMessage *request,
                const ProtobufCMessageDescriptor *type, ProtobufCMessage **response) {
    relay_rpc_client *client;
    int exit_code = relay_cli_connect(&client, common->server);
    if (exit_code != RELAY_EXIT_OK) return exit_code;
    relay_err e;
    relay_code code =
        relay_rpc_client_unary(client, path, request, type, NULL, 0, relay_cli_deadline(common), response, &e);
    relay_rpc_client_destroy(client);
    return code == RELAY_OK ? RELAY_EXIT_OK : relay_cli_error(code, &e);
}

static void print_json(const ProtobufCMessage *m) {
    relay_buf line;
    relay_buf_init(&line, 1u << 30);
    relay_message_json(m, &line);
    fwrite(line.data, 1, line.len, stdout);
    putchar('\n');
    relay_buf_fini(&line);
}

int relay_cli_tokenize(int argc, char **argv) {
    relay_cli_common common;
    const char *file = "";
    bool as_json = false, add_special = false, add_special_set = false, parse_special = false, offsets = false,
         pieces = false, count = false;
    relay_config_entry entries[RELAY_CLI_COMMON_FLAGS + 7] = {0};
    relay_cli_common_flags(&common, entries);
    relay_config_entry *own = entries + RELAY_CLI_COMMON_FLAGS;
    own[0] = (relay_config_entry){.name = "file",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &file,
                                  .metavar = "FILE",
                                  .help = "the text is this file; - for standard input"};
    own[1] = (relay_config_entry){
        .name = "json", .kind = RELAY_CONFIG_BOOL, .value = &as_json, .help = "the whole answer as one JSON object"};
    own[2] = (relay_config_entry){.name = "add-special-tokens",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &add_special,
                                  .help = "BOS and EOS; unset: as the tokenizer's file says",
                                  .was_set = &add_special_set,
                                  .has_no_default = true};
    own[3] = (relay_config_entry){.name = "parse-special-tokens",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &parse_special,
                                  .help = "names of control tokens in the text are those tokens"};
    own[4] = (relay_config_entry){
        .name = "offsets", .kind = RELAY_CONFIG_BOOL, .value = &offsets, .help = "each token's bytes in the text"};
    own[5] = (relay_config_entry){
        .name = "pieces", .kind = RELAY_CONFIG_BOOL, .value = &pieces, .help = "each token's own bytes"};
    own[6] = (relay_config_entry){.name = "count", .kind = RELAY_CONFIG_BOOL, .value = &count, .help = "only how many"};
    const relay_config config = {
        .program = "relay tokenize",
        .env_prefix = "RELAY",
        .usage = "[flags] [TEXT ...]",
        .summary = "Prints the token ids of a text, one a line; with --offsets and --pieces more columns.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    const char **words = relay_calloc((uint64_t)argc, sizeof *words);
    int n_words = 0, exit_code;
    char *text = NULL;
    size_t len = 0;
    ProtobufCMessage *response = NULL;
    if (!relay_cli_parse(&config, argc, argv, words, &n_words, &exit_code)) goto done;
    exit_code = RELAY_EXIT_USAGE;
    if (!relay_cli_input(words, n_words, file, &text, &len)) goto done;
    Relay__V1__TokenizeRequest request = RELAY__V1__TOKENIZE_REQUEST__INIT;
    Relay__V1__TokenizeOptions options = RELAY__V1__TOKENIZE_OPTIONS__INIT;
    if (common.model[0] != 0) RELAY_SET(&request, model, relay_message_text(common.model));
    RELAY_SET(&request, text, relay_message_bytes(text, len));
    request.options = &options;
    if (add_special_set) RELAY_SET(&options, add_special_tokens, add_special);
    RELAY_SET(&options, parse_special_tokens, parse_special);
    RELAY_SET(&options, want_offsets, offsets);
    RELAY_SET(&options, want_pieces, pieces);
    RELAY_SET(&options, count_only, count);
    exit_code = call(&common, "/relay.v1.TokenizerService/Tokenize", &request.base,
                     &relay__v1__tokenize_response__descriptor, &response);
    if (exit_code != RELAY_EXIT_OK) goto done;
    const Relay__V1__Encoding *enc = ((Relay__V1__TokenizeResponse *)response)->encoding;
    if (as_json) {
        print_json(response);
    } else if (count) {
        printf("%u\n", enc != NULL ? enc->token_count : 0);
    } else {
        for (size_t i = 0; enc != NULL && i < enc->n_token_ids; i++) {
            printf("%u", enc->token_ids[i]);
            if (i < enc->n_offset_begin && i < enc->n_offset_end)
                printf("\t%u\t%u", enc->offset_begin[i], enc->offset_end[i]);
            if (i < enc->n_pieces) {
                putchar('\t');
                for (size_t k = 0; k < enc->pieces[i].len; k++) {
                    unsigned char c = enc->pieces[i].data[k];
                    if (c < 0x20 || c == 0x7F || c == '\\')
                        printf("\\x%02x", c);
                    else
                        putchar(c);
                }
            }
            putchar('\n');
        }
    }
done:
    if (response != NULL) protobuf_c_message_free_unpacked(response, NULL);
    free(text);
    free(words);
    return exit_code;
}

int relay_cli_detokenize(int argc, char **argv) {
    relay_cli_common common;
    const char *file = "";
    bool as_json = false, skip_special = true;
    relay_config_entry entries[RELAY_CLI_COMMON_FLAGS + 3] = {0};
    relay_cli_common_flags(&common, entries);
    relay_config_entry *own = entries + RELAY_CLI_COMMON_FLAGS;
    own[0] = (relay_config_entry){.name = "file",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &file,
                                  .metavar = "FILE",
                                  .help = "the ids are in this file; - for standard input"};
    own[1] = (relay_config_entry){
        .name = "json", .kind = RELAY_CONFIG_BOOL, .value = &as_json, .help = "the answer as one JSON object"};
    own[2] = (relay_config_entry){.name = "skip-special-tokens",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &skip_special,
                                  .help = "control tokens give no text"};
    const relay_config config = {
        .program = "relay detokenize",
        .env_prefix = "RELAY",
        .usage = "[flags] [ID ...]",
        .summary =
            "Prints the text of token ids, given as words (spaces or commas between), as a file or on standard input.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    const char **words = relay_calloc((uint64_t)argc, sizeof *words);
    int n_words = 0, exit_code;
    char *text = NULL;
    size_t len = 0;
    uint32_t *ids = NULL;
    ProtobufCMessage *response = NULL;
    if (!relay_cli_parse(&config, argc, argv, words, &n_words, &exit_code)) goto done;
    exit_code = RELAY_EXIT_USAGE;
    Relay__V1__DetokenizeRequest request = RELAY__V1__DETOKENIZE_REQUEST__INIT;
    if (!relay_cli_input(words, n_words, file, &text, &len)) goto done;
    relay_err e;
    relay_code code = relay_cli_parse_ids(text, "token_ids", &ids, &request.n_token_ids, &e);
    if (code != RELAY_OK) {
        exit_code = relay_cli_error(code, &e);
        goto done;
    }
    request.token_ids = ids;
    if (common.model[0] != 0) RELAY_SET(&request, model, relay_message_text(common.model));
    RELAY_SET(&request, skip_special_tokens, skip_special);
    exit_code = call(&common, "/relay.v1.TokenizerService/Detokenize", &request.base,
                     &relay__v1__detokenize_response__descriptor, &response);
    if (exit_code != RELAY_EXIT_OK) goto done;
    const Relay__V1__DetokenizeResponse *answer = (Relay__V1__DetokenizeResponse *)response;
    if (as_json) {
        print_json(response);
    } else {
        fwrite(answer->text.data, 1, answer->text.len, stdout);
        putchar('\n');
    }
done:
    if (response != NULL) protobuf_c_message_free_unpacked(response, NULL);
    free(ids);
    free(text);
    free(words);
    return exit_code;
}
