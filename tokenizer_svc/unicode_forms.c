// Method: Unicode Standard Annex #15 and section 3.11 of the Standard: decompose, put the marks behind each starter
// into canonical order, compose each starter with the marks that nothing blocks. What an old and a new character have
// to do with each other is counted as HF tokenizers counts it: of a decomposition's characters the first stands for the
// old one and the others are inserted (0, 1, 1, ...); marks keep their number when they move; a composite has the sum
// of its two, less one.
#include "tokenizer_svc/unicode_forms.h"

#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/unicode_classes.h"

enum { SHORT_RUN = 32, N_CLASSES = 256 };

// Stable; v[0..n) have classes other than 0.
static void sort_marks(relay_char_change *v, uint32_t n, relay_char_changes *scratch) {
    if (n <= SHORT_RUN) {
        uint8_t classes[SHORT_RUN];
        for (uint32_t i = 0; i < n; i++) {
            relay_char_change mark = v[i];
            uint8_t class = relay_unicode_combining_class(mark.code_point);
            uint32_t j = i;
            for (; j > 0 && classes[j - 1] > class; j--) {
                v[j] = v[j - 1];
                classes[j] = classes[j - 1];
            }
            v[j] = mark;
            classes[j] = class;
        }
        return;
    }
    uint32_t place[N_CLASSES + 1] = {0};
    relay_char_changes_clear(scratch);
    for (uint32_t i = 0; i < n; i++) {
        relay_char_changes_add(scratch, v[i].code_point, v[i].change);
        place[relay_unicode_combining_class(v[i].code_point) + 1]++;
    }
    for (uint32_t class = 0; class < N_CLASSES; class ++)
        place[class + 1] += place[class];
    for (uint32_t i = 0; i < n; i++)
        v[place[relay_unicode_combining_class(scratch->v[i].code_point)]++] = scratch->v[i];
}

static void decompose(relay_char_changes *out, const char *s, size_t len, bool compatible) {
    relay_char_changes scratch = {0};
    uint32_t run = 0; // where the marks behind the last starter begin
    for (size_t i = 0; i < len;) {
        uint32_t cp, parts[RELAY_MAX_DECOMPOSITION];
        i += relay_utf8_decode(s + i, len - i, &cp);
        uint32_t n = relay_unicode_decompose(cp, compatible, parts);
        for (uint32_t p = 0; p < n; p++) {
            if (relay_unicode_combining_class(parts[p]) == 0) {
                sort_marks(out->v + run, out->n - run, &scratch);
                run = out->n + 1;
            }
            relay_char_changes_add(out, parts[p], p == 0 ? 0 : 1);
        }
    }
    if (run < out->n) sort_marks(out->v + run, out->n - run, &scratch);
    relay_char_changes_fini(&scratch);
}

// In place: what is written never passes what is read.
static void compose(relay_char_changes *c) {
    uint32_t n = 0;                // written
    uint32_t starter = UINT32_MAX; // index of the last starter written, which may still grow
    uint8_t last_class = 0;        // of the last mark written behind it; 0: none
    for (uint32_t i = 0; i < c->n; i++) {
        relay_char_change x = c->v[i];
        uint8_t class = relay_unicode_combining_class(x.code_point);
        bool is_blocked = last_class != 0 && last_class >= class;
        if (starter != UINT32_MAX && !is_blocked) {
            relay_char_change *s = &c->v[starter];
            uint32_t composite = relay_unicode_compose(s->code_point, x.code_point);
            if (composite != 0) {
                s->code_point = composite;
                s->change += x.change - 1;
                continue;
            }
        }
        if (class == 0) {
            starter = n;
            last_class = 0;
        } else if (starter != UINT32_MAX) {
            last_class = class;
        }
        c->v[n++] = x;
    }
    c->n = n;
}

void relay_unicode_form(relay_char_changes *out, const char *s, size_t len, bool compatible, bool compose_too) {
    relay_char_changes_clear(out);
    decompose(out, s, len, compatible);
    if (compose_too) compose(out);
}
