#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/gguf.h"
#include "tests/common/gguf_hostile.h"
#include "tests/common/gguf_writer.h"

// Opens a copy of exactly the file's size, so that a sanitizer sees a read behind its end. The copy is the caller's to
// free, after the file.
static relay_code open_copy(relay_gguf **g, const uint8_t *bytes, size_t len, uint8_t **copy, relay_err *e) {
    *copy = malloc(len != 0 ? len : 1);
    memcpy(*copy, bytes, len);
    return relay_gguf_open_memory(g, *copy, len, e);
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

static void hostile_files_are_refused_by_field_and_value(void **state) {
    for (size_t i = 0; i < gguf_hostile_count; i++) {
        const gguf_hostile *h = &gguf_hostile_files[i];
        gguf_writer *w = gguf_writer_create();
        h->write(w);
        size_t len;
        const uint8_t *bytes = gguf_writer_finish(w, &len);
        relay_gguf *g;
        uint8_t *copy;
        relay_err e = {0};
        if (open_copy(&g, bytes, len, &copy, &e) != RELAY_INVALID_ARGUMENT)
            fail_msg("%s: code %s", h->name, relay_code_name(e.code));
        assert_null(g);
        for (size_t s = 0; s < 2 && h->says[s] != NULL; s++)
            if (strstr(e.message, h->says[s]) == NULL)
                fail_msg("%s: \"%s\" is not in \"%s\"", h->name, h->says[s], e.message);
        free(copy);
        gguf_writer_destroy(w);
    }
}

static void a_wrong_magic_is_shown(void **state) {
    static const uint8_t old_format[24] = "ggjt";
    relay_gguf *g;
    uint8_t *copy;
    relay_err e;
    assert_int_equal(open_copy(&g, old_format, sizeof old_format, &copy, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "the magic is 67 67 6a 74"));
    free(copy);
}

// Every beginning of a good file but the whole is refused: all of it is needed up to the last tensor's last byte.
static void every_truncation_is_refused(void **state) {
    gguf_writer *w = write_model();
    gguf_writer_tensor(w, "last.weight", RELAY_GGML_F32, 1, (uint64_t[]){3}, values, 12);
    size_t len;
    const uint8_t *bytes = gguf_writer_finish(w, &len);
    for (size_t cut = 0; cut < len; cut++) {
        relay_gguf *g;
        uint8_t *copy;
        relay_err e = {0};
        if (open_copy(&g, bytes, cut, &copy, &e) != RELAY_INVALID_ARGUMENT) fail_msg("cut at byte %zu", cut);
        assert_true(strlen(e.message) > 0);
        free(copy);
    }
    gguf_writer_destroy(w);
}

// Every byte before the data section set to each of a few values: opened or refused, and what is opened can be read.
static void every_changed_byte_is_survived(void **state) {
    static const uint8_t changes[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, 0x09, 0x08};
    gguf_writer *w = write_model();
    size_t len;
    const uint8_t *bytes = gguf_writer_finish(w, &len);
    for (size_t at = 0; at < len; at++) {
        for (size_t c = 0; c < sizeof changes; c++) {
            uint8_t *copy = malloc(len);
            memcpy(copy, bytes, len);
            copy[at] = changes[c];
            relay_gguf *g;
            relay_err e = {0};
            if (relay_gguf_open_memory(&g, copy, len, &e) == RELAY_OK) {
                unsigned sum = 0;
                for (uint32_t i = 0; i < relay_gguf_tensor_count(g); i++) {
                    const relay_gguf_tensor *t = relay_gguf_tensor_at(g, i);
                    for (uint64_t b = 0; b < t->n_bytes; b++)
                        sum += ((const uint8_t *)t->data)[b];
                }
                uint64_t n;
                if (relay_gguf_string_array(g, "tokenizer.ggml.tokens", &n, NULL, NULL) == RELAY_OK)
                    for (uint64_t i = 0; i < n; i++) {
                        const char *s;
                        size_t s_len;
                        relay_gguf_string_at(g, "tokenizer.ggml.tokens", i, &s, &s_len);
                        for (size_t b = 0; b < s_len; b++)
                            sum += (uint8_t)s[b];
                    }
                assert_true(sum < UINT32_MAX);
                relay_gguf_close(g);
            }
            free(copy);
        }
    }
    gguf_writer_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_files_are_refused_by_field_and_value),
        cmocka_unit_test(a_wrong_magic_is_shown),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_changed_byte_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
