// `relay tokenize` and `relay detokenize`: the text service's two directions on the command line, of one text or, with
// --jsonl, of one a line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/jsonl.h"
#include "cli/message_json.h"
#include "cli/text_service.h"
#include "common/message.h"
#include "relay/v1/tokenizer.pb-c.h"

// ---- What both share

typedef struct command {
    relay_cli_common common;
    const char *tokenizer, *file;
    bool as_json, as_lines;
    relay_cli_text *text;
} command;

enum { SHARED_FLAGS = RELAY_CLI_COMMON_FLAGS + 4 };

static void shared_flags(command *c, relay_config_entry *entries, const char *file_help) {
    *c = (command){.tokenizer = "", .file = ""};
    relay_cli_common_flags(&c->common, entries);
    relay_config_entry *own = entries + RELAY_CLI_COMMON_FLAGS;
    own[0] = relay_cli_text_flag(&c->tokenizer);
    own[1] = (relay_config_entry){
        .name = "file", .kind = RELAY_CONFIG_STRING, .value = &c->file, .metavar = "FILE", .help = file_help};
    own[2] = (relay_config_entry){
        .name = "json", .kind = RELAY_CONFIG_BOOL, .value = &c->as_json, .help = "the whole answer as one JSON object"};
    own[3] = (relay_config_entry){.name = "jsonl",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &c->as_lines,
                                  .help = "one JSON object a line, from standard input to standard output"};
}

// Lines have all that they need in them.
static bool check_lines(const command *c, int n_words) {
    if (!c->as_lines || (n_words == 0 && c->file[0] == 0 && !c->as_json)) return true;
    fprintf(stderr, "relay: --jsonl reads standard input and goes without words, --file and --json\n");
    return false;
}

static void print_json(const ProtobufCMessage *m) {
    relay_buf line;
    relay_buf_init(&line, 1u << 30);
    relay_message_json(m, &line);
    fwrite(line.data, 1, line.len, stdout);
    putchar('\n');
    relay_buf_fini(&line);
}

static void set_model(const command *c, protobuf_c_boolean *is_set, ProtobufCBinaryData *model) {
    const char *name = relay_cli_text_model(c->text);
    *is_set = name[0] != 0;
    *model = relay_message_text(name);
}

// The whole of a command: its flags, and then its lines or its one text.
static int run_command(command *c, const relay_config *config, int argc, char **argv, relay_jsonl_answer answer_line,
                       int (*answer_text)(void *arg, const char *const *words, int n_words), void *arg) {
    const char **words = relay_calloc((uint64_t)argc, sizeof *words);
    int n_words = 0, exit_code;
    if (relay_cli_parse(config, argc, argv, words, &n_words, &exit_code)) {
        exit_code =
            check_lines(c, n_words) ? relay_cli_text_open(&c->text, c->tokenizer, &c->common, false) : RELAY_EXIT_USAGE;
        if (exit_code == RELAY_EXIT_OK) {
            exit_code = c->as_lines ? relay_jsonl_run(answer_line, arg) : answer_text(arg, words, n_words);
        }
        relay_cli_text_close(c->text);
    }
    free(words);
    return exit_code;
}

// ---- tokenize

typedef struct tokenize_command {
    command shared;
    bool add_special, add_special_set, parse_special, offsets, pieces, count;
    int64_t truncate_to;
    bool truncate_to_set, truncate_side_set;
    const char *truncate_side;
    relay_buf *out; // of a line
} tokenize_command;

static void fill_options(const tokenize_command *c, Relay__V1__TokenizeOptions *o) {
    relay__v1__tokenize_options__init(o);
    if (c->add_special_set) RELAY_SET(o, add_special_tokens, c->add_special);
    RELAY_SET(o, parse_special_tokens, c->parse_special);
    RELAY_SET(o, want_offsets, c->offsets);
    RELAY_SET(o, want_pieces, c->pieces);
    RELAY_SET(o, count_only, c->count);
    if (c->truncate_to_set) RELAY_SET(o, truncate_to, (uint32_t)c->truncate_to);
    if (c->truncate_side_set) {
        bool is_left = strcmp(c->truncate_side, "left") == 0;
        RELAY_SET(o, truncate_side,
                  is_left ? RELAY__V1__TRUNCATE_SIDE__TRUNCATE_SIDE_LEFT
                          : RELAY__V1__TRUNCATE_SIDE__TRUNCATE_SIDE_RIGHT);
    }
}

