#include "model_svc/constraint/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model_svc/constraint/gbnf.h"
#include "model_svc/constraint/json_schema.h"
#include "model_svc/constraint/json_text.h"
#include "model_svc/constraint/mask.h"
#include "model_svc/constraint/pushdown.h"
#include "model_svc/constraint/regex.h"

enum {
    COMPILE_WORK = 1 << 26, // units of the grammar; about half a second
    WARM_VISITS = 1 << 26,  // of the vocabulary's trie, for masks that are made at once; about half a second too
};

struct relay_constraint {
    relay_automaton automaton;
    relay_pushdown *pushdown;
    relay_mask_maker *masks;
    const relay_token_table *tokens;
    char *start_after;
};

static const char *const fields[] = {
    [RELAY_CONSTRAINT_JSON_SCHEMA] = "sampling.constraint.json_schema",
    [RELAY_CONSTRAINT_REGEX] = "sampling.constraint.regex",
    [RELAY_CONSTRAINT_GRAMMAR] = "sampling.constraint.grammar",
    [RELAY_CONSTRAINT_CHOICES] = "sampling.constraint.choices",
    [RELAY_CONSTRAINT_ANY_JSON] = "sampling.constraint.any_json",
};

// ---- Compiling

static relay_code check_text(relay_constraint_text text, const char *field, size_t max, relay_err *e) {
    if (text.len > max) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s has %zu bytes; at most %zu are allowed", field, text.len, max);
    }
    if (!relay_utf8_is_valid(text.bytes, text.len)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is not valid UTF-8", field);
    }
    return RELAY_OK;
}

static relay_code read_choices(relay_grammar *g, const relay_constraint_spec *spec, const char *field, relay_err *e) {
    if (spec->n_choices == 0) return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is empty", field);
    relay_expr *parts = relay_calloc(spec->n_choices, sizeof parts[0]);
    size_t total = 0;
    relay_code code = RELAY_OK;
    for (uint32_t i = 0; i < spec->n_choices && code == RELAY_OK; i++) {
        const relay_constraint_text *text = &spec->choices[i];
        total += text->len + 1;
        code = check_text(*text, field, RELAY_CONSTRAINT_MAX_TEXT, e);
        if (code == RELAY_OK && text->len == 0)
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s[%u] is empty", field, i);
        if (code == RELAY_OK && total > RELAY_CONSTRAINT_MAX_TEXT) {
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s has more than %d bytes", field, RELAY_CONSTRAINT_MAX_TEXT);
        }
        if (code == RELAY_OK) parts[i] = relay_expr_text(g, text->bytes, text->len);
    }
    if (code == RELAY_OK) relay_grammar_set_rule(g, g->root, relay_expr_alt(g, parts, spec->n_choices));
    free(parts);
    return code;
}

static relay_code read_spec(relay_grammar *g, const relay_constraint_spec *spec, const char *field, relay_err *e) {
    relay_code code = check_text(spec->text, field, RELAY_CONSTRAINT_MAX_TEXT, e);
    if (code != RELAY_OK) return code;
    relay_expr x;
    switch (spec->kind) {
    case RELAY_CONSTRAINT_JSON_SCHEMA:
        return relay_json_schema_read(g, spec->text.bytes, spec->text.len, field, e);
    case RELAY_CONSTRAINT_REGEX:
        g->root = relay_grammar_add_rule(g, "regex", 5);
        code = relay_regex_read(&x, g, spec->text.bytes, spec->text.len, relay_expr_code_points, false, field, e);
        relay_grammar_set_rule(g, g->root, x);
        return code;
    case RELAY_CONSTRAINT_GRAMMAR:
        return relay_gbnf_read(g, spec->text.bytes, spec->text.len, field, e);
    case RELAY_CONSTRAINT_CHOICES:
        g->root = relay_grammar_add_rule(g, "choices", 7);
        return read_choices(g, spec, field, e);
    case RELAY_CONSTRAINT_ANY_JSON: {
        relay_json_rules rules;
        relay_json_rules_init(&rules, g);
        g->root = rules.value;
        return RELAY_OK;
    }
    }
    return relay_fail(e, RELAY_INTERNAL, "a constraint of no known kind");
}

// Each byte of start_after is told from every other: a set of its own.
static void add_start_after(relay_grammar *g, relay_constraint_text text) {
    bool is_added[256] = {false};
    for (size_t i = 0; i < text.len; i++) {
        uint8_t b = (uint8_t)text.bytes[i];
        if (!is_added[b]) relay_expr_bytes(g, b, b);
        is_added[b] = true;
    }
}

