// `relay generate`: one answer to a prompt given as words, as a file, or on standard input.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/generation.h"
#include "cli/sampling_flags.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    interrupted = 1;
}

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
        .usage = "[flags] [--stop TEXT]... [PROMPT ...]",
        .summary = "Answers a prompt: the words given, --file, or standard input. --stop TEXT ends the answer where "
                   "TEXT would come.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    if (!relay_sampling_flags_take_stops(&flags, &argc, argv)) return RELAY_EXIT_USAGE;
    const char **words = relay_calloc((uint64_t)argc, sizeof *words);
    int n_words = 0, exit_code;
    char *prompt = NULL;
    size_t prompt_len = 0;
    relay_generation g = {.as_json = as_json};
    if (!relay_cli_parse(&config, argc, argv, words, &n_words, &exit_code)) goto done;
    exit_code = RELAY_EXIT_USAGE;
    if (!relay_cli_input(words, n_words, file, &prompt, &prompt_len)) goto done;

    Relay__V1__GenerateRequest request = RELAY__V1__GENERATE_REQUEST__INIT;
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    Relay__V1__ChatMessage messages[2] = {RELAY__V1__CHAT_MESSAGE__INIT, RELAY__V1__CHAT_MESSAGE__INIT};
    Relay__V1__ChatMessage *list[2];
    if (is_chat) {
        if (system_text[0] != 0) {
            messages[0].has_role = messages[0].has_content = true;
            messages[0].role = relay_cli_text("system", 6);
            messages[0].content = relay_cli_text(system_text, strlen(system_text));
            list[chat.n_messages++] = &messages[0];
        }
        messages[1].has_role = messages[1].has_content = true;
        messages[1].role = relay_cli_text("user", 4);
        messages[1].content = relay_cli_text(prompt, prompt_len);
        list[chat.n_messages++] = &messages[1];
        chat.messages = list;
        request.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_CHAT;
        request.chat = &chat;
    } else {
        if (system_text[0] != 0) {
            fprintf(stderr, "relay generate: --system goes with --chat\n");
            goto done;
        }
        request.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT;
        request.prompt = relay_cli_text(prompt, prompt_len);
        request.has_parse_special_tokens = parse_special;
        request.parse_special_tokens = parse_special;
    }
    request.has_model = common.model[0] != 0;
    request.model = relay_cli_text(common.model, strlen(common.model));
    relay_err e;
    relay_code code = relay_sampling_flags_apply(&flags, &request, &e);
    if (code != RELAY_OK) {
        exit_code = relay_cli_error(code, &e);
        goto done;
    }
    exit_code = relay_cli_connect(&g.client, common.server);
    if (exit_code != RELAY_EXIT_OK) goto done;
    signal(SIGINT, on_interrupt);
    g.as_json = as_json;
    g.is_interrupted = &interrupted;
    g.deadline = relay_cli_deadline(&common);
    exit_code = relay_generation_run(&g, &request);
    if (!as_json && (g.text.len == 0 || g.text.data[g.text.len - 1] != '\n')) putchar('\n');
    fflush(stdout);
    if (stats && exit_code == RELAY_EXIT_OK) relay_generation_print_stats(&g, stderr);
done:
    relay_sampling_flags_fini(&flags);
    relay_buf_fini(&g.text);
    relay_rpc_client_destroy(g.client);
    free(prompt);
    free(words);
    return exit_code;
}
