// Tokenizers in GGUF files: what each family becomes, and broken files, each refused with what is wrong and where.
#include "tokenizer_svc/formats/gguf_tokenizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/gguf_writer.h"
#include "tokenizer_svc/formats/gguf_pre.h"

#define SPACE "\xE2\x96\x81"

enum { NO = 1, YES = 2, NO_ID = -1, MAX_TOKENS = 600 };

// A file as its keys; what is NULL or 0 is left out.
typedef struct file {
    const char *model, *pre;
    const char *tokens[12];
    int32_t types[12]; // 0: 1, a normal token
    float scores[12];
    bool all_bytes; // 256 byte tokens behind the tokens
    const char *merges[4];
    bool no_merges, no_tokens, no_types, no_scores, short_types, short_scores, types_are_text, tokens_are_numbers;
    int add_bos, add_eos, add_sep, add_space_prefix, remove_spaces, lowercase;
    const char *id_key; // a special id
    uint32_t id;
    const char *bool_as_text; // a key that should be a bool
    const char *template, *named_template;
    int charsmap; // its last element; 0: none
} file;

static void write_bool(gguf_writer *w, const char *key, int value) {
    if (value != 0) gguf_writer_bool(w, key, value == YES);
}

static void write_tokens(gguf_writer *w, const file *f) {
    const char *tokens[MAX_TOKENS];
    static char names[256][8];
    int32_t types[MAX_TOKENS];
    float scores[MAX_TOKENS];
    uint64_t n = 0;
    for (; n < 12 && f->tokens[n] != NULL; n++) {
        tokens[n] = f->tokens[n];
        types[n] = f->types[n] == 0 ? 1 : f->types[n];
        scores[n] = f->scores[n];
    }
    for (int byte = 0; byte < 256 && f->all_bytes; byte++, n++) {
        snprintf(names[byte], sizeof names[byte], "<0x%02X>", (unsigned)byte);
        tokens[n] = names[byte];
        types[n] = 6;
        scores[n] = 0;
    }
    if (f->tokens_are_numbers)
        gguf_writer_array(w, "tokenizer.ggml.tokens", GGUF_INT32, types, n);
    else if (!f->no_tokens)
        gguf_writer_string_array(w, "tokenizer.ggml.tokens", tokens, n);
    if (f->types_are_text)
        gguf_writer_string_array(w, "tokenizer.ggml.token_type", tokens, n);
    else if (!f->no_types)
        gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_INT32, types, n - f->short_types);
    if (!f->no_scores) gguf_writer_array(w, "tokenizer.ggml.scores", GGUF_FLOAT32, scores, n - f->short_scores);
}

static gguf_writer *write_file(const file *f) {
    gguf_writer *w = gguf_writer_create();
    if (f->model != NULL) gguf_writer_string(w, "tokenizer.ggml.model", f->model);
    if (f->pre != NULL) gguf_writer_string(w, "tokenizer.ggml.pre", f->pre);
    write_tokens(w, f);
    uint64_t n = 0;
    while (n < 4 && f->merges[n] != NULL)
        n++;
    if (!f->no_merges) gguf_writer_string_array(w, "tokenizer.ggml.merges", f->merges, n);
    write_bool(w, "tokenizer.ggml.add_bos_token", f->add_bos);
    write_bool(w, "tokenizer.ggml.add_eos_token", f->add_eos);
    write_bool(w, "tokenizer.ggml.add_sep_token", f->add_sep);
    write_bool(w, "tokenizer.ggml.add_space_prefix", f->add_space_prefix);
    write_bool(w, "tokenizer.ggml.remove_extra_whitespaces", f->remove_spaces);
    write_bool(w, "tokenizer.ggml.normalizer.lowercase", f->lowercase);
    if (f->id_key != NULL) gguf_writer_u32(w, f->id_key, f->id);
    if (f->bool_as_text != NULL) gguf_writer_string(w, f->bool_as_text, "yes");
    if (f->template != NULL) gguf_writer_string(w, "tokenizer.chat_template", f->template);
    if (f->named_template != NULL) {
        gguf_writer_string_array(w, "tokenizer.chat_templates", &f->named_template, 1);
        gguf_writer_string(w, "tokenizer.chat_template.tool_use", "TOOLS");
    }
    if (f->charsmap != 0) {
        int32_t map[5] = {1, 2, 3, -1, f->charsmap};
        gguf_writer_array(w, "tokenizer.ggml.precompiled_charsmap", GGUF_INT32, map, 5);
    }
    return w;
}

