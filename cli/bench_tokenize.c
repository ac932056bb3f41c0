// `relay bench tokenize`: Tokenize calls at a fixed rate, and how long they took.
//
// An open loop: when a call is made depends on the clock alone and not on the answers, and its time counts from when it
// was due. A server that stalls for a second is seen by all the calls of that second, as its users would see it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/bench_times.h"
#include "cli/cli.h"
#include "common/message.h"
#include "relay/v1/tokenizer.pb-c.h"

enum { MAX_CALLS = 10 * 1000 * 1000, MAX_IN_FLIGHT = 4096, SECOND_US = 1000000 };
static const relay_mono_us CALL_TIMEOUT_US = 60 * (relay_mono_us)SECOND_US;

typedef struct kind {
    double rate;
    char *text;
    size_t text_len; // of all texts, from which calls take theirs
    size_t call_len; // of one
    size_t n_calls;
    relay_bench_times answered; // of the calls that were
} kind;

typedef struct bench {
    relay_cli_common common;
    relay_rpc_client *client;
    pthread_mutex_t lock; // guards what follows, and the kinds' answers
    pthread_cond_t came_back;
    uint32_t n_in_flight, n_failed;
    relay_err first_error;
} bench;

typedef struct call {
    bench *b;
    kind *k;
    relay_mono_us due;
} call;

static void on_message(void *arg, ProtobufCMessage *message) {
}

static void on_done(void *arg, relay_code code, const relay_err *e) {
    call *c = arg;
    bench *b = c->b;
    relay_mono_us took = relay_mono_now() - c->due;
    pthread_mutex_lock(&b->lock);
    if (code == RELAY_OK)
        relay_bench_times_add(&c->k->answered, took);
    else if (b->n_failed++ == 0)
        b->first_error = *e;
    b->n_in_flight--;
    pthread_cond_signal(&b->came_back);
    pthread_mutex_unlock(&b->lock);
    free(c);
}

// A text of natural length distributions: words of common English, numbered so that texts differ.
static void make_text(kind *k, size_t n_texts) {
    static const char *const words[] = {"the",     "of",        "and",    "people", "water",   "through",
                                        "because", "different", "number", "should", "country", "answer",
                                        "thought", "between",   "never",  "city"};
    k->text_len = k->call_len + n_texts * 64;
    k->text = relay_calloc(k->text_len + 32, 1);
    uint32_t state = 1;
    for (size_t at = 0; at < k->text_len;) {
        state = state * 1664525 + 1013904223; // Numerical Recipes' generator
        const char *word = words[state >> 28];
        const char *end = (state >> 20 & 15) == 0 ? ".\n" : " ";
        at += (size_t)snprintf(k->text + at, 32, (state >> 16 & 15) == 0 ? "%s %u%s" : "%s%.0u%s", word,
                               (state >> 16 & 15) == 0 ? state >> 24 : 0, end);
    }
}

static relay_code send_call(bench *b, kind *k, size_t i, relay_mono_us due, relay_err *e) {
    static const relay_rpc_stream_callbacks callbacks = {.on_message = on_message, .on_done = on_done};
    Relay__V1__TokenizeRequest request = RELAY__V1__TOKENIZE_REQUEST__INIT;
    size_t begin = i * 64 % (k->text_len - k->call_len + 1);
    RELAY_SET(&request, text, relay_message_bytes(k->text + begin, k->call_len));
    if (b->common.model[0] != 0) RELAY_SET(&request, model, relay_message_text(b->common.model));
    pthread_mutex_lock(&b->lock);
    while (b->n_in_flight >= MAX_IN_FLIGHT)
        pthread_cond_wait(&b->came_back, &b->lock);
    b->n_in_flight++;
    pthread_mutex_unlock(&b->lock);
    call *c = relay_calloc(1, sizeof *c);
    *c = (call){.b = b, .k = k, .due = due};
    relay_rpc_stream *stream;
    relay_code code = relay_rpc_stream_open(&stream, b->client, "/relay.v1.TokenizerService/Tokenize",
                                            &relay__v1__tokenize_response__descriptor, NULL, 0,
                                            relay_mono_now() + CALL_TIMEOUT_US, &callbacks, c, e);
    if (code != RELAY_OK) {
        free(c);
        return code;
    }
    if (relay_rpc_stream_send(stream, &request.base) != RELAY_OK) relay_rpc_stream_cancel(stream);
    relay_rpc_stream_half_close(stream);
    relay_rpc_stream_release(stream);
    return RELAY_OK;
}

