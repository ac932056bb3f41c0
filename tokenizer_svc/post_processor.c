// Offsets without blanks (ByteLevel's and Roberta's trim_offsets) go by a token's own text: as many characters as it
// has blanks at its ends are taken off its offsets. How many that are is known of each id from the beginning.
#include "tokenizer_svc/post_processor.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/unicode_classes.h"

enum { MAX_BLANKS = UINT16_MAX };

typedef struct blanks {
    uint16_t leading, trailing; // characters
} blanks;

typedef struct relay_added_value {
    uint32_t index;
    blanks blanks;
} relay_added_value;

struct relay_post_processor {
    uint32_t *before, *behind; // ids around a text
    uint32_t n_before, n_behind;
    bool trims;
    bool add_prefix_space; // a blank before the first token was put there and is none of the text's
    blanks *of_ids;        // [n_ids] where `trims`
    uint32_t n_ids;
};

// ---- Making one

// Blanks, and the byte alphabet's space, at both ends; of a token of blanks alone all of them count twice.
static blanks count_blanks(const char *s, uint32_t len) {
    blanks b = {0};
    for (uint32_t i = 0; i < len && b.leading < MAX_BLANKS; b.leading++) {
        uint32_t cp;
        i += (uint32_t)relay_utf8_decode(s + i, len - i, &cp);
        if (cp != 0x120 && (relay_unicode_class(cp) & RELAY_CHAR_SPACE) == 0) break;
    }
    for (uint32_t end = len; end > 0 && b.trailing < MAX_BLANKS; b.trailing++) {
        uint32_t cp, at = end - 1;
        while (at > 0 && ((uint8_t)s[at] & 0xC0) == 0x80)
            at--;
        relay_utf8_decode(s + at, end - at, &cp);
        if (cp != 0x120 && (relay_unicode_class(cp) & RELAY_CHAR_SPACE) == 0) break;
        end = at;
    }
    return b;
}

static relay_code read_template(relay_post_processor *p, const relay_tokenizer_spec *spec, relay_err *e) {
    uint32_t n_texts = 0;
    p->before = relay_calloc(spec->n_post + 1, sizeof *p->before);
    p->behind = relay_calloc(spec->n_post + 1, sizeof *p->behind);
    for (uint32_t i = 0; i < spec->n_post; i++) {
        if (spec->post[i].is_text)
            n_texts++;
        else if (n_texts == 0)
            p->before[p->n_before++] = spec->post[i].id;
        else
            p->behind[p->n_behind++] = spec->post[i].id;
    }
    if (n_texts == 1 || spec->n_post == 0) return RELAY_OK;
    return relay_fail(e, n_texts == 0 ? RELAY_INVALID_ARGUMENT : RELAY_UNIMPLEMENTED,
                      "the template around a text has it %u times; it must have it once", n_texts);
}

relay_code relay_post_processor_create(relay_post_processor **out, const relay_tokenizer_spec *spec, relay_err *e) {
    *out = NULL;
    relay_unicode_prepare();
    relay_post_processor *p = relay_calloc(1, sizeof *p);
    relay_code code = read_template(p, spec, e);
    if (code != RELAY_OK) {
        relay_post_processor_destroy(p);
        return code;
    }
    p->trims = spec->post_trim_offsets;
    p->add_prefix_space = spec->post_add_prefix_space;
    if (p->trims) {
        p->n_ids = spec->model.n_tokens;
        p->of_ids = relay_calloc(p->n_ids == 0 ? 1 : p->n_ids, sizeof *p->of_ids);
        for (uint32_t id = 0; id < p->n_ids; id++)
            p->of_ids[id] = count_blanks(spec->model.tokens[id].piece.s, spec->model.tokens[id].piece.len);
    }
    *out = p;
    return RELAY_OK;
}

void relay_post_processor_destroy(relay_post_processor *p) {
    if (p == NULL) return;
    free(p->before);
    free(p->behind);
    free(p->of_ids);
    free(p);
}

// ---- Values of added tokens

void relay_added_values_fini(relay_added_values *values) {
    free(values->v);
    *values = (relay_added_values){0};
}

void relay_post_processor_note_value(const relay_post_processor *p, relay_added_values *values, uint32_t index,
                                     const char *s, uint32_t len) {
    if (!p->trims) return;
    if (values->n == values->cap) {
        values->cap = values->cap == 0 ? 16 : 2 * values->cap;
        values->v = relay_realloc(values->v, (uint64_t)values->cap * sizeof *values->v);
    }
    values->v[values->n++] = (relay_added_value){index, count_blanks(s, len)};
}