static relay_code read_written(relay_tokenizer_spec *spec, gguf_writer *w, relay_err *e) {
    size_t len;
    const uint8_t *data = gguf_writer_finish(w, &len);
    relay_gguf *g;
    assert_int_equal(relay_gguf_open_memory(&g, data, len, e), RELAY_OK);
    *spec = (relay_tokenizer_spec){0};
    relay_arena_init(&spec->arena, SIZE_MAX / 2);
    relay_code code = relay_gguf_tokenizer_read(spec, g, e);
    relay_gguf_close(g); // the spec keeps nothing of it
    gguf_writer_destroy(w);
    return code;
}

static relay_tokenizer_spec read_file(const file *f) {
    relay_tokenizer_spec spec;
    relay_err e;
    if (read_written(&spec, write_file(f), &e) != RELAY_OK) fail_msg("%s", e.message);
    return spec;
}

static void assert_text(relay_spec_str s, const char *text) {
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.s, text, s.len);
}

// ---- Families

static void gpt2_is_byte_level_bpe_with_the_words_of_its_pre(void **state) {
    relay_tokenizer_spec s = read_file(&(file){
        .model = "gpt2",
        .pre = "llama-bpe",
        .tokens = {"a", "b", "ab", "<s>", "<tool>", "[PAD5]", "unused"},
        .types = {0, 0, 0, 3, 4, 4, 5},
        .merges = {"a b"},
        .id_key = "tokenizer.ggml.bos_token_id",
        .id = 3,
    });
    assert_int_equal(s.model.kind, RELAY_MODEL_BPE);
    assert_int_equal(s.model.order, RELAY_BPE_BY_MERGES);
    assert_true(s.model.byte_alphabet && s.model.is_byte_level && s.model.ignore_merges);
    assert_false(s.model.has_unk);
    assert_int_equal(s.model.n_merges, 1);
    assert_int_equal(s.model.merges[0].left, 0);
    assert_int_equal(s.model.merges[0].right, 1);
    assert_int_equal(s.model.merges[0].result, 2);
    assert_int_equal(s.n_pretokenizers, 2);
    assert_int_equal(s.pretokenizers[0].kind, RELAY_PRETOKENIZE_SPLIT);
    assert_true(s.pretokenizers[0].pattern.is_regex);
    assert_int_equal(s.pretokenizers[1].kind, RELAY_PRETOKENIZE_BYTE_LEVEL);
    assert_false(s.pretokenizers[1].use_regex);
    assert_int_equal(s.n_decoders, 1);
    assert_int_equal(s.decoders[0].kind, RELAY_DECODE_BYTE_LEVEL);
    // Padding has no piece, whichever way it is marked.
    assert_int_equal(s.n_ids, 7);
    assert_null(s.model.tokens[5].piece.s);
    assert_null(s.model.tokens[6].piece.s);
    assert_int_equal(s.n_added, 2);
    assert_text(s.added[0].content, "<s>");
    assert_true(s.added[0].special);
    assert_text(s.added[1].content, "<tool>");
    assert_false(s.added[1].special);
    // "llama-bpe" adds a BOS token, which the file does not say.
    assert_true(s.add_bos);
    assert_int_equal(s.n_post, 2);
    assert_int_equal(s.post[0].id, 3);
    assert_true(s.post[1].is_text);
    relay_tokenizer_spec_fini(&s);
}

static void llama_is_sentencepiece_bpe_by_score(void **state) {
    relay_tokenizer_spec s = read_file(&(file){
        .model = "llama",
        .tokens = {"<unk>", "<s>", SPACE "a", "b"},
        .types = {2, 3},
        .scores = {0, 0, -1, -2.5f},
        .all_bytes = true,
        .no_merges = true,
        .id_key = "tokenizer.ggml.bos_token_id",
        .id = 1,
    });
    assert_int_equal(s.model.order, RELAY_BPE_BY_SCORE);
    assert_true(s.model.byte_fallback && s.model.fuse_unk && s.model.has_unk);
    assert_int_equal(s.model.unk_id, 0);
    assert_true(s.model.tokens[3].score == -2.5f);
    assert_int_equal(s.model.tokens[4].kind, RELAY_TOKEN_BYTE);
    assert_int_equal(s.n_normalizers, 2);
    assert_int_equal(s.normalizers[0].kind, RELAY_NORMALIZE_PREPEND);
    assert_int_equal(s.normalizers[1].kind, RELAY_NORMALIZE_REPLACE);
    assert_int_equal(s.n_pretokenizers, 0);
    assert_int_equal(s.n_decoders, 4);
    assert_int_equal(s.decoders[3].kind, RELAY_DECODE_STRIP);
    assert_int_equal(s.decoders[3].strip_begin, 1);
    assert_int_equal(s.n_post, 2);
    relay_tokenizer_spec_fini(&s);
}

