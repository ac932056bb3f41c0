// `relay`: the command line tool, a gRPC client of both services, and their tokenizers and models by itself.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const relay_command commands[] = {
    {"chat", "talk with the model, turn by turn", relay_cli_chat},
    {"generate", "one answer to a prompt", relay_cli_generate},
    {"tokenize", "text to token ids", relay_cli_tokenize},
    {"detokenize", "token ids to text", relay_cli_detokenize},
    {"render", "a conversation to a prompt", relay_cli_render},
    {"score", "how likely the model finds a text", relay_cli_score},
    {"info", "what the services say of themselves", relay_cli_info},
    {"bench", "measures", relay_cli_bench},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *f) {
    fputs("usage: relay COMMAND [flags]\n\n", f);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fputs("\nrelay COMMAND --help tells a command's flags. Every flag can be set in the environment as well:\n"
          "--server is RELAY_SERVER.\n\n"
          "Exit codes: 0 done, 1 the server failed, 2 a flag or field is wrong, 3 no server (or starting, draining),\n"
          "4 overloaded, 5 deadline passed, 130 interrupted.\n",
          f);
}

// An answer that could not be written is a failure, whatever the server said.
static int finish_output(int exit_code) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return exit_code;
    fprintf(stderr, "relay: standard output: %s\n", strerror(errno));
    return exit_code != RELAY_EXIT_OK ? exit_code : RELAY_EXIT_FAILED;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return RELAY_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return RELAY_EXIT_OK;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return finish_output(commands[i].run(argc - 1, argv + 1));
    fprintf(stderr, "relay: there is no command %s\n\n", argv[1]);
    print_help(stderr);
    return RELAY_EXIT_USAGE;
}
