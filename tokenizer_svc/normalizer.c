// Each normalizer is a function from a text to the changes that make the next one (aligned_text.h), so that the text
// and what it stands for change together; Replace and Prepend write the next text themselves. A text goes back and
// forth between the two texts of the working memory.
//
// Every normalizer begins with a look for the first character that it could change, and leaves the text alone where
// there is none.
#define _GNU_SOURCE // memmem
#include "tokenizer_svc/normalizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/byte_level.h"
#include "common/utf8.h"
#include "tokenizer_svc/charsmap.h"
#include "tokenizer_svc/unicode_classes.h"
#include "tokenizer_svc/unicode_forms.h"

typedef struct step {
    relay_normalizer_spec spec; // without its strings
    char *content;              // of REPLACE, PREPEND and APPEND
    uint32_t content_len;
    relay_regex *regex;       // of REPLACE
    char *literal;            // of a REPLACE without a regex: what it looks for
    uint32_t literal_len;     //
    relay_charsmap *charsmap; // of PRECOMPILED
} step;

struct relay_normalizer {
    step *steps;
    uint32_t n;
};

// ---- Making one

static relay_code make_step(step *s, const relay_normalizer_spec *spec, const char *what, relay_err *e) {
    s->spec = *spec;
    s->spec.content = (relay_spec_str){0};
    s->spec.pattern = (relay_spec_pattern){0};
    relay_code code = RELAY_OK;
    switch (spec->kind) {
    case RELAY_NORMALIZE_PRECOMPILED:
        return relay_charsmap_create(&s->charsmap, spec->content.s, spec->content.len, what, e);
    case RELAY_NORMALIZE_REPLACE:
        code = relay_regex_create(&s->regex, &spec->pattern, what, e);
        if (code != RELAY_OK) return code;
        if (relay_regex_matches_empty(s->regex))
            return relay_fail(e, RELAY_UNIMPLEMENTED,
                              "%s: pattern \"%.*s\" matches where there is no text, which Relay does not replace", what,
                              spec->pattern.text.len < 160 ? (int)spec->pattern.text.len : 160,
                              spec->pattern.text.len == 0 ? "" : spec->pattern.text.s);
        if (!spec->pattern.is_regex) {
            s->literal = relay_strndup(spec->pattern.text.s, spec->pattern.text.len);
            s->literal_len = spec->pattern.text.len;
        }
        break;
    case RELAY_NORMALIZE_PREPEND:
    case RELAY_NORMALIZE_APPEND:
        if (spec->content.len == 0) return relay_fail(e, RELAY_UNIMPLEMENTED, "%s: nothing to put there", what);
        break;
    default:
        return RELAY_OK;
    }
    s->content = relay_strndup(spec->content.len == 0 ? "" : spec->content.s, spec->content.len);
    s->content_len = spec->content.len;
    return RELAY_OK;
}

relay_code relay_normalizer_create(relay_normalizer **out, const relay_normalizer_spec *specs, uint32_t n,
                                   relay_err *e) {
    *out = NULL;
    relay_unicode_prepare();
    relay_normalizer *z = relay_calloc(1, sizeof *z);
    z->steps = relay_calloc(n == 0 ? 1 : n, sizeof *z->steps);
    relay_code code = RELAY_OK;
    for (uint32_t i = 0; i < n && code == RELAY_OK; i++) {
        char what[64];
        snprintf(what, sizeof what, "normalizer %u", i);
        code = make_step(&z->steps[z->n++], &specs[i], what, e);
    }
    if (code == RELAY_OK) {
        *out = z;
    } else {
        relay_normalizer_destroy(z);
    }
    return code;
}

void relay_normalizer_destroy(relay_normalizer *z) {
    if (z == NULL) return;
    for (uint32_t i = 0; i < z->n; i++) {
        free(z->steps[i].content);
        free(z->steps[i].literal);
        relay_regex_destroy(z->steps[i].regex);
        relay_charsmap_destroy(z->steps[i].charsmap);
    }
    free(z->steps);
    free(z);
}

void relay_normalizer_work_fini(relay_normalizer_work *w) {
    relay_aligned_text_fini(&w->texts[0]);
    relay_aligned_text_fini(&w->texts[1]);
    relay_char_changes_fini(&w->changes);
    relay_regex_work_fini(&w->regex);
}

// ---- Characters

static bool is_space(uint32_t cp) {
    return (relay_unicode_class(cp) & RELAY_CHAR_SPACE) != 0;
}

static uint32_t first_char(const char *s, size_t len) {
    uint32_t cp = 0;
    if (len > 0) relay_utf8_decode(s, len, &cp);
    return cp;
}

