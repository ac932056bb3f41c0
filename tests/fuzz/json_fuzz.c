// Parses the input; what is accepted must be accepted again when it is written out, and not nested deeper than allowed.
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "tests/fuzz/fuzz.h"

enum { DEPTH = 8 };

static uint32_t depth_of(yyjson_val *v) {
    uint32_t deepest = 0;
    size_t i, n;
    yyjson_val *key, *child;
    if (yyjson_is_obj(v)) {
        yyjson_obj_foreach(v, i, n, key, child) {
            uint32_t d = depth_of(child);
            if (d > deepest) deepest = d;
        }
    } else if (yyjson_is_arr(v)) {
        yyjson_arr_foreach(v, i, n, child) {
            uint32_t d = depth_of(child);
            if (d > deepest) deepest = d;
        }
    }
    return deepest + yyjson_is_ctn(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    yyjson_doc *doc, *again;
    relay_err e;
    if (relay_json_parse(&doc, (const char *)data, size, DEPTH, "input", &e) != RELAY_OK) return 0;
    RELAY_ASSERT(depth_of(yyjson_doc_get_root(doc)) <= DEPTH);
    size_t len;
    char *text = yyjson_write(doc, YYJSON_WRITE_NOFLAG, &len);
    RELAY_ASSERT(text != NULL);
    RELAY_ASSERT(relay_json_parse(&again, text, len, DEPTH, "output", &e) == RELAY_OK);
    yyjson_doc_free(again);
    free(text);
    yyjson_doc_free(doc);
    return 0;
}

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    static const char *const seeds[] = {
        "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"a\":{\"type\":\"number\"}}}}",
        "[1,-2.5e3,\"\\u00e9\\ud83d\\ude00\",true,false,null,{},[],\"caf\xC3\xA9\"]",
        "[[[[[[[[1]]]]]]]]",
        "{\"a\":1,\"a\":2}",
        "\"\\\\\\\"[{\"",
        "{\"k0\":0,\"k1\":0,\"k2\":0,\"k3\":0,\"k4\":0,\"k5\":0,\"k6\":0,\"k7\":0,\"k8\":0,\"k9\":0,\"ka\":0,\"kb\":0,"
        "\"kc\":0,\"kd\":0,\"ke\":0,\"kf\":0,\"kg\":0}",
    };
    if (i >= sizeof seeds / sizeof *seeds) return 0;
    size_t len = strlen(seeds[i]);
    memcpy(out, seeds[i], len < cap ? len : cap);
    return len < cap ? len : cap;
}
