#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tokenizer_svc/bpe_cache.h"
#include "tokenizer_svc/word_cache.h"

// A word that is told apart from others by its number alone, and the ids that it shall have: as many as bytes.
static void make_word(char *word, uint32_t *ids, size_t len, uint32_t number) {
    for (size_t i = 0; i < len; i++) {
        word[i] = 'x';
        ids[i] = number + (uint32_t)i;
    }
    memcpy(word, &number, sizeof number);
}

static void add_clause(relay_bpe_cache *c, size_t len, uint32_t number) {
    char word[RELAY_BPE_CLAUSE];
    uint32_t ids[RELAY_BPE_CLAUSE];
    make_word(word, ids, len, number);
    relay_bpe_cache_add_clause(c, word, len, relay_word_hash(word, len), ids, (uint32_t)len);
}

// Whether the word is there, with its own ids.
static bool knows_clause(const relay_bpe_cache *c, size_t len, uint32_t number) {
    char word[RELAY_BPE_CLAUSE];
    uint32_t ids[RELAY_BPE_CLAUSE], n = 0;
    make_word(word, ids, len, number);
    const uint32_t *found = relay_bpe_cache_find_clause(c, word, len, relay_word_hash(word, len), &n);
    if (found == NULL) return false;
    assert_int_equal(n, len);
    assert_memory_equal(found, ids, n * sizeof *ids);
    return true;
}

static void remembers_clauses_of_every_length(void **state) {
    relay_bpe_cache c;
    relay_bpe_cache_init(&c);
    uint32_t n_known = 0, n = 0;
    for (size_t len = RELAY_BPE_LONG_WORD + 1; len <= RELAY_BPE_CLAUSE; len++, n++) {
        assert_false(knows_clause(&c, len, 7));
        add_clause(&c, len, 7);
        assert_true(knows_clause(&c, len, 7));
    }
    for (size_t len = RELAY_BPE_LONG_WORD + 1; len <= RELAY_BPE_CLAUSE; len++)
        n_known += knows_clause(&c, len, 7);
    assert_true(n_known > n / 2); // sets of two lose some
    relay_bpe_cache_fini(&c);
}

static void tells_clauses_of_one_hash_apart(void **state) {
    relay_bpe_cache c;
    relay_bpe_cache_init(&c);
    char word[40], other[40];
    uint32_t ids[40], n;
    make_word(word, ids, sizeof word, 1);
    relay_bpe_cache_add_clause(&c, word, sizeof word, 99, ids, 3);
    make_word(other, ids, sizeof other, 2);
    assert_null(relay_bpe_cache_find_clause(&c, other, sizeof other, 99, &n));
    assert_null(relay_bpe_cache_find_clause(&c, word, sizeof word - 1, 99, &n));
    assert_non_null(relay_bpe_cache_find_clause(&c, word, sizeof word, 99, &n));
    assert_int_equal(n, 3);
    relay_bpe_cache_fini(&c);
}

// More than the bound, so that all is forgotten on the way, short and long words with it.
static void stays_within_its_bound(void **state) {
    relay_bpe_cache c;
    relay_bpe_cache_init(&c);
    relay_bpe_key key = relay_bpe_key_of("word", 4, 4, 0);
    const uint32_t ids[] = {1, 2, 3, 4, 5};
    relay_bpe_cache_add_short(&c, key, ids, 5);
    bool has_forgotten = false;
    for (uint32_t i = 0; i < 6000; i++) {
        add_clause(&c, RELAY_BPE_CLAUSE, i);
        assert_true(knows_clause(&c, RELAY_BPE_CLAUSE, i));
        const relay_bpe_short_slot *s = relay_bpe_cache_find_short(relay_bpe_cache_short_set(&c, key), key);
        if (s == NULL)
            has_forgotten = true;
        else
            assert_memory_equal(c.list + s->id[0], ids, sizeof ids);
        assert_true(c.list_cap * sizeof *c.list <= RELAY_BPE_CACHE_MAX_BYTES / 2);
    }
    assert_true(has_forgotten);
    assert_false(knows_clause(&c, RELAY_BPE_CLAUSE, 0));
    relay_bpe_cache_fini(&c);
}

// A free slot is all zero, and a word may be all zero, too.
static void does_not_take_a_free_slot_for_a_word_of_zeros(void **state) {
    relay_bpe_cache c;
    relay_bpe_cache_init(&c);
    static const char zeros[64];
    for (size_t len = 1; len <= RELAY_BPE_LONG_WORD; len++) {
        if (len <= RELAY_BPE_SHORT_WORD) {
            relay_bpe_key key = relay_bpe_key_of(zeros, len, sizeof zeros, 0);
            assert_null(relay_bpe_cache_find_short(relay_bpe_cache_short_set(&c, key), key));
        } else {
            relay_bpe_key key[2];
            relay_bpe_long_key_of(zeros, len, sizeof zeros, 0, key);
            assert_null(relay_bpe_cache_find_long(&c, key));
        }
    }
    relay_bpe_cache_fini(&c);
}

// A key must not depend on what lies behind the word, nor on whether that may be read.
static void makes_the_same_key_at_the_end_of_a_text(void **state) {
    char text[64];
    memset(text, 'a', sizeof text);
    for (size_t len = RELAY_BPE_SHORT_WORD + 1; len <= RELAY_BPE_LONG_WORD; len++) {
        relay_bpe_key inside[2], at_end[2], other_kind[2];
        relay_bpe_long_key_of(text, len, sizeof text, 1, inside);
        relay_bpe_long_key_of(text + sizeof text - len, len, len, 1, at_end);
        relay_bpe_long_key_of(text, len, sizeof text, 0, other_kind);
        assert_memory_equal(inside, at_end, sizeof inside);
        assert_memory_not_equal(inside, other_kind, sizeof inside);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remembers_clauses_of_every_length),
        cmocka_unit_test(tells_clauses_of_one_hash_apart),
        cmocka_unit_test(stays_within_its_bound),
        cmocka_unit_test(does_not_take_a_free_slot_for_a_word_of_zeros),
        cmocka_unit_test(makes_the_same_key_at_the_end_of_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
