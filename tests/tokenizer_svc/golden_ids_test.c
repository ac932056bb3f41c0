// Ids of real vocabularies, against those of Hugging Face tokenizers (tests/golden says how they were made).
//
//   golden_ids_test MODEL_FILE GOLDEN_FILE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/utf8.h"
#include "tokenizer_svc/text_stream.h"
#include "tokenizer_svc/formats/formats.h"
#include "tokenizer_svc/tokenizer.h"

enum { MAX_LINE = 1 << 20 };

static const char *golden_path;
static char model_path[4096];
static relay_vocab *vocab;
static relay_tokenizer *tokenizer;

static int load_model(void **state) {
    relay_gguf *g;
    relay_err e = {0};
    if (relay_gguf_open(&g, model_path, &e) != RELAY_OK) fail_msg("%s (./run fetches it)", e.message);
    if (relay_vocab_load_gguf(&vocab, g, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_gguf_close(g);
    relay_tokenizer_spec spec;
    if (relay_tokenizer_spec_read(&spec, model_path, &e) != RELAY_OK) fail_msg("%s", e.message);
    if (relay_tokenizer_create(&tokenizer, &spec, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_tokenizer_spec_fini(&spec); // the tokenizer keeps nothing of it
    return 0;
}

static int unload_model(void **state) {
    relay_tokenizer_destroy(tokenizer);
    relay_vocab_destroy(vocab);
    return 0;
}

static void put_text_of_ids(relay_buf *out, const relay_encoding *enc) {
    relay_text_stream_opts opts = {.vocab = vocab};
    relay_text_stream *s;
    relay_text_step step;
    assert_int_equal(relay_text_stream_create(&s, &opts, NULL), RELAY_OK);
    relay_text_stream_push(s, enc->ids, enc->n, true, out, &step);
    relay_text_stream_finish(s, out);
    relay_text_stream_destroy(s);
}

static bool has_all_bytes(void) {
    uint32_t id;
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        if (!relay_vocab_find(vocab, &c, 1, &id)) return false;
    }
    return true;
}

static void check_ids(yyjson_val *line, const char *key, bool parse_special) {
    yyjson_val *text = yyjson_obj_get(line, "text"), *ids = yyjson_obj_get(line, key);
    relay_text_span span = {.text = yyjson_get_str(text), .len = yyjson_get_len(text), .parse_special = parse_special};
    relay_encoding enc = {0};
    relay_err e = {0};
    relay_encode_opts opts = {.want_offsets = true};
    if (relay_tokenizer_encode(tokenizer, &span, 1, &opts, &enc, &e) != RELAY_OK) fail_msg("%s", e.message);
    assert_int_equal(enc.n, yyjson_arr_size(ids));
    size_t i, n;
    yyjson_val *id;
    yyjson_arr_foreach(ids, i, n, id) assert_int_equal(enc.ids[i], yyjson_get_uint(id));

    relay_buf back;
    relay_buf_init(&back, MAX_LINE);
    put_text_of_ids(&back, &enc);
    if (has_all_bytes()) {
        assert_int_equal(back.len, span.len);
        if (back.len > 0) assert_memory_equal(back.data, span.text, span.len);
    }
    relay_buf_fini(&back);
    relay_encoding_fini(&enc);
}

static void ids_are_those_of_the_reference_and_give_the_text_back(void **state) {
    FILE *f = fopen(golden_path, "r");
    assert_non_null(f);
    char *line = malloc(MAX_LINE);
    uint32_t n_lines = 0;
    for (; fgets(line, MAX_LINE, f) != NULL; n_lines++) {
        yyjson_doc *doc;
        relay_err e = {0};
        if (relay_json_parse(&doc, line, strlen(line), 4, "golden", &e) != RELAY_OK) fail_msg("%s", e.message);
        check_ids(yyjson_doc_get_root(doc), "ids", false);
        check_ids(yyjson_doc_get_root(doc), "ids_with_special", true);
        yyjson_doc_free(doc);
    }
    assert_true(n_lines > 100);
    free(line);
    fclose(f);
}

int main(int argc, char **argv) {
    const char *cache = getenv("RELAY_CACHE"), *home = getenv("HOME");
    if (argc != 3) return 2;
    if (cache)
        snprintf(model_path, sizeof model_path, "%s/models/%s", cache, argv[1]);
    else
        snprintf(model_path, sizeof model_path, "%s/.cache/relay/models/%s", home ? home : "", argv[1]);
    golden_path = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_the_reference_and_give_the_text_back),
    };
    return cmocka_run_group_tests(tests, load_model, unload_model);
}
