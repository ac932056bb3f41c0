// Every pre-tokenizer is a pass over the words of the one before. One that cuts makes from each word a run of parts
// that are matches or not; what becomes of them is said by its behavior and is decided in one place (add_part). One
// that changes text writes all words into another text.
//
// A pass costs time in proportion to the text, but for patterns, whose searches are bounded (regex.h).
#include "tokenizer_svc/splitter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/byte_level.h"
#include "common/utf8.h"
#include "tokenizer_svc/unicode_classes.h"

// What ByteLevel splits by (Radford et al. 2019).
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct step {
    relay_pretokenizer_spec spec; // without its strings
    relay_regex *regex;           // of SPLIT and of a BYTE_LEVEL that uses it
    char content[4];              // of METASPACE and CHAR_DELIMITER_SPLIT
    uint32_t content_len;
    bool writes_alphabet; // of BYTE_LEVEL
} step;

struct relay_splitter {
    step *steps;
    uint32_t n;
};

// ---- Making one

static relay_code make_step(step *s, const relay_pretokenizer_spec *spec, const char *what, relay_err *e) {
    s->spec = *spec;
    s->spec.content = (relay_spec_str){0};
    s->spec.pattern = (relay_spec_pattern){0};
    relay_spec_pattern gpt2 = {.text = {gpt2_pattern, sizeof gpt2_pattern - 1}, .is_regex = true};
    uint32_t cp;
    switch (spec->kind) {
    case RELAY_PRETOKENIZE_SPLIT:
        return relay_regex_create(&s->regex, &spec->pattern, what, e);
    case RELAY_PRETOKENIZE_BYTE_LEVEL:
        return spec->use_regex ? relay_regex_create(&s->regex, &gpt2, what, e) : RELAY_OK;
    case RELAY_PRETOKENIZE_FIXED_LENGTH:
        if (spec->length != 0) return RELAY_OK;
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: words of 0 characters", what);
    case RELAY_PRETOKENIZE_METASPACE:
    case RELAY_PRETOKENIZE_CHAR_DELIMITER_SPLIT:
        if (spec->content.len == 0 || spec->content.len > sizeof s->content ||
            relay_utf8_decode(spec->content.s, spec->content.len, &cp) != spec->content.len)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: \"%.*s\" is not one character", what,
                              spec->content.len < 32 ? (int)spec->content.len : 32,
                              spec->content.len == 0 ? "" : spec->content.s);
        memcpy(s->content, spec->content.s, spec->content.len);
        s->content_len = spec->content.len;
        return RELAY_OK;
    default:
        return RELAY_OK;
    }
}

relay_code relay_splitter_create(relay_splitter **out, const relay_pretokenizer_spec *specs, uint32_t n,
                                 bool keeps_bytes, relay_err *e) {
    *out = NULL;
    relay_unicode_prepare();
    relay_splitter *s = relay_calloc(1, sizeof *s);
    s->steps = relay_calloc(n == 0 ? 1 : n, sizeof *s->steps);
    relay_code code = RELAY_OK;
    for (uint32_t i = 0; i < n && code == RELAY_OK; i++) {
        char what[64];
        snprintf(what, sizeof what, "pre-tokenizer %u", i);
        step *made = &s->steps[s->n++];
        code = make_step(made, &specs[i], what, e);
        made->writes_alphabet = specs[i].kind == RELAY_PRETOKENIZE_BYTE_LEVEL && !(keeps_bytes && i == n - 1);
    }
    if (code == RELAY_OK) {
        *out = s;
    } else {
        relay_splitter_destroy(s);
    }
    return code;
}

void relay_splitter_destroy(relay_splitter *s) {
    if (s == NULL) return;
    for (uint32_t i = 0; i < s->n; i++)
        relay_regex_destroy(s->steps[i].regex);
    free(s->steps);
    free(s);
}

bool relay_splitter_asks_for_place(const relay_splitter *s) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->steps[i].spec.kind == RELAY_PRETOKENIZE_METASPACE &&
            s->steps[i].spec.prepend_scheme == RELAY_PREPEND_FIRST)
            return true;
    return false;
}

void relay_splitter_work_fini(relay_splitter_work *w) {
    for (int i = 0; i < 2; i++) {
        relay_aligned_text_fini(&w->texts[i]);
        free(w->words[i].v);
    }
    relay_regex_work_fini(&w->regex);
    *w = (relay_splitter_work){0};
}

// ---- Words

