// `relay bench serve`: how many tokens a second a model server gives, and how long its callers wait for them.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/bench_load.h"
#include "cli/cli.h"
#include "common/ident.h"

enum { MAX_CONVERSATIONS = 1000000, MAX_TOKENS = 1 << 24, DEFAULT_REQUESTS = 16 };

typedef struct serve {
    const char *model_server, *trace;
    int64_t requests, prompt, output, turns, turn_prompt, in_flight, seed;
    double rate, scale, timeout;
    bool in_batches, in_flight_set, prompt_set, output_set, turn_prompt_set;
    relay_bench_conversation *conversations;
    uint32_t n;
} serve;

// ---- What to ask for

static uint32_t scaled(const serve *s, double length) {
    double n = length * s->scale;
    return n < 1 ? 1 : n > MAX_TOKENS ? MAX_TOKENS : (uint32_t)n;
}

// "PROMPT OUTPUT" or "MILLISECONDS PROMPT OUTPUT", with blanks or commas between. 0 where it is neither.
static int read_numbers(char *line, double numbers[3]) {
    for (char *at = line; *at != 0; at++)
        if (*at == ',') *at = ' ';
    int n = 0;
    char *at = line, *end;
    for (; n < 3; at = end, n++) {
        numbers[n] = strtod(at, &end);
        if (end == at || !(numbers[n] >= 0 && numbers[n] <= 1e12)) break;
    }
    while (isspace((unsigned char)*at))
        at++;
    return *at == 0 && n >= 2 ? n : 0;
}

// Lines that begin with # are skipped. Fills in conversations up to --requests, and whether they have times.
static relay_code read_trace(serve *s, char *text, bool *has_times, relay_err *e) {
    uint32_t line_number = 0;
    int columns = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL && (s->requests == 0 || s->n < s->requests)) {
        double numbers[3] = {0};
        line_number++;
        if (line[strspn(line, " \t\r")] == 0 || line[0] == '#') continue;
        int n = read_numbers(line, numbers);
        if (n == 0 || (columns != 0 && n != columns)) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "--trace %s: line %u is not \"PROMPT OUTPUT\" or \"MILLISECONDS PROMPT OUTPUT\", as all "
                              "lines of the file should be alike",
                              s->trace, line_number);
        }
        if (s->n == MAX_CONVERSATIONS) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "--trace %s: more than %d lines", s->trace, MAX_CONVERSATIONS);
        }
        columns = n;
        s->conversations = relay_realloc(s->conversations, (s->n + 1) * sizeof *s->conversations);
        s->conversations[s->n++] = (relay_bench_conversation){
            .at = n == 3 ? (relay_mono_us)(numbers[0] * 1e3) : 0,
            .n_prompt = scaled(s, numbers[n - 2]),
            .n_output = scaled(s, numbers[n - 1]),
        };
        uint32_t last = s->n - 1;
        if (last > 0 && s->conversations[last].at < s->conversations[last - 1].at) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "--trace %s: line %u is earlier than the one before", s->trace,
                              line_number);
        }
    }
    if (s->n == 0 || s->n < s->requests) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "--trace %s has %u lengths; --requests is %lld", s->trace, s->n,
                          (long long)s->requests);
    }
    *has_times = columns == 3;
    return RELAY_OK;
}

// Each at its time, --rate of them a second: by the trace's times drawn out or together, or with as much between any.
static void set_times(serve *s, bool has_times) {
    relay_mono_us first = s->conversations[0].at, span = s->conversations[s->n - 1].at - first;
    double us = (s->n - 1) * 1e6 / s->rate;
    for (uint32_t i = 0; i < s->n; i++) {
        double share = has_times && span > 0 ? (double)(s->conversations[i].at - first) / (double)span
                                             : (double)i / (s->n > 1 ? s->n - 1 : 1);
        s->conversations[i].at = (relay_mono_us)(share * us);
    }
}