static uint32_t last_char(const char *s, size_t len) {
    size_t at = len;
    while (at > 0 && ((uint8_t)s[at - 1] & 0xC0) == 0x80)
        at--;
    return at == 0 ? 0 : first_char(s + at - 1, len - at + 1);
}

// What Nmt drops.
static bool is_nmt_dropped(uint32_t cp) {
    return (cp >= 1 && cp <= 8) || cp == 0x0B || (cp >= 0x0E && cp <= 0x1F) || cp == 0x7F || cp == 0x8F || cp == 0x9F;
}

// What Nmt makes a space.
static bool is_nmt_space(uint32_t cp) {
    return cp == 9 || cp == 10 || cp == 12 || cp == 13 || cp == 0x1680 || (cp >= 0x200B && cp <= 0x200F) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x2581 || cp == 0xFEFF || cp == 0xFFFD;
}

// BERT's controls; the three blanks among them are none, and the rest of \s is not looked at before.
static bool is_bert_dropped(uint32_t cp) {
    if (cp == '\t' || cp == '\n' || cp == '\r') return false;
    return cp == 0 || cp == 0xFFFD || (relay_unicode_class(cp) & RELAY_CHAR_OTHER) != 0;
}

static bool is_accent(uint32_t cp) {
    return (relay_unicode_class(cp) & RELAY_CHAR_NONSPACING_MARK) != 0;
}

static bool is_mark(uint32_t cp) {
    return (relay_unicode_class(cp) & RELAY_CHAR_MARK) != 0;
}

// ---- Whether a step changes anything

static bool any_char(const char *s, size_t len, bool (*test)(uint32_t cp)) {
    for (size_t i = 0; i < len;) {
        uint32_t n;
        uint32_t cp = relay_utf8_valid_at(s + i, &n);
        i += n;
        if (test(cp)) return true;
    }
    return false;
}

static bool is_nmt_changed(uint32_t cp) {
    return is_nmt_dropped(cp) || is_nmt_space(cp);
}

static bool is_bert_cleaned(uint32_t cp) {
    return is_bert_dropped(cp) || (cp != ' ' && is_space(cp));
}

// The mark that spaces become: SentencePiece takes it away at a text's end like a space, for it looks there last.
#define SPACE_MARK "\xE2\x96\x81"

static uint32_t trailing_space(const char *s, size_t len) {
    const uint32_t mark = sizeof SPACE_MARK - 1;
    if (len > 0 && s[len - 1] == ' ') return 1;
    return len >= mark && memcmp(s + len - mark, SPACE_MARK, mark) == 0 ? mark : 0;
}

static bool has_extra_whitespace(const char *s, size_t len) {
    return s[0] == ' ' || trailing_space(s, len) > 0 || memmem(s, len, "  ", 2) != NULL;
}

static bool may_change(const step *t, const char *s, size_t len) {
    const relay_normalizer_spec *z = &t->spec;
    switch (z->kind) {
    case RELAY_NORMALIZE_NFC:
        return relay_unicode_find(s, len, RELAY_CHAR_NOT_NFC) < len;
    case RELAY_NORMALIZE_NFD:
        return relay_unicode_find(s, len, RELAY_CHAR_NOT_NFD) < len;
    case RELAY_NORMALIZE_NFKC:
        return relay_unicode_find(s, len, RELAY_CHAR_NOT_NFKC) < len;
    case RELAY_NORMALIZE_NFKD:
        return relay_unicode_find(s, len, RELAY_CHAR_NOT_NFKD) < len;
    case RELAY_NORMALIZE_LOWERCASE:
        return relay_unicode_find(s, len, RELAY_CHAR_NOT_LOWER) < len;
    case RELAY_NORMALIZE_STRIP_ACCENTS:
        return relay_unicode_find(s, len, RELAY_CHAR_MARK) < len;
    case RELAY_NORMALIZE_NMT:
        return any_char(s, len, is_nmt_changed);
    case RELAY_NORMALIZE_STRIP:
        return (z->strip_left && is_space(first_char(s, len))) || (z->strip_right && is_space(last_char(s, len)));
    case RELAY_NORMALIZE_REPLACE:
        return t->literal == NULL || memmem(s, len, t->literal, t->literal_len) != NULL;
    case RELAY_NORMALIZE_BERT:
        return (z->clean_text && any_char(s, len, is_bert_cleaned)) ||
               (z->handle_chinese_chars && relay_unicode_find(s, len, RELAY_CHAR_CHINESE) < len) ||
               (z->strip_accents &&
                relay_unicode_find(s, len, RELAY_CHAR_NOT_NFD | RELAY_CHAR_NONSPACING_MARK) < len) ||
               (z->lowercase && relay_unicode_find(s, len, RELAY_CHAR_NOT_LOWER) < len);
    case RELAY_NORMALIZE_PRECOMPILED:
        return (z->by_longest_prefix ? relay_charsmap_find_longest : relay_charsmap_find)(t->charsmap, s, len) < len;
    case RELAY_NORMALIZE_EXTRA_WHITESPACE:
        return has_extra_whitespace(s, len);
    case RELAY_NORMALIZE_PREPEND:
    case RELAY_NORMALIZE_APPEND:
    case RELAY_NORMALIZE_BYTE_LEVEL:
        return true;
    }
    return true;
}