static void add_word(relay_words *words, uint32_t begin, uint32_t end) {
    if (words->n == words->cap) {
        words->cap = words->cap == 0 ? 256 : 2 * words->cap;
        words->v = relay_realloc(words->v, (uint64_t)words->cap * sizeof *words->v);
    }
    words->v[words->n++] = (relay_word){begin, end};
}

// The words that one word is cut into.
typedef struct cut {
    relay_words *words;
    uint32_t first; // index of its first one
    relay_split_behavior behavior;
    bool was_match;      // the part before was a match
    uint32_t held_begin; // of MERGED_WITH_NEXT: a match that waits for the part behind it, if was_match
    uint32_t held_end;
} cut;

static cut begin_cut(relay_words *words, relay_split_behavior behavior) {
    return (cut){.words = words, .first = words->n, .behavior = behavior};
}

// Takes the parts of the word in order; together they are the word.
static void add_part(cut *c, uint32_t begin, uint32_t end, bool is_match) {
    relay_words *words = c->words;
    bool has_last = words->n > c->first;
    switch (c->behavior) {
    case RELAY_SPLIT_ISOLATED:
        add_word(words, begin, end);
        break;
    case RELAY_SPLIT_REMOVED:
        if (!is_match) add_word(words, begin, end);
        break;
    case RELAY_SPLIT_CONTIGUOUS:
        if (is_match == c->was_match && has_last)
            words->v[words->n - 1].end = end;
        else
            add_word(words, begin, end);
        break;
    case RELAY_SPLIT_MERGED_WITH_PREVIOUS:
        if (is_match && !c->was_match && has_last)
            words->v[words->n - 1].end = end;
        else
            add_word(words, begin, end);
        break;
    case RELAY_SPLIT_MERGED_WITH_NEXT:
        if (c->was_match && is_match) add_word(words, c->held_begin, c->held_end);
        if (is_match) {
            c->held_begin = begin;
            c->held_end = end;
        } else {
            add_word(words, c->was_match ? c->held_begin : begin, end);
        }
        break;
    }
    c->was_match = is_match;
}

static void end_cut(cut *c) {
    if (c->behavior == RELAY_SPLIT_MERGED_WITH_NEXT && c->was_match) add_word(c->words, c->held_begin, c->held_end);
    uint32_t n = c->first;
    for (uint32_t i = c->first; i < c->words->n; i++)
        if (c->words->v[i].begin < c->words->v[i].end) c->words->v[n++] = c->words->v[i];
    c->words->n = n;
}

// ---- Passes that cut

typedef struct pass {
    const step *step;
    relay_splitter_work *w;
    const char *s; // the text
    uint32_t len;
    const relay_alignment *of; // NULL: the caller's own text, or nobody asks
    uint32_t origin;           // of the caller's own text
    bool is_own;               // it is
    bool is_aligned;           // alignments are kept
    const relay_words *from;
    relay_words *to;
    relay_err *e;
} pass;

// By the characters for which (class & classes) != 0, or that are `delimiter` (0: none).
static void cut_at_chars(const pass *p, relay_word word, uint32_t classes, uint32_t delimiter,
                         relay_split_behavior behavior) {
    cut c = begin_cut(p->to, behavior);
    uint32_t begin = word.begin;
    for (uint32_t i = word.begin; i < word.end;) {
        uint32_t n;
        uint32_t cp = relay_utf8_valid_at(p->s + i, &n), next = i + n;
        if ((relay_unicode_class(cp) & classes) != 0 || (delimiter != 0 && cp == delimiter)) {
            if (begin < i) add_part(&c, begin, i, false);
            add_part(&c, i, next, true);
            begin = next;
        }
        i = next;
    }
    if (begin < word.end) add_part(&c, begin, word.end, false);
    end_cut(&c);
}

// `seen` is the text as the pattern is to see it.
static relay_code cut_at_matches(const pass *p, const char *seen, relay_word word, relay_split_behavior behavior,
                                 bool invert) {
    relay_regex_scan scan = relay_regex_scan_of(p->step->regex, &p->w->regex, seen + word.begin, word.end - word.begin);
    cut c = begin_cut(p->to, behavior);
    uint32_t at = word.begin;
    for (;;) {
        bool found;
        size_t begin, end;
        relay_code code = relay_regex_next(&scan, &found, &begin, &end, p->e);
        if (code != RELAY_OK) return code;
        if (!found) break;
        uint32_t match_begin = word.begin + (uint32_t)begin, match_end = word.begin + (uint32_t)end;
        if (at != match_begin) add_part(&c, at, match_begin, invert);
        add_part(&c, match_begin, match_end, !invert);
        at = match_end;
    }
    if (at != word.end) add_part(&c, at, word.end, invert);
    end_cut(&c);
    return RELAY_OK;
}

