// Against the alphabet's definition: printable bytes stand for themselves, the others follow from U+0100 on.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/byte_level.h"
#include "common/utf8.h"

static void the_byte_alphabet_is_gpt2s(void **state) {
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        bool is_printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        uint32_t expected = is_printable ? b : next++;
        char piece[4], out[4];
        size_t n;
        assert_true(relay_byte_level_decode(piece, relay_utf8_encode(expected, piece), out, &n));
        assert_int_equal(n, 1);
        assert_int_equal((uint8_t)out[0], b);
    }
    assert_int_equal(next, 0x144);
}

static void pieces_outside_the_alphabet_are_told(void **state) {
    static const char *const outside[] = {" ",    "a b",   "\n",  "\xC2\xAD", "\xC5\x84", "\xE2\x96\x81",
                                          "\xC4", "a\xFF", "\x7F"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        char out[8];
        size_t n = 7;
        assert_false(relay_byte_level_decode(outside[i], strlen(outside[i]), out, &n));
        assert_int_equal(n, 0);
    }
    char in_place[] = "\xC4\xA0the\xC4\x8A";
    size_t n;
    assert_true(relay_byte_level_decode(in_place, sizeof in_place - 1, in_place, &n));
    assert_int_equal(n, 5);
    assert_memory_equal(in_place, " the\n", 5);
    assert_true(relay_byte_level_decode("", 0, in_place, &n));
    assert_int_equal(n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_byte_alphabet_is_gpt2s),
        cmocka_unit_test(pieces_outside_the_alphabet_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
