// The protobuf wire format, and google.rpc.Status on it.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pb_wire.h"
#include "common/rpc_status.h"

static void reads_what_it_writes(void **state) {
    relay_buf b;
    relay_buf_init(&b, 1024);
    const uint64_t values[] = {0, 1, 127, 128, 300, UINT32_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        relay_pb_put_varint(&b, (uint32_t)i + 1, values[i]);
    relay_pb_put_bytes(&b, 1 << 28, "x\0y", 3);
    relay_pb_reader r = relay_pb_read((uint8_t *)b.data, b.len);
    relay_pb_field f;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_true(relay_pb_next(&r, &f));
        assert_int_equal(f.number, i + 1);
        assert_false(f.is_bytes);
        assert_true(f.value == values[i]);
    }
    assert_true(relay_pb_next(&r, &f));
    assert_int_equal(f.number, 1 << 28);
    assert_true(f.is_bytes);
    assert_int_equal(f.size, 3);
    assert_memory_equal(f.data, "x\0y", 3);
    assert_false(relay_pb_next(&r, &f));
    assert_false(r.is_failed);
    relay_buf_fini(&b);
}

static void reads_fixed_width_values(void **state) {
    const uint8_t data[] = {0x0D, 1, 2, 3, 4, 0x11, 8, 7, 6, 5, 4, 3, 2, 1};
    relay_pb_reader r = relay_pb_read(data, sizeof data);
    relay_pb_field f;
    assert_true(relay_pb_next(&r, &f));
    assert_true(f.number == 1 && f.value == 0x04030201);
    assert_true(relay_pb_next(&r, &f));
    assert_true(f.number == 2 && f.value == 0x0102030405060708);
    assert_false(relay_pb_next(&r, &f));
    assert_false(r.is_failed);
}

static void malformed_input_ends_the_walk(void **state) {
    static const struct {
        size_t size;
        uint8_t bytes[12];
    } bad[] = {
        {1, {0x08}},                                                                    // a varint that is missing
        {2, {0x08, 0x80}},                                                              // and one that is cut
        {12, {0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}}, // longer than ten bytes
        {3, {0x0A, 0x02, 'x'}},                                                         // bytes past the end
        {11, {0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}},       // a length that would wrap
        {4, {0x0D, 1, 2, 3}},                                                           // half a fixed32
        {1, {0x0B}},                                                                    // a group
        {1, {0x00}},                                                                    // field number zero
        {6, {0x80, 0x80, 0x80, 0x80, 0x80, 0x01}},                                      // a field number past 32 bits
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t *copy = malloc(bad[i].size);
        memcpy(copy, bad[i].bytes, bad[i].size);
        relay_pb_reader r = relay_pb_read(copy, bad[i].size);
        relay_pb_field f;
        assert_false(relay_pb_next(&r, &f));
        assert_true(r.is_failed);
        assert_false(relay_pb_next(&r, &f));
        free(copy);
    }
}

static void retry_hint_survives_the_trip(void **state) {
    const uint32_t hints[] = {0, 1, 999, 1000, 1001, 65432, 86400000};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        relay_err e;
        relay_fail(&e, RELAY_RESOURCE_EXHAUSTED, "busy");
        e.retry_after_ms = hints[i];
        relay_buf b;
        relay_buf_init(&b, 4096);
        relay_rpc_status_encode(&e, &b);
        assert_false(b.is_failed);
        assert_int_equal(relay_rpc_status_retry_ms((uint8_t *)b.data, b.len), hints[i]);
        relay_buf_fini(&b);
    }
}

static void status_bytes_are_those_of_google_rpc(void **state) {
    // As protoc --encode writes code 8, "busy", a RetryInfo of 1.5 s.
    static const char want[] =
        "08081204627573791a36"                                                                 // head
        "0a28747970652e676f6f676c65617069732e636f6d2f676f6f676c652e7270632e5265747279496e666f" // URL
        "120a0a0808011080cab5ee01";                                                            // RetryInfo
    relay_err e;
    relay_fail(&e, RELAY_RESOURCE_EXHAUSTED, "busy");
    e.retry_after_ms = 1500;
    relay_buf b, hex;
    relay_buf_init(&b, 4096);
    relay_buf_init(&hex, 4096);
    relay_rpc_status_encode(&e, &b);
    for (size_t i = 0; i < b.len; i++)
        relay_buf_printf(&hex, "%02x", (unsigned char)b.data[i]);
    assert_string_equal(hex.data, want);
    relay_buf_fini(&hex);
    relay_buf_fini(&b);
}

static void a_retry_hint_out_of_range_is_none(void **state) {
    relay_buf delay, info, any, status;
    const struct { uint64_t seconds, nanos; } bad[] = {{UINT64_MAX, 0}, {4294968, 0}, {0, 1000000000}, {0, UINT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        relay_buf_init(&delay, 256);
        relay_buf_init(&info, 256);
        relay_buf_init(&any, 256);
        relay_buf_init(&status, 256);
        relay_pb_put_varint(&delay, 1, bad[i].seconds);
        relay_pb_put_varint(&delay, 2, bad[i].nanos);
        relay_pb_put_bytes(&info, 1, delay.data, delay.len);
        relay_pb_put_bytes(&any, 1, "type.googleapis.com/google.rpc.RetryInfo", 40);
        relay_pb_put_bytes(&any, 2, info.data, info.len);
        relay_pb_put_bytes(&status, 3, any.data, any.len);
        assert_int_equal(relay_rpc_status_retry_ms((uint8_t *)status.data, status.len), 0);
        relay_buf_fini(&delay);
        relay_buf_fini(&info);
        relay_buf_fini(&any);
        relay_buf_fini(&status);
    }
    assert_int_equal(relay_rpc_status_retry_ms((const uint8_t *)"\x1A\xFF", 2), 0);
    assert_int_equal(relay_rpc_status_retry_ms(NULL, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_it_writes),
        cmocka_unit_test(reads_fixed_width_values),
        cmocka_unit_test(malformed_input_ends_the_walk),
        cmocka_unit_test(retry_hint_survives_the_trip),
        cmocka_unit_test(status_bytes_are_those_of_google_rpc),
        cmocka_unit_test(a_retry_hint_out_of_range_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
