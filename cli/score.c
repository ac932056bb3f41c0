// `relay score`: how likely a model finds what is there, id by id or as the perplexity of a text. With --model FILE the
// model runs in this process; else the service answers, by the prompt's logprobs of a Generate call.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/jsonl.h"
#include "cli/text_service.h"
#include "common/message.h"
#include "model_svc/scorer.h"
#include "relay/v1/generation.pb-c.h"
#include "relay/v1/tokenizer.pb-c.h"

enum { MAX_TOP = RELAY_MAX_TOP_LOGPROBS, DEFAULT_CONTEXT = 512 };

typedef struct score_command {
    relay_cli_common common;
    const char *kv_type, *text_file;
    int64_t context;
    bool as_lines, context_set;

    relay_scorer *scorer; // in this process, or
    relay_rpc_client *client;
    relay_cli_text *text; // what tokenizes --text

    // Of the text in hand.
    float *logprobs;
    size_t n, cap;
    uint32_t n_top;
    relay_buf *tops;    // as JSON, where n_top is not 0
    bool is_not_finite; // some id's number means nothing
    uint32_t *ids;      // of --text
    size_t n_ids;
} score_command;

// ---- One text's scores

static void add_top(score_command *c, const uint32_t *ids, const float *logprobs, size_t n) {
    relay_buf_puts(c->tops, c->n == 0 ? "[" : ", [");
    for (size_t i = 0; i < n; i++)
        relay_buf_printf(c->tops, "%s[%u, %.9g]", i == 0 ? "" : ", ", ids[i], (double)logprobs[i]);
    relay_buf_putc(c->tops, ']');
}

static void add_score(score_command *c, float logprob) {
    if (c->n == c->cap) {
        c->cap = c->cap == 0 ? 1024 : 2 * c->cap;
        c->logprobs = relay_realloc(c->logprobs, c->cap * sizeof *c->logprobs);
    }
    c->logprobs[c->n++] = logprob;
}

static void on_result(void *arg, const relay_sample_result *r) {
    score_command *c = arg;
    if (c->n_top != 0) add_top(c, r->top_ids, r->top_logprobs, r->n_top);
    c->is_not_finite |= !r->is_finite;
    add_score(c, r->logprob);
}

static void on_message(score_command *c, const Relay__V1__GenerateResponse *m) {
    const Relay__V1__PromptLogprobs *p = m->prompt_logprobs;
    for (size_t i = 0; p != NULL && i < p->n_logprobs; i++) {
        if (c->n_top != 0 && i < p->n_top) {
            const Relay__V1__TopLogprobs *top = p->top[i];
            add_top(c, top->token_ids, top->logprobs,
                    top->n_token_ids < top->n_logprobs ? top->n_token_ids : top->n_logprobs);
        }
        add_score(c, p->logprobs[i]);
    }
}

