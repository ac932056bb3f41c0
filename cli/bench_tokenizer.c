// `relay bench tokenizer`: how fast a tokenizer is in this process, on one thread, ids only.
//
// The text is cut into documents, each tokenized by a call of its own. A pass is all of them. "Cold" is the first pass
// of a tokenizer that has just been loaded, so that whatever it remembers of texts is empty at the beginning and fills
// while the pass goes on; "warm" is the pass behind it, over the same text. Loading counts in neither. Each round loads
// the tokenizer anew; the medians of the rounds are told, in processor time of the thread, so that what others do on
// the machine counts as little as may be.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/bench.h"
#include "cli/cli.h"
#include "tokenizer_svc/text_model.h"

enum { MAX_ROUNDS = 99 };

typedef struct bench {
    const char *tokenizer;
    char *text;
    size_t len;
    size_t document_bytes;
    relay_encoding enc; // of one document
    uint64_t n_tokens;  // of a pass
} bench;

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// One pass. The documents end between characters.
static relay_code pass(bench *b, const relay_tokenizer *t, double *seconds, relay_err *e) {
    static const relay_encode_opts opts = {0};
    b->n_tokens = 0;
    double start = thread_seconds();
    for (size_t at = 0, end; at < b->len; at = end) {
        end = b->len - at < b->document_bytes ? b->len : at + b->document_bytes;
        while (end < b->len && ((uint8_t)b->text[end] & 0xC0) == 0x80)
            end++;
        relay_text_span span = {.text = b->text + at, .len = end - at};
        b->enc.n = 0;
        relay_code code = relay_tokenizer_encode(t, &span, 1, &opts, &b->enc, e);
        if (code != RELAY_OK) return code;
        b->n_tokens += b->enc.n;
    }
    *seconds = thread_seconds() - start;
    return RELAY_OK;
}

static relay_code round_of(bench *b, double *cold, double *warm, relay_err *e) {
    relay_text_model *m;
    relay_code code = relay_text_model_load(&m, b->tokenizer, "", e);
    if (code != RELAY_OK) return code;
    const relay_tokenizer *t = relay_text_model_tokenizer(m);
    code = pass(b, t, cold, e);
    if (code == RELAY_OK) code = pass(b, t, warm, e);
    relay_text_model_destroy(m);
    return code;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_rate(const bench *b, double *seconds, size_t n) {
    qsort(seconds, n, sizeof *seconds, compare_doubles);
    double median = seconds[n / 2];
    return (double)b->len / 1e6 / (median > 0 ? median : 1e-9); // the clock's step is a nanosecond
}

static int run(bench *b, size_t n_rounds, bool as_json) {
    double cold[MAX_ROUNDS], warm[MAX_ROUNDS];
    for (size_t i = 0; i < n_rounds; i++) {
        relay_err e;
        relay_code code = round_of(b, &cold[i], &warm[i], &e);
        if (code != RELAY_OK) return relay_cli_error(code, &e);
    }
    printf(as_json ? "{\"cold_megabytes_per_second\": %.2f, \"warm_megabytes_per_second\": %.2f, \"bytes\": %zu, "
                     "\"tokens\": %llu}\n"
                   : "%.2f MB/s cold, %.2f MB/s warm; %zu bytes, %llu tokens\n",
           median_rate(b, cold, n_rounds), median_rate(b, warm, n_rounds), b->len, (unsigned long long)b->n_tokens);
    return RELAY_EXIT_OK;
}

int relay_bench_tokenizer(int argc, char **argv) {
    const char *tokenizer = "", *text = "";
    uint64_t document_bytes = 2048;
    int64_t n_rounds = 5;
    bool as_json = false;
    relay_config_entry entries[] = {
        {.name = "tokenizer",
         .kind = RELAY_CONFIG_STRING,
         .value = &tokenizer,
         .metavar = "FILE",
         .help = "the tokenizer: a file that relay-tokenizer takes"},
        {.name = "text",
         .kind = RELAY_CONFIG_STRING,
         .value = &text,
         .metavar = "FILE",
         .help = "UTF-8; - is standard input"},
        {.name = "document-bytes",
         .kind = RELAY_CONFIG_BYTES,
         .value = &document_bytes,
         .min = 1,
         .max = RELAY_CLI_MAX_INPUT,
         .metavar = "BYTES",
         .help = "of the text that one call tokenizes"},
        {.name = "rounds",
         .kind = RELAY_CONFIG_INT,
         .value = &n_rounds,
         .min = 1,
         .max = MAX_ROUNDS,
         .metavar = "N",
         .help = "each with the tokenizer loaded anew; medians are told"},
        {.name = "json", .kind = RELAY_CONFIG_BOOL, .value = &as_json, .help = "the figures as one JSON object"},
    };
    const relay_config config = {
        .program = "relay bench tokenizer",
        .env_prefix = "RELAY",
        .usage = "--tokenizer FILE --text FILE [flags]",
        .summary = "Tokenizes a text in this process, on one thread, and tells the megabytes a second: of a tokenizer "
                   "that was just loaded (cold), and of the same text again (warm).",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    int exit_code;
    if (!relay_cli_parse(&config, argc, argv, NULL, NULL, &exit_code)) return exit_code;
    if (tokenizer[0] == 0 || text[0] == 0) {
        fputs("relay bench tokenizer: --tokenizer and --text are needed\n", stderr);
        return RELAY_EXIT_USAGE;
    }
    bench b = {.tokenizer = tokenizer, .document_bytes = document_bytes};
    if (!relay_cli_read(text, &b.text, &b.len)) return RELAY_EXIT_USAGE;
    if (b.len == 0) {
        fputs("relay bench tokenizer: the text is empty\n", stderr);
        exit_code = RELAY_EXIT_USAGE;
    } else {
        exit_code = run(&b, (size_t)n_rounds, as_json);
    }
    relay_encoding_fini(&b.enc);
    free(b.text);
    return exit_code;
}
