// What the commands of `relay` share: exit codes, the connection, reading input, printing errors.
#ifndef RELAY_CLI_CLI_H
#define RELAY_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "common/config.h"
#include "common/rpc_client.h"
#include "common/status.h"

// Exit codes, for scripts.
enum {
    RELAY_EXIT_OK = 0,
    RELAY_EXIT_FAILED = 1,       // the server said so, for a reason not below
    RELAY_EXIT_USAGE = 2,        // a flag or a field is wrong: INVALID_ARGUMENT, OUT_OF_RANGE, UNIMPLEMENTED, NOT_FOUND
    RELAY_EXIT_UNAVAILABLE = 3,  // no server, or it is starting or draining
    RELAY_EXIT_OVERLOADED = 4,   // RESOURCE_EXHAUSTED: try again later
    RELAY_EXIT_TIMEOUT = 5,      // DEADLINE_EXCEEDED
    RELAY_EXIT_INTERRUPTED = 130 // Ctrl-C
};

enum { RELAY_CLI_MAX_INPUT = 64 << 20 };

// One command: parses its own argv, returns an exit code.
typedef struct relay_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} relay_command;

int relay_cli_chat(int argc, char **argv);
int relay_cli_generate(int argc, char **argv);
int relay_cli_tokenize(int argc, char **argv);
int relay_cli_detokenize(int argc, char **argv);
int relay_cli_render(int argc, char **argv);
int relay_cli_score(int argc, char **argv);
int relay_cli_info(int argc, char **argv);
int relay_cli_bench(int argc, char **argv);

// The flags every command has; `entries` gets RELAY_CLI_COMMON_FLAGS of them.
typedef struct relay_cli_common {
    const char *server; // of the text service
    const char *model;  // which of its models; "" where it has one
    double timeout;     // seconds; 0: none
    bool is_server_set; // --server was given, or RELAY_SERVER
} relay_cli_common;

enum { RELAY_CLI_COMMON_FLAGS = 3 };
void relay_cli_common_flags(relay_cli_common *common, relay_config_entry *entries);

// Parses `config`; on --help or an error returns false with the exit code in *exit_code.
bool relay_cli_parse(const relay_config *config, int argc, char **argv, const char **positional, int *n_positional,
                     int *exit_code);
// Prints `relay: CODE: message` to standard error and returns the exit code for it.
int relay_cli_error(relay_code code, const relay_err *e);
// Opens a channel to `target`; on failure prints why, and *out is NULL.
int relay_cli_connect(relay_rpc_client **out, const char *target);
relay_mono_us relay_cli_deadline(const relay_cli_common *common);
// The whole of a file, "-" being standard input. Prints what is wrong; the caller frees.
bool relay_cli_read(const char *path, char **data, size_t *len);
// The words as one text with spaces between, or what --file names, or standard input where there are no words. The
// caller frees.
bool relay_cli_input(const char *const *words, int n_words, const char *file, char **text, size_t *len);

// Token ids with white space, commas or brackets between; the caller frees *ids. INVALID_ARGUMENT naming `field`.
relay_code relay_cli_parse_ids(const char *text, const char *field, uint32_t **ids, size_t *n,
                               relay_err *e) RELAY_NODISCARD;

// Ctrl-C. From the first call on it sets a mark instead of ending the program, and ends a wait for input.
void relay_cli_catch_interrupt(void);
bool relay_cli_is_interrupted(void);
void relay_cli_clear_interrupt(void);

#endif