// All calls of both kinds, in the order in which they are due.
static relay_code send_all(bench *b, kind *kinds, size_t n_kinds, relay_err *e) {
    relay_mono_us start = relay_mono_now() + SECOND_US / 10;
    size_t sent[2] = {0};
    while (!relay_cli_is_interrupted()) {
        size_t next = n_kinds;
        relay_mono_us due = RELAY_NEVER_US;
        for (size_t i = 0; i < n_kinds; i++) {
            if (sent[i] == kinds[i].n_calls) continue;
            relay_mono_us at = start + (relay_mono_us)((double)sent[i] * SECOND_US / kinds[i].rate);
            if (at >= due) continue;
            due = at;
            next = i;
        }
        if (next == n_kinds) break;
        relay_bench_sleep_until(due);
        relay_code code = send_call(b, &kinds[next], sent[next]++, due, e);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

static void print_kind(kind *k, const char *name, bool as_json, double seconds, const char *comma) {
    static const double quantiles[] = {0.5, 0.9, 0.99, 0.999, 1};
    static const char *const names[] = {"p50", "p90", "p99", "p99.9", "max"};
    relay_bench_times_sort(&k->answered);
    printf(as_json ? "%s\"%s\": {\"bytes\": %zu, \"calls\": %zu, \"answered\": %zu, \"calls_per_second\": %.1f, "
                     "\"milliseconds\": {"
                   : "%s%s calls of %zu bytes: %zu made, %zu answered, %.1f a second; milliseconds",
           as_json ? comma : "", name, k->call_len, k->n_calls, k->answered.n, (double)k->answered.n / seconds);
    for (size_t i = 0; k->answered.n != 0 && i < sizeof names / sizeof names[0]; i++) {
        printf(as_json ? "%s\"%s\": %.3f" : "%s%s %.3f", i == 0 ? (as_json ? "" : " ") : ", ", names[i],
               relay_bench_times_quantile(&k->answered, quantiles[i]));
    }
    fputs(as_json ? "}}" : "\n", stdout);
}

static int run(bench *b, kind *kinds, size_t n_kinds, double seconds, bool as_json) {
    int exit_code = relay_cli_connect(&b->client, b->common.server);
    if (exit_code != RELAY_EXIT_OK) return exit_code;
    relay_cli_catch_interrupt();
    relay_err e;
    relay_code code = send_all(b, kinds, n_kinds, &e);
    pthread_mutex_lock(&b->lock);
    while (code == RELAY_OK && b->n_in_flight != 0)
        pthread_cond_wait(&b->came_back, &b->lock);
    pthread_mutex_unlock(&b->lock);
    relay_rpc_client_destroy(b->client);
    if (code != RELAY_OK) return relay_cli_error(code, &e);
    if (as_json) printf("{\"failed\": %u", b->n_failed);
    for (size_t i = 0; i < n_kinds; i++)
        print_kind(&kinds[i], i == 0 ? "small" : "large", as_json, seconds, ", ");
    if (as_json)
        puts("}");
    else if (b->n_failed != 0)
        printf("%u calls failed\n", b->n_failed);
    if (relay_cli_is_interrupted()) return RELAY_EXIT_INTERRUPTED;
    return b->n_failed == 0 ? RELAY_EXIT_OK : relay_cli_error(b->first_error.code, &b->first_error);
}

int relay_bench_tokenize(int argc, char **argv) {
    bench b = {.lock = PTHREAD_MUTEX_INITIALIZER, .came_back = PTHREAD_COND_INITIALIZER};
    double rate = 1000, large_rate = 0, seconds = 10;
    uint64_t bytes = 1024, large_bytes = 1 << 20;
    bool as_json = false;
    relay_config_entry entries[RELAY_CLI_COMMON_FLAGS + 6] = {0};
    relay_cli_common_flags(&b.common, entries);
    relay_config_entry *own = entries + RELAY_CLI_COMMON_FLAGS;
    own[0] = (relay_config_entry){.name = "rate",
                                  .kind = RELAY_CONFIG_FLOAT,
                                  .value = &rate,
                                  .min = 0.1,
                                  .max = 100000,
                                  .metavar = "N",
                                  .help = "calls a second"};
    own[1] = (relay_config_entry){.name = "bytes",
                                  .kind = RELAY_CONFIG_BYTES,
                                  .value = &bytes,
                                  .min = 1,
                                  .max = RELAY_CLI_MAX_INPUT,
                                  .metavar = "BYTES",
                                  .help = "text of a call"};
    own[2] = (relay_config_entry){.name = "large-rate",
                                  .kind = RELAY_CONFIG_FLOAT,
                                  .value = &large_rate,
                                  .min = 0,
                                  .max = 10000,
                                  .metavar = "N",
                                  .help = "calls with a large text a second, beside the others"};
    own[3] = (relay_config_entry){.name = "large-bytes",
                                  .kind = RELAY_CONFIG_BYTES,
                                  .value = &large_bytes,
                                  .min = 1,
                                  .max = RELAY_CLI_MAX_INPUT,
                                  .metavar = "BYTES",
                                  .help = "text of one of those"};
    own[4] = (relay_config_entry){.name = "seconds",
                                  .kind = RELAY_CONFIG_FLOAT,
                                  .value = &seconds,
                                  .min = 0.1,
                                  .max = 3600,
                                  .metavar = "SECONDS",
                                  .help = "how long"};
    own[5] = (relay_config_entry){
        .name = "json", .kind = RELAY_CONFIG_BOOL, .value = &as_json, .help = "the figures as one JSON object"};
    const relay_config config = {
        .program = "relay bench tokenize",
        .env_prefix = "RELAY",
        .usage = "[flags]",
        .summary =
            "Calls Tokenize at a fixed rate, whether or not answers come, and tells how long the answers took from "
            "when each call was due.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    int exit_code;
    if (!relay_cli_parse(&config, argc, argv, NULL, NULL, &exit_code)) return exit_code;
    kind kinds[2] = {{.rate = rate, .call_len = bytes}, {.rate = large_rate, .call_len = large_bytes}};
    size_t n_kinds = large_rate > 0 ? 2 : 1;
    for (size_t i = 0; i < n_kinds; i++) {
        double n_calls = kinds[i].rate * seconds;
        if (n_calls > MAX_CALLS) {
            fprintf(stderr, "relay bench tokenize: %.0f calls in all; at most %d are made\n", n_calls, MAX_CALLS);
            exit_code = RELAY_EXIT_USAGE;
        }
        kinds[i].n_calls = n_calls < 1 ? 1 : (size_t)n_calls;
    }
    if (exit_code == RELAY_EXIT_OK) {
        for (size_t i = 0; i < n_kinds; i++)
            make_text(&kinds[i], 1024);
        exit_code = run(&b, kinds, n_kinds, seconds, as_json);
    }
    for (size_t i = 0; i < n_kinds; i++) {
        free(kinds[i].text);
        relay_bench_times_fini(&kinds[i].answered);
    }
    return exit_code;
}
