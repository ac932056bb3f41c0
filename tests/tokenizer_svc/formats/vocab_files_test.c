// Vocabularies in several files, the choice of a reader by what a path holds, and broken ones of both.
#include "tokenizer_svc/formats/vocab_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/json.h"
#include "tokenizer_svc/formats/formats.h"

#define GPT2_VOCAB "{\"a\": 0, \"b\": 1, \"ab\": 2, \"<|endoftext|>\": 3, \"<s>\": 5, \"</s>\": 6, \"<unk>\": 7}"

static relay_code read_gpt2(relay_tokenizer_spec *s, const char *vocab, const char *merges, const char *config,
                            relay_err *e) {
    *s = (relay_tokenizer_spec){0};
    relay_arena_init(&s->arena, SIZE_MAX / 2);
    yyjson_doc *v, *c = NULL;
    assert_int_equal(relay_json_parse(&v, vocab, strlen(vocab), 8, "vocab.json", e), RELAY_OK);
    if (config != NULL) assert_int_equal(relay_json_parse(&c, config, strlen(config), 8, "config", e), RELAY_OK);
    relay_code code =
        relay_gpt2_files_read(s, yyjson_doc_get_root(v), merges, strlen(merges), yyjson_doc_get_root(c), e);
    yyjson_doc_free(v);
    yyjson_doc_free(c);
    return code;
}

static relay_code read_bert(relay_tokenizer_spec *s, const char *vocab, const char *config, relay_err *e) {
    *s = (relay_tokenizer_spec){0};
    relay_arena_init(&s->arena, SIZE_MAX / 2);
    yyjson_doc *c = NULL;
    if (config != NULL) assert_int_equal(relay_json_parse(&c, config, strlen(config), 8, "config", e), RELAY_OK);
    relay_code code = relay_bert_files_read(s, vocab, strlen(vocab), yyjson_doc_get_root(c), e);
    yyjson_doc_free(c);
    return code;
}

static void assert_text(relay_spec_str s, const char *text) {
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.s, text, s.len);
}

static void gpt2_without_a_config(void **state) {
    relay_tokenizer_spec s;
    relay_err e;
    if (read_gpt2(&s, GPT2_VOCAB, "#version: 0.2\r\na b\r\n\n", NULL, &e) != RELAY_OK) fail_msg("%s", e.message);
    assert_int_equal(s.model.n_tokens, 8);
    assert_null(s.model.tokens[4].piece.s);
    assert_int_equal(s.model.n_merges, 1);
    assert_int_equal(s.model.merges[0].result, 2);
    assert_true(s.model.byte_alphabet && s.pretokenizers[0].use_regex);
    assert_false(s.pretokenizers[0].add_prefix_space);
    assert_int_equal(s.n_added, 1);
    assert_true(s.bos.id == 3 && s.eos.id == 3 && !s.unk.is_set);
    assert_int_equal(s.n_post, 0);
    relay_tokenizer_spec_fini(&s);
}

static void a_config_names_class_and_tokens(void **state) {
    relay_tokenizer_spec s;
    relay_err e;
    assert_int_equal(read_gpt2(&s, GPT2_VOCAB, "a b",
                               "{\"tokenizer_class\": \"RobertaTokenizerFast\", \"add_prefix_space\": true,"
                               " \"unk_token\": {\"content\": \"<|endoftext|>\"}, \"chat_template\": \"T\"}",
                               &e),
                     RELAY_OK);
    assert_int_equal(s.n_post, 3);
    assert_true(s.post[0].id == 5 && s.post[1].is_text && s.post[2].id == 6);
    assert_true(s.post_trim_offsets && s.post_add_prefix_space && s.pretokenizers[0].add_prefix_space);
    assert_int_equal(s.unk.id, 3);
    assert_text(s.templates[0].source, "T");
    relay_tokenizer_spec_fini(&s);

    assert_int_equal(
        read_gpt2(&s, GPT2_VOCAB, "a b",
                  "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"added_tokens_decoder\": {\"9\": {\"content\": \"<t>\", "
                  "\"special\": false, \"rstrip\": true}}, \"eos_token\": \"<t>\"}",
                  &e),
        RELAY_OK);
    assert_int_equal(s.normalizers[0].kind, RELAY_NORMALIZE_NFC);
    assert_int_equal(s.n_pretokenizers, 2);
    assert_false(s.pretokenizers[1].use_regex);
    assert_int_equal(s.n_ids, 10);
    assert_true(s.eos.id == 9 && !s.added[0].special && s.added[0].rstrip && !s.added[0].lstrip);
    assert_false(s.bos.is_set);
    relay_tokenizer_spec_fini(&s);
}

#define BERT_VOCAB "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\n"