static relay_code ask_server(score_command *c, const uint32_t *ids, size_t n, relay_err *e) {
    Relay__V1__GenerateRequest request = RELAY__V1__GENERATE_REQUEST__INIT;
    Relay__V1__TokenIds prompt = RELAY__V1__TOKEN_IDS__INIT;
    Relay__V1__TextStop stop = RELAY__V1__TEXT_STOP__INIT;
    Relay__V1__TextOutput output = RELAY__V1__TEXT_OUTPUT__INIT;
    prompt.n_ids = n;
    prompt.ids = (uint32_t *)(uintptr_t)ids;
    request.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
    request.token_ids = &prompt;
    if (c->common.model[0] != 0) RELAY_SET(&request, model, relay_message_text(c->common.model));
    RELAY_SET(&stop, max_new_tokens, 1);
    RELAY_SET(&output, prompt_top_logprobs, c->n_top);
    request.stop = &stop;
    request.output = &output;
    relay_rpc_stream *stream;
    relay_code code = relay_rpc_stream_open(&stream, c->client, "/relay.v1.GenerationService/Generate",
                                            &relay__v1__generate_response__descriptor, NULL, 0,
                                            relay_cli_deadline(&c->common), NULL, NULL, e);
    if (code != RELAY_OK) return code;
    code = relay_rpc_stream_send(stream, &request.base);
    if (code != RELAY_OK) relay_fail(e, code, "the request was not sent: it is too large or the server is gone");
    relay_rpc_stream_half_close(stream);
    while (code == RELAY_OK) {
        ProtobufCMessage *m = NULL;
        bool timed_out = false;
        code = relay_rpc_stream_next(stream, RELAY_NEVER_US, &m, &timed_out, e);
        if (m == NULL) break;
        on_message(c, (const Relay__V1__GenerateResponse *)m);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    relay_rpc_stream_release(stream);
    return code;
}

// Fills in logprobs [n - 1], and the tops as JSON without the outer brackets.
static relay_code score_ids(score_command *c, const uint32_t *ids, size_t n, relay_err *e) {
    c->n = 0;
    c->is_not_finite = false;
    relay_code code =
        c->scorer != NULL ? relay_scorer_run(c->scorer, ids, n, c->n_top, on_result, c, e) : ask_server(c, ids, n, e);
    if (code != RELAY_OK) return code;
    if (c->n + 1 != n || c->is_not_finite) {
        return relay_fail(e, RELAY_INTERNAL, "the model gave %zu finite logprobs for %zu ids",
                          c->is_not_finite ? 0 : c->n, n);
    }
    return RELAY_OK;
}

// ---- Lines

// {"ids": [..], "top": 5} -> {"logprobs": [..], "top": [[[id, logprob], ..], ..]}
static relay_code score_line(void *arg, yyjson_val *line, relay_buf *out, relay_err *e) {
    static const char *const keys[] = {"ids", "top"};
    score_command *c = arg;
    yyjson_val *array = NULL;
    int has_top = 0;
    int64_t top = 0;
    uint32_t *ids = NULL;
    size_t n = 0;
    relay_code code = relay_jsonl_check_keys(line, keys, sizeof keys / sizeof keys[0], e);
    if (code == RELAY_OK) code = relay_jsonl_need(line, "ids", YYJSON_TYPE_ARR, "an array", &array, e);
    if (code == RELAY_OK) code = relay_jsonl_int(line, "top", &has_top, &top, e);
    if (code == RELAY_OK && (top < 0 || top > MAX_TOP)) {
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "top is %lld; allowed is [0, %d]", (long long)top, MAX_TOP);
    }
    if (code == RELAY_OK) code = relay_jsonl_ids(array, "ids", &ids, &n, e);
    if (code != RELAY_OK) return code;
    relay_buf tops;
    relay_buf_init(&tops, 1u << 30);
    c->tops = &tops;
    c->n_top = (uint32_t)top;
    code = score_ids(c, ids, n, e);
    free(ids);
    if (code == RELAY_OK) {
        relay_buf_puts(out, "{\"logprobs\": [");
        for (size_t i = 0; i < c->n; i++)
            relay_buf_printf(out, "%s%.9g", i == 0 ? "" : ", ", (double)c->logprobs[i]);
        relay_buf_putc(out, ']');
        if (has_top) {
            relay_buf_puts(out, ", \"top\": [");
            relay_buf_append(out, tops.data, tops.len);
            relay_buf_putc(out, ']');
        }
        relay_buf_putc(out, '}');
    }
    relay_buf_fini(&tops);
    return code;
}

// ---- A text's perplexity

static void take_encoding(void *arg, const ProtobufCMessage *response) {
    score_command *c = arg;
    const Relay__V1__Encoding *enc = ((const Relay__V1__TokenizeResponse *)response)->encoding;
    if (enc == NULL || enc->n_token_ids == 0) return;
    c->n_ids = enc->n_token_ids;
    c->ids = relay_calloc(c->n_ids, sizeof *c->ids);
    memcpy(c->ids, enc->token_ids, c->n_ids * sizeof *c->ids);
}

static relay_code tokenize(score_command *c, const char *text, size_t len, relay_err *e) {
    Relay__V1__TokenizeRequest request = RELAY__V1__TOKENIZE_REQUEST__INIT;
    const char *model = relay_cli_text_model(c->text);
    if (model[0] != 0) RELAY_SET(&request, model, relay_message_text(model));
    RELAY_SET(&request, text, relay_message_bytes(text, len));
    return relay_cli_text_call(c->text, RELAY_CLI_TOKENIZE, &request.base, take_encoding, c, e);
}

