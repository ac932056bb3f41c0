// `relay generate`: one answer to a prompt given as words, as a file, or on standard input.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/generation.h"
#include "cli/sampling_flags.h"
#include "common/message.h"

int relay_cli_generate(int argc, char **argv) {
    relay_cli_common common;
    relay_sampling_flags flags;
    const char *file = "", *system_text = "";
    bool is_chat = false, as_json = false, stats = false, parse_special = false;
    relay_config_entry entries[RELAY_CLI_COMMON_FLAGS + 6 + RELAY_SAMPLING_FLAGS] = {0};
    relay_cli_common_flags(&common, entries);
    relay_config_entry *own = entries + RELAY_CLI_COMMON_FLAGS;
    own[0] = (relay_config_entry){.name = "file",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &file,
                                  .metavar = "FILE",
                                  .help = "the prompt is this file; - for standard input"};
    own[1] = (relay_config_entry){.name = "chat",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &is_chat,
                                  .help = "the prompt is a user's message, put through the model's chat template"};
    own[2] = (relay_config_entry){.name = "system",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &system_text,
                                  .metavar = "TEXT",
                                  .help = "with --chat, the system message"};
    own[3] = (relay_config_entry){
        .name = "json", .kind = RELAY_CONFIG_BOOL, .value = &as_json, .help = "one JSON object a message"};
    own[4] = (relay_config_entry){.name = "stats",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &stats,
                                  .help = "one line of figures at the end, on standard error"};
    own[5] = (relay_config_entry){.name = "parse-special-tokens",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &parse_special,
                                  .help = "names of control tokens in the prompt are those tokens"};
    relay_sampling_flags_init(&flags, own + 6);
    const relay_config config = {
        .program = "relay generate",
        .env_prefix = "RELAY",
        .usage = "[flags] [PROMPT ...]",
        .summary = "Answers a prompt: the words given, --file, or standard input.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    const char **words = relay_calloc((uint64_t)argc, sizeof *words);
    int n_words = 0, exit_code;
    char *prompt = NULL;
    size_t prompt_len = 0;
    relay_generation g = {0};
    if (!relay_cli_parse(&config, argc, argv, words, &n_words, &exit_code)) goto done;
    exit_code = RELAY_EXIT_USAGE;
    if (!relay_cli_input(words, n_words, file, &prompt, &prompt_len)) goto done;

    Relay__V1__GenerateRequest request = RELAY__V1__GENERATE_REQUEST__INIT;
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    Relay__V1__ChatMessage messages[2], *list[2] = {&messages[0], &messages[1]};
    if (is_chat) {
        if (system_text[0] != 0)
            relay_generation_set_message(&messages[chat.n_messages++], "system", system_text, strlen(system_text));
        relay_generation_set_message(&messages[chat.n_messages++], "user", prompt, prompt_len);
        chat.messages = list;
        request.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_CHAT;
        request.chat = &chat;
    } else {
        if (system_text[0] != 0) {
            fprintf(stderr, "relay generate: --system goes with --chat\n");
            goto done;
        }
        request.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT;
        request.prompt = relay_message_bytes(prompt, prompt_len);
    }
    RELAY_SET(&request, parse_special_tokens, parse_special);
    if (common.model[0] != 0) RELAY_SET(&request, model, relay_message_text(common.model));
    relay_err e;
    relay_code code = relay_sampling_flags_apply(&flags, &request, &e);
    if (code != RELAY_OK) {
        exit_code = relay_cli_error(code, &e);
        goto done;
    }
    exit_code = relay_cli_connect(&g.client, common.server);
    if (exit_code != RELAY_EXIT_OK) goto done;
    relay_cli_catch_interrupt();
    g.as_json = as_json;
    g.deadline = relay_cli_deadline(&common);
    exit_code = relay_generation_run(&g, &request);
    if (!as_json && (g.text.len == 0 || g.text.data[g.text.len - 1] != '\n')) putchar('\n');
    fflush(stdout);
    if (stats && exit_code == RELAY_EXIT_OK) relay_generation_print_stats(&g, stderr);
done:
    relay_sampling_flags_fini(&flags);
    relay_buf_fini(&g.text);
    relay_buf_fini(&g.ids);
    relay_rpc_client_destroy(g.client);
    free(prompt);
    free(words);
    return exit_code;
}