static void bert_has_a_piece_a_line(void **state) {
    relay_tokenizer_spec s;
    relay_err e;
    if (read_bert(&s, BERT_VOCAB, NULL, &e) != RELAY_OK) fail_msg("%s", e.message);
    assert_int_equal(s.model.n_tokens, 7);
    assert_text(s.model.tokens[6].piece, "##ing");
    assert_text(s.model.continuing_subword_prefix, "##");
    assert_int_equal(s.model.max_input_chars_per_word, 100);
    assert_int_equal(s.model.unk_id, 1);
    assert_true(s.normalizers[0].lowercase && s.normalizers[0].strip_accents && s.normalizers[0].handle_chinese_chars);
    assert_true(s.post[0].id == 2 && s.post[2].id == 3);
    assert_int_equal(s.n_added, 5);
    relay_tokenizer_spec_fini(&s);

    assert_int_equal(read_bert(&s, BERT_VOCAB, "{\"do_lower_case\": false, \"tokenize_chinese_chars\": false}", &e),
                     RELAY_OK);
    assert_false(s.normalizers[0].lowercase || s.normalizers[0].strip_accents || s.normalizers[0].handle_chinese_chars);
    relay_tokenizer_spec_fini(&s);
    assert_int_equal(read_bert(&s, BERT_VOCAB, "{\"do_lower_case\": false, \"strip_accents\": true}", &e), RELAY_OK);
    assert_true(s.normalizers[0].strip_accents);
    relay_tokenizer_spec_fini(&s);
}

// ---- Broken files

typedef struct broken {
    const char *vocab, *merges, *config; // merges NULL: a vocab.txt
    relay_code code;
    const char *message;
} broken;

static const broken broken_files[] = {
    {"[]", "", NULL, RELAY_INVALID_ARGUMENT, "vocab.json must be an object with a member a token"},
    {"{}", "", NULL, RELAY_INVALID_ARGUMENT, "vocab.json must be an object with a member a token"},
    {"{\"a\": -1}", "", NULL, RELAY_INVALID_ARGUMENT, "vocab.json: \"a\" must have an id below 4194304"},
    {"{\"a\": 4194304}", "", NULL, RELAY_INVALID_ARGUMENT, "vocab.json: \"a\" must have an id below 4194304"},
    {"{\"a\": 1, \"b\": 1}", "", NULL, RELAY_INVALID_ARGUMENT, "vocab.json: \"b\" has id 1, as \"a\" has"},
    {GPT2_VOCAB, "a b\nab\n", NULL, RELAY_INVALID_ARGUMENT, "merges.txt: line 2 is \"ab\"; it must be two pieces"},
    {GPT2_VOCAB, "a b\n#version: 0.2", NULL, RELAY_INVALID_ARGUMENT, "merges.txt: line 2: \"#version:\" is no token"},
    {GPT2_VOCAB, "a c", NULL, RELAY_INVALID_ARGUMENT, "merges.txt: line 1: \"c\" is no token of vocab.json"},
    {GPT2_VOCAB, "b a", NULL, RELAY_INVALID_ARGUMENT, "merges.txt: line 1: \"b a\" joined is no token of vocab.json"},
    {GPT2_VOCAB, "", "{\"tokenizer_class\": \"CodeGenTokenizer\"}", RELAY_UNIMPLEMENTED,
     "tokenizer_class is \"CodeGenTokenizer\"; Relay knows GPT2Tokenizer"},
    {GPT2_VOCAB, "", "{\"tokenizer_class\": 1}", RELAY_INVALID_ARGUMENT,
     "tokenizer_config.json: tokenizer_class must be"},
    {GPT2_VOCAB, "", "{\"bos_token\": []}", RELAY_INVALID_ARGUMENT,
     "tokenizer_config.json: bos_token must be a token's name"},
    {GPT2_VOCAB, "", "{\"add_prefix_space\": 1}", RELAY_INVALID_ARGUMENT, "add_prefix_space must be a bool"},
    {GPT2_VOCAB, "", "{\"chat_template\": [1]}", RELAY_UNIMPLEMENTED, "chat_template is not a string"},
    {GPT2_VOCAB, "", "{\"added_tokens_decoder\": []}", RELAY_INVALID_ARGUMENT,
     "added_tokens_decoder must be an object"},
    {GPT2_VOCAB, "", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"t\"}}}", RELAY_INVALID_ARGUMENT,
     "added_tokens_decoder.x must be an id below 4194304"},
    {GPT2_VOCAB, "", "{\"added_tokens_decoder\": {\"9\": {\"content\": \"\"}}}", RELAY_INVALID_ARGUMENT,
     "added_tokens_decoder.9 must be an id below 4194304 with a content of 1 to"},
    {"", NULL, NULL, RELAY_INVALID_ARGUMENT, "vocab.txt has 0 lines; it must have 1 to"},
    {"[UNK]\n\na", NULL, NULL, RELAY_INVALID_ARGUMENT,
     "vocab.txt: line 2 must be a piece of 1 to 65536 bytes of UTF-8"},
    {"[UNK]\na\xFF", NULL, NULL, RELAY_INVALID_ARGUMENT,
     "vocab.txt: line 2 must be a piece of 1 to 65536 bytes of UTF-8"},
    {"[UNK]\na\nb\na", NULL, NULL, RELAY_INVALID_ARGUMENT, "vocab.txt: line 4 is \"a\", as line 2 is"},
    {"a\nb", NULL, NULL, RELAY_INVALID_ARGUMENT, "vocab.txt has no unknown token ([UNK], or what"},
    {"[UNK]", NULL, "{\"do_lower_case\": \"no\"}", RELAY_INVALID_ARGUMENT, "do_lower_case must be a bool"},
    {"[UNK]", NULL, "{\"tokenizer_class\": \"FunnelTokenizer\"}", RELAY_UNIMPLEMENTED,
     "\"FunnelTokenizer\"; Relay knows BertTokenizer"},
};

