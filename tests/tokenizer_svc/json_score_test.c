#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "tokenizer_svc/formats/json_score.h"

static double score(const char *text) {
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);
    assert_non_null(doc);
    double value = relay_json_score(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return value;
}

// Pairs of what a file says and what HF tokenizers 0.23.3 made of it.
static void scores_are_read_as_the_reference_reads_them(void **state) {
    static const struct {
        const char *text;
        double value;
    } cases[] = {
        {"-2.0122928619384766", -2.012292861938477},
        {"-3.9598512649536133", -3.9598512649536137},
        {"-7.4370903968811035", -7.437090396881104},
        {"-1.5", -1.5},
        {"0.0", 0.0},
        {"0", 0.0},
        {"-12", -12.0},
        {"1e-7", 1e-7},
        {"-1.25e3", -1250.0},
        {"1e300", 1e300},
        {"5e-324", 5e-324},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double got = score(cases[i].text);
        if (got != cases[i].value) fail_msg("%s: %.17g, not %.17g", cases[i].text, got, cases[i].value);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_read_as_the_reference_reads_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