static relay_code make_conversations(serve *s, relay_err *e) {
    bool has_times = false;
    if (s->trace[0] != 0) {
        char *text;
        size_t len;
        if (!relay_cli_read(s->trace, &text, &len)) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "--trace %s cannot be read", s->trace);
        }
        text = relay_realloc(text, len + 1);
        text[len] = 0;
        relay_code code = read_trace(s, text, &has_times, e);
        free(text);
        if (code != RELAY_OK) return code;
    } else {
        s->n = (uint32_t)(s->requests == 0 ? DEFAULT_REQUESTS : s->requests);
        s->conversations = relay_calloc(s->n, sizeof *s->conversations);
        for (uint32_t i = 0; i < s->n; i++) {
            s->conversations[i].n_prompt = scaled(s, (double)s->prompt);
            s->conversations[i].n_output = scaled(s, (double)s->output);
        }
    }
    if (s->rate > 0) set_times(s, has_times);
    return RELAY_OK;
}

// ---- What came of it

static void print_times(const char *name, relay_bench_times *t) {
    static const double quantiles[] = {0.5, 0.9, 0.99, 1};
    static const char *const names[] = {"p50", "p90", "p99", "max"};
    relay_bench_times_sort(t);
    printf("\"%s\": {", name);
    for (size_t i = 0; t->n != 0 && i < sizeof names / sizeof names[0]; i++)
        printf("%s\"%s\": %.3f", i == 0 ? "" : ", ", names[i], relay_bench_times_quantile(t, quantiles[i]));
    putchar('}');
}

static void print_figures(const serve *s, relay_bench_load_figures *f) {
    double seconds = (double)f->took / 1e6;
    relay_bench_times first = {0};
    for (int64_t i = 0; i < s->turns; i++)
        relay_bench_times_add_all(&first, &f->turns[i].first);
    printf("{\"requests\": %u, \"failed\": %u, \"seconds\": %.3f, \"output_tokens\": %llu, "
           "\"output_tokens_per_second\": %.2f, ",
           f->n_calls, f->n_failed, seconds, (unsigned long long)f->n_output, (double)f->n_output / seconds);
    print_times("time_to_first_token_ms", &first);
    fputs(", ", stdout);
    print_times("gap_ms", &f->gaps);
    fputs(", \"turns\": [", stdout);
    for (int64_t i = 0; i < s->turns; i++) {
        relay_bench_turn *turn = &f->turns[i];
        printf("%s{\"answered\": %u, \"prompt_tokens\": %llu, \"cached_tokens\": %llu, ", i == 0 ? "" : ", ",
               turn->n_answered, (unsigned long long)turn->n_prompt, (unsigned long long)turn->n_cached);
        print_times("time_to_first_token_ms", &turn->first);
        putchar('}');
    }
    puts("]}");
    relay_bench_times_fini(&first);
}

static int run(serve *s) {
    relay_err e = {0};
    relay_code code = make_conversations(s, &e);
    if (code != RELAY_OK) return relay_cli_error(code, &e);
    relay_rpc_client *client;
    int exit_code = relay_cli_connect(&client, s->model_server);
    if (exit_code != RELAY_EXIT_OK) return exit_code;
    relay_cli_catch_interrupt();
    relay_bench_load_opts opts = {
        .client = client,
        .conversations = s->conversations,
        .n_conversations = s->n,
        .n_turns = (uint32_t)s->turns,
        .n_next_prompt = (uint32_t)s->turn_prompt,
        .in_flight = s->rate > 0 ? 0 : (uint32_t)s->in_flight,
        .in_batches = s->in_batches,
        .timeout = (relay_mono_us)(s->timeout * 1e6),
        .seed = (uint64_t)s->seed,
    };
    if (opts.seed == 0) relay_ident_random(&opts.seed, sizeof opts.seed);
    relay_bench_load_figures figures;
    code = relay_bench_load_run(&opts, &figures, &e);
    relay_rpc_client_destroy(client);
    if (code != RELAY_OK) return relay_cli_error(code, &e);
    print_figures(s, &figures);
    if (relay_cli_is_interrupted()) {
        exit_code = RELAY_EXIT_INTERRUPTED;
    } else if (figures.n_failed != 0) {
        exit_code = relay_cli_error(figures.first_error.code, &figures.first_error);
    }
    relay_bench_load_figures_fini(&figures);
    return exit_code;
}

