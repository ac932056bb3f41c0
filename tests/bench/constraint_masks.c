// What masks cost: `constraint_masks VOCABULARY.gguf < cases`. A case is a JSON object a line, {"kind", "constraint",
// "text"}; its text is cut into the vocabulary's longest tokens and followed from mask to mask, twice: in memory as it
// is after compiling, and again. A line of figures for each, in microseconds, with the ids; or, with --tokens, the
// vocabulary itself, one token a line in hexadecimal, for whoever is to be compared.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/buf.h"
#include "common/gguf.h"
#include "common/json.h"
#include "common/vocab.h"
#include "model_svc/constraint/constraint.h"

enum { MAX_LINE = 1 << 20, MAX_IDS = 1 << 16 };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void die(const char *what) {
    fprintf(stderr, "constraint_masks: %s\n", what);
    exit(1);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_tokens(const relay_vocab *v) {
    for (uint32_t id = 0; id < relay_vocab_size(v); id++) {
        const relay_token *t = relay_vocab_token(v, id);
        printf("%d ", relay_token_is_text(t));
        for (uint32_t i = 0; i < t->len; i++)
            printf("%02x", (uint8_t)t->bytes[i]);
        printf("\n");
    }
}

static uint32_t encode(const relay_vocab *v, const char *s, size_t len, uint32_t *ids) {
    uint32_t n = 0, longest = relay_vocab_max_token_bytes(v);
    for (size_t at = 0; at < len; n++) {
        if (n == MAX_IDS) die("a text of too many tokens");
        size_t k = len - at < longest ? len - at : longest;
        while (k > 0 && !relay_vocab_find(v, s + at, k, &ids[n]))
            k--;
        if (k == 0) die("a byte that no token writes");
        at += k;
    }
    return n;
}

// Follows the ids once; the times of each mask and of reading each id.
static void follow(relay_constraint *c, const uint32_t *ids, uint32_t n, uint32_t *mask, double *mask_us,
                   double *read_us) {
    relay_matcher m;
    relay_matcher_begin(c, &m);
    for (uint32_t i = 0; i < n; i++) {
        double begin = now_us();
        if (!relay_matcher_mask(c, &m, mask)) die("a constraint that does not fit");
        mask_us[i] = now_us() - begin;
        if (!(mask[ids[i] / 32] >> ids[i] % 32 & 1)) die("a text that its constraint does not allow");
        begin = now_us();
        if (!relay_matcher_read(c, &m, ids[i])) die("an id that cannot be read");
        read_us[i] = now_us() - begin;
    }
    if (!relay_matcher_is_complete(c, &m)) die("a text that is not complete");
}

static void print_times(const char *name, double *us, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += us[i];
    qsort(us, n, sizeof us[0], compare_doubles);
    printf(", \"%s\": {\"mean\": %.2f, \"p50\": %.2f, \"p99\": %.2f, \"max\": %.2f}", name, sum / n, us[n / 2],
           us[n - 1 - n / 100], us[n - 1]);
}

static relay_constraint_kind kind_of(const char *name) {
    static const char *const names[] = {"json_schema", "regex", "grammar", "choices", "any_json"};
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, names[i]) == 0) return (relay_constraint_kind)i;
    }
    die("a kind that is none");
    return RELAY_CONSTRAINT_REGEX;
}

static void run_case(const relay_token_table *tokens, const char *line, size_t len) {
    static uint32_t ids[MAX_IDS];
    static double mask_us[MAX_IDS], read_us[MAX_IDS];
    relay_err e;
    yyjson_doc *doc;
    if (relay_json_parse(&doc, line, len, RELAY_JSON_MAX_DEPTH, "case", &e) != RELAY_OK) die(e.message);
    yyjson_val *root = yyjson_doc_get_root(doc), *text = yyjson_obj_get(root, "text");
    yyjson_val *constraint = yyjson_obj_get(root, "constraint");
    relay_constraint_spec spec = {.kind = kind_of(yyjson_get_str(yyjson_obj_get(root, "kind"))),
                                  .text = {yyjson_get_str(constraint), yyjson_get_len(constraint)}};
    uint32_t n = encode(tokens->vocab, yyjson_get_str(text), yyjson_get_len(text), ids);
    uint32_t *mask = relay_calloc(tokens->n_words, sizeof mask[0]);
    double begin = now_us();
    relay_constraint *c;
    if (relay_constraint_compile(&c, &spec, tokens, &e) != RELAY_OK) die(e.message);
    printf("{\"compile_ms\": %.1f, \"tokens\": %u", (now_us() - begin) / 1e3, n);
    follow(c, ids, n, mask, mask_us, read_us);
    print_times("first", mask_us, n);
    follow(c, ids, n, mask, mask_us, read_us);
    print_times("again", mask_us, n);
    print_times("read", read_us, n);
    printf(", \"ids\": [");
    for (uint32_t i = 0; i < n; i++)
        printf("%s%u", i == 0 ? "" : ", ", ids[i]);
    printf("]}\n");
    relay_constraint_destroy(c);
    free(mask);
    yyjson_doc_free(doc);
}

int main(int argc, char **argv) {
    relay_err e;
    relay_gguf *file;
    relay_vocab *vocab;
    if (argc < 2) die("the vocabulary's file is wanted");
    if (relay_gguf_open(&file, argv[1], &e) != RELAY_OK || relay_vocab_load_gguf(&vocab, file, &e) != RELAY_OK) {
        die(e.message);
    }
    if (argc > 2 && strcmp(argv[2], "--tokens") == 0) {
        print_tokens(vocab);
    } else {
        relay_token_table *tokens = relay_token_table_create(vocab, relay_vocab_size(vocab));
        char *line = NULL;
        size_t cap = 0;
        for (ssize_t len; (len = getline(&line, &cap, stdin)) > 0 && len < MAX_LINE;)
            run_case(tokens, line, (size_t)len);
        free(line);
        relay_token_table_destroy(tokens);
    }
    relay_vocab_destroy(vocab);
    relay_gguf_close(file);
    return 0;
}
