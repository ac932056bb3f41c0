#include "tests/common/gguf_hostile.h"

#include <string.h>

#include "common/gguf.h"

// A length that lies has one byte of name behind it.
static void put_raw_key(gguf_writer *w, const char *name, uint64_t name_len, uint32_t type, const void *value,
                        size_t value_len) {
    uint8_t bytes[512];
    size_t present = name_len <= 64 ? name_len : 1;
    memcpy(bytes, &name_len, 8);
    memcpy(bytes + 8, name, present);
    memcpy(bytes + 8 + present, &type, 4);
    if (value_len != 0) memcpy(bytes + 12 + present, value, value_len);
    gguf_writer_raw_key(w, bytes, 12 + present + value_len);
}

// The value of an array: element type, count, bytes.
static void put_raw_array(gguf_writer *w, uint32_t element, uint64_t count, const void *value, size_t value_len) {
    uint8_t bytes[256];
    memcpy(bytes, &element, 4);
    memcpy(bytes + 4, &count, 8);
    memcpy(bytes + 12, value, value_len);
    put_raw_key(w, "list", 4, GGUF_ARRAY, bytes, 12 + value_len);
}

static const uint8_t zeros[128];

static void filler(gguf_writer *w) {
    gguf_writer_array(w, "filler", GGUF_UINT8, zeros, sizeof zeros);
}

