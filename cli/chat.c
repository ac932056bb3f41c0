// `relay chat`: a conversation on the terminal. Ctrl-C stops an answer, not the chat; lines that begin with / are
// commands.
//
// An answer is kept with the ids it was generated as, and sent back so: the ids of a turn begin with those of the turn
// before, whatever its text would be tokenized to, and the model server finds them in its cache.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/generation.h"
#include "cli/sampling_flags.h"
#include "common/message.h"

enum { MAX_TURNS = 4096 };

typedef struct chat_state {
    relay_cli_common common;
    relay_sampling_flags flags;
    relay_rpc_client *client;
    bool stats;
    // The turns so far; texts and ids owned.
    Relay__V1__ChatMessage turns[MAX_TURNS];
    size_t n_turns;
} chat_state;

static void add_turn(chat_state *c, const char *role, const char *text, size_t len) {
    relay_generation_set_message(&c->turns[c->n_turns++], role, relay_strndup(text, len), len);
}

static void add_answer(chat_state *c, const relay_generation *g) {
    add_turn(c, "assistant", g->text.data != NULL ? g->text.data : "", g->text.len);
    Relay__V1__ChatMessage *m = &c->turns[c->n_turns - 1];
    if (g->ids.len == 0) return;
    m->n_token_ids = g->ids.len / sizeof *m->token_ids;
    m->token_ids = relay_calloc(m->n_token_ids, sizeof *m->token_ids);
    memcpy(m->token_ids, g->ids.data, g->ids.len);
}

static void drop_turns(chat_state *c, size_t keep) {
    while (c->n_turns > keep) {
        const Relay__V1__ChatMessage *m = &c->turns[--c->n_turns];
        free(m->content.data);
        free(m->token_ids);
    }
}

// The user's text as the next turn, and the model's answer as the one behind it. A turn that fails is taken back.
static int ask(chat_state *c, const char *text, size_t len) {
    if (c->n_turns + 2 > MAX_TURNS) {
        fprintf(stderr, "relay chat: %d turns are the most; /reset begins again\n", MAX_TURNS);
        return RELAY_EXIT_USAGE;
    }
    add_turn(c, "user", text, len);
    Relay__V1__ChatMessage *list[MAX_TURNS];
    for (size_t i = 0; i < c->n_turns; i++)
        list[i] = &c->turns[i];
    Relay__V1__Chat chat = RELAY__V1__CHAT__INIT;
    chat.messages = list;
    chat.n_messages = c->n_turns;
    Relay__V1__GenerateRequest request = RELAY__V1__GENERATE_REQUEST__INIT;
    request.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_CHAT;
    request.chat = &chat;
    if (c->common.model[0] != 0) RELAY_SET(&request, model, relay_message_text(c->common.model));
    relay_err e;
    relay_code code = relay_sampling_flags_apply(&c->flags, &request, &e);
    if (code != RELAY_OK) {
        drop_turns(c, c->n_turns - 1);
        return relay_cli_error(code, &e);
    }
    RELAY_SET(request.output, return_token_ids, true);
    relay_cli_clear_interrupt();
    relay_generation g = {.client = c->client, .deadline = relay_cli_deadline(&c->common)};
    int exit_code = relay_generation_run(&g, &request);
    putchar('\n');
    if (exit_code == RELAY_EXIT_OK || g.was_cancelled) {
        // What was said before Ctrl-C stays part of the conversation.
        add_answer(c, &g);
        if (c->stats && !g.was_cancelled) relay_generation_print_stats(&g, stderr);
        if (g.was_cancelled) fprintf(stderr, "(stopped)\n");
    } else {
        drop_turns(c, c->n_turns - 1);
    }
    fflush(stdout);
    relay_buf_fini(&g.text);
    relay_buf_fini(&g.ids);
    return exit_code;
}

static void show_help(void) {
    puts("  /set NAME VALUE   a sampling parameter, such as /set temperature 0.7; without VALUE the model's default "
         "again\n"
         "  /settings         what is set\n"
         "  /reset            forgets the conversation\n"
         "  /undo             forgets the last question and its answer\n"
         "  /help             this\n"
         "  /quit             ends, as Ctrl-D does; Ctrl-C stops an answer");
}

