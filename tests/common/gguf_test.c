#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/gguf.h"
#include "tests/common/gguf_writer.h"

// Opens a copy of exactly the file's size, so that a sanitizer sees a read behind its end. The copy is the caller's to
// free, after the file.
static relay_code open_copy(relay_gguf **g, const uint8_t *bytes, size_t len, uint8_t **copy, relay_err *e) {
    *copy = malloc(len != 0 ? len : 1);
    memcpy(*copy, bytes, len);
    return relay_gguf_open_memory(g, *copy, len, e);
}

static relay_gguf *open_good(gguf_writer *w, uint8_t **copy) {
    size_t len;
    const uint8_t *bytes = gguf_writer_finish(w, &len);
    relay_gguf *g;
    relay_err e = {0};
    if (open_copy(&g, bytes, len, copy, &e) != RELAY_OK) fail_msg("%s", e.message);
    return g;
}

// ---- Honest files

static void reads_every_integer_type_within_a_range(void **state) {
    gguf_writer *w = gguf_writer_create();
    gguf_writer_scalar(w, "u8", GGUF_UINT8, &(uint8_t){200});
    gguf_writer_scalar(w, "i8", GGUF_INT8, &(int8_t){100});
    gguf_writer_scalar(w, "u16", GGUF_UINT16, &(uint16_t){60000});
    gguf_writer_scalar(w, "i16", GGUF_INT16, &(int16_t){30000});
    gguf_writer_scalar(w, "u32", GGUF_UINT32, &(uint32_t){4000000000});
    gguf_writer_scalar(w, "i32", GGUF_INT32, &(int32_t){2000000000});
    gguf_writer_scalar(w, "u64", GGUF_UINT64, &(uint64_t){UINT64_MAX});
    gguf_writer_scalar(w, "i64", GGUF_INT64, &(int64_t){INT64_MAX});
    gguf_writer_scalar(w, "negative", GGUF_INT64, &(int64_t){INT64_MIN});
    uint8_t *copy;
    relay_gguf *g = open_good(w, &copy);
    static const struct {
        const char *key;
        uint64_t value;
    } expected[] = {{"u8", 200},         {"i8", 100},         {"u16", 60000},      {"i16", 30000},
                    {"u32", 4000000000}, {"i32", 2000000000}, {"u64", UINT64_MAX}, {"i64", INT64_MAX}};
    relay_err e;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        uint64_t v = 0;
        bool found = false;
        assert_int_equal(relay_gguf_u64(g, expected[i].key, expected[i].value, expected[i].value, &v, &found, &e),
                         RELAY_OK);
        assert_true(found);
        assert_true(v == expected[i].value);
        assert_int_equal(relay_gguf_u64(g, expected[i].key, 0, expected[i].value - 1, &v, NULL, &e),
                         RELAY_INVALID_ARGUMENT);
        assert_non_null(strstr(e.message, expected[i].key));
    }
    uint64_t v = 42;
    assert_int_equal(relay_gguf_u64(g, "negative", 0, UINT64_MAX, &v, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(
        strstr(e.message, "key \"negative\" is -9223372036854775808; it must be from 0 to 18446744073709551615"));
    assert_int_equal(v, 42);
    int64_t s;
    assert_int_equal(relay_gguf_i64(g, "negative", INT64_MIN, INT64_MAX, &s, NULL, &e), RELAY_OK);
    assert_true(s == INT64_MIN);
    assert_int_equal(relay_gguf_i64(g, "negative", 0, INT64_MAX, &s, NULL, &e), RELAY_INVALID_ARGUMENT);
    relay_gguf_close(g);
    gguf_writer_destroy(w);
    free(copy);
}

static void reads_floats_bools_and_strings(void **state) {
    gguf_writer *w = gguf_writer_create();
    gguf_writer_f32(w, "f32", 0.5f);
    gguf_writer_scalar(w, "f64", GGUF_FLOAT64, &(double){-1e300});
    gguf_writer_f32(w, "nan", NAN);
    gguf_writer_bool(w, "yes", true);
    gguf_writer_bool(w, "no", false);
    gguf_writer_string(w, "text", "relay \xC3\xA9");
    gguf_writer_string(w, "empty", "");
    uint8_t *copy;
    relay_gguf *g = open_good(w, &copy);
    relay_err e;
    double d = 0;
    bool b = false;
    const char *s;
    size_t len;
    assert_int_equal(relay_gguf_f64(g, "f32", 0, 1, &d, NULL, &e), RELAY_OK);
    assert_true(d == 0.5);
    assert_int_equal(relay_gguf_f64(g, "f64", -INFINITY, 0, &d, NULL, &e), RELAY_OK);
    assert_true(d == -1e300);
    assert_int_equal(relay_gguf_f64(g, "f32", 0.75, 1, &d, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "key \"f32\" is 0.5; it must be from 0.75 to 1"));
    assert_int_equal(relay_gguf_f64(g, "nan", -INFINITY, INFINITY, &d, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_int_equal(relay_gguf_bool(g, "yes", &b, NULL, &e), RELAY_OK);
    assert_true(b);
    assert_int_equal(relay_gguf_bool(g, "no", &b, NULL, &e), RELAY_OK);
    assert_false(b);
    assert_int_equal(relay_gguf_string(g, "text", &s, &len, NULL, &e), RELAY_OK);
    assert_int_equal(len, 8);
    assert_memory_equal(s, "relay \xC3\xA9", 8);
    assert_int_equal(relay_gguf_string(g, "empty", &s, &len, NULL, &e), RELAY_OK);
    assert_int_equal(len, 0);
    relay_gguf_close(g);
    gguf_writer_destroy(w);
    free(copy);
}

static void reads_arrays_of_every_type(void **state) {
    gguf_writer *w = gguf_writer_create();
    gguf_writer_array(w, "u8", GGUF_UINT8, (uint8_t[]){1, 255}, 2);
    gguf_writer_array(w, "i8", GGUF_INT8, (int8_t[]){1, -128}, 2);
    gguf_writer_array(w, "u16", GGUF_UINT16, (uint16_t[]){1, 65535}, 2);
    gguf_writer_array(w, "i16", GGUF_INT16, (int16_t[]){1, -32768}, 2);
    gguf_writer_array(w, "u32", GGUF_UINT32, (uint32_t[]){1, UINT32_MAX}, 2);
    gguf_writer_array(w, "i32", GGUF_INT32, (int32_t[]){1, INT32_MIN}, 2);
    gguf_writer_array(w, "f32", GGUF_FLOAT32, (float[]){1, 0.25f}, 2);
    gguf_writer_array(w, "bool", GGUF_BOOL, (uint8_t[]){1, 0}, 2);
    gguf_writer_array(w, "u64", GGUF_UINT64, (uint64_t[]){1, UINT64_C(1) << 53}, 2);
    gguf_writer_array(w, "i64", GGUF_INT64, (int64_t[]){1, -(INT64_C(1) << 53)}, 2);
    gguf_writer_array(w, "f64", GGUF_FLOAT64, (double[]){1, 1e-300}, 2);
    gguf_writer_array(w, "none", GGUF_INT32, NULL, 0);
    const char *const strings[] = {"one", "", "three\0four"};
    gguf_writer_bytes_array(w, "strings", strings, (size_t[]){3, 0, 10}, 3);
    gguf_writer_string_array(w, "no strings", NULL, 0);
    uint8_t *copy;
    relay_gguf *g = open_good(w, &copy);
    static const struct {
        const char *key;
        double second;
    } expected[] = {{"u8", 255},         {"i8", -128},       {"u16", 65535}, {"i16", -32768},
                    {"u32", UINT32_MAX}, {"i32", INT32_MIN}, {"f32", 0.25},  {"bool", 0},
                    {"u64", 0x1p53},     {"i64", -0x1p53},   {"f64", 1e-300}};
    relay_err e;
    uint64_t n;
    bool found;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(relay_gguf_number_array(g, expected[i].key, &n, &found, &e), RELAY_OK);
        assert_true(found);
        assert_int_equal(n, 2);
        assert_true(relay_gguf_number_at(g, expected[i].key, 0) == 1);
        assert_true(relay_gguf_number_at(g, expected[i].key, 1) == expected[i].second);
    }
    assert_int_equal(relay_gguf_number_array(g, "none", &n, &found, &e), RELAY_OK);
    assert_true(found);
    assert_int_equal(n, 0);
    assert_int_equal(relay_gguf_string_array(g, "no strings", &n, &found, &e), RELAY_OK);
    assert_true(found);
    assert_int_equal(n, 0);
    assert_int_equal(relay_gguf_string_array(g, "strings", &n, &found, &e), RELAY_OK);
    assert_int_equal(n, 3);
    const size_t lens[] = {3, 0, 10};
    for (uint64_t i = 0; i < 3; i++) {
        const char *s;
        size_t len;
        relay_gguf_string_at(g, "strings", i, &s, &len);
        assert_int_equal(len, lens[i]);
        assert_memory_equal(s, strings[i], len);
    }
    relay_gguf_close(g);
    gguf_writer_destroy(w);
    free(copy);
}

static void absent_keys_are_no_error_and_leave_the_value(void **state) {
    gguf_writer *w = gguf_writer_create();
    gguf_writer_u32(w, "there", 1);
    uint8_t *copy;
    relay_gguf *g = open_good(w, &copy);
    relay_err e;
    uint64_t u = 7, n = 7;
    double d = 7;
    bool b = true, found = true;
    const char *s = "7";
    size_t len = 7;
    assert_true(relay_gguf_has(g, "there"));
    assert_false(relay_gguf_has(g, "ther"));
    assert_int_equal(relay_gguf_u64(g, "absent", 0, 1, &u, &found, &e), RELAY_OK);
    assert_false(found);
    assert_int_equal(relay_gguf_f64(g, "absent", 0, 1, &d, &found, &e), RELAY_OK);
    assert_int_equal(relay_gguf_bool(g, "absent", &b, &found, &e), RELAY_OK);
    assert_int_equal(relay_gguf_string(g, "absent", &s, &len, &found, &e), RELAY_OK);
    assert_true(u == 7 && d == 7 && b && len == 7 && strcmp(s, "7") == 0 && !found);
    assert_int_equal(relay_gguf_string_array(g, "absent", &n, &found, &e), RELAY_OK);
    assert_true(n == 0 && !found);
    n = 7;
    assert_int_equal(relay_gguf_number_array(g, "absent", &n, &found, &e), RELAY_OK);
    assert_true(n == 0 && !found);
    relay_gguf_close(g);
    gguf_writer_destroy(w);
    free(copy);
}

static void a_key_of_another_type_is_an_error_that_says_both(void **state) {
    gguf_writer *w = gguf_writer_create();
    gguf_writer_string(w, "string", "x");
    gguf_writer_u32(w, "number", 1);
    gguf_writer_array(w, "numbers", GGUF_INT16, (int16_t[]){1}, 1);
    gguf_writer_string_array(w, "strings", (const char *const[]){"x"}, 1);
    uint8_t *copy;
    relay_gguf *g = open_good(w, &copy);
    relay_err e;
    uint64_t n;
    double d;
    bool b;
    const char *s;
    size_t len;
    assert_int_equal(relay_gguf_u64(g, "string", 0, 1, &n, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "key \"string\" is of type string; it must be an integer"));
    assert_int_equal(relay_gguf_u64(g, "numbers", 0, 1, &n, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "key \"numbers\" is an array of int16; it must be an integer"));
    assert_int_equal(relay_gguf_f64(g, "number", 0, 1, &d, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "key \"number\" is of type uint32; it must be a float32 or float64"));
    assert_int_equal(relay_gguf_bool(g, "number", &b, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "it must be a bool"));
    assert_int_equal(relay_gguf_string(g, "number", &s, &len, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "it must be a string"));
    assert_int_equal(relay_gguf_string_array(g, "numbers", &n, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "it must be an array of strings"));
    assert_int_equal(relay_gguf_string_array(g, "string", &n, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_int_equal(relay_gguf_number_array(g, "strings", &n, NULL, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "key \"strings\" is an array of string; it must be an array of numbers"));
    assert_int_equal(relay_gguf_number_array(g, "number", &n, NULL, &e), RELAY_INVALID_ARGUMENT);
    relay_gguf_close(g);
    gguf_writer_destroy(w);
    free(copy);
}

static const float values[64] = {1, 2, 3, 4};

// A file as a model's: keys, two tensors of types that Relay reads and one of a type that it does not.
static gguf_writer *write_model(void) {
    gguf_writer *w = gguf_writer_create();
    gguf_writer_string(w, "general.architecture", "llama");
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", (const char *const[]){"a", "bc", "def"}, 3);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_INT32, (int32_t[]){1, 1, 3}, 3);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_writer_tensor(w, "norm.weight", RELAY_GGML_F32, 1, (uint64_t[]){5}, values, 5 * sizeof *values);
    gguf_writer_tensor(w, "blk.0.weight", RELAY_GGML_Q4_1, 2, (uint64_t[]){64, 3}, values, 2 * 3 * 20);
    gguf_writer_tensor(w, "other.weight", 23, 2, (uint64_t[]){256, 1}, values, 136);
    return w;
}

static void check_model(const relay_gguf *g) {
    assert_int_equal(relay_gguf_tensor_count(g), 3);
    const relay_gguf_tensor *t = relay_gguf_tensor_find(g, "norm.weight");
    assert_ptr_equal(t, relay_gguf_tensor_at(g, 0));
    assert_string_equal(t->name, "norm.weight");
    assert_int_equal(t->n_dims, 1);
    assert_int_equal(t->dims[0], 5);
    assert_int_equal(t->dims[1], 1);
    assert_int_equal(t->dims[3], 1);
    assert_int_equal(t->n_bytes, 20);
    assert_memory_equal(t->data, values, 20);
    t = relay_gguf_tensor_find(g, "blk.0.weight");
    assert_int_equal(t->type, RELAY_GGML_Q4_1);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->n_bytes, 120);
    assert_memory_equal(t->data, values, 120);
    t = relay_gguf_tensor_find(g, "other.weight");
    assert_int_equal(t->type, 23);
    assert_null(t->data);
    assert_int_equal(t->n_bytes, 0);
    assert_null(relay_gguf_tensor_find(g, "norm"));
}

static void reads_tensors_and_allows_unknown_types(void **state) {
    gguf_writer *w = write_model();
    uint8_t *copy;
    relay_gguf *g = open_good(w, &copy);
    check_model(g);
    relay_gguf_close(g);
    relay_gguf_close(NULL);
    gguf_writer_destroy(w);
    free(copy);
}

static void memory_is_not_released(void **state) {
    enum { PAGE = 4096 };
    gguf_writer *w = write_model();
    size_t len;
    const uint8_t *bytes = gguf_writer_finish(w, &len);
    uint8_t *page = aligned_alloc(PAGE, PAGE);
    assert_true(len <= PAGE);
    memcpy(page, bytes, len);
    relay_gguf *g;
    assert_int_equal(relay_gguf_open_memory(&g, page, len, NULL), RELAY_OK);
    relay_gguf_release_pages(g);
    check_model(g);
    relay_gguf_close(g);
    gguf_writer_destroy(w);
    free(page);
}

static void reads_version_2_and_other_alignments(void **state) {
    static const uint32_t alignments[] = {8, 64, 4096};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        gguf_writer *w = gguf_writer_create();
        gguf_writer_set_version(w, 2);
        gguf_writer_set_alignment(w, alignments[i]);
        gguf_writer_u32(w, "general.alignment", alignments[i]);
        // Of 8 bytes: at an alignment of 8 the second begins where the first ends.
        gguf_writer_tensor(w, "first", RELAY_GGML_F32, 1, (uint64_t[]){2}, values, 8);
        gguf_writer_tensor(w, "second", RELAY_GGML_F32, 1, (uint64_t[]){2}, values + 1, 8);
        uint8_t *copy;
        relay_gguf *g = open_good(w, &copy);
        assert_true(*(const float *)relay_gguf_tensor_find(g, "first")->data == 1);
        assert_true(*(const float *)relay_gguf_tensor_find(g, "second")->data == 2);
        assert_int_equal((const char *)relay_gguf_tensor_find(g, "second")->data -
                             (const char *)relay_gguf_tensor_find(g, "first")->data,
                         alignments[i]);
        relay_gguf_close(g);
        gguf_writer_destroy(w);
        free(copy);
    }
}

static void a_file_without_keys_and_tensors_is_one(void **state) {
    gguf_writer *w = gguf_writer_create();
    uint8_t *copy;
    relay_gguf *g = open_good(w, &copy);
    assert_int_equal(relay_gguf_tensor_count(g), 0);
    assert_false(relay_gguf_has(g, "x"));
    relay_gguf_close(g);
    gguf_writer_destroy(w);
    free(copy);
}

static void type_names_and_blocks(void **state) {
    static const struct {
        uint32_t type;
        const char *name;
        uint32_t block_values, block_bytes;
    } expected[] = {{0, "F32", 1, 4},    {1, "F16", 1, 2},       {30, "BF16", 1, 2},
                    {2, "Q4_0", 32, 18}, {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},
                    {8, "Q8_0", 32, 34}, {12, "Q4_K", 256, 144}, {14, "Q6_K", 256, 210}};
    uint32_t block_values, block_bytes;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_string_equal(relay_ggml_type_name(expected[i].type), expected[i].name);
        assert_true(relay_ggml_type_block(expected[i].type, &block_values, &block_bytes));
        assert_int_equal(block_values, expected[i].block_values);
        assert_int_equal(block_bytes, expected[i].block_bytes);
    }
    assert_string_equal(relay_ggml_type_name(13), "Q5_K");
    assert_false(relay_ggml_type_block(13, &block_values, &block_bytes));
    static const uint32_t none[] = {4, 5, 31, 40, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_string_equal(relay_ggml_type_name(none[i]), "unknown");
        assert_false(relay_ggml_type_block(none[i], &block_values, &block_bytes));
    }
}

// ---- Files on disk

static void temporary_path(char path[512], const char *name) {
    const char *dir = getenv("TEST_TMPDIR");
    snprintf(path, 512, "%.480s/%s", dir != NULL ? dir : "/tmp", name);
}

static bool is_mapped(const char *path) {
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    char line[1024];
    bool found = false;
    while (fgets(line, sizeof line, f) != NULL)
        found = found || strstr(line, path) != NULL;
    fclose(f);
    return found;
}

static void maps_a_file_until_it_is_closed(void **state) {
    char path[512];
    temporary_path(path, "gguf_test.gguf");
    gguf_writer *w = write_model();
    assert_true(gguf_writer_save(w, path));
    gguf_writer_destroy(w);
    relay_gguf *g;
    relay_err e = {0};
    if (relay_gguf_open(&g, path, &e) != RELAY_OK) fail_msg("%s", e.message);
    check_model(g);
    assert_true(is_mapped(path));
    relay_gguf_close(g);
    assert_false(is_mapped(path));
    remove(path);
}

static uint64_t resident_pages(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    unsigned long long total, resident;
    assert_int_equal(fscanf(f, "%llu %llu", &total, &resident), 2);
    fclose(f);
    return resident;
}

static void released_pages_are_given_back_and_come_again(void **state) {
    enum { PAGES = 4096, PAGE = 4096 };
    char path[512];
    temporary_path(path, "gguf_pages_test.gguf");
    gguf_writer *w = gguf_writer_create();
    uint8_t *data = calloc(PAGES, PAGE);
    memset(data, 7, PAGES * PAGE);
    gguf_writer_tensor(w, "large", RELAY_GGML_F32, 1, (uint64_t[]){PAGES * PAGE / 4}, data, PAGES * PAGE);
    free(data);
    assert_true(gguf_writer_save(w, path));
    gguf_writer_destroy(w);
    relay_gguf *g;
    relay_err e = {0};
    if (relay_gguf_open(&g, path, &e) != RELAY_OK) fail_msg("%s", e.message);
    const volatile uint8_t *bytes = relay_gguf_tensor_find(g, "large")->data;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < PAGES; i++)
            assert_int_equal(bytes[i * PAGE], 7);
        uint64_t before = resident_pages();
        relay_gguf_release_pages(g);
        assert_true(resident_pages() + PAGES * 3 / 4 < before);
    }
    relay_gguf_close(g);
    remove(path);
}

