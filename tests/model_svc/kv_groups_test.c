#include "model_svc/kv_groups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define KV(heads, dim, sees)                                                                                           \
    { .n_kv_heads = heads, .head_dim = dim, .window = sees }

static void alike_layers_share_one_group(void **state) {
    relay_layer_kv layers[3] = {KV(2, 64, 0), KV(2, 64, 0), KV(2, 64, 0)};
    relay_kv_pool pools[RELAY_MAX_KV_GROUPS];
    uint32_t n;
    assert_int_equal(relay_kv_groups_assign(layers, 3, RELAY_KV_F16, pools, &n, NULL), RELAY_OK);
    assert_int_equal(n, 1);
    assert_int_equal(pools[0].n_layers, 3);
    assert_int_equal(pools[0].n_kv_heads, 2);
    assert_int_equal(pools[0].head_dim, 64);
    assert_int_equal(pools[0].type, RELAY_KV_F16);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(layers[i].group, 0);
        assert_int_equal(layers[i].layer_in_group, i);
    }
}

// Windows that alternate, a last layer of another shape: groups are numbered by their first layer.
static void layers_that_differ_in_anything_are_apart(void **state) {
    relay_layer_kv layers[6] = {KV(2, 64, 0),   KV(2, 64, 512), KV(2, 64, 0),
                                KV(2, 64, 512), KV(4, 64, 512), KV(2, 128, 512)};
    static const uint32_t group[6] = {0, 1, 0, 1, 2, 3}, layer_in_group[6] = {0, 0, 1, 1, 0, 0};
    relay_kv_pool pools[RELAY_MAX_KV_GROUPS];
    uint32_t n;
    assert_int_equal(relay_kv_groups_assign(layers, 6, RELAY_KV_F32, pools, &n, NULL), RELAY_OK);
    assert_int_equal(n, 4);
    assert_int_equal(pools[1].window, 512);
    assert_int_equal(pools[1].n_layers, 2);
    assert_int_equal(pools[2].n_kv_heads, 4);
    assert_int_equal(pools[3].head_dim, 128);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(layers[i].group, group[i]);
        assert_int_equal(layers[i].layer_in_group, layer_in_group[i]);
    }
}

static void too_many_shapes_are_refused(void **state) {
    relay_layer_kv layers[RELAY_MAX_KV_GROUPS + 1];
    for (uint32_t i = 0; i <= RELAY_MAX_KV_GROUPS; i++) {
        layers[i] = (relay_layer_kv)KV(2, 64, i);
    }
    relay_kv_pool pools[RELAY_MAX_KV_GROUPS];
    uint32_t n;
    assert_int_equal(relay_kv_groups_assign(layers, RELAY_MAX_KV_GROUPS, RELAY_KV_F16, pools, &n, NULL), RELAY_OK);
    assert_int_equal(relay_kv_groups_assign(layers, RELAY_MAX_KV_GROUPS + 1, RELAY_KV_F16, pools, &n, NULL),
                     RELAY_UNIMPLEMENTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_layers_share_one_group),
        cmocka_unit_test(layers_that_differ_in_anything_are_apart),
        cmocka_unit_test(too_many_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