// The text in pieces of `context` ids, each scored by itself from its second id on.
static relay_code score_text(score_command *c, relay_err *e) {
    char *text;
    size_t len, n_scored = 0;
    if (!relay_cli_read(c->text_file, &text, &len)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "--text %s cannot be read", c->text_file);
    }
    relay_code code = tokenize(c, text, len, e);
    free(text);
    double sum = 0;
    c->n_top = 0;
    for (size_t first = 0; code == RELAY_OK && first + 1 < c->n_ids; first += (size_t)c->context) {
        size_t left = c->n_ids - first;
        code = score_ids(c, c->ids + first, left < (size_t)c->context ? left : (size_t)c->context, e);
        for (size_t i = 0; code == RELAY_OK && i < c->n; i++)
            sum += (double)c->logprobs[i];
        n_scored += c->n;
    }
    if (code == RELAY_OK && n_scored == 0) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "--text %s has %zu tokens; at least 2 are needed", c->text_file,
                          c->n_ids);
    }
    if (code != RELAY_OK) return code;
    printf("{\"perplexity\": %.6f, \"mean_logprob\": %.9g, \"tokens\": %zu, \"scored\": %zu, \"context\": %lld}\n",
           exp(-sum / (double)n_scored), sum / (double)n_scored, c->n_ids, n_scored, (long long)c->context);
    return RELAY_OK;
}

// ---- The command

static bool is_file(const char *path) {
    struct stat st;
    return path[0] != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static int open_model(score_command *c) {
    const bool is_local = is_file(c->common.model);
    int exit_code = RELAY_EXIT_OK;
    if (c->text_file[0] != 0) {
        exit_code = relay_cli_text_open(&c->text, is_local ? c->common.model : "", &c->common, false);
    }
    if (exit_code != RELAY_EXIT_OK) return exit_code;
    if (!is_local) return relay_cli_connect(&c->client, c->common.server);
    relay_err e = {0};
    relay_kv_type type = relay_kv_type_of(c->kv_type);
    relay_code code =
        relay_scorer_load(&c->scorer, c->common.model, type, c->text_file[0] != 0 ? (uint32_t)c->context : 0, &e);
    return code == RELAY_OK ? RELAY_EXIT_OK : relay_cli_error(code, &e);
}

static int run(score_command *c) {
    if (c->as_lines == (c->text_file[0] != 0) || (c->as_lines && c->context_set)) {
        fprintf(stderr, "relay score: either --jsonl, or --text FILE with or without --context\n");
        return RELAY_EXIT_USAGE;
    }
    int exit_code = open_model(c);
    if (exit_code != RELAY_EXIT_OK) return exit_code;
    if (c->as_lines) return relay_jsonl_run(score_line, c);
    relay_err e = {0};
    relay_code code = score_text(c, &e);
    return code == RELAY_OK ? RELAY_EXIT_OK : relay_cli_error(code, &e);
}

int relay_cli_score(int argc, char **argv) {
    score_command c = {.kv_type = "f16", .text_file = "", .context = DEFAULT_CONTEXT};
    relay_config_entry entries[RELAY_CLI_COMMON_FLAGS + 4];
    relay_cli_common_flags(&c.common, entries);
    for (int i = 0; i < RELAY_CLI_COMMON_FLAGS; i++) {
        if (strcmp(entries[i].name, "model") != 0) continue;
        entries[i].metavar = "FILE|NAME";
        entries[i].help = "a GGUF file, run in this process without a server; else which of the server's models";
    }
    const relay_config_entry own[] = {
        {.name = "kv-type",
         .kind = RELAY_CONFIG_STRING,
         .value = &c.kv_type,
         .metavar = "TYPE",
         .help = "how keys and values are kept, in this process",
         .choices = RELAY_KV_TYPE_NAMES},
        {.name = "jsonl",
         .kind = RELAY_CONFIG_BOOL,
         .value = &c.as_lines,
         .help = "one {\"ids\": [..], \"top\": N} a line, from standard input to standard output"},
        {.name = "text",
         .kind = RELAY_CONFIG_STRING,
         .value = &c.text_file,
         .metavar = "FILE",
         .help = "prints the perplexity of this file's text; - for standard input"},
        {.name = "context",
         .kind = RELAY_CONFIG_INT,
         .value = &c.context,
         .min = 2,
         .max = 1 << 20,
         .metavar = "N",
         .help = "tokens of the pieces in which --text is scored",
         .was_set = &c.context_set},
    };
    memcpy(entries + RELAY_CLI_COMMON_FLAGS, own, sizeof own);
    const relay_config config = {
        .program = "relay score",
        .env_prefix = "RELAY",
        .usage = "[flags] --jsonl | --text FILE",
        .summary = "How likely the model finds given ids or a text.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    int exit_code;
    if (relay_cli_parse(&config, argc, argv, NULL, NULL, &exit_code)) exit_code = run(&c);
    relay_cli_text_close(c.text);
    relay_rpc_client_destroy(c.client);
    relay_scorer_destroy(c.scorer);
    free(c.logprobs);
    free(c.ids);
    return exit_code;
}