// ---- Trimming

static uint32_t chars_forward(const char *text, uint32_t at, uint32_t end, uint32_t n) {
    for (; n > 0 && at < end; n--) {
        uint32_t cp;
        at += (uint32_t)relay_utf8_decode(text + at, end - at, &cp);
    }
    return at;
}

// n characters back, but not past `begin`; `end` itself where the text has fewer than n before it.
static uint32_t chars_back(const char *text, uint32_t begin, uint32_t end, uint32_t n) {
    uint32_t at = end;
    for (; n > 0; n--) {
        if (at == 0) return end;
        at--;
        while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80)
            at--;
    }
    return at > begin ? at : begin;
}

static void trim_token(const relay_post_processor *p, relay_encoding *enc, uint32_t i, bool is_first, blanks b,
                       const char *text) {
    uint32_t begin = enc->offset_begin[i], end = enc->offset_end[i];
    bool is_prefix = (is_first || begin == 0) && p->add_prefix_space && b.leading == 1;
    if (b.leading > 0 && !is_prefix) begin = chars_forward(text, begin, end, b.leading);
    if (b.trailing > 0) end = chars_back(text, begin, end, b.trailing);
    enc->offset_begin[i] = begin;
    enc->offset_end[i] = end;
}

// `from` is the index of the first token that is left of the text's, which was at `original`.
static void trim(const relay_post_processor *p, relay_encoding *enc, uint32_t from, uint32_t original, const char *text,
                 const relay_added_values *values) {
    uint32_t k = 0;
    for (uint32_t i = from; i < enc->n; i++) {
        uint32_t index = original + (i - from);
        while (k < values->n && values->v[k].index < index)
            k++;
        blanks b = {0};
        if (k < values->n && values->v[k].index == index)
            b = values->v[k].blanks;
        else if (enc->ids[i] < p->n_ids)
            b = p->of_ids[enc->ids[i]];
        trim_token(p, enc, i, i == from, b, text);
    }
}

// ---- All of it

static void move(relay_encoding *enc, uint32_t to, uint32_t from, uint32_t n) {
    memmove(enc->ids + to, enc->ids + from, n * sizeof *enc->ids);
    if (!enc->has_offsets) return;
    memmove(enc->offset_begin + to, enc->offset_begin + from, n * sizeof *enc->offset_begin);
    memmove(enc->offset_end + to, enc->offset_end + from, n * sizeof *enc->offset_end);
}

relay_code relay_post_processor_apply(const relay_post_processor *p, relay_encoding *enc, uint32_t first,
                                      const relay_encode_opts *opts, const char *text, uint32_t len,
                                      const relay_added_values *values, relay_err *e) {
    uint32_t n_before = opts->add_special_tokens ? p->n_before : 0;
    uint32_t n_behind = opts->add_special_tokens ? p->n_behind : 0;
    uint32_t n = enc->n - first, n_dropped = 0;
    if (opts->max_tokens != 0) {
        if (opts->max_tokens < n_before + n_behind)
            return relay_fail(
                e, RELAY_INVALID_ARGUMENT,
                "options.truncate_to is %u; with the %u tokens around the text allowed is that many and more",
                opts->max_tokens, n_before + n_behind);
        uint32_t max = opts->max_tokens - n_before - n_behind;
        if (n > max) {
            n_dropped = opts->truncate_left ? n - max : 0;
            if (n_dropped > 0) move(enc, first, first + n_dropped, max);
            n = max;
            enc->n = first + n;
        }
    }
    if (p->trims && enc->has_offsets) trim(p, enc, first, first + n_dropped, text, values);
    if (n_before + n_behind == 0) return RELAY_OK;
    relay_encoding_reserve(enc, n_before + n_behind);
    if (n_before > 0) {
        move(enc, first + n_before, first, n);
        enc->n = first;
        for (uint32_t i = 0; i < n_before; i++)
            relay_encoding_add(enc, p->before[i], 0, 0);
        enc->n += n;
    }
    for (uint32_t i = 0; i < n_behind; i++)
        relay_encoding_add(enc, p->behind[i], 0, 0);
    return RELAY_OK;
}
