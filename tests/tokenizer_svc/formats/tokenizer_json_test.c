#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/json.h"
#include "tokenizer_svc/formats/tokenizer_json.h"

static yyjson_doc *doc;

static relay_code read_text(relay_tokenizer_spec *spec, const char *text, const relay_tokenizer_json_files *files,
                            relay_err *e) {
    static const relay_tokenizer_json_files none;
    *spec = (relay_tokenizer_spec){0};
    relay_arena_init(&spec->arena, SIZE_MAX / 2);
    if (relay_json_parse(&doc, text, strlen(text), 32, "test", e) != RELAY_OK) fail_msg("%s", e->message);
    assert_true(relay_tokenizer_json_is(yyjson_doc_get_root(doc)));
    return relay_tokenizer_json_read(spec, yyjson_doc_get_root(doc), files == NULL ? &none : files, e);
}

static void close_spec(relay_tokenizer_spec *spec) {
    relay_tokenizer_spec_fini(spec);
    yyjson_doc_free(doc);
}

#define VOCAB "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3}"
#define BPE   "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\"," VOCAB ",\"merges\":[\"a b\"]}"

static void a_file_is_read(void **state) {
    relay_tokenizer_spec s;
    relay_err e = {0};
    yyjson_doc *config, *generation;
    static const char config_text[] =
        "{\"bos_token\":\"a\",\"eos_token\":{\"content\":\"<e>\"},\"clean_up_tokenization_spaces\":true,"
        "\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},{\"name\":\"tool_use\",\"template\":\"T\"}]}";
    assert_int_equal(relay_json_parse(&config, config_text, strlen(config_text), 8, "c", &e), RELAY_OK);
    static const char generation_text[] = "{\"eos_token_id\":[4,3]}";
    assert_int_equal(relay_json_parse(&generation, generation_text, strlen(generation_text), 8, "g", &e), RELAY_OK);
    const relay_named_template jinja = {.name = {"default", 7}, .source = {"J", 1}};
    relay_tokenizer_json_files files = {.config = yyjson_doc_get_root(config),
                                        .generation_config = yyjson_doc_get_root(generation),
                                        .jinja = &jinja,
                                        .n_jinja = 1};
    relay_code code = read_text(
        &s,
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":4,\"content\":\"<e>\",\"single_word\":false,\"lstrip\":true,"
        "\"rstrip\":false,\"normalized\":false,\"special\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Punctuation\"},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\",\"type_id\":0}"
        "},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
        "\"special_tokens\":{\"a\":{\"id\":\"a\",\"ids\":[1],\"tokens\":[\"a\"]}}}," BPE "}",
        &files, &e);
    if (code != RELAY_OK) fail_msg("%s", e.message);
    assert_int_equal(s.n_ids, 5);
    assert_int_equal(s.n_added, 1);
    assert_true(s.added[0].special && s.added[0].lstrip && !s.added[0].rstrip);
    assert_int_equal(s.n_normalizers, 2);
    assert_int_equal(s.pretokenizers[0].behavior, RELAY_SPLIT_ISOLATED); // where the file does not say
    assert_int_equal(s.model.kind, RELAY_MODEL_BPE);
    assert_int_equal(s.model.n_merges, 1);
    assert_int_equal(s.model.merges[0].result, 3);
    assert_true(s.model.has_unk && !s.model.byte_alphabet);
    assert_true(s.bos.is_set && s.bos.id == 1 && s.add_bos && !s.add_eos);
    assert_true(s.eos.is_set && s.eos.id == 4);
    assert_int_equal(s.n_end_ids, 2);
    assert_true(s.clean_up_tokenization_spaces);
    assert_int_equal(s.n_templates, 2); // the file of its own before the configuration's
    assert_memory_equal(s.templates[0].source.s, "J", 1);
    assert_memory_equal(s.templates[1].name.s, "tool_use", 8);
    close_spec(&s);
    yyjson_doc_free(config);
    yyjson_doc_free(generation);
}