bool relay_normalizer_is_identity(const relay_normalizer *z, const char *s, size_t len) {
    for (uint32_t i = 0; i < z->n; i++)
        if (may_change(&z->steps[i], s, len)) return false;
    return true;
}

// ---- The steps

typedef struct run {
    relay_normalizer_work *w;
    uint32_t current; // which of the two texts holds the result so far
    relay_err *e;
} run;

static relay_aligned_text *text_of(run *r) {
    return &r->w->texts[r->current];
}

static void apply_changes(run *r) {
    relay_aligned_text_change(&r->w->texts[1 - r->current], text_of(r), &r->w->changes);
    r->current = 1 - r->current;
}

// Keeps the characters for which `drops` is false; those that follow one dropped hang on the one before.
static void drop(run *r, bool (*drops)(uint32_t cp)) {
    relay_aligned_text *t = text_of(r);
    relay_char_changes *c = &r->w->changes;
    relay_char_changes_clear(c);
    for (uint32_t i = 0; i < t->len;) {
        uint32_t n;
        uint32_t cp = relay_utf8_valid_at(t->s + i, &n);
        i += n;
        if (!drops(cp))
            relay_char_changes_add(c, cp, 0);
        else if (c->n > 0)
            c->v[c->n - 1].change--;
        else
            c->n_removed_first++;
    }
    apply_changes(r);
}

// Makes a space of each character for which `becomes_space` is true.
static void make_spaces(run *r, bool (*becomes_space)(uint32_t cp)) {
    relay_aligned_text *t = text_of(r);
    relay_char_changes_clear(&r->w->changes);
    for (uint32_t i = 0; i < t->len;) {
        uint32_t n;
        uint32_t cp = relay_utf8_valid_at(t->s + i, &n);
        i += n;
        relay_char_changes_add(&r->w->changes, becomes_space(cp) ? ' ' : cp, 0);
    }
    apply_changes(r);
}

static void form(run *r, bool compatible, bool compose) {
    relay_unicode_form(&r->w->changes, text_of(r)->s, text_of(r)->len, compatible, compose);
    apply_changes(r);
}

static void lowercase(run *r) {
    relay_aligned_text *t = text_of(r);
    relay_char_changes_clear(&r->w->changes);
    for (uint32_t i = 0; i < t->len;) {
        uint32_t cp, lower[2];
        i += (uint32_t)relay_utf8_decode(t->s + i, t->len - i, &cp);
        uint32_t n = relay_unicode_lower(cp, lower);
        for (uint32_t j = 0; j < n; j++)
            relay_char_changes_add(&r->w->changes, lower[j], j == 0 ? 0 : 1);
    }
    apply_changes(r);
}

static void put_spaces_around_chinese(run *r) {
    relay_aligned_text *t = text_of(r);
    relay_char_changes_clear(&r->w->changes);
    for (uint32_t i = 0; i < t->len;) {
        uint32_t n;
        uint32_t cp = relay_utf8_valid_at(t->s + i, &n);
        i += n;
        bool is_chinese = (relay_unicode_class(cp) & RELAY_CHAR_CHINESE) != 0;
        if (is_chinese) relay_char_changes_add(&r->w->changes, ' ', 0);
        relay_char_changes_add(&r->w->changes, cp, is_chinese ? 1 : 0);
        if (is_chinese) relay_char_changes_add(&r->w->changes, ' ', 1);
    }
    apply_changes(r);
}

// What a character is replaced by before accents and case are looked at; NULL: it stays.
static const char *cleaned(const relay_normalizer_spec *z, uint32_t cp) {
    if (!z->clean_text || !is_bert_cleaned(cp)) return NULL;
    return is_bert_dropped(cp) ? "" : " ";
}