static void broken_files_are_refused_with_what_and_where(void **state) {
    for (size_t i = 0; i < sizeof broken_files / sizeof *broken_files; i++) {
        const broken *f = &broken_files[i];
        relay_tokenizer_spec s;
        relay_err e = {0};
        relay_code code = f->merges != NULL ? read_gpt2(&s, f->vocab, f->merges, f->config, &e)
                                            : read_bert(&s, f->vocab, f->config, &e);
        if (code != f->code || strstr(e.message, f->message) == NULL)
            fail_msg("file %zu: %s \"%s\", expected \"%s\"", i, relay_code_name(code), e.message, f->message);
        relay_tokenizer_spec_fini(&s);
    }
}

// ---- Paths

typedef struct folder {
    char path[64];
} folder;

static void write_in(const folder *f, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static void remove_in(const folder *f, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    unlink(path);
}

static folder make_folder(void) {
    folder f;
    const char *tmp = getenv("TEST_TMPDIR");
    snprintf(f.path, sizeof f.path, "%s/formatsXXXXXX", tmp != NULL && strlen(tmp) < 40 ? tmp : "/tmp");
    assert_non_null(mkdtemp(f.path));
    return f;
}

static relay_code read_path(const folder *f, const char *name, const char **format, relay_err *e) {
    char path[256];
    snprintf(path, sizeof path, "%s%s", f->path, name);
    relay_tokenizer_spec s;
    relay_code code = relay_tokenizer_spec_read(&s, path, e);
    *format = s.format;
    relay_tokenizer_spec_fini(&s);
    return code;
}

static void a_folder_is_read_by_what_it_holds(void **state) {
    folder f = make_folder();
    const char *format;
    relay_err e;
    assert_int_equal(read_path(&f, "", &format, &e), RELAY_NOT_FOUND);
    assert_non_null(strstr(e.message, "the folder holds none of tokenizer.json"));
    assert_memory_equal(e.message, f.path, strlen(f.path));
    write_in(&f, "vocab.txt", BERT_VOCAB);
    assert_int_equal(read_path(&f, "", &format, &e), RELAY_OK);
    assert_string_equal(format, "vocab.txt");
    assert_int_equal(read_path(&f, "/vocab.txt", &format, &e), RELAY_OK);
    write_in(&f, "tokenizer_config.json", "{\"do_lower_case\": 3}");
    assert_int_equal(read_path(&f, "", &format, &e), RELAY_INVALID_ARGUMENT);
    write_in(&f, "tokenizer_config.json", "{");
    assert_int_equal(read_path(&f, "", &format, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "tokenizer_config.json"));
    remove_in(&f, "tokenizer_config.json");

    write_in(&f, "encoder.json", GPT2_VOCAB);
    assert_int_equal(read_path(&f, "", &format, &e), RELAY_NOT_FOUND); // vocab.bpe is missing
    write_in(&f, "vocab.bpe", "a b\n");
    assert_int_equal(read_path(&f, "", &format, &e), RELAY_OK);
    assert_string_equal(format, "vocab.json");
    for (size_t i = 0; i < 3; i++)
        remove_in(&f, (const char *[]){"vocab.txt", "encoder.json", "vocab.bpe"}[i]);
    assert_int_equal(rmdir(f.path), 0);
}

static void templates_beside_a_tokenizer_json_are_read(void **state) {
    folder f = make_folder();
    char additional[sizeof f.path + 32];
    snprintf(additional, sizeof additional, "%s/additional_chat_templates", f.path);
    assert_int_equal(mkdir(additional, 0700), 0);
    write_in(&f, "tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    write_in(&f, "tokenizer_config.json",
             "{\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},{\"name\":\"rag\",\"template\":\"R\"},"
             "{\"name\":\"plain\",\"template\":\"P\"}]}");
    static const char *const files[] = {"additional_chat_templates/tool_use.jinja",
                                        "additional_chat_templates/rag.jinja",
                                        "additional_chat_templates/.jinja",
                                        "additional_chat_templates/README.md",
                                        "additional_chat_templates/empty.jinja",
                                        "tokenizer_config.json",
                                        "tokenizer.json"};
    write_in(&f, files[0], "tools");
    write_in(&f, files[1], "other");
    write_in(&f, files[2], "no name");
    write_in(&f, files[3], "none");
    write_in(&f, files[4], "");
    relay_tokenizer_spec s;
    relay_err e = {0};
    relay_code code = relay_tokenizer_spec_read(&s, f.path, &e);
    if (code != RELAY_OK) fail_msg("%s", e.message);
    static const char *const names[] = {"empty", "rag", "tool_use", "default", "plain"};
    static const char *const sources[] = {"", "other", "tools", "D", "P"};
    assert_int_equal(s.n_templates, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_text(s.templates[i].name, names[i]);
        assert_text(s.templates[i].source, sources[i]);
    }
    relay_tokenizer_spec_fini(&s);

    // None is left out in silence.
    enum { N_TOO_MANY = 64 };
    char name[96];
    for (int i = 0; i < N_TOO_MANY; i++) {
        snprintf(name, sizeof name, "additional_chat_templates/%02d.jinja", i);
        write_in(&f, name, "x");
    }
    code = relay_tokenizer_spec_read(&s, f.path, &e);
    assert_int_equal(code, RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "chat template \"empty\" is one more than 64"));
    relay_tokenizer_spec_fini(&s);

    for (int i = 0; i < N_TOO_MANY; i++) {
        snprintf(name, sizeof name, "additional_chat_templates/%02d.jinja", i);
        remove_in(&f, name);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        remove_in(&f, files[i]);
    assert_int_equal(rmdir(additional), 0);
    assert_int_equal(rmdir(f.path), 0);
}

static void what_is_no_tokenizer_is_refused_by_its_path(void **state) {
    folder f = make_folder();
    const char *format;
    relay_err e;
    static const struct {
        const char *text;
        relay_code code;
        const char *message;
    } cases[] = {
        {"", RELAY_UNIMPLEMENTED, "of no format that Relay knows"},
        {"hello\nworld\n", RELAY_UNIMPLEMENTED, "of no format that Relay knows"},
        {"GGUF", RELAY_INVALID_ARGUMENT, "GGUF"},
        {" {", RELAY_INVALID_ARGUMENT, "JSON"},
        {"aGk= 0\naGkh", RELAY_INVALID_ARGUMENT, "line 2: it must be a token in base64"},
        {"\x0A\x03\x0A\x01"
         "a",
         RELAY_INVALID_ARGUMENT, "pieces: none is of type unknown"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_in(&f, "file", cases[i].text);
        relay_code code = read_path(&f, "/file", &format, &e);
        if (code != cases[i].code || strstr(e.message, cases[i].message) == NULL || strstr(e.message, f.path) == NULL)
            fail_msg("file %zu: %s \"%s\", expected \"%s\"", i, relay_code_name(code), e.message, cases[i].message);
    }
    // An encoding behind the path, which no other format takes.
    assert_int_equal(read_path(&f, "/file:cl100k", &format, &e), RELAY_INVALID_ARGUMENT);
    write_in(&f, "file", "aGk= 0\n");
    assert_int_equal(read_path(&f, "/file:cl100k", &format, &e), RELAY_UNIMPLEMENTED);
    assert_non_null(strstr(e.message, "the encoding \"cl100k\" is not known"));
    remove_in(&f, "file");
    assert_int_equal(read_path(&f, "/file", &format, &e), RELAY_NOT_FOUND);
    assert_int_equal(rmdir(f.path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_without_a_config),
        cmocka_unit_test(a_config_names_class_and_tokens),
        cmocka_unit_test(bert_has_a_piece_a_line),
        cmocka_unit_test(broken_files_are_refused_with_what_and_where),
        cmocka_unit_test(a_folder_is_read_by_what_it_holds),
        cmocka_unit_test(templates_beside_a_tokenizer_json_are_read),
        cmocka_unit_test(what_is_no_tokenizer_is_refused_by_its_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
