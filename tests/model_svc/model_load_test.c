// What a file may say, and how one that says something else is refused: by naming what is wrong.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model_svc/model.h"
#include "tests/model_svc/tiny_model.h"

static const relay_model_opts small_opts = {
    .n_threads = 1,
    .kv_type = RELAY_KV_F32,
    .max_rows = 8,
    .max_sequences = 2,
};

static relay_code load(relay_model **m, const tiny_model *t, const relay_model_opts *opts, relay_err *e) {
    size_t len;
    char *file = tiny_model_write(t, &len);
    relay_gguf *g;
    *m = NULL;
    relay_code code = relay_gguf_open_memory(&g, file, len, e);
    if (code == RELAY_OK) {
        code = relay_model_load(m, g, "folder/tiny.gguf", opts, e);
        relay_gguf_close(g);
    }
    free(file);
    return code;
}

static relay_model *load_well(const tiny_model *t, const relay_model_opts *opts) {
    relay_model *m;
    relay_err e = {0};
    if (load(&m, t, opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    return m;
}

// ---- What is refused

typedef struct refusal {
    tiny_edit edit;
    relay_code code;
    const char *names; // in the message
} refusal;

#define INVALID       RELAY_INVALID_ARGUMENT
#define UNKNOWN_TO_US RELAY_UNIMPLEMENTED

static const refusal refusals[] = {
    // Keys that are missing
    {{.what = TINY_OMIT, .name = "general.architecture"}, INVALID, "\"general.architecture\" is missing"},
    {{.what = TINY_OMIT, .name = "llama.block_count"}, INVALID, "\"llama.block_count\" is missing"},
    {{.what = TINY_OMIT, .name = "llama.context_length"}, INVALID, "\"llama.context_length\" is missing"},
    {{.what = TINY_OMIT, .name = "llama.embedding_length"}, INVALID, "\"llama.embedding_length\" is missing"},
    {{.what = TINY_OMIT, .name = "llama.feed_forward_length"}, INVALID, "\"llama.feed_forward_length\" is missing"},
    {{.what = TINY_OMIT, .name = "llama.attention.head_count"}, INVALID, "\"llama.attention.head_count\" is missing"},
    {{.what = TINY_OMIT, .name = "llama.attention.layer_norm_rms_epsilon"},
     INVALID,
     "layer_norm_rms_epsilon\" is missing"},
    // Values out of range
    {{.what = TINY_U32, .name = "llama.block_count", .number = 0}, INVALID, "\"llama.block_count\" is 0"},
    {{.what = TINY_U32, .name = "llama.block_count", .number = 4000000000u},
     INVALID,
     "\"llama.block_count\" is 4000000000"},
    {{.what = TINY_U32, .name = "llama.context_length", .number = 0}, INVALID, "\"llama.context_length\" is 0"},
    {{.what = TINY_U32, .name = "llama.context_length", .number = 4000000000u},
     INVALID,
     "\"llama.context_length\" is 4000000000"},
    {{.what = TINY_U32, .name = "llama.embedding_length", .number = 0}, INVALID, "\"llama.embedding_length\" is 0"},
    {{.what = TINY_U32, .name = "llama.embedding_length", .number = 1u << 31},
     INVALID,
     "\"llama.embedding_length\" is 2147483648"},
    {{.what = TINY_U32, .name = "llama.feed_forward_length", .number = 0},
     INVALID,
     "\"llama.feed_forward_length\" is 0"},
    {{.what = TINY_U32, .name = "llama.attention.head_count", .number = 0},
     INVALID,
     "\"llama.attention.head_count\" is 0"},
    {{.what = TINY_U32, .name = "llama.attention.head_count", .number = 3},
     INVALID,
     "\"llama.attention.head_count_kv\" is 2; it must divide"},
    {{.what = TINY_U32, .name = "llama.attention.head_count_kv", .number = 0},
     INVALID,
     "\"llama.attention.head_count_kv\" is 0"},
    {{.what = TINY_U32, .name = "llama.attention.head_count_kv", .number = 8},
     INVALID,
     "\"llama.attention.head_count_kv\" is 8"},
    {{.what = TINY_U32, .name = "llama.attention.key_length", .number = 7}, INVALID, "the head size is 7"},
    {{.what = TINY_U32, .name = "llama.attention.key_length", .number = 0},
     INVALID,
     "\"llama.attention.key_length\" is 0"},
    {{.what = TINY_U32, .name = "llama.attention.key_length", .number = 1u << 20},
     INVALID,
     "\"llama.attention.key_length\" is 1048576"},
    {{.what = TINY_F32, .name = "llama.attention.layer_norm_rms_epsilon", .real = -1},
     INVALID,
     "layer_norm_rms_epsilon\" is -1"},
    {{.what = TINY_U32, .name = "llama.rope.dimension_count", .number = 3},
     INVALID,
     "\"llama.rope.dimension_count\" is 3; it must be even"},
    {{.what = TINY_U32, .name = "llama.rope.dimension_count", .number = 10},
     INVALID,
     "\"llama.rope.dimension_count\" is 10"},
    {{.what = TINY_F32, .name = "llama.rope.freq_base", .real = 0}, INVALID, "\"llama.rope.freq_base\" is 0"},
    {{.what = TINY_F32, .name = "llama.rope.scaling.factor", .real = -2},
     INVALID,
     "\"llama.rope.scaling.factor\" is -2"},
    {{.what = TINY_U32, .name = "llama.vocab_size", .number = 41}, INVALID, "\"llama.vocab_size\" is 41"},
    {{.what = TINY_STRINGS, .name = "tokenizer.ggml.tokens", .number = 3},
     INVALID,
     "the 3 tokens of key \"tokenizer.ggml.tokens\""},
    {{.what = TINY_F32, .name = "general.sampling.temp", .real = 9}, INVALID, "\"general.sampling.temp\" is 9"},
    {{.what = TINY_U32, .name = "general.sampling.top_p", .number = 1}, INVALID, "\"general.sampling.top_p\""},
    // Values of another type
    {{.what = TINY_STRING, .name = "llama.block_count", .text = "2"}, INVALID, "\"llama.block_count\""},
    {{.what = TINY_U32S, .name = "llama.attention.head_count", .number = 2}, INVALID, "\"llama.attention.head_count\""},
    {{.what = TINY_U32, .name = "general.architecture", .number = 1}, INVALID, "\"general.architecture\""},
    {{.what = TINY_U32, .name = "general.name", .number = 1}, INVALID, "\"general.name\""},
    // What Relay does not know
    {{.what = TINY_STRING, .name = "general.architecture", .text = "mamba"}, UNKNOWN_TO_US, "\"mamba\""},
    {{.what = TINY_STRING, .name = "general.architecture", .text = ""}, UNKNOWN_TO_US, "general.architecture is \"\""},
    {{.what = TINY_STRING, .name = "llama.rope.scaling.type", .text = "yarn"},
     UNKNOWN_TO_US,
     "\"llama.rope.scaling.type\" is \"yarn\""},
    {{.what = TINY_U32, .name = "llama.attention.value_length", .number = 4},
     UNKNOWN_TO_US,
     "\"llama.attention.value_length\" is 4"},
    {{.what = TINY_U32, .name = "llama.expert_count", .number = 8}, UNKNOWN_TO_US, "\"llama.expert_count\" is 8"},
    {{.what = TINY_BOOL, .name = "llama.attention.causal", .number = 0},
     UNKNOWN_TO_US,
     "\"llama.attention.causal\" is 0"},
    {{.what = TINY_F32, .name = "llama.logit_scale", .real = 2}, UNKNOWN_TO_US, "\"llama.logit_scale\" is 2"},
    // Tensors
    {{.what = TINY_OMIT, .name = "token_embd.weight"}, INVALID, "\"token_embd.weight\" is missing"},
    {{.what = TINY_OMIT, .name = "output_norm.weight"}, INVALID, "\"output_norm.weight\" is missing"},
    {{.what = TINY_OMIT, .name = "blk.1.ffn_up.weight"}, INVALID, "\"blk.1.ffn_up.weight\" is missing"},
    {{.what = TINY_U32, .name = "llama.block_count", .number = 3}, INVALID, "\"blk.2.attn_norm.weight\" is missing"},
    {{.what = TINY_U32, .name = "llama.block_count", .number = 1}, INVALID, "\"blk.1.attn_norm.weight\" is none"},
    {{.what = TINY_RENAME, .name = "blk.0.attn_q.weight", .text = "blk.0.attn_r.weight"},
     INVALID,
     "\"blk.0.attn_r.weight\" is none"},
    {{.what = TINY_RENAME, .name = "blk.0.attn_q.weight", .text = "blk.00.attn_q.weight"},
     INVALID,
     "\"blk.00.attn_q.weight\" is none"},
    {{.what = TINY_RENAME, .name = "blk.0.attn_q.weight", .text = "blk.99999999999999999999.attn_q.weight"},
     INVALID,
     "is none"},
    {{.what = TINY_RENAME, .name = "blk.0.attn_q.weight", .text = "blk."}, INVALID, "\"blk.\" is none"},
    {{.what = TINY_RENAME, .name = "blk.0.attn_q.weight", .text = "blk.0"}, INVALID, "\"blk.0\" is none"},
    {{.what = TINY_RENAME, .name = "blk.0.attn_q.weight", .text = "blk.0.attn_k.weight"},
     INVALID,
     "\"blk.0.attn_k.weight\" is there twice"},
    {{.what = TINY_ADD, .name = "blk.0.ffn_gate_inp.weight"}, INVALID, "\"blk.0.ffn_gate_inp.weight\" is none"},
    {{.what = TINY_DIMS, .name = "token_embd.weight", .dims = {64, 40}},
     INVALID,
     "\"token_embd.weight\" has shape [64, 40"},
    {{.what = TINY_DIMS, .name = "output.weight", .dims = {32, 41}}, INVALID, "\"output.weight\" has shape [32, 41"},
    {{.what = TINY_DIMS, .name = "blk.1.attn_k.weight", .dims = {32, 32}},
     INVALID,
     "\"blk.1.attn_k.weight\" has shape [32, 32"},
    {{.what = TINY_DIMS, .name = "blk.0.ffn_down.weight", .dims = {32, 64}},
     INVALID,
     "\"blk.0.ffn_down.weight\" has shape [32, 64"},
    {{.what = TINY_DIMS, .name = "blk.0.ffn_norm.weight", .dims = {32, 2}},
     INVALID,
     "\"blk.0.ffn_norm.weight\" has shape [32, 2"},
    {{.what = TINY_TYPE, .name = "blk.0.ffn_up.weight", .number = 23},
     UNKNOWN_TO_US,
     "\"blk.0.ffn_up.weight\" is of ggml's type 23"},
    {{.what = TINY_TYPE, .name = "blk.0.ffn_up.weight", .number = 4000000000u},
     UNKNOWN_TO_US,
     "\"blk.0.ffn_up.weight\" is of ggml's type 4000000000"},
    {{.what = TINY_TYPE, .name = "blk.0.ffn_norm.weight", .number = RELAY_GGML_F16},
     INVALID,
     "\"blk.0.ffn_norm.weight\" is of type F16"},
    {{.what = TINY_VALUE, .name = "blk.1.attn_norm.weight", .real = __builtin_nanf("")},
     INVALID,
     "\"blk.1.attn_norm.weight\" holds"},
    {{.what = TINY_ADD, .name = "rope_freqs.weight"},
     INVALID,
     "\"rope_freqs.weight\" has shape [1, 1, 1, 1]; it must have [4, 1, 1, 1]"},
};
enum { N_REFUSALS = sizeof refusals / sizeof refusals[0] };

static void a_wrong_file_is_refused_by_the_name_of_what_is_wrong(void **state) {
    for (uint32_t i = 0; i < N_REFUSALS; i++) {
        tiny_model t = tiny_llama;
        t.edits[0] = refusals[i].edit;
        relay_model *m;
        relay_err e = {0};
        relay_code code = load(&m, &t, &small_opts, &e);
        if (code != refusals[i].code || !strstr(e.message, refusals[i].names)) {
            fail_msg("refusal %u: %s \"%s\", wanted %s with %s", i, relay_code_name(code), e.message,
                     relay_code_name(refusals[i].code), refusals[i].names);
        }
        assert_null(m);
    }
}

static void a_width_that_the_heads_do_not_divide_is_refused(void **state) {
    tiny_model t = tiny_llama;
    t.edits[0] = (tiny_edit){.what = TINY_U32, .name = "llama.attention.head_count", .number = 6};
    relay_model *m;
    relay_err e = {0};
    assert_int_equal(load(&m, &t, &small_opts, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(
        e.message, "key \"llama.embedding_length\" is 32; it must be a multiple of attention.head_count, which is 6");
}

static void qwen2_needs_its_biases(void **state) {
    tiny_model t = tiny_qwen2;
    t.edits[0] = (tiny_edit){.what = TINY_OMIT, .name = "blk.2.attn_k.bias"};
    relay_model *m;
    relay_err e = {0};
    assert_int_equal(load(&m, &t, &small_opts, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "tensor \"blk.2.attn_k.bias\" is missing");
}

static void rope_factors_must_be_positive(void **state) {
    tiny_model t = tiny_llama;
    t.has_rope_factors = true;
    t.edits[0] = (tiny_edit){.what = TINY_VALUE, .name = "rope_freqs.weight", .real = 0};
    relay_model *m;
    relay_err e = {0};
    assert_int_equal(load(&m, &t, &small_opts, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "tensor \"rope_freqs.weight\" holds 0 at 0; it must be a positive number");
}

static void the_options_are_checked_too(void **state) {
    static const struct {
        relay_code code;
        relay_model_opts opts;
        const char *message;
    } cases[] = {
        {RELAY_INVALID_ARGUMENT, {.max_rows = 0, .max_sequences = 1}, "max_rows is 0; it must be at least 1"},
        {RELAY_INVALID_ARGUMENT, {.max_rows = 1, .max_sequences = 0}, "max_sequences is 0; it must be at least 1"},
        {RELAY_OUT_OF_RANGE,
         {.max_rows = 1, .max_sequences = 1, .max_context = 65},
         "--max-context is 65; the model was trained on 64 positions"},
        {RELAY_OUT_OF_RANGE,
         {.max_rows = 1, .max_sequences = 1, .kv_bytes = 100},
         "--kv-memory is 100 bytes; one block of 16 positions takes"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        relay_model *m;
        relay_err e = {0};
        assert_int_equal(load(&m, &tiny_llama, &cases[i].opts, &e), cases[i].code);
        assert_ptr_equal(strstr(e.message, cases[i].message), e.message);
    }
}

// ---- What is loaded

static void a_model_says_what_it_is(void **state) {
    tiny_model t = tiny_qwen2;
    t.edits[0] = (tiny_edit){.what = TINY_STRING, .name = "general.name", .text = "Tiny \xe2\x82\xac \xff"};
    t.edits[1] = (tiny_edit){.what = TINY_F32, .name = "general.sampling.temp", .real = 0.5f};
    t.edits[2] = (tiny_edit){.what = TINY_U32, .name = "general.sampling.top_k", .number = 40};
    relay_model *m = load_well(&t, &small_opts);
    const relay_model_info *i = relay_model_get_info(m);
    assert_string_equal(i->name, "Tiny \xe2\x82\xac ?");
    assert_string_equal(i->architecture, "qwen2");
    assert_string_equal(i->weight_format, "Q4_K");
    assert_int_equal(i->vocab_size, 320);
    assert_int_equal(i->max_context, 256);
    const relay_sample_params *p = &i->default_sampling;
    assert_true(p->temperature == 0.5f && p->top_k == 40);
    // What the file does not say is off.
    assert_true(p->top_p == 1 && p->min_p == 0 && p->typical_p == 1 && p->repetition_penalty == 1);
    assert_true(p->xtc_probability == 0 && p->mirostat == 0 && i->default_penalty_window == 0);
    assert_int_equal(i->n_groups, 1);
    assert_int_equal(i->groups[0].n_blocks, 2 * 256 / 16); // two sequences of the whole context
    assert_int_equal(i->kv_bytes, i->groups[0].n_blocks * i->groups[0].block_bytes);
    assert_true(i->groups[0].block_bytes >= 16 * 3 * 2 * 2 * 32 * sizeof(float)); // keys and values
    relay_model_destroy(m);
}

static void the_files_own_sampling_is_the_default(void **state) {
    tiny_model t = tiny_llama;
    t.edits[0] = (tiny_edit){.what = TINY_F32, .name = "general.sampling.xtc_probability", .real = 0.25f};
    t.edits[1] = (tiny_edit){.what = TINY_U32, .name = "general.sampling.mirostat", .number = 1};
    t.edits[2] = (tiny_edit){.what = TINY_F32, .name = "general.sampling.mirostat_tau", .real = 3};
    t.edits[3] = (tiny_edit){.what = TINY_U32, .name = "general.sampling.penalty_last_n", .number = 64};
    relay_model *m = load_well(&t, &small_opts);
    const relay_model_info *i = relay_model_get_info(m);
    assert_true(i->default_sampling.xtc_probability == 0.25f && i->default_sampling.xtc_threshold == 0.1f);
    assert_int_equal(i->default_sampling.mirostat, 1);
    assert_true(i->default_sampling.mirostat_tau == 3 && i->default_sampling.mirostat_eta == 0.1f);
    assert_int_equal(i->default_penalty_window, 64);
    relay_model_destroy(m);
    t = tiny_llama;
    t.edits[0] = (tiny_edit){.what = TINY_U32, .name = "general.sampling.penalty_last_n", .number = 0};
    t.edits[1] = (tiny_edit){.what = TINY_F32, .name = "general.sampling.penalty_repeat", .real = 1.5f};
    m = load_well(&t, &small_opts);
    assert_true(relay_model_get_info(m)->default_sampling.repetition_penalty == 1); // over no ids at all
    relay_model_destroy(m);
}

static void a_model_without_a_name_has_its_files(void **state) {
    relay_model *m = load_well(&tiny_llama, &small_opts);
    assert_string_equal(relay_model_get_info(m)->name, "tiny.gguf");
    assert_string_equal(relay_model_get_info(m)->weight_format, "F32");
    relay_model_destroy(m);
}

static void the_context_served_is_what_the_memory_holds(void **state) {
    relay_model_opts opts = small_opts;
    relay_model *m = load_well(&tiny_llama, &opts);
    uint64_t block_bytes = relay_model_get_info(m)->groups[0].block_bytes;
    relay_model_destroy(m);
    opts.kv_bytes = 3 * block_bytes - 1;
    m = load_well(&tiny_llama, &opts);
    assert_int_equal(relay_model_get_info(m)->groups[0].n_blocks, 2);
    assert_int_equal(relay_model_get_info(m)->max_context, 32);
    relay_model_destroy(m);
    opts.kv_bytes = 100 * block_bytes; // more than two sequences need: room for a cache of prefixes
    opts.max_context = 33;
    m = load_well(&tiny_llama, &opts);
    assert_int_equal(relay_model_get_info(m)->groups[0].n_blocks, 100);
    assert_int_equal(relay_model_get_info(m)->max_context, 33);
    relay_model_destroy(m);
}

static void fingerprint_of(const tiny_model *t, uint8_t out[16]) {
    relay_model *m = load_well(t, &small_opts);
    memcpy(out, relay_model_get_info(m)->weights_fingerprint, 16);
    relay_model_destroy(m);
}

static void the_fingerprint_changes_with_weights_and_hyperparameters_alone(void **state) {
    uint8_t base[16], other[16];
    fingerprint_of(&tiny_llama, base);
    tiny_model t = tiny_llama;
    t.edits[0] = (tiny_edit){.what = TINY_STRING, .name = "general.name", .text = "renamed"};
    fingerprint_of(&t, other);
    assert_memory_equal(base, other, 16);
    t.edits[0] = (tiny_edit){.what = TINY_VALUE, .name = "blk.1.ffn_down.weight", .real = 0.25f};
    fingerprint_of(&t, other);
    assert_memory_not_equal(base, other, 16);
    t.edits[0] = (tiny_edit){.what = TINY_F32, .name = "llama.rope.freq_base", .real = 20000};
    fingerprint_of(&t, other);
    assert_memory_not_equal(base, other, 16);
    t.edits[0] = (tiny_edit){.what = TINY_F32, .name = "llama.rope.scaling.factor", .real = 2};
    fingerprint_of(&t, other);
    assert_memory_not_equal(base, other, 16);
}

static void the_numerics_id_names_build_kernels_and_cache_type(void **state) {
    relay_model_opts opts = small_opts;
    relay_model *m = load_well(&tiny_llama, &opts);
    const char *id = relay_model_get_info(m)->numerics_id;
    char build[17] = "", kernels[32] = "", kv[8] = "";
    assert_int_equal(sscanf(id, "build=%16[0-9a-f] libc=%*s kernels=%31s kv=%7s", build, kernels, kv), 3);
    assert_int_equal(strlen(build), 16);
    assert_string_equal(kv, "f32");
    char before[128];
    strcpy(before, id);
    relay_model_destroy(m);

    m = load_well(&tiny_llama, &opts);
    assert_string_equal(relay_model_get_info(m)->numerics_id, before);
    relay_model_destroy(m);
    opts.kv_type = RELAY_KV_F16;
    m = load_well(&tiny_llama, &opts);
    assert_string_not_equal(relay_model_get_info(m)->numerics_id, before);
    relay_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_file_is_refused_by_the_name_of_what_is_wrong),
        cmocka_unit_test(a_width_that_the_heads_do_not_divide_is_refused),
        cmocka_unit_test(qwen2_needs_its_biases),
        cmocka_unit_test(rope_factors_must_be_positive),
        cmocka_unit_test(the_options_are_checked_too),
        cmocka_unit_test(a_model_says_what_it_is),
        cmocka_unit_test(the_files_own_sampling_is_the_default),
        cmocka_unit_test(a_model_without_a_name_has_its_files),
        cmocka_unit_test(the_context_served_is_what_the_memory_holds),
        cmocka_unit_test(the_fingerprint_changes_with_weights_and_hyperparameters_alone),
        cmocka_unit_test(the_numerics_id_names_build_kernels_and_cache_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