static void models_are_known_by_type_or_by_their_fields(void **state) {
    relay_tokenizer_spec s;
    relay_err e = {0};
    assert_int_equal(read_text(&s, "{\"model\":{\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1.5]]}}", NULL, &e), 0);
    assert_int_equal(s.model.kind, RELAY_MODEL_UNIGRAM);
    assert_true(s.model.tokens[1].score == -1.5);
    close_spec(&s);
    assert_int_equal(read_text(&s, "{\"model\":{\"unk_token\":\"<unk>\"," VOCAB "}}", NULL, &e), 0);
    assert_int_equal(s.model.kind, RELAY_MODEL_WORDLEVEL);
    close_spec(&s);
    assert_int_equal(read_text(&s,
                               "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"<unk>\","
                               "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":9," VOCAB "}}",
                               NULL, &e),
                     0);
    assert_int_equal(s.model.max_input_chars_per_word, 9);
    close_spec(&s);
}

static void assert_refused(const char *text, relay_code code, const char *message) {
    relay_tokenizer_spec s;
    relay_err e = {0};
    assert_int_equal(read_text(&s, text, NULL, &e), code);
    if (strstr(e.message, message) == NULL) fail_msg("%s", e.message);
    close_spec(&s);
}

static void what_is_wrong_is_named_by_its_path(void **state) {
    assert_refused("{\"version\":\"2.0\"," BPE "}", RELAY_UNIMPLEMENTED, "version: is \"2.0\"");
    assert_refused("{\"post_normalizer\":null," BPE "}", RELAY_UNIMPLEMENTED,
                   "post_normalizer: is no field that Relay knows");
    assert_refused("{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"X\"}]}," BPE
                   "}",
                   RELAY_UNIMPLEMENTED, "normalizer.normalizers[1].type: is \"X\", which Relay does not know");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Glob\":\"*\"}}," BPE "}", RELAY_UNIMPLEMENTED,
                   "pre_tokenizer.pattern: is neither a String nor a Regex");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Digits\"}," BPE "}", RELAY_INVALID_ARGUMENT,
                   "pre_tokenizer.individual_digits: is missing");
    assert_refused("{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}," BPE
                   "}",
                   RELAY_INVALID_ARGUMENT, "pre_tokenizer.add_prefix_space: contradicts prepend_scheme");
    assert_refused("{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",1],\"sep\":[\"z\",9]}," BPE "}",
                   RELAY_INVALID_ARGUMENT, "post_processor: puts id 9; ids are below 4");
    assert_refused("{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}," BPE "}",
                   RELAY_INVALID_ARGUMENT, "decoder.start: must be a number");
    assert_refused("{\"model\":{\"type\":\"BPE\",\"dropout\":0.1," VOCAB ",\"merges\":[]}}", RELAY_UNIMPLEMENTED,
                   "model.dropout: is 0.1");
    assert_refused("{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\",\"b a\"]}}", RELAY_INVALID_ARGUMENT,
                   "model.merges: [1] is of pieces, or makes one, that the vocabulary lacks");
    assert_refused("{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b c\"]}}", RELAY_INVALID_ARGUMENT,
                   "model.merges: [0] is not two pieces");
    assert_refused("{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\"," VOCAB "}}", RELAY_INVALID_ARGUMENT,
                   "model.unk_token: \"?\" is no piece of the vocabulary");
    assert_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", RELAY_INVALID_ARGUMENT,
                   "model.vocab: \"b\" has the id of another piece");
    assert_refused("{\"model\":{\"type\":\"Lattice\"}}", RELAY_UNIMPLEMENTED, "model.type: is \"Lattice\"");
    assert_refused("{\"added_tokens\":[{\"id\":9,\"content\":\"<e>\",\"single_word\":false,\"lstrip\":false,"
                   "\"rstrip\":false,\"normalized\":false,\"special\":true}]," BPE "}",
                   RELAY_INVALID_ARGUMENT, "added_tokens[0].id: is 9; by the vocabulary and the tokens before it is 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(models_are_known_by_type_or_by_their_fields),
        cmocka_unit_test(what_is_wrong_is_named_by_its_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