// Flags that would do nothing beside others.
static const char *find_clash(const serve *s) {
    if (s->rate > 0 && s->in_flight_set) return "--rate and --in-flight are two kinds of load: give one";
    if (s->rate > 0 && s->in_batches) return "--static-batches are of --in-flight requests, not of --rate";
    if (s->trace[0] != 0 && (s->prompt_set || s->output_set)) return "--trace has lengths: no --prompt, no --output";
    if (s->turn_prompt_set && s->turns == 1) return "--turn-prompt is of the turns behind the first: give --turns";
    return NULL;
}

int relay_bench_serve(int argc, char **argv) {
    serve s = {.model_server = "127.0.0.1:50052",
               .trace = "",
               .prompt = 128,
               .output = 32,
               .turns = 1,
               .turn_prompt = 32,
               .in_flight = 1,
               .scale = 1};
    const relay_config_entry entries[] = {
        {"model-server", RELAY_CONFIG_STRING, &s.model_server, .metavar = "ADDRESS",
         .help = "where relay-model listens"},
        {"trace", RELAY_CONFIG_STRING, &s.trace, .metavar = "FILE",
         .help = "a request a line, \"PROMPT OUTPUT\" in tokens or \"MILLISECONDS PROMPT OUTPUT\", with blanks or "
                 "commas between; - for standard input"},
        {"requests", RELAY_CONFIG_INT, &s.requests, 0, MAX_CONVERSATIONS, "N",
         .help = "how many; 0: all of --trace, or 16 without one"},
        {"prompt", RELAY_CONFIG_INT, &s.prompt, 1, MAX_TOKENS, "TOKENS", .help = "of each prompt, without --trace",
         .was_set = &s.prompt_set},
        {"output", RELAY_CONFIG_INT, &s.output, 1, MAX_TOKENS, "TOKENS", .help = "of each answer, without --trace",
         .was_set = &s.output_set},
        {"scale", RELAY_CONFIG_FLOAT, &s.scale, 1e-6, 1e6, "FACTOR", .help = "lengths are multiplied by this"},
        {"turns", RELAY_CONFIG_INT, &s.turns, 1, RELAY_BENCH_MAX_TURNS, "N",
         .help = "calls of each request, each with all that was said before as its prompt"},
        {"turn-prompt", RELAY_CONFIG_INT, &s.turn_prompt, 1, MAX_TOKENS, "TOKENS",
         .help = "that each turn behind the first adds to it", .was_set = &s.turn_prompt_set},
        {"in-flight", RELAY_CONFIG_INT, &s.in_flight, 1, 65536, "N",
         .help = "requests at a time: as one ends the next begins", .was_set = &s.in_flight_set},
        {"static-batches", RELAY_CONFIG_BOOL, &s.in_batches,
         .help = "the next --in-flight begin only when all of the last have ended"},
        {"rate", RELAY_CONFIG_FLOAT, &s.rate, 0, 100000, "N",
         .help = "requests a second, whether or not others have ended, by the times of --trace where it has them; a "
                 "call counts from when it was due; 0: --in-flight"},
        {"timeout", RELAY_CONFIG_FLOAT, &s.timeout, 0, 86400, "SECONDS", .help = "deadline of a call; 0 for none"},
        {"seed", RELAY_CONFIG_INT, &s.seed, 0, 1LL << 52, "N",
         .help = "of the prompts' random ids; 0: another each run"},
    };
    const relay_config config = {
        .program = "relay bench serve",
        .env_prefix = "RELAY",
        .usage = "[flags]",
        .summary = "Asks a model server for answers of given lengths to prompts of given lengths, and prints as one "
                   "JSON object how many tokens a second came and how long callers waited: for the first one, and "
                   "between one and the next.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    int exit_code;
    if (!relay_cli_parse(&config, argc, argv, NULL, NULL, &exit_code)) return exit_code;
    const char *clash = find_clash(&s);
    if (clash != NULL) {
        fprintf(stderr, "relay bench serve: %s\n", clash);
        return RELAY_EXIT_USAGE;
    }
    exit_code = run(&s);
    free(s.conversations);
    return exit_code;
}