// Cleans and puts spaces around Chinese characters, where nobody asks what stands for what: in one go.
static void clean(run *r, const relay_normalizer_spec *z) {
    const relay_aligned_text *from = text_of(r);
    relay_aligned_text *to = &r->w->texts[1 - r->current];
    to->len = 0;
    to->is_aligned = false;
    uint32_t copied = 0, n;
    for (uint32_t i = 0; i < from->len; i += n) {
        uint32_t cp = relay_utf8_valid_at(from->s + i, &n);
        if (cp >= ' ' && cp < 0x7F) continue;
        const char *by = cleaned(z, cp);
        bool is_chinese = z->handle_chinese_chars && (relay_unicode_class(cp) & RELAY_CHAR_CHINESE) != 0;
        if (by == NULL && !is_chinese) continue;
        relay_aligned_text_append_from(to, from, copied, i);
        copied = i + n;
        relay_alignment none = {0, 0};
        relay_aligned_text_append(to, by != NULL ? by : " ", by != NULL ? (uint32_t)strlen(by) : 1, none);
        if (!is_chinese) continue;
        relay_aligned_text_append_from(to, from, i, i + n);
        relay_aligned_text_append(to, " ", 1, none);
    }
    relay_aligned_text_append_from(to, from, copied, from->len);
    r->current = 1 - r->current;
}

static void bert(run *r, const relay_normalizer_spec *z) {
    if (!text_of(r)->is_aligned) {
        clean(r, z);
    } else {
        if (z->clean_text) {
            drop(r, is_bert_dropped);
            make_spaces(r, is_space);
        }
        if (z->handle_chinese_chars) put_spaces_around_chinese(r);
    }
    if (z->strip_accents) {
        form(r, false, false);
        drop(r, is_accent);
    }
    if (z->lowercase) lowercase(r);
}

static void byte_level(run *r) {
    relay_aligned_text *t = text_of(r);
    relay_char_changes_clear(&r->w->changes);
    for (uint32_t i = 0; i < t->len; i++)
        relay_char_changes_add(&r->w->changes, relay_byte_level_char((uint8_t)t->s[i]),
                               ((uint8_t)t->s[i] & 0xC0) == 0x80 ? 1 : 0);
    apply_changes(r);
}

// Copies the characters of [begin, end) and hands them over with what they stood for.
static void keep_range(run *r, uint32_t begin, uint32_t end) {
    relay_aligned_text *from = text_of(r), *to = &r->w->texts[1 - r->current];
    to->len = 0;
    to->is_aligned = from->is_aligned;
    relay_aligned_text_append_from(to, from, begin, end);
    r->current = 1 - r->current;
}

static void strip(run *r, bool left, bool right) {
    const relay_aligned_text *t = text_of(r);
    uint32_t begin = 0, end = t->len, cp;
    while (left && begin < end) {
        uint32_t n = (uint32_t)relay_utf8_decode(t->s + begin, end - begin, &cp);
        if (!is_space(cp)) break;
        begin += n;
    }
    while (right && end > begin) {
        uint32_t at = end - 1;
        while (((uint8_t)t->s[at] & 0xC0) == 0x80)
            at--;
        relay_utf8_decode(t->s + at, end - at, &cp);
        if (!is_space(cp)) break;
        end = at;
    }
    keep_range(r, begin, end);
}

// Spaces where a text begins or ends, and behind another.
static void drop_extra_whitespace(run *r) {
    relay_aligned_text *from = text_of(r), *to = &r->w->texts[1 - r->current];
    to->len = 0;
    to->is_aligned = from->is_aligned;
    uint32_t end = from->len;
    for (uint32_t n; (n = trailing_space(from->s, end)) > 0;)
        end -= n;
    bool was_space = true;
    uint32_t begin = 0;
    for (uint32_t i = 0; i < end; i++) {
        bool space = from->s[i] == ' ';
        if (space && was_space) {
            relay_aligned_text_append_from(to, from, begin, i);
            begin = i + 1;
        }
        was_space = space;
    }
    if (begin < end) relay_aligned_text_append_from(to, from, begin, end);
    r->current = 1 - r->current;
}

static void prepend(run *r, const step *s) {
    relay_aligned_text *from = text_of(r), *to = &r->w->texts[1 - r->current];
    if (from->len == 0) return;
    to->len = 0;
    to->is_aligned = from->is_aligned;
    relay_aligned_text_append(to, s->content, s->content_len, from->is_aligned ? from->of[0] : (relay_alignment){0, 0});
    relay_aligned_text_append_from(to, from, 0, from->len);
    r->current = 1 - r->current;
}

static void append(run *r, const step *s) {
    relay_aligned_text *t = text_of(r);
    if (t->len == 0) return;
    relay_aligned_text_append(t, s->content, s->content_len,
                              t->is_aligned ? t->of[t->len - 1] : (relay_alignment){0, 0});
}