static void a_llama_without_prefix_and_bytes(void **state) {
    relay_tokenizer_spec s = read_file(&(file){
        .model = "llama",
        .tokens = {"<unk>", "a"},
        .types = {2},
        .no_merges = true,
        .add_bos = NO,
        .add_space_prefix = NO,
    });
    assert_false(s.model.byte_fallback);
    assert_int_equal(s.n_normalizers, 1);
    assert_int_equal(s.n_decoders, 2);
    assert_int_equal(s.n_post, 0);
    relay_tokenizer_spec_fini(&s);
}

static void gemma4_joins_such_pieces_by_merges(void **state) {
    relay_tokenizer_spec s = read_file(&(file){
        .model = "gemma4",
        .tokens = {"<bos>", "\n", "\n\n", SPACE},
        .types = {3},
        .all_bytes = true,
        .merges = {"\n \n"},
        .id_key = "tokenizer.ggml.bos_token_id",
        .id = 0,
    });
    assert_int_equal(s.model.order, RELAY_BPE_BY_MERGES);
    assert_false(s.model.byte_alphabet || s.model.is_byte_level);
    assert_true(s.model.byte_fallback);
    assert_int_equal(s.model.merges[0].result, 2);
    assert_int_equal(s.n_normalizers, 1);
    assert_int_equal(s.n_post, 2);
    relay_tokenizer_spec_fini(&s);
}

static void t5_is_unigram_with_its_map_of_characters(void **state) {
    relay_tokenizer_spec s = read_file(&(file){
        .model = "t5",
        .tokens = {"<pad>", "</s>", "<unk>", SPACE "a", "spare"},
        .types = {3, 3, 2, 1, 5},
        .scores = {0, 0, 0, -1.5f},
        .no_merges = true,
        .add_eos = NO,
        .add_space_prefix = YES,
        .remove_spaces = YES,
        .charsmap = 255,
    });
    assert_int_equal(s.model.kind, RELAY_MODEL_UNIGRAM);
    assert_int_equal(s.model.unk_id, 2);
    assert_null(s.model.tokens[4].piece.s);
    assert_int_equal(s.n_normalizers, 4);
    assert_int_equal(s.normalizers[0].kind, RELAY_NORMALIZE_PRECOMPILED);
    assert_true(s.normalizers[0].by_longest_prefix);
    assert_int_equal(s.normalizers[0].content.len, 5);
    assert_memory_equal(s.normalizers[0].content.s, "\1\2\3\xFF\xFF", 5); // signed and unsigned bytes alike
    assert_int_equal(s.normalizers[1].kind, RELAY_NORMALIZE_EXTRA_WHITESPACE);
    relay_tokenizer_spec_fini(&s);
}

static void bert_gets_its_continuing_prefix_back(void **state) {
    relay_tokenizer_spec s = read_file(&(file){
        .model = "bert",
        .tokens = {"[UNK]", "[unused0]", SPACE "play", "ing", SPACE "[", "]"},
        .types = {3},
        .no_merges = true,
        .no_scores = true,
        .add_bos = NO,
        .add_sep = NO,
        .id_key = "tokenizer.ggml.unknown_token_id",
        .id = 0,
    });
    assert_int_equal(s.model.kind, RELAY_MODEL_WORDPIECE);
    assert_text(s.model.tokens[1].piece, "[unused0]");
    assert_text(s.model.tokens[2].piece, "play");
    assert_text(s.model.tokens[3].piece, "##ing");
    assert_text(s.model.tokens[4].piece, "[");
    assert_text(s.model.tokens[5].piece, "##]");
    assert_true(s.normalizers[0].lowercase && s.normalizers[0].strip_accents);
    relay_tokenizer_spec_fini(&s);
}

static void chat_templates_are_found_by_name(void **state) {
    relay_tokenizer_spec s = read_file(&(file){
        .model = "llama",
        .tokens = {"<unk>"},
        .types = {2},
        .no_merges = true,
        .add_bos = NO,
        .template = "DEFAULT",
        .named_template = "tool_use",
    });
    assert_int_equal(s.n_templates, 2);
    assert_text(s.templates[0].name, "default");
    assert_text(s.templates[0].source, "DEFAULT");
    assert_text(s.templates[1].name, "tool_use");
    assert_text(s.templates[1].source, "TOOLS");
    relay_tokenizer_spec_fini(&s);
}