static void version_0(gguf_writer *w) {
    gguf_writer_set_version(w, 0);
}
static void version_1(gguf_writer *w) {
    gguf_writer_set_version(w, 1);
}
static void version_99(gguf_writer *w) {
    gguf_writer_set_version(w, 99);
}
static void version_big_endian(gguf_writer *w) {
    gguf_writer_set_version(w, __builtin_bswap32(3));
}
static void tensor_count_negative(gguf_writer *w) {
    gguf_writer_claim_tensors(w, UINT64_C(1) << 63);
}
static void tensor_count_past_limit(gguf_writer *w) {
    gguf_writer_claim_tensors(w, (1 << 20) + 1);
}
static void tensor_count_past_file(gguf_writer *w) {
    gguf_writer_claim_tensors(w, 1 << 20);
}
static void key_count_wraps(gguf_writer *w) {
    gguf_writer_claim_keys(w, UINT64_MAX - 1);
}
static void key_count_past_limit(gguf_writer *w) {
    gguf_writer_claim_keys(w, 65537);
}
static void key_count_past_file(gguf_writer *w) {
    gguf_writer_claim_keys(w, 65536);
}
static void one_key_too_many_claimed(gguf_writer *w) {
    filler(w);
    gguf_writer_claim_keys(w, 2);
}
static void key_name_huge(gguf_writer *w) {
    put_raw_key(w, "k", UINT64_C(1) << 62, GGUF_UINT8, zeros, 64);
}
static void key_name_past_end(gguf_writer *w) {
    put_raw_key(w, "k", 65535, GGUF_UINT8, zeros, 64);
}
static void key_name_empty(gguf_writer *w) {
    put_raw_key(w, "", 0, GGUF_UINT8, zeros, 64);
}
static void key_name_with_nul(gguf_writer *w) {
    put_raw_key(w, "a\0b", 3, GGUF_UINT8, zeros, 1);
}
static void key_name_no_utf8(gguf_writer *w) {
    put_raw_key(w, "a\xC3(", 3, GGUF_UINT8, zeros, 1);
}
static void key_twice(gguf_writer *w) {
    gguf_writer_u32(w, "twin", 1);
    gguf_writer_u32(w, "other", 1);
    gguf_writer_bool(w, "twin", true);
}
static void key_type_unknown(gguf_writer *w) {
    put_raw_key(w, "odd", 3, 13, zeros, 64);
}
static void key_type_negative(gguf_writer *w) {
    put_raw_key(w, "odd", 3, UINT32_MAX, zeros, 64);
}
static void string_past_end(gguf_writer *w) {
    put_raw_key(w, "text", 4, GGUF_STRING, &(uint64_t){1000}, 8);
}
static void string_length_wraps(gguf_writer *w) {
    put_raw_key(w, "text", 4, GGUF_STRING, &(uint64_t){UINT64_MAX - 7}, 8);
}
static void bool_of_2(gguf_writer *w) {
    put_raw_key(w, "flag", 4, GGUF_BOOL, &(uint8_t){2}, 1);
}
static void array_type_unknown(gguf_writer *w) {
    put_raw_array(w, 77, 1, zeros, 64);
}
static void array_type_after_the_last(gguf_writer *w) {
    put_raw_array(w, 13, 1, zeros, 64);
}
static void array_of_arrays(gguf_writer *w) {
    put_raw_array(w, GGUF_ARRAY, 1, zeros, 64);
}
static void array_count_wraps(gguf_writer *w) {
    put_raw_array(w, GGUF_UINT64, UINT64_C(1) << 61, zeros, 64);
}
static void array_past_end(gguf_writer *w) {
    put_raw_array(w, GGUF_INT32, 17, zeros, 64);
}
static void string_array_count_huge(gguf_writer *w) {
    put_raw_array(w, GGUF_STRING, UINT64_C(1) << 40, zeros, 64);
}
static void string_array_past_end(gguf_writer *w) {
    put_raw_array(w, GGUF_STRING, 2, (uint64_t[]){0, 1}, 16);
}
static void string_array_length_wraps(gguf_writer *w) {
    put_raw_array(w, GGUF_STRING, 3, (uint64_t[]){0, UINT64_MAX, 0}, 24);
}
static void bool_array_of_7(gguf_writer *w) {
    put_raw_array(w, GGUF_BOOL, 3, (uint8_t[]){1, 0, 7}, 3);
}
static void alignment_0(gguf_writer *w) {
    gguf_writer_u32(w, "general.alignment", 0);
}
static void alignment_48(gguf_writer *w) {
    gguf_writer_u32(w, "general.alignment", 48);
}
static void alignment_4(gguf_writer *w) {
    gguf_writer_u32(w, "general.alignment", 4);
}
static void alignment_huge(gguf_writer *w) {
    gguf_writer_u32(w, "general.alignment", UINT32_C(1) << 31);
}
static void alignment_negative(gguf_writer *w) {
    gguf_writer_scalar(w, "general.alignment", GGUF_INT32, &(int32_t){-32});
}
static void alignment_string(gguf_writer *w) {
    gguf_writer_string(w, "general.alignment", "32");
}
static void f32_tensor(gguf_writer *w, const char *name, uint64_t n, uint64_t offset) {
    gguf_writer_raw_tensor(w, name, strlen(name), RELAY_GGML_F32, 1, &n, offset);
}
static void tensor_name_too_long(gguf_writer *w) {
    f32_tensor(w, "0123456789012345678901234567890123456789012345678901234567890123x", 1, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_name_empty(gguf_writer *w) {
    gguf_writer_raw_tensor(w, "", 0, RELAY_GGML_F32, 1, (uint64_t[]){1}, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_name_with_nul(gguf_writer *w) {
    gguf_writer_raw_tensor(w, "t\0u", 3, RELAY_GGML_F32, 1, (uint64_t[]){1}, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_name_no_utf8(gguf_writer *w) {
    gguf_writer_raw_tensor(w, "t\xFF", 2, RELAY_GGML_F32, 1, (uint64_t[]){1}, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_twice(gguf_writer *w) {
    gguf_writer_tensor(w, "twin", RELAY_GGML_F32, 1, (uint64_t[]){1}, zeros, 4);
    gguf_writer_tensor(w, "twin", RELAY_GGML_F32, 1, (uint64_t[]){1}, zeros, 4);
}
static void tensor_dims_0(gguf_writer *w) {
    gguf_writer_raw_tensor(w, "flat", 4, RELAY_GGML_F32, 0, NULL, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_dims_5(gguf_writer *w) {
    gguf_writer_raw_tensor(w, "deep", 4, RELAY_GGML_F32, 5, (uint64_t[]){1, 1, 1, 1, 1}, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_dim_zero(gguf_writer *w) {
    gguf_writer_raw_tensor(w, "thin", 4, RELAY_GGML_F32, 2, (uint64_t[]){4, 0}, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_dims_wrap(gguf_writer *w) {
    gguf_writer_raw_tensor(w, "wide", 4, RELAY_GGML_F32, 2, (uint64_t[]){UINT64_C(1) << 32, UINT64_C(1) << 32}, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_dim_negative(gguf_writer *w) {
    f32_tensor(w, "neg", UINT64_C(1) << 63, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_bytes_wrap(gguf_writer *w) {
    f32_tensor(w, "big", UINT64_C(1) << 62, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_part_of_a_block(gguf_writer *w) {
    gguf_writer_raw_tensor(w, "part", 4, RELAY_GGML_Q4_1, 2, (uint64_t[]){33, 32}, 0);
    gguf_writer_raw_data(w, zeros, 128);
}
static void tensor_offset_misaligned(gguf_writer *w) {
    f32_tensor(w, "odd", 1, 4);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_offset_past_end(gguf_writer *w) {
    f32_tensor(w, "far", 1, 64);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_offset_wraps(gguf_writer *w) {
    f32_tensor(w, "far", 8, UINT64_MAX - 31);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensor_end_wraps(gguf_writer *w) {
    f32_tensor(w, "big", (UINT64_C(1) << 62) - 1, 32);
    gguf_writer_raw_data(w, zeros, 64);
}
static void tensor_size_past_end(gguf_writer *w) {
    f32_tensor(w, "long", 9, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensors_in_one_place(gguf_writer *w) {
    f32_tensor(w, "one", 8, 0);
    f32_tensor(w, "two", 8, 0);
    gguf_writer_raw_data(w, zeros, 32);
}
static void tensors_that_overlap(gguf_writer *w) {
    f32_tensor(w, "late", 8, 32);
    f32_tensor(w, "early", 9, 0);
    gguf_writer_raw_data(w, zeros, 64);
}
static void tensor_of_unknown_type_past_end(gguf_writer *w) {
    gguf_writer_raw_tensor(w, "odd", 3, 99, 1, (uint64_t[]){1}, 64);
    gguf_writer_raw_data(w, zeros, 32);
}

#define HOSTILE(name, ...)                                                                                             \
    {                                                                                                                  \
#name, name, {                                                                                                 \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

const gguf_hostile gguf_hostile_files[] = {
    HOSTILE(version_0, "version 0", "versions 2 and 3"),
    HOSTILE(version_1, "version 1;"),
    HOSTILE(version_99, "version 99"),
    HOSTILE(version_big_endian, "version 0x03000000", "big-endian"),
    HOSTILE(tensor_count_negative, "9223372036854775808 tensors", "limit is 1048576"),
    HOSTILE(tensor_count_past_limit, "1048577 tensors", "limit is 1048576"),
    HOSTILE(tensor_count_past_file, "1048576 tensors do not fit"),
    HOSTILE(key_count_wraps, "18446744073709551614 keys", "limit is 65536"),
    HOSTILE(key_count_past_limit, "65537 keys", "limit is 65536"),
    HOSTILE(key_count_past_file, "65536 keys", "do not fit"),
    HOSTILE(one_key_too_many_claimed, "the name of key 1"),
    HOSTILE(key_name_huge, "the name of key 0 has 4611686018427387904 bytes", "1 to 65535"),
    HOSTILE(key_name_past_end, "the name of key 0 has 65535 bytes", "past the end"),
    HOSTILE(key_name_empty, "the name of key 0 has 0 bytes", "1 to 65535"),
    HOSTILE(key_name_with_nul, "the name of key 0", "NUL"),
    HOSTILE(key_name_no_utf8, "the name of key 0", "UTF-8 at byte 1"),
    HOSTILE(key_twice, "key \"twin\" is there twice"),
    HOSTILE(key_type_unknown, "key \"odd\": unknown value type 13"),
    HOSTILE(key_type_negative, "key \"odd\": unknown value type 4294967295"),
    HOSTILE(string_past_end, "key \"text\": string 0 of 1000 bytes", "past the end"),
    HOSTILE(string_length_wraps, "key \"text\": string 0 of 18446744073709551608 bytes", "past the end"),
    HOSTILE(bool_of_2, "key \"flag\": element 0 is the byte 2"),
    HOSTILE(array_type_unknown, "key \"list\": unknown element type 77"),
    HOSTILE(array_type_after_the_last, "key \"list\": unknown element type 13"),
    HOSTILE(array_of_arrays, "key \"list\": an array of arrays"),
    HOSTILE(array_count_wraps, "key \"list\": 2305843009213693952 elements of type uint64", "do not fit"),
    HOSTILE(array_past_end, "key \"list\": 17 elements of type int32", "do not fit"),
    HOSTILE(string_array_count_huge, "key \"list\": 1099511627776 elements of type string", "do not fit"),
    HOSTILE(string_array_past_end, "key \"list\": string 1 of 1 bytes", "past the end"),
    HOSTILE(string_array_length_wraps, "key \"list\": string 1 of 18446744073709551615 bytes", "past the end"),
    HOSTILE(bool_array_of_7, "key \"list\": element 2 is the byte 7"),
    HOSTILE(alignment_0, "key \"general.alignment\" is 0", "from 8"),
    HOSTILE(alignment_4, "key \"general.alignment\" is 4", "from 8"),
    HOSTILE(alignment_48, "key \"general.alignment\" is 48", "power of two"),
    HOSTILE(alignment_huge, "key \"general.alignment\" is 2147483648", "to 1073741824"),
    HOSTILE(alignment_negative, "key \"general.alignment\" is -32"),
    HOSTILE(alignment_string, "key \"general.alignment\" is of type string"),
    HOSTILE(tensor_name_too_long, "the name of tensor 0 has 65 bytes", "1 to 64"),
    HOSTILE(tensor_name_empty, "the name of tensor 0 has 0 bytes"),
    HOSTILE(tensor_name_with_nul, "the name of tensor 0", "NUL"),
    HOSTILE(tensor_name_no_utf8, "the name of tensor 0", "UTF-8 at byte 1"),
    HOSTILE(tensor_twice, "tensor \"twin\" is there twice"),
    HOSTILE(tensor_dims_0, "tensor \"flat\": 0 dimensions", "1 to 4"),
    HOSTILE(tensor_dims_5, "tensor \"deep\": 5 dimensions", "1 to 4"),
    HOSTILE(tensor_dim_zero, "tensor \"thin\": dimension 1 is 0"),
    HOSTILE(tensor_dims_wrap, "tensor \"wide\": dimension 1 is 4294967296", "2^63"),
    HOSTILE(tensor_dim_negative, "tensor \"neg\": dimension 0 is 9223372036854775808", "2^63"),
    HOSTILE(tensor_bytes_wrap, "tensor \"big\": 4611686018427387904 values of type F32", "2^64 bytes"),
    HOSTILE(tensor_part_of_a_block, "tensor \"part\": dimension 0 is 33", "32 values of a Q4_1 block"),
    HOSTILE(tensor_offset_misaligned, "tensor \"odd\": offset 4", "alignment 32"),
    HOSTILE(tensor_offset_past_end, "tensor \"far\": 4 bytes at offset 64", "data section's 32 bytes"),
    HOSTILE(tensor_offset_wraps, "tensor \"far\": 32 bytes at offset 18446744073709551584"),
    HOSTILE(tensor_end_wraps, "tensor \"big\": 18446744073709551612 bytes at offset 32", "data section's 64 bytes"),
    HOSTILE(tensor_size_past_end, "tensor \"long\": 36 bytes at offset 0", "data section's 32 bytes"),
    HOSTILE(tensors_in_one_place, "\"one\"", "\"two\" overlap"),
    HOSTILE(tensors_that_overlap, "tensors \"early\" and \"late\" overlap"),
    HOSTILE(tensor_of_unknown_type_past_end, "tensor \"odd\"", "offset 64"),
};

const size_t gguf_hostile_count = sizeof gguf_hostile_files / sizeof *gguf_hostile_files;
