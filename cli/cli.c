#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"

enum { CONNECT_US = 5000000 };

void relay_cli_common_flags(relay_cli_common *common, relay_config_entry *entries) {
    *common = (relay_cli_common){.server = "127.0.0.1:50051", .model = ""};
    const relay_config_entry flags[RELAY_CLI_COMMON_FLAGS] = {
        {.name = "server",
         .kind = RELAY_CONFIG_STRING,
         .value = &common->server,
         .metavar = "ADDRESS",
         .help = "where relay-tokenizer listens",
         .was_set = &common->is_server_set},
        {.name = "model",
         .kind = RELAY_CONFIG_STRING,
         .value = &common->model,
         .metavar = "NAME",
         .help = "which of the server's models; not needed where it has one"},
        {.name = "timeout",
         .kind = RELAY_CONFIG_FLOAT,
         .value = &common->timeout,
         .min = 0,
         .max = 86400,
         .metavar = "SECONDS",
         .help = "deadline of the call; 0 for none"},
    };
    memcpy(entries, flags, sizeof flags);
}

bool relay_cli_parse(const relay_config *config, int argc, char **argv, const char **positional, int *n_positional,
                     int *exit_code) {
    bool help_shown = false;
    relay_err e;
    relay_code code = relay_config_parse(config, argc, argv, positional, n_positional, &help_shown, &e);
    if (code != RELAY_OK) {
        fprintf(stderr, "%s: %s\nTry %s --help.\n", config->program, e.message, config->program);
        *exit_code = RELAY_EXIT_USAGE;
        return false;
    }
    *exit_code = RELAY_EXIT_OK;
    return !help_shown;
}

int relay_cli_error(relay_code code, const relay_err *e) {
    fprintf(stderr, "relay: %s: %s\n", relay_code_name(code), e->message);
    if (e->retry_after_ms != 0) fprintf(stderr, "relay: try again after %u ms\n", e->retry_after_ms);
    switch (code) {
    case RELAY_OK:
        return RELAY_EXIT_OK;
    case RELAY_INVALID_ARGUMENT:
    case RELAY_OUT_OF_RANGE:
    case RELAY_UNIMPLEMENTED:
    case RELAY_NOT_FOUND:
        return RELAY_EXIT_USAGE;
    case RELAY_UNAVAILABLE:
        return RELAY_EXIT_UNAVAILABLE;
    case RELAY_RESOURCE_EXHAUSTED:
        return RELAY_EXIT_OVERLOADED;
    case RELAY_DEADLINE_EXCEEDED:
        return RELAY_EXIT_TIMEOUT;
    case RELAY_CANCELLED:
        return RELAY_EXIT_INTERRUPTED;
    default:
        return RELAY_EXIT_FAILED;
    }
}

int relay_cli_connect(relay_rpc_client **out, const char *target) {
    *out = NULL;
    relay_err e;
    relay_code code = relay_rpc_client_create(out, &(relay_rpc_client_opts){.target = target}, &e);
    if (code != RELAY_OK) return relay_cli_error(code, &e);
    // A server that is not there is told at once, by its address, rather than by the first call's status.
    code = relay_rpc_client_wait_ready(*out, relay_mono_now() + CONNECT_US, &e);
    if (code == RELAY_OK) return RELAY_EXIT_OK;
    relay_rpc_client_destroy(*out);
    *out = NULL;
    fprintf(stderr, "relay: UNAVAILABLE: nothing answers at %s (--server, RELAY_SERVER)\n", target);
    return RELAY_EXIT_UNAVAILABLE;
}

relay_mono_us relay_cli_deadline(const relay_cli_common *common) {
    return common->timeout > 0 ? relay_mono_now() + (relay_mono_us)(common->timeout * 1e6) : RELAY_NEVER_US;
}

bool relay_cli_read(const char *path, char **data, size_t *len) {
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    if (f == NULL) {
        fprintf(stderr, "relay: %s: %s\n", path, strerror(errno));
        return false;
    }
    relay_buf buf;
    relay_buf_init(&buf, RELAY_CLI_MAX_INPUT);
    char chunk[65536];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        relay_buf_append(&buf, chunk, n);
    bool ok = !ferror(f) && !buf.is_failed;
    if (ferror(f)) fprintf(stderr, "relay: %s: %s\n", path, strerror(errno));
    if (buf.is_failed) fprintf(stderr, "relay: %s: more than %d bytes\n", path, RELAY_CLI_MAX_INPUT);
    if (!is_stdin) fclose(f);
    if (ok) *data = relay_buf_take(&buf, len);
    relay_buf_fini(&buf);
    return ok;
}

bool relay_cli_input(const char *const *words, int n_words, const char *file, char **text, size_t *len) {
    if (file != NULL && file[0] != 0 && n_words != 0) {
        fprintf(stderr, "relay: give the text as words or with --file, not both\n");
        return false;
    }
    if (file != NULL && file[0] != 0) return relay_cli_read(file, text, len);
    if (n_words == 0) return relay_cli_read("-", text, len);
    relay_buf buf;
    relay_buf_init(&buf, RELAY_CLI_MAX_INPUT);
    for (int i = 0; i < n_words; i++) {
        if (i != 0) relay_buf_putc(&buf, ' ');
        relay_buf_puts(&buf, words[i]);
    }
    *text = relay_buf_take(&buf, len);
    return true;
}

relay_code relay_cli_parse_ids(const char *text, const char *field, uint32_t **ids, size_t *n, relay_err *e) {
    size_t cap = 0;
    *ids = NULL;
    *n = 0;
    for (;;) {
        while (isspace((unsigned char)*text) || (*text != 0 && strchr(",[]", *text) != NULL))
            text++;
        if (*text == 0) return RELAY_OK;
        char *end;
        errno = 0;
        unsigned long long id = strtoull(text, &end, 10);
        if (!isdigit((unsigned char)*text) || errno != 0 || id > UINT32_MAX) {
            free(*ids);
            *ids = NULL;
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: \"%.20s\" is not a token id, 0 to %u", field, text,
                              UINT32_MAX);
        }
        if (*n == cap) *ids = relay_realloc(*ids, (cap = cap * 2 + 64) * sizeof **ids);
        (*ids)[(*n)++] = (uint32_t)id;
        text = end;
    }
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    interrupted = 1;
}

void relay_cli_catch_interrupt(void) {
    // No SA_RESTART: it must end the wait for a line.
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
}

bool relay_cli_is_interrupted(void) {
    return interrupted;
}

void relay_cli_clear_interrupt(void) {
    interrupted = 0;
}