relay_code relay_constraint_compile(relay_constraint **out, const relay_constraint_spec *spec,
                                    const relay_token_table *tokens, relay_err *e) {
    *out = NULL;
    const char *field = fields[spec->kind];
    relay_code code =
        check_text(spec->start_after, "sampling.constraint.start_after", RELAY_CONSTRAINT_MAX_START_AFTER, e);
    if (code != RELAY_OK) return code;
    relay_constraint *c = relay_calloc(1, sizeof *c);
    c->tokens = tokens;
    relay_grammar g;
    relay_grammar_init(&g, COMPILE_WORK);
    code = read_spec(&g, spec, field, e);
    if (code == RELAY_OK) add_start_after(&g, spec->start_after);
    if (code == RELAY_OK) code = relay_automaton_compile(&c->automaton, &g, tokens->text.max_depth, field, e);
    relay_grammar_fini(&g);
    if (code != RELAY_OK) {
        free(c);
        return code;
    }
    c->start_after = relay_strndup(spec->start_after.bytes, spec->start_after.len);
    c->pushdown = relay_pushdown_create(&c->automaton, c->start_after, spec->start_after.len);
    c->masks = relay_mask_maker_create(c->pushdown, tokens);
    relay_mask_warm(c->masks, WARM_VISITS);
    if (c->pushdown->is_full) relay_constraint_reset(c);
    *out = c;
    return RELAY_OK;
}

void relay_constraint_destroy(relay_constraint *c) {
    if (c == NULL) return;
    relay_mask_maker_destroy(c->masks);
    relay_pushdown_destroy(c->pushdown);
    relay_automaton_fini(&c->automaton);
    free(c->start_after);
    free(c);
}

void relay_constraint_reset(relay_constraint *c) {
    relay_pushdown_reset(c->pushdown);
    relay_mask_maker_reset(c->masks);
}

// ---- Matching

// Every matcher is stale then, and what is kept has room again.
static bool reset_if_full(relay_constraint *c) {
    if (!c->pushdown->is_full) return false;
    relay_constraint_reset(c);
    return true;
}

void relay_matcher_begin(relay_constraint *c, relay_matcher *m) {
    // What a constraint begins with fits into what is empty.
    uint32_t config = relay_pushdown_begin(c->pushdown);
    if (reset_if_full(c)) config = relay_pushdown_begin(c->pushdown);
    *m = (relay_matcher){.config = config, .epoch = c->pushdown->epoch};
}

bool relay_matcher_is_stale(const relay_constraint *c, const relay_matcher *m) {
    return m->epoch != c->pushdown->epoch;
}

bool relay_matcher_read(relay_constraint *c, relay_matcher *m, uint32_t id) {
    RELAY_ASSERT(!relay_matcher_is_stale(c, m) && id < c->tokens->n_vocab);
    static const relay_token unknown = {.kind = RELAY_TOKEN_PADDING};
    const relay_vocab *v = c->tokens->vocab;
    const relay_token *t = id < relay_vocab_size(v) ? relay_vocab_token(v, id) : &unknown;
    bool is_scanning = m->config != RELAY_CONFIG_DEAD && c->pushdown->configs[m->config].scanned > 0;
    uint32_t config = m->config;
    if (!relay_token_is_text(t) && !(is_scanning && t->kind == RELAY_TOKEN_CONTROL)) config = RELAY_CONFIG_DEAD;
    for (uint32_t i = 0; i < t->len; i++)
        config = relay_pushdown_step(c->pushdown, config, (uint8_t)t->bytes[i]);
    if (reset_if_full(c)) return false;
    m->config = config;
    m->n_read++;
    return config != RELAY_CONFIG_DEAD;
}

bool relay_matcher_mask(relay_constraint *c, const relay_matcher *m, uint32_t *bits) {
    RELAY_ASSERT(!relay_matcher_is_stale(c, m) && m->config != RELAY_CONFIG_DEAD);
    relay_mask_fill(c->masks, m->config, bits);
    return !reset_if_full(c);
}

bool relay_matcher_is_dead(const relay_matcher *m) {
    return m->config == RELAY_CONFIG_DEAD;
}

bool relay_matcher_is_complete(const relay_constraint *c, const relay_matcher *m) {
    return m->config != RELAY_CONFIG_DEAD && c->pushdown->configs[m->config].is_complete;
}

bool relay_matcher_is_over(const relay_constraint *c, const relay_matcher *m) {
    return m->config != RELAY_CONFIG_DEAD && relay_pushdown_is_over(c->pushdown, m->config);
}

uint32_t relay_constraint_n_words(const relay_constraint *c) {
    return c->tokens->n_words;
}

uint64_t relay_constraint_visits(const relay_constraint *c) {
    return relay_mask_visits(c->masks);
}