static void print_piece(ProtobufCBinaryData piece) {
    for (size_t k = 0; k < piece.len; k++) {
        unsigned char c = piece.data[k];
        if (c < 0x20 || c == 0x7F || c == '\\')
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static void print_encoding(void *arg, const ProtobufCMessage *response) {
    const tokenize_command *c = arg;
    const Relay__V1__Encoding *enc = ((const Relay__V1__TokenizeResponse *)response)->encoding;
    if (c->shared.as_json) {
        print_json(response);
    } else if (c->count) {
        printf("%u\n", enc != NULL ? enc->token_count : 0);
    } else {
        for (size_t i = 0; enc != NULL && i < enc->n_token_ids; i++) {
            printf("%u", enc->token_ids[i]);
            if (i < enc->n_offset_begin && i < enc->n_offset_end)
                printf("\t%u\t%u", enc->offset_begin[i], enc->offset_end[i]);
            if (i < enc->n_pieces) {
                putchar('\t');
                print_piece(enc->pieces[i]);
            }
            putchar('\n');
        }
    }
}

// {"ids": [..], "offsets": [[b, e], ..], "pieces": ["base64", ..]}, or {"count": n}
static void put_encoding(void *arg, const ProtobufCMessage *response) {
    const tokenize_command *c = arg;
    const Relay__V1__Encoding *enc = ((const Relay__V1__TokenizeResponse *)response)->encoding;
    relay_buf *out = c->out;
    if (c->count) {
        relay_buf_printf(out, "{\"count\": %u}", enc->token_count);
        return;
    }
    relay_buf_puts(out, "{\"ids\": ");
    relay_jsonl_put_ids(out, enc->token_ids, enc->n_token_ids);
    relay_buf_puts(out, ", \"offsets\": [");
    for (size_t i = 0; i < enc->n_offset_begin && i < enc->n_offset_end; i++) {
        if (i != 0) relay_buf_puts(out, ", ");
        relay_jsonl_put_ids(out, (uint32_t[]){enc->offset_begin[i], enc->offset_end[i]}, 2);
    }
    relay_buf_putc(out, ']');
    if (c->pieces) relay_buf_puts(out, ", \"pieces\": [");
    for (size_t i = 0; i < enc->n_pieces; i++) {
        if (i != 0) relay_buf_puts(out, ", ");
        relay_message_json_bytes(enc->pieces[i], out);
    }
    relay_buf_puts(out, c->pieces ? "]}" : "}");
}

static relay_code ask_tokenize(tokenize_command *c, ProtobufCBinaryData text, Relay__V1__TokenizeOptions *options,
                               void (*reply)(void *arg, const ProtobufCMessage *response), relay_err *e) {
    Relay__V1__TokenizeRequest request = RELAY__V1__TOKENIZE_REQUEST__INIT;
    set_model(&c->shared, &request.has_model, &request.model);
    RELAY_SET(&request, text, text);
    request.options = options;
    return relay_cli_text_call(c->shared.text, RELAY_CLI_TOKENIZE, &request.base, reply, c, e);
}

static relay_code tokenize_line(void *arg, yyjson_val *line, relay_buf *out, relay_err *e) {
    static const char *const keys[] = {"text", "add_special_tokens", "parse_special_tokens"};
    tokenize_command *c = arg;
    c->out = out;
    yyjson_val *text = NULL;
    Relay__V1__TokenizeOptions o;
    fill_options(c, &o);
    if (!c->count) RELAY_SET(&o, want_offsets, true);
    relay_code code = relay_jsonl_check_keys(line, keys, sizeof keys / sizeof keys[0], e);
    if (code == RELAY_OK) code = relay_jsonl_need(line, "text", YYJSON_TYPE_STR, "a string", &text, e);
    if (code == RELAY_OK) {
        code = relay_jsonl_bool(line, "add_special_tokens", &o.has_add_special_tokens, &o.add_special_tokens, e);
    }
    if (code == RELAY_OK) {
        code = relay_jsonl_bool(line, "parse_special_tokens", &o.has_parse_special_tokens, &o.parse_special_tokens, e);
    }
    if (code != RELAY_OK) return code;
    return ask_tokenize(c, relay_message_bytes(yyjson_get_str(text), yyjson_get_len(text)), &o, put_encoding, e);
}

static int tokenize_text(void *arg, const char *const *words, int n_words) {
    tokenize_command *c = arg;
    char *text;
    size_t len;
    if (!relay_cli_input(words, n_words, c->shared.file, &text, &len)) return RELAY_EXIT_USAGE;
    Relay__V1__TokenizeOptions o;
    fill_options(c, &o);
    relay_err e = {0};
    relay_code code = ask_tokenize(c, relay_message_bytes(text, len), &o, print_encoding, &e);
    free(text);
    return code == RELAY_OK ? RELAY_EXIT_OK : relay_cli_error(code, &e);
}

int relay_cli_tokenize(int argc, char **argv) {
    tokenize_command c = {.truncate_side = ""};
    relay_config_entry entries[SHARED_FLAGS + 7] = {0};
    shared_flags(&c.shared, entries, "the text is this file; - for standard input");
    relay_config_entry *own = entries + SHARED_FLAGS;
    own[0] = (relay_config_entry){.name = "add-special-tokens",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &c.add_special,
                                  .help = "BOS and EOS; unset: as the tokenizer's file says",
                                  .was_set = &c.add_special_set,
                                  .has_no_default = true};
    own[1] = (relay_config_entry){.name = "parse-special-tokens",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &c.parse_special,
                                  .help = "names of control tokens in the text are those tokens"};
    own[2] = (relay_config_entry){.name = "offsets",
                                  .kind = RELAY_CONFIG_BOOL,
                                  .value = &c.offsets,
                                  .help = "each token's bytes in the text; lines always have them"};
    own[3] = (relay_config_entry){
        .name = "pieces", .kind = RELAY_CONFIG_BOOL, .value = &c.pieces, .help = "each token's own bytes"};
    own[4] =
        (relay_config_entry){.name = "count", .kind = RELAY_CONFIG_BOOL, .value = &c.count, .help = "only how many"};
    own[5] = (relay_config_entry){.name = "truncate-to",
                                  .kind = RELAY_CONFIG_INT,
                                  .value = &c.truncate_to,
                                  .min = 1,
                                  .max = UINT32_MAX,
                                  .metavar = "N",
                                  .help = "keep so many tokens",
                                  .was_set = &c.truncate_to_set,
                                  .has_no_default = true};
    own[6] = (relay_config_entry){.name = "truncate-side",
                                  .kind = RELAY_CONFIG_STRING,
                                  .value = &c.truncate_side,
                                  .choices = "left|right",
                                  .metavar = "SIDE",
                                  .help = "where tokens are cut off; unset: right",
                                  .was_set = &c.truncate_side_set,
                                  .has_no_default = true};
    const relay_config config = {
        .program = "relay tokenize",
        .env_prefix = "RELAY",
        .usage = "[flags] [TEXT ...]",
        .summary =
            "Prints the token ids of a text, one a line; with --offsets and --pieces more columns. With --jsonl "
            "lines of {\"text\": ..., \"add_special_tokens\": ..., \"parse_special_tokens\": ...} become lines of "
            "{\"ids\": [..], \"offsets\": [[begin, end], ..]}; with --pieces each token's bytes in base64.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    return run_command(&c.shared, &config, argc, argv, tokenize_line, tokenize_text, &c);
}

// ---- detokenize

typedef struct detokenize_command {
    command shared;
    bool skip_special;
    relay_buf *out; // of a line
} detokenize_command;

static void print_text(void *arg, const ProtobufCMessage *response) {
    const detokenize_command *c = arg;
    if (c->shared.as_json) {
        print_json(response);
        return;
    }
    ProtobufCBinaryData text = ((const Relay__V1__DetokenizeResponse *)response)->text;
    fwrite(text.data, 1, text.len, stdout);
    putchar('\n');
}

static void put_text(void *arg, const ProtobufCMessage *response) {
    const detokenize_command *c = arg;
    ProtobufCBinaryData text = ((const Relay__V1__DetokenizeResponse *)response)->text;
    relay_buf_puts(c->out, "{\"text\": ");
    relay_buf_put_json_string(c->out, text.len != 0 ? (const char *)text.data : "", text.len);
    relay_buf_putc(c->out, '}');
}

static relay_code ask_detokenize(detokenize_command *c, uint32_t *ids, size_t n, bool skip_special,
                                 void (*reply)(void *arg, const ProtobufCMessage *response), relay_err *e) {
    Relay__V1__DetokenizeRequest request = RELAY__V1__DETOKENIZE_REQUEST__INIT;
    set_model(&c->shared, &request.has_model, &request.model);
    request.token_ids = ids;
    request.n_token_ids = n;
    RELAY_SET(&request, skip_special_tokens, skip_special);
    return relay_cli_text_call(c->shared.text, RELAY_CLI_DETOKENIZE, &request.base, reply, c, e);
}

static relay_code detokenize_line(void *arg, yyjson_val *line, relay_buf *out, relay_err *e) {
    static const char *const keys[] = {"ids", "skip_special_tokens"};
    detokenize_command *c = arg;
    c->out = out;
    yyjson_val *array = NULL;
    int is_set = 0, skips = c->skip_special;
    uint32_t *ids = NULL;
    size_t n = 0;
    relay_code code = relay_jsonl_check_keys(line, keys, sizeof keys / sizeof keys[0], e);
    if (code == RELAY_OK) code = relay_jsonl_need(line, "ids", YYJSON_TYPE_ARR, "an array of token ids", &array, e);
    if (code == RELAY_OK) code = relay_jsonl_bool(line, "skip_special_tokens", &is_set, &skips, e);
    if (code == RELAY_OK) code = relay_jsonl_ids(array, "ids", &ids, &n, e);
    if (code == RELAY_OK) code = ask_detokenize(c, ids, n, skips, put_text, e);
    free(ids);
    return code;
}

static int detokenize_text(void *arg, const char *const *words, int n_words) {
    detokenize_command *c = arg;
    char *text;
    size_t len, n = 0;
    uint32_t *ids = NULL;
    if (!relay_cli_input(words, n_words, c->shared.file, &text, &len)) return RELAY_EXIT_USAGE;
    relay_err e = {0};
    relay_code code = relay_cli_parse_ids(text, "token_ids", &ids, &n, &e);
    if (code == RELAY_OK) code = ask_detokenize(c, ids, n, c->skip_special, print_text, &e);
    free(ids);
    free(text);
    return code == RELAY_OK ? RELAY_EXIT_OK : relay_cli_error(code, &e);
}

int relay_cli_detokenize(int argc, char **argv) {
    detokenize_command c = {.skip_special = true};
    relay_config_entry entries[SHARED_FLAGS + 1] = {0};
    shared_flags(&c.shared, entries, "the ids are in this file; - for standard input");
    entries[SHARED_FLAGS] = (relay_config_entry){.name = "skip-special-tokens",
                                                 .kind = RELAY_CONFIG_BOOL,
                                                 .value = &c.skip_special,
                                                 .help = "control tokens give no text"};
    const relay_config config = {
        .program = "relay detokenize",
        .env_prefix = "RELAY",
        .usage = "[flags] [ID ...]",
        .summary =
            "Prints the text of token ids, given with white space, commas or brackets between. With --jsonl lines "
            "of {\"ids\": [..], \"skip_special_tokens\": ...} become lines of {\"text\": ...}.",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    return run_command(&c.shared, &config, argc, argv, detokenize_line, detokenize_text, &c);
}
