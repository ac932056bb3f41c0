// Ranks in base64, of .tiktoken files and of tekken.json: what they become, and broken ones, each refused with what is
// wrong and where.
#define _GNU_SOURCE // memmem
#include "tokenizer_svc/formats/tiktoken.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/buf.h"
#include "common/json.h"
#include "tokenizer_svc/formats/base64.h"
#include "tokenizer_svc/formats/tekken.h"
#include "tokenizer_svc/formats/tiktoken_encodings.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void put_base64_number(relay_buf *b, uint32_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i += 3) {
        uint32_t group = 0;
        for (int k = 0; k < 3; k++)
            group = group << 8 | (i + k < n_bytes ? value >> 8 * (n_bytes - 1 - i - k) & 0xFF : 0);
        for (int k = 0; k < 4; k++)
            relay_buf_putc(b, i + k > n_bytes && k >= 2 ? '=' : digits[group >> (18 - 6 * k) & 63]);
    }
}

// Line `rank`: a byte, or for higher ranks three bytes of the number.
static void put_line(relay_buf *b, uint32_t rank, const char *eol) {
    put_base64_number(b, rank, rank < 256 ? 1 : 3);
    relay_buf_printf(b, " %u%s", rank, eol);
}

static void put_lines(relay_buf *b, uint32_t n, const char *eol) {
    relay_buf_init(b, 1 << 26);
    for (uint32_t rank = 0; rank < n; rank++)
        put_line(b, rank, eol);
}

static relay_code read_text(relay_tokenizer_spec *spec, const relay_buf *b, const char *encoding, relay_err *e) {
    *spec = (relay_tokenizer_spec){0};
    relay_arena_init(&spec->arena, SIZE_MAX / 2);
    return relay_tiktoken_read(spec, b->data, b->len, encoding, e);
}

static void assert_text(relay_spec_str s, const char *text) {
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.s, text, s.len);
}

static void assert_added(const relay_tokenizer_spec *s, uint32_t id, const char *name) {
    for (uint32_t i = 0; i < s->n_added; i++)
        if (s->added[i].id == id && s->added[i].content.len == strlen(name) &&
            memcmp(s->added[i].content.s, name, strlen(name)) == 0)
            return;
    fail_msg("no added token has id %u and name \"%s\"", id, name);
}