static void set_parameter(chat_state *c, char *args) {
    char *rest = args;
    char *name = strtok_r(rest, " \t", &rest);
    if (name == NULL) {
        fprintf(stderr, "relay chat: /set NAME VALUE\n");
        return;
    }
    const char *value = rest + strspn(rest, " \t");
    relay_err e;
    if (relay_sampling_flags_set(&c->flags, name, value, &e) != RELAY_OK)
        fprintf(stderr, "relay chat: %s\n", e.message);
}

// Runs a line that begins with '/'. False: the chat ends.
static bool command(chat_state *c, char *line, size_t system_turns) {
    if (strcmp(line, "/set") == 0 || strncmp(line, "/set ", 5) == 0) {
        set_parameter(c, line + 4);
    } else if (strcmp(line, "/settings") == 0) {
        char *text = relay_sampling_flags_describe(&c->flags);
        puts(text[0] != 0 ? text : "nothing is set: the model's defaults");
        free(text);
    } else if (strcmp(line, "/reset") == 0) {
        drop_turns(c, system_turns);
    } else if (strcmp(line, "/undo") == 0) {
        drop_turns(c, c->n_turns >= system_turns + 2 ? c->n_turns - 2 : system_turns);
    } else if (strcmp(line, "/help") == 0) {
        show_help();
    } else if (strcmp(line, "/quit") == 0) {
        return false;
    } else {
        fprintf(stderr, "relay chat: \"%s\" is no command; /help tells them\n", line);
    }
    return true;
}

static int converse(chat_state *c, size_t system_turns) {
    bool is_terminal = isatty(STDIN_FILENO);
    char *line = NULL;
    size_t cap = 0;
    int exit_code = RELAY_EXIT_OK;
    if (is_terminal) fprintf(stderr, "/help tells the commands, Ctrl-D ends.\n");
    for (;;) {
        if (is_terminal) {
            fputs("> ", stdout);
            fflush(stdout);
        }
        relay_cli_clear_interrupt();
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) {
            // Ctrl-C while a line is typed throws the line away.
            if (!relay_cli_is_interrupted()) break;
            clearerr(stdin);
            putchar('\n');
            continue;
        }
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = 0;
        if (n == 0) continue;
        if (line[0] == '/') {
            if (!command(c, line, system_turns)) break;
            continue;
        }
        exit_code = ask(c, line, (size_t)n);
        // A person can go on after a failure; a script is told.
        if (!is_terminal && exit_code != RELAY_EXIT_OK) break;
    }
    free(line);
    return is_terminal ? RELAY_EXIT_OK : exit_code;
}

int relay_cli_chat(int argc, char **argv) {
    static chat_state state;
    chat_state *c = &state;
    const char *system_text = "", *first = "";
    relay_config_entry entries[RELAY_CLI_COMMON_FLAGS + 3 + RELAY_SAMPLING_FLAGS] = {0};
    relay_cli_common_flags(&c->common, entries);
    relay_config_entry *own = entries + RELAY_CLI_COMMON_FLAGS;
    c->stats = true;
    own[0] = (relay_config_entry){.name = "system",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &system_text,
                                  .metavar = "TEXT",
                                  .help = "the system message"};
    own[1] = (relay_config_entry){.name = "first",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &first,
                                  .metavar = "TEXT",
                                  .help = "a first question, asked at once"};
    own[2] = (relay_config_entry){.name = "stats",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &c->stats,
                                  .help = "a line of figures behind each answer, on standard error"};
    relay_sampling_flags_init(&c->flags, own + 3);
    const relay_config config = {
        .program = "relay chat",
        .env_prefix = "RELAY",
        .usage = "[flags]",
        .summary = "A conversation: a line is a question, a line that begins with / a command (/help).",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    int exit_code;
    if (!relay_cli_parse(&config, argc, argv, NULL, NULL, &exit_code)) return exit_code;
    exit_code = relay_cli_connect(&c->client, c->common.server);
    if (exit_code != RELAY_EXIT_OK) return exit_code;
    relay_cli_catch_interrupt();
    if (system_text[0] != 0) add_turn(c, "system", system_text, strlen(system_text));
    size_t system_turns = c->n_turns;
    if (first[0] != 0) {
        printf("> %s\n", first);
        exit_code = ask(c, first, strlen(first));
    }
    if (exit_code == RELAY_EXIT_OK || exit_code == RELAY_EXIT_INTERRUPTED) exit_code = converse(c, system_turns);
    drop_turns(c, 0);
    relay_sampling_flags_fini(&c->flags);
    relay_rpc_client_destroy(c->client);
    return exit_code;
}