static void every_pre_ends_with_bytes_and_is_found_by_its_name(void **state) {
    assert_null(relay_gguf_pre_find("gpt-", 4));
    assert_null(relay_gguf_pre_at(relay_gguf_pre_count()));
    for (uint32_t i = 0; i < relay_gguf_pre_count(); i++) {
        const relay_gguf_pre *pre = relay_gguf_pre_at(i);
        assert_ptr_equal(relay_gguf_pre_find(pre->name, strlen(pre->name)), pre);
        assert_true(pre->n_stages > 0);
        assert_int_equal(pre->stages[pre->n_stages - 1].kind, RELAY_PRETOKENIZE_BYTE_LEVEL);
    }
}

// ---- Broken files

typedef struct broken {
    file f;
    relay_code code;
    const char *message; // a part of it: the place and what is wrong there
} broken;

#define GPT2  .model = "gpt2", .pre = "gpt-2"
#define LLAMA .model = "llama", .no_merges = true, .add_bos = NO
#define T5    .model = "t5", .no_merges = true, .add_eos = NO
#define BERT  .model = "bert", .no_merges = true

static const broken broken_files[] = {
    {{.tokens = {"a"}}, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.model\" is missing"},
    {{.model = "rwkv", .tokens = {"a"}},
     RELAY_UNIMPLEMENTED,
     "\"tokenizer.ggml.model\" is \"rwkv\"; Relay knows gpt2,"},
    {{.model = "gpt2", .tokens = {"a"}}, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.pre\" is missing"},
    {{.model = "gpt2", .pre = "jais-2", .tokens = {"a"}}, RELAY_UNIMPLEMENTED, "\"tokenizer.ggml.pre\" is \"jais-2\""},
    {{GPT2, .no_tokens = true}, RELAY_INVALID_ARGUMENT, "\"tokenizer.ggml.tokens\" has 0 tokens; it must have 1 to"},
    {{GPT2, .tokens_are_numbers = true, .tokens = {"a"}}, RELAY_INVALID_ARGUMENT, "tokenizer.ggml.tokens"},
    {{GPT2, .no_types = true, .tokens = {"a"}}, RELAY_INVALID_ARGUMENT, "token_type\" has 0 entries for 1 tokens"},
    {{GPT2, .short_types = true, .tokens = {"a", "b"}},
     RELAY_INVALID_ARGUMENT,
     "token_type\" has 1 entries for 2 tokens"},
    {{GPT2, .types_are_text = true, .tokens = {"a"}}, RELAY_INVALID_ARGUMENT, "tokenizer.ggml.token_type"},
    {{GPT2, .tokens = {"a", "b"}, .types = {1, 7}}, RELAY_INVALID_ARGUMENT, "token_type\"[1] is 7; it must be 1 to 6"},
    {{GPT2, .tokens = {"a", ""}}, RELAY_INVALID_ARGUMENT, "tokens\"[1] has 0 bytes; it must have 1 to 65536"},
    {{GPT2, .tokens = {"a", "b", "a"}}, RELAY_INVALID_ARGUMENT, "tokens\"[2] is \"a\", as [0] is"},
    {{GPT2, .tokens = {"a"}, .no_merges = true}, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.merges\" is missing"},
    {{GPT2, .tokens = {"a", "aa"}, .merges = {"a a", "aa"}},
     RELAY_INVALID_ARGUMENT,
     "merges\"[1] is \"aa\"; it must be two"},
    {{GPT2, .tokens = {"a", "aa"}, .merges = {"a "}}, RELAY_INVALID_ARGUMENT, "merges\"[0] is \"a \"; it must be two"},
    {{GPT2, .tokens = {"a"}, .merges = {"b a"}}, RELAY_INVALID_ARGUMENT, "merges\"[0]: \"b\" is no token"},
    {{GPT2, .tokens = {"a"}, .merges = {"a b"}}, RELAY_INVALID_ARGUMENT, "merges\"[0]: \"b\" is no token"},
    {{GPT2, .tokens = {"a"}, .merges = {"a a"}},
     RELAY_INVALID_ARGUMENT,
     "merges\"[0]: \"a\" and \"a\" joined is no token"},
    {{GPT2, .tokens = {"a"}, .add_space_prefix = YES}, RELAY_UNIMPLEMENTED, "add_space_prefix\" is true"},
    {{GPT2, .tokens = {"a"}, .add_bos = YES},
     RELAY_INVALID_ARGUMENT,
     "BOS token is to be added, and key \"tokenizer.ggml.bos"},
    {{GPT2, .tokens = {"a"}, .add_eos = YES},
     RELAY_INVALID_ARGUMENT,
     "EOS token is to be added, and key \"tokenizer.ggml.eos"},
    {{GPT2, .tokens = {"a"}, .bool_as_text = "tokenizer.ggml.add_bos_token"}, RELAY_INVALID_ARGUMENT, "add_bos_token"},
    {{GPT2, .tokens = {"a"}, .id_key = "tokenizer.ggml.eos_token_id", .id = 1},
     RELAY_INVALID_ARGUMENT,
     "eos_token_id\" is 1; it must be from 0 to 0"},
    {{GPT2, .tokens = {"a", "x"}, .types = {1, 5}, .id_key = "tokenizer.ggml.eot_token_id", .id = 1},
     RELAY_INVALID_ARGUMENT,
     "eot_token_id\" is 1, which is no token but padding"},
    {{GPT2, .tokens = {"a"}, .named_template = ""},
     RELAY_INVALID_ARGUMENT,
     "chat_templates\"[0] must be a name of 1 to 64 bytes"},
    {{LLAMA, .tokens = {"a"}, .no_scores = true}, RELAY_INVALID_ARGUMENT, "scores\" has 0 entries for 1 tokens"},
    {{LLAMA, .tokens = {"a", "b"}, .short_scores = true},
     RELAY_INVALID_ARGUMENT,
     "scores\" has 1 entries for 2 tokens"},
    {{LLAMA, .tokens = {"a", "b"}, .scores = {0, NAN}}, RELAY_INVALID_ARGUMENT, "scores\"[1] is no finite number"},
    {{LLAMA, .tokens = {"a", "<0x4>"}, .types = {1, 6}},
     RELAY_INVALID_ARGUMENT,
     "tokens\"[1]: the byte token is \"<0x4>\"; it must be of the form"},
    {{LLAMA, .tokens = {"a", "<0x00>"}, .types = {1, 6}},
     RELAY_INVALID_ARGUMENT,
     "there are byte tokens, but none is <0x01>"},
    {{T5, .tokens = {"a"}}, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.unknown_token_id\" is missing"},
    {{T5, .tokens = {"a", "u"}, .types = {1, 2}, .charsmap = 256},
     RELAY_INVALID_ARGUMENT,
     "precompiled_charsmap\"[4] is 256, which is no byte"},
    {{BERT, .tokens = {"a"}}, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.unknown_token_id\" is missing"},
    {{BERT, .tokens = {"[UNK]"}, .id_key = "tokenizer.ggml.unknown_token_id"},
     RELAY_INVALID_ARGUMENT,
     "key \"tokenizer.ggml.cls_token_id\" is missing"},
    {{BERT, .tokens = {"[UNK]"}, .add_bos = NO, .id_key = "tokenizer.ggml.unknown_token_id"},
     RELAY_INVALID_ARGUMENT,
     "key \"tokenizer.ggml.seperator_token_id\" is missing"},
};

static void broken_files_are_refused_with_what_and_where(void **state) {
    for (size_t i = 0; i < sizeof broken_files / sizeof *broken_files; i++) {
        const broken *b = &broken_files[i];
        relay_tokenizer_spec spec;
        relay_err e = {0};
        relay_code code = read_written(&spec, write_file(&b->f), &e);
        if (code != b->code || strstr(e.message, b->message) == NULL)
            fail_msg("file %zu: %s \"%s\", expected \"%s\"", i, relay_code_name(code), e.message, b->message);
        relay_tokenizer_spec_fini(&spec);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_byte_level_bpe_with_the_words_of_its_pre),
        cmocka_unit_test(llama_is_sentencepiece_bpe_by_score),
        cmocka_unit_test(a_llama_without_prefix_and_bytes),
        cmocka_unit_test(gemma4_joins_such_pieces_by_merges),
        cmocka_unit_test(t5_is_unigram_with_its_map_of_characters),
        cmocka_unit_test(bert_gets_its_continuing_prefix_back),
        cmocka_unit_test(chat_templates_are_found_by_name),
        cmocka_unit_test(every_pre_ends_with_bytes_and_is_found_by_its_name),
        cmocka_unit_test(broken_files_are_refused_with_what_and_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