static void paths_that_are_no_file_are_told_apart(void **state) {
    relay_gguf *g;
    relay_err e;
    char path[512];
    temporary_path(path, "absent.gguf");
    assert_int_equal(relay_gguf_open(&g, path, &e), RELAY_NOT_FOUND);
    assert_null(g);
    assert_non_null(strstr(e.message, "absent.gguf: No such file"));

    char deep[1024];
    memset(deep, '/', sizeof deep);
    snprintf(deep + 1000, 24, "absent.gguf");
    assert_int_equal(relay_gguf_open(&g, deep, &e), RELAY_NOT_FOUND);
    assert_non_null(strstr(e.message, "///absent.gguf: No such file"));

    assert_int_equal(relay_gguf_open(&g, "/", &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "/: is a directory"));

    temporary_path(path, "pipe.gguf");
    remove(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(relay_gguf_open(&g, path, &e), RELAY_INVALID_ARGUMENT); // and does not wait for a writer
    assert_non_null(strstr(e.message, "no regular file"));
    remove(path);

    temporary_path(path, "empty.gguf");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(relay_gguf_open(&g, path, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "the file is empty"));

    f = fopen(path, "wb");
    assert_non_null(f);
    fputs("no gguf file, but long enough", f);
    fclose(f);
    assert_int_equal(relay_gguf_open(&g, path, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "empty.gguf: the magic is 6e 6f 20 67"));
    remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_integer_type_within_a_range),
        cmocka_unit_test(reads_floats_bools_and_strings),
        cmocka_unit_test(reads_arrays_of_every_type),
        cmocka_unit_test(absent_keys_are_no_error_and_leave_the_value),
        cmocka_unit_test(a_key_of_another_type_is_an_error_that_says_both),
        cmocka_unit_test(reads_tensors_and_allows_unknown_types),
        cmocka_unit_test(memory_is_not_released),
        cmocka_unit_test(reads_version_2_and_other_alignments),
        cmocka_unit_test(a_file_without_keys_and_tensors_is_one),
        cmocka_unit_test(type_names_and_blocks),
        cmocka_unit_test(maps_a_file_until_it_is_closed),
        cmocka_unit_test(released_pages_are_given_back_and_come_again),
        cmocka_unit_test(paths_that_are_no_file_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