static relay_code split(pass *p) {
    const char *seen = relay_regex_see(p->step->regex, &p->w->regex, p->s, p->len);
    p->to->n = 0;
    for (uint32_t i = 0; i < p->from->n; i++) {
        relay_code code = cut_at_matches(p, seen, p->from->v[i], p->step->spec.behavior, p->step->spec.invert);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

// BERT's: blanks go, and each punctuation character is a word.
static void cut_bert(const pass *p, relay_word word) {
    uint32_t begin = word.begin;
    for (uint32_t i = word.begin; i < word.end;) {
        uint32_t n;
        uint32_t cp = relay_utf8_valid_at(p->s + i, &n), next = i + n;
        uint32_t classes = relay_unicode_class(cp);
        if ((classes & (RELAY_CHAR_SPACE | RELAY_CHAR_PUNCTUATION)) != 0) {
            if (begin < i) add_word(p->to, begin, i);
            if ((classes & RELAY_CHAR_SPACE) == 0) add_word(p->to, i, next);
            begin = next;
        }
        i = next;
    }
    if (begin < word.end) add_word(p->to, begin, word.end);
}

// Runs of \w and of what is neither \w nor a blank; blanks go.
static void cut_whitespace(const pass *p, relay_word word) {
    uint32_t begin = word.begin, kind = 0; // of the run so far: 0 none, 1 words, 2 others
    for (uint32_t i = word.begin; i < word.end;) {
        uint32_t n;
        uint32_t cp = relay_utf8_valid_at(p->s + i, &n), next = i + n;
        uint32_t classes = relay_unicode_class(cp);
        uint32_t its = (classes & RELAY_CHAR_WORD) != 0 ? 1 : (classes & RELAY_CHAR_SPACE) != 0 ? 0 : 2;
        if (its != kind) {
            if (kind != 0) add_word(p->to, begin, i);
            begin = i;
            kind = its;
        }
        i = next;
    }
    if (kind != 0) add_word(p->to, begin, word.end);
}

static void cut_fixed_length(const pass *p, relay_word word) {
    uint32_t begin = word.begin, n = 0;
    for (uint32_t i = word.begin; i < word.end;) {
        uint32_t cp;
        i += (uint32_t)relay_utf8_decode(p->s + i, word.end - i, &cp);
        if (++n < p->step->spec.length && i < word.end) continue;
        add_word(p->to, begin, i);
        begin = i;
        n = 0;
    }
}

// Where the script changes; characters of any script stay with what is before them. Those before the first character of
// a script are in no word, as in HF tokenizers.
static void cut_scripts(const pass *p, relay_word word) {
    bool has_last = false, has_begin = false;
    uint8_t last = 0;
    uint32_t begin = 0;
    for (uint32_t i = word.begin; i < word.end;) {
        uint32_t n;
        uint32_t cp = relay_utf8_valid_at(p->s + i, &n), next = i + n;
        uint8_t script = relay_unicode_script(cp);
        if (script != 0) {
            if (!has_last || script != last) {
                if (has_begin) add_word(p->to, begin, i);
                has_begin = true;
                begin = i;
            }
            has_last = true;
            last = script;
        }
        i = next;
    }
    if (has_begin) add_word(p->to, begin, word.end);
}

// ---- Passes that write

static bool begins_with(const char *s, uint32_t len, const char *with, uint32_t with_len) {
    return len >= with_len && memcmp(s, with, with_len) == 0;
}

static relay_alignment alignment_at(const pass *p, uint32_t at) {
    if (p->of != NULL) return p->of[at];
    uint32_t cp;
    uint32_t n = p->is_own ? (uint32_t)relay_utf8_decode(p->s + at, p->len - at, &cp) : 0;
    return (relay_alignment){p->origin + at, p->origin + at + n};
}

// Whether the byte stands for what the caller's text begins with.
static bool is_at_beginning(const pass *p, uint32_t at) {
    return !p->w->is_continuation && (p->of != NULL || p->is_own) && alignment_at(p, at).begin == 0;
}

// Appends bytes [begin, end) of the pass's text.
static void copy(const pass *p, relay_aligned_text *to, uint32_t begin, uint32_t end) {
    if (!to->is_aligned || p->of != NULL) {
        relay_aligned_text from = {.s = (char *)p->s, .of = (relay_alignment *)p->of};
        relay_aligned_text_append_from(to, &from, begin, end);
        return;
    }
    for (uint32_t i = begin; i < end;) {
        relay_alignment of = alignment_at(p, i);
        relay_aligned_text_append(to, p->s + i, of.end - of.begin, of);
        i += of.end - of.begin;
    }
}

static void put_metaspace(const pass *p, relay_aligned_text *to, relay_word word) {
    const step *s = p->step;
    const char *text = p->s + word.begin;
    uint32_t len = word.end - word.begin;
    bool has_prefix = text[0] == ' ' || begins_with(text, len, s->content, s->content_len);
    bool wants = s->spec.prepend_scheme == RELAY_PREPEND_ALWAYS ||
                 (s->spec.prepend_scheme == RELAY_PREPEND_FIRST && is_at_beginning(p, word.begin));
    if (wants && !has_prefix) relay_aligned_text_append(to, s->content, s->content_len, alignment_at(p, word.begin));
    uint32_t begin = word.begin;
    for (const char *space; (space = memchr(p->s + begin, ' ', word.end - begin)) != NULL;) {
        uint32_t i = (uint32_t)(space - p->s);
        copy(p, to, begin, i);
        relay_aligned_text_append(to, s->content, s->content_len, alignment_at(p, i));
        begin = i + 1;
    }
    copy(p, to, begin, word.end);
}

static void put_prefix_space(const pass *p, relay_aligned_text *to, relay_word word) {
    if (p->s[word.begin] != ' ') relay_aligned_text_append(to, " ", 1, alignment_at(p, word.begin));
    copy(p, to, word.begin, word.end);
}

static void put_alphabet(const pass *p, relay_aligned_text *to, relay_word word) {
    relay_alignment of = {0};
    for (uint32_t i = word.begin; i < word.end; i++) {
        if (((uint8_t)p->s[i] & 0xC0) != 0x80) of = to->is_aligned ? alignment_at(p, i) : (relay_alignment){0};
        char bytes[4];
        uint32_t n = (uint32_t)relay_utf8_encode(relay_byte_level_char((uint8_t)p->s[i]), bytes);
        relay_aligned_text_append(to, bytes, n, of);
    }
}

typedef void (*put_fn)(const pass *p, relay_aligned_text *to, relay_word word);

// Writes all words anew; the pass's text and words become what was written.
static relay_code write_words(pass *p, put_fn put) {
    relay_aligned_text *to = p->s == p->w->texts[0].s ? &p->w->texts[1] : &p->w->texts[0];
    to->len = 0;
    to->is_aligned = p->is_aligned;
    p->to->n = 0;
    for (uint32_t i = 0; i < p->from->n; i++) {
        uint32_t begin = to->len;
        put(p, to, p->from->v[i]);
        add_word(p->to, begin, to->len);
        if (to->len > RELAY_MAX_NORMALIZED_BYTES)
            return relay_fail(p->e, RELAY_INVALID_ARGUMENT,
                              "text: split into words it has more than %u bytes, which is the limit",
                              RELAY_MAX_NORMALIZED_BYTES);
    }
    p->s = to->s;
    p->len = to->len;
    p->of = to->is_aligned ? to->of : NULL;
    p->is_own = false;
    return RELAY_OK;
}

static void swap_words(pass *p) {
    relay_words *to = (relay_words *)p->from;
    p->from = p->to;
    p->to = to;
}

static relay_code byte_level(pass *p) {
    const step *s = p->step;
    relay_code code = RELAY_OK;
    bool is_written = false;
    for (uint32_t i = 0; s->spec.add_prefix_space && !is_written && i < p->from->n; i++)
        is_written = p->s[p->from->v[i].begin] != ' ';
    if (is_written) {
        code = write_words(p, put_prefix_space);
        swap_words(p);
    }
    if (code == RELAY_OK && s->regex != NULL) {
        const char *seen = relay_regex_see(s->regex, &p->w->regex, p->s, p->len);
        p->to->n = 0;
        for (uint32_t i = 0; i < p->from->n && code == RELAY_OK; i++)
            code = cut_at_matches(p, seen, p->from->v[i], RELAY_SPLIT_ISOLATED, false);
        swap_words(p);
    }
    if (code == RELAY_OK && s->writes_alphabet) {
        code = write_words(p, put_alphabet);
        swap_words(p);
    }
    swap_words(p); // the caller swaps once more
    return code;
}

// Each one begins a word.
static void cut_before_metaspace(const pass *p, relay_word word) {
    const step *s = p->step;
    uint32_t begin = word.begin;
    for (uint32_t i = word.begin; i < word.end;) {
        const char *at = memchr(p->s + i, s->content[0], word.end - i);
        if (at == NULL) break;
        i = (uint32_t)(at - p->s);
        if (begins_with(at, word.end - i, s->content, s->content_len)) {
            if (begin < i) add_word(p->to, begin, i);
            begin = i;
        }
        i++;
    }
    if (begin < word.end) add_word(p->to, begin, word.end);
}

static relay_code metaspace(pass *p) {
    relay_code code = write_words(p, put_metaspace);
    if (code != RELAY_OK || !p->step->spec.split) return code;
    swap_words(p);
    p->to->n = 0;
    for (uint32_t i = 0; i < p->from->n; i++)
        cut_before_metaspace(p, p->from->v[i]);
    return RELAY_OK;
}

// ---- All of them

static void cut_words(pass *p) {
    const step *s = p->step;
    uint32_t cp = 0;
    if (s->spec.kind == RELAY_PRETOKENIZE_CHAR_DELIMITER_SPLIT) relay_utf8_decode(s->content, s->content_len, &cp);
    p->to->n = 0;
    for (uint32_t i = 0; i < p->from->n; i++) {
        relay_word word = p->from->v[i];
        switch (s->spec.kind) {
        case RELAY_PRETOKENIZE_BERT:
            cut_bert(p, word);
            break;
        case RELAY_PRETOKENIZE_CHAR_DELIMITER_SPLIT:
            cut_at_chars(p, word, 0, cp, RELAY_SPLIT_REMOVED);
            break;
        case RELAY_PRETOKENIZE_DIGITS:
            cut_at_chars(p, word, RELAY_CHAR_NUMERIC, 0,
                         s->spec.individual_digits ? RELAY_SPLIT_ISOLATED : RELAY_SPLIT_CONTIGUOUS);
            break;
        case RELAY_PRETOKENIZE_FIXED_LENGTH:
            cut_fixed_length(p, word);
            break;
        case RELAY_PRETOKENIZE_PUNCTUATION:
            cut_at_chars(p, word, RELAY_CHAR_PUNCTUATION, 0, s->spec.behavior);
            break;
        case RELAY_PRETOKENIZE_UNICODE_SCRIPTS:
            cut_scripts(p, word);
            break;
        case RELAY_PRETOKENIZE_WHITESPACE:
            cut_whitespace(p, word);
            break;
        case RELAY_PRETOKENIZE_WHITESPACE_SPLIT:
            cut_at_chars(p, word, RELAY_CHAR_SPACE, 0, RELAY_SPLIT_REMOVED);
            break;
        case RELAY_PRETOKENIZE_BYTE_LEVEL:
        case RELAY_PRETOKENIZE_METASPACE:
        case RELAY_PRETOKENIZE_SPLIT:
            break;
        }
    }
}

relay_code relay_splitter_apply(const relay_splitter *s, relay_splitter_work *w, const char *text, uint32_t len,
                                const relay_alignment *of, uint32_t origin, bool is_aligned, relay_split *out,
                                relay_err *e) {
    pass p = {.w = w, .s = text, .len = len, .of = of, .origin = origin, .is_own = of == NULL, .e = e};
    p.is_aligned = is_aligned;
    p.from = &w->words[0];
    p.to = &w->words[1];
    w->words[0].n = w->words[1].n = 0;
    add_word(&w->words[0], 0, len);
    for (uint32_t i = 0; i < s->n; i++) {
        p.step = &s->steps[i];
        relay_code code = RELAY_OK;
        if (p.step->spec.kind == RELAY_PRETOKENIZE_SPLIT)
            code = split(&p);
        else if (p.step->spec.kind == RELAY_PRETOKENIZE_BYTE_LEVEL)
            code = byte_level(&p);
        else if (p.step->spec.kind == RELAY_PRETOKENIZE_METASPACE)
            code = metaspace(&p);
        else
            cut_words(&p);
        if (code != RELAY_OK) return code;
        swap_words(&p);
    }
    *out = (relay_split){
        .s = p.s, .len = p.len, .of = p.s == text ? NULL : p.of, .words = p.from->v, .n_words = p.from->n};
    return RELAY_OK;
}