static void base64_is_strict(void **state) {
    char out[16];
    size_t n;
    assert_true(relay_base64_decode("aGVsbG8=", 8, out, &n));
    assert_int_equal(n, 5);
    assert_memory_equal(out, "hello", 5);
    assert_true(relay_base64_decode("aA==", 4, out, &n) && n == 1 && out[0] == 'h');
    assert_true(relay_base64_decode("", 0, out, &n) && n == 0);
    static const char *const bad[] = {
        "a", "aA=", "aA", "====", "aA==aA==", "a A=", "aA=a", "aB==", "aGVsbG9=", "a===", "aG-_"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (relay_base64_decode(bad[i], strlen(bad[i]), out, &n)) fail_msg("\"%s\" is taken for base64", bad[i]);
}

static void an_encoding_is_recognised_or_named(void **state) {
    relay_buf b;
    put_lines(&b, 128000, "\n");
    relay_tokenizer_spec s;
    relay_err e;
    assert_true(relay_tiktoken_is(b.data, b.len));
    assert_int_equal(read_text(&s, &b, NULL, &e), RELAY_OK);
    assert_text(s.name, "llama3.1");
    assert_int_equal(s.model.order, RELAY_BPE_BY_RANK);
    assert_true(s.model.is_byte_level && s.model.ignore_merges);
    assert_false(s.model.byte_alphabet);
    assert_int_equal(s.model.n_tokens, 128000);
    assert_int_equal(s.n_ids, 128256);
    assert_int_equal(s.n_added, 256);
    assert_added(&s, 128008, "<|eom_id|>");
    assert_added(&s, 128255, "<|reserved_special_token_247|>");
    assert_int_equal(s.model.tokens[255].piece.len, 1);
    assert_memory_equal(s.model.tokens[255].piece.s, "\xFF", 1);
    assert_true(s.add_bos);
    assert_int_equal(s.post[0].id, 128000);
    assert_int_equal(s.eos.id, 128009);
    relay_tokenizer_spec_fini(&s);

    assert_int_equal(read_text(&s, &b, "llama3", &e), RELAY_OK);
    assert_added(&s, 128008, "<|reserved_special_token_4|>");
    assert_added(&s, 128255, "<|reserved_special_token_250|>");
    relay_tokenizer_spec_fini(&s);
    relay_buf_fini(&b);
}

static void names_of_special_tokens_count_up(void **state) {
    static const struct {
        const char *encoding;
        uint32_t n_ranks, n_ids;
        struct {
            uint32_t id;
            const char *name;
        } names[4];
    } cases[] = {
        {"o200k_harmony",
         199998,
         201088,
         {{200004, "<|reserved_200004|>"},
          {201087, "<|reserved_201087|>"},
          {200018, "<|endofprompt|>"},
          {200018, "<|reserved_200018|>"}}},
        {"llama4", 200000, 202048, {{200092, "<|patch|>"}, {202047, "<|reserved_special_token_913|>"}}},
        {"kimi_k2", 163584, 163840, {{163589, "<|reserved_token_163589|>"}, {163601, "<|im_middle|>"}}},
        {"qwen", 151643, 151851, {{151850, "<|extra_204|>"}}},
        {"p50k_edit", 50280, 50284, {{50283, "<|fim_suffix|>"}}},
    };
    relay_buf b;
    put_lines(&b, 200000, "\r\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        // The first lines of the file, as many as the encoding has ranks.
        relay_buf part = b;
        char end[32];
        snprintf(end, sizeof end, " %u\r\n", cases[i].n_ranks - 1);
        const char *last = memmem(b.data, b.len, end, strlen(end));
        assert_non_null(last);
        part.len = (size_t)(last - b.data) + strlen(end);
        relay_tokenizer_spec s;
        relay_err e;
        if (read_text(&s, &part, cases[i].encoding, &e) != RELAY_OK) fail_msg("%s", e.message);
        assert_int_equal(s.n_ids, cases[i].n_ids);
        for (size_t k = 0; k < 4 && cases[i].names[k].name != NULL; k++)
            assert_added(&s, cases[i].names[k].id, cases[i].names[k].name);
        for (uint32_t k = 0; k < s.n_added && s.n_added < 300; k++)
            for (uint32_t j = 0; j < k; j++)
                assert_int_not_equal(s.added[j].id, s.added[k].id);
        relay_tokenizer_spec_fini(&s);
    }
    relay_buf_fini(&b);
}

static void every_encoding_is_listed(void **state) {
    static const char *const names[] = {"r50k_base",  "p50k_base",     "p50k_edit", "cl100k_base",
                                        "o200k_base", "o200k_harmony", "llama3",    "llama3.1",
                                        "llama4",     "kimi_k2",       "qwen"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_non_null(relay_tiktoken_encoding_find(names[i]));
        assert_non_null(strstr(relay_tiktoken_encoding_names(), names[i]));
    }
    assert_null(relay_tiktoken_encoding_find("cl100k"));
    // A file of as many ranks as one of OpenAI's is not theirs.
    assert_null(relay_tiktoken_encoding_recognise("00", 100256));
}

// ---- Broken ranks

typedef struct broken_ranks {
    uint32_t n; // good lines at first
    const char *tail;
    const char *encoding;
    relay_code code;
    const char *message;
} broken_ranks;

static const broken_ranks broken_rank_files[] = {
    {0, "", NULL, RELAY_INVALID_ARGUMENT, "the file has no tokens"},
    {2, "Ag==2\n", NULL, RELAY_INVALID_ARGUMENT, "line 3: it must be a token in base64, a space and a rank"},
    {2, "\n\nAg== \n", NULL, RELAY_INVALID_ARGUMENT, "line 5: it must be a token in base64, a space and a rank"},
    {2, "Ag== 2x\n", NULL, RELAY_INVALID_ARGUMENT, "line 3: it must be"},
    {2, "Ag== -2\n", NULL, RELAY_INVALID_ARGUMENT, "line 3: it must be"},
    {2, " 2\n", NULL, RELAY_INVALID_ARGUMENT, "line 3: it must be"},
    {2, "Ag== 4294967296\n", NULL, RELAY_INVALID_ARGUMENT, "line 3: it must be"},
    {2, "Ag== 4194304\n", NULL, RELAY_INVALID_ARGUMENT, "line 3: the rank is 4194304; ranks are below 4194304"},
    {256, "", NULL, RELAY_UNIMPLEMENTED, "the encoding of the file (256 ranks) is not known: give it as FILE:ENCODING"},
    {256, "", "cl100k", RELAY_UNIMPLEMENTED, "the encoding \"cl100k\" is not known; there are r50k_base"},
    {256, "", "cl100k_base", RELAY_INVALID_ARGUMENT, "the file has 256 ranks, and \"cl100k_base\" has 100256"},
    {50255, "A!== 50255\n", "r50k_base", RELAY_INVALID_ARGUMENT,
     "line 50256: \"A!==\" is no base64 of one byte or more"},
    {50255, "AAAB 7\n", "r50k_base", RELAY_INVALID_ARGUMENT, "line 50256: the rank 7 is there twice"},
    {50255, "BA== 60000\n", "r50k_base", RELAY_INVALID_ARGUMENT, "line 50256: the token is that of rank 4, too"},
};

static void broken_ranks_are_refused_with_what_and_where(void **state) {
    for (size_t i = 0; i < sizeof broken_rank_files / sizeof *broken_rank_files; i++) {
        const broken_ranks *f = &broken_rank_files[i];
        relay_buf b;
        put_lines(&b, f->n, "\n");
        relay_buf_puts(&b, f->tail);
        relay_tokenizer_spec s;
        relay_err e = {0};
        relay_code code = read_text(&s, &b, f->encoding, &e);
        if (code != f->code || strstr(e.message, f->message) == NULL)
            fail_msg("file %zu: %s \"%s\", expected \"%s\"", i, relay_code_name(code), e.message, f->message);
        relay_tokenizer_spec_fini(&s);
        relay_buf_fini(&b);
    }
}

static void a_byte_without_a_token_is_missed(void **state) {
    relay_buf b;
    relay_buf_init(&b, 1 << 24);
    for (uint32_t rank = 0; rank < 50256; rank++) {
        if (rank == 65)
            relay_buf_puts(&b, "/////w== 65\n");
        else
            put_line(&b, rank, "\n");
    }
    relay_tokenizer_spec s;
    relay_err e;
    assert_int_equal(read_text(&s, &b, "r50k_base", &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "the file has no token for byte 0x41");
    relay_tokenizer_spec_fini(&s);
    relay_buf_fini(&b);
}

static void other_files_are_not_taken_for_ranks(void **state) {
    assert_false(relay_tiktoken_is("", 0));
    assert_false(relay_tiktoken_is("[PAD]\n[UNK]\n", 12));
    assert_false(relay_tiktoken_is("{\"a\": 1}\n", 9));
}

// ---- tekken.json

// The document with n byte tokens, and the rest as text.
static void put_tekken(relay_buf *b, const char *config, uint32_t n, const char *more_vocab, const char *rest) {
    relay_buf_init(b, 1 << 20);
    relay_buf_printf(b, "{\"config\": %s, \"vocab\": [", config);
    for (uint32_t rank = 0; rank < n; rank++) {
        relay_buf_puts(b, rank == 0 ? "{\"token_bytes\": \"" : ", {\"token_bytes\": \"");
        put_base64_number(b, rank, 1);
        relay_buf_printf(b, "\", \"rank\": %u, \"token_str\": null}", rank);
    }
    relay_buf_printf(b, "%s]%s}", more_vocab, rest);
}

static relay_code read_tekken(relay_tokenizer_spec *s, const relay_buf *b, relay_err *e) {
    *s = (relay_tokenizer_spec){0};
    relay_arena_init(&s->arena, SIZE_MAX / 2);
    yyjson_doc *doc;
    assert_int_equal(relay_json_parse(&doc, b->data, b->len, RELAY_JSON_MAX_DEPTH, "JSON", e), RELAY_OK);
    relay_code code = relay_tekken_read(s, yyjson_doc_get_root(doc), e);
    yyjson_doc_free(doc); // the spec keeps nothing of it
    return code;
}

#define CONFIG(ids, special)                                                                                           \
    "{\"pattern\": \"\\\\S+\", \"default_vocab_size\": " #ids ", \"default_num_special_tokens\": " #special "}"

static void special_tokens_of_a_tekken_come_first(void **state) {
    relay_buf b;
    put_tekken(&b, CONFIG(278, 22), 256, ", {\"rank\": 256, \"token_bytes\": \"aGk=\"}", "");
    relay_tokenizer_spec s;
    relay_err e;
    assert_int_equal(read_tekken(&s, &b, &e), RELAY_OK);
    assert_int_equal(s.n_ids, 278); // the last entry of vocab is past it
    assert_int_equal(s.n_added, 22);
    assert_text(s.added[0].content, "<unk>");
    assert_text(s.added[19].content, "[TOOL_CONTENT]");
    assert_text(s.added[20].content, "<SPECIAL_20>");
    assert_true(s.bos.id == 1 && s.eos.id == 2 && s.pad.id == 11);
    assert_null(s.model.tokens[0].piece.s);
    assert_memory_equal(s.model.tokens[22 + 'h'].piece.s, "h", 1);
    assert_text(s.pretokenizers[0].pattern.text, "\\S+");
    relay_tokenizer_spec_fini(&s);
    relay_buf_fini(&b);

    put_tekken(&b, CONFIG(259, 3), 256, "", ", \"special_tokens\": [{\"rank\": 1, \"token_str\": \"<s>\"}]");
    assert_int_equal(read_tekken(&s, &b, &e), RELAY_OK);
    assert_text(s.added[0].content, "<SPECIAL_0>");
    assert_text(s.added[1].content, "<s>");
    assert_false(s.eos.is_set);
    relay_tokenizer_spec_fini(&s);
    relay_buf_fini(&b);
}

typedef struct broken_tekken {
    const char *config;
    uint32_t n;
    const char *more_vocab, *rest, *message;
} broken_tekken;

static const broken_tekken broken_tekkens[] = {
    {"1", 256, "", "", "there must be a config (an object) and a vocab (an array)"},
    {"{}", 256, "", "", "config.pattern must be a string of 1 to"},
    {"{\"pattern\": \"\"}", 256, "", "", "config.pattern must be a string of 1 to"},
    {"{\"pattern\": \"x\"}", 256, "", "", "config.default_num_special_tokens must be a number from 0 to 65536"},
    {CONFIG(258, -1), 256, "", "", "config.default_num_special_tokens must be a number from 0 to 65536"},
    {CONFIG(200, 2), 256, "", "", "config.default_vocab_size must be a number from 258 to 4194304"},
    {CONFIG(300, 2), 256, "", "",
     "vocab has 256 entries; config.default_vocab_size and default_num_special_tokens ask for 298"},
    {CONFIG(259, 2), 256, ", 17", "", "vocab[256].rank must be a number from 256 to 256"},
    {CONFIG(259, 2), 256, ", {\"rank\": 3, \"token_bytes\": \"aGk=\"}", "",
     "vocab[256].rank must be a number from 256 to 256"},
    {CONFIG(259, 2), 256, ", {\"rank\": 256}", "", "vocab[256].token_bytes must be a string of 1 to"},
    {CONFIG(259, 2), 256, ", {\"rank\": 256, \"token_bytes\": \"aGk\"}", "",
     "vocab[256].token_bytes is \"aGk\", which is no base64"},
    {CONFIG(259, 2), 256, ", {\"rank\": 256, \"token_bytes\": \"aA==\"}", "",
     "vocab[256].token_bytes is that of vocab[104], too"},
    {CONFIG(258, 2), 255, ", {\"rank\": 255, \"token_bytes\": \"aGk=\"}", "", "vocab has no token for byte 0xFF"},
    {CONFIG(258, 2), 256, "", ", \"special_tokens\": 3", "special_tokens must be an array"},
    {CONFIG(258, 2), 256, "", ", \"special_tokens\": [{\"rank\": 2, \"token_str\": \"x\"}]",
     "special_tokens[0].rank must be a number from 0 to 1"},
    {CONFIG(258, 2), 256, "", ", \"special_tokens\": [{\"rank\": 1, \"token_str\": 1}]",
     "special_tokens[0].token_str must be a string"},
    {CONFIG(256, 0), 256, "", ", \"special_tokens\": [{}]",
     "special_tokens[0]: config.default_num_special_tokens is 0"},
    {CONFIG(258, 2), 256, "",
     ", \"special_tokens\": [{\"rank\": 1, \"token_str\": \"x\"}, {\"rank\": 1, \"token_str\": \"y\"}]",
     "special_tokens[1].rank is 1, which is there twice"},
};

static void broken_tekkens_are_refused_with_what_and_where(void **state) {
    for (size_t i = 0; i < sizeof broken_tekkens / sizeof *broken_tekkens; i++) {
        const broken_tekken *f = &broken_tekkens[i];
        relay_buf b;
        put_tekken(&b, f->config, f->n, f->more_vocab, f->rest);
        relay_tokenizer_spec s;
        relay_err e = {0};
        relay_code code = read_tekken(&s, &b, &e);
        if (code != RELAY_INVALID_ARGUMENT || strstr(e.message, f->message) == NULL)
            fail_msg("file %zu: %s \"%s\", expected \"%s\"", i, relay_code_name(code), e.message, f->message);
        relay_tokenizer_spec_fini(&s);
        relay_buf_fini(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_is_strict),
        cmocka_unit_test(an_encoding_is_recognised_or_named),
        cmocka_unit_test(names_of_special_tokens_count_up),
        cmocka_unit_test(every_encoding_is_listed),
        cmocka_unit_test(broken_ranks_are_refused_with_what_and_where),
        cmocka_unit_test(a_byte_without_a_token_is_missed),
        cmocka_unit_test(other_files_are_not_taken_for_ranks),
        cmocka_unit_test(special_tokens_of_a_tekken_come_first),
        cmocka_unit_test(broken_tekkens_are_refused_with_what_and_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