// What is put in takes the alignment of the last byte of what it replaces.
static relay_code replace(run *r, const step *s) {
    relay_aligned_text *from = text_of(r), *to = &r->w->texts[1 - r->current];
    to->len = 0;
    to->is_aligned = from->is_aligned;
    relay_regex_scan scan = relay_regex_scan_of(s->regex, &r->w->regex,
                                                relay_regex_see(s->regex, &r->w->regex, from->s, from->len), from->len);
    size_t copied = 0;
    for (;;) {
        bool found;
        size_t begin, end;
        relay_code code = relay_regex_next(&scan, &found, &begin, &end, r->e);
        if (code != RELAY_OK) return code;
        if (!found) break;
        relay_aligned_text_append_from(to, from, (uint32_t)copied, (uint32_t)begin);
        if (end > begin)
            relay_aligned_text_append(to, s->content, s->content_len,
                                      from->is_aligned ? from->of[end - 1] : (relay_alignment){0, 0});
        copied = end;
        if (to->len > RELAY_MAX_NORMALIZED_BYTES) break;
    }
    relay_aligned_text_append_from(to, from, (uint32_t)copied, from->len);
    r->current = 1 - r->current;
    return RELAY_OK;
}

static void map_characters(run *r, const relay_charsmap *m, bool by_longest_prefix) {
    const relay_aligned_text *from = text_of(r);
    if (from->is_aligned) {
        (by_longest_prefix ? relay_charsmap_apply_longest : relay_charsmap_apply)(m, from->s, from->len,
                                                                                  &r->w->changes);
        apply_changes(r);
        return;
    }
    relay_aligned_text *to = &r->w->texts[1 - r->current];
    to->len = 0;
    to->is_aligned = false;
    (by_longest_prefix ? relay_charsmap_write_longest : relay_charsmap_write)(m, from->s, from->len, to);
    r->current = 1 - r->current;
}

static relay_code apply(run *r, const step *s) {
    const relay_normalizer_spec *z = &s->spec;
    if (text_of(r)->len == 0 || !may_change(s, text_of(r)->s, text_of(r)->len)) return RELAY_OK;
    switch (z->kind) {
    case RELAY_NORMALIZE_NFC:
        form(r, false, true);
        break;
    case RELAY_NORMALIZE_NFD:
        form(r, false, false);
        break;
    case RELAY_NORMALIZE_NFKC:
        form(r, true, true);
        break;
    case RELAY_NORMALIZE_NFKD:
        form(r, true, false);
        break;
    case RELAY_NORMALIZE_NMT:
        drop(r, is_nmt_dropped);
        make_spaces(r, is_nmt_space);
        break;
    case RELAY_NORMALIZE_LOWERCASE:
        lowercase(r);
        break;
    case RELAY_NORMALIZE_STRIP:
        strip(r, z->strip_left, z->strip_right);
        break;
    case RELAY_NORMALIZE_STRIP_ACCENTS:
        drop(r, is_mark);
        break;
    case RELAY_NORMALIZE_REPLACE:
        return replace(r, s);
    case RELAY_NORMALIZE_PREPEND:
        prepend(r, s);
        break;
    case RELAY_NORMALIZE_APPEND:
        append(r, s);
        break;
    case RELAY_NORMALIZE_BERT:
        bert(r, z);
        break;
    case RELAY_NORMALIZE_PRECOMPILED:
        map_characters(r, s->charsmap, z->by_longest_prefix);
        break;
    case RELAY_NORMALIZE_BYTE_LEVEL:
        byte_level(r);
        break;
    case RELAY_NORMALIZE_EXTRA_WHITESPACE:
        drop_extra_whitespace(r);
        break;
    }
    return RELAY_OK;
}

relay_code relay_normalizer_apply(const relay_normalizer *z, relay_normalizer_work *w, const char *s, uint32_t len,
                                  uint32_t origin, bool is_aligned, const relay_aligned_text **out, relay_err *e) {
    run r = {.w = w, .current = 0, .e = e};
    relay_aligned_text_set(&w->texts[0], s, len, origin, is_aligned);
    for (uint32_t i = 0; i < z->n; i++) {
        relay_code code = apply(&r, &z->steps[i]);
        if (code != RELAY_OK) return code;
        if (text_of(&r)->len > RELAY_MAX_NORMALIZED_BYTES)
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "text: normalized it has more than %u bytes, which is the limit",
                              RELAY_MAX_NORMALIZED_BYTES);
    }
    *out = text_of(&r);
    return RELAY_OK;
}
