#define _GNU_SOURCE
#include "tokenizer_svc/jinja/text.h"

#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/run.h"
#include "tokenizer_svc/jinja/unicode.h"

// ---- building

void jinja_text_init(jinja_text *t, jinja_run *run) {
    *t = (jinja_text){.run = run};
}

static bool out_of_memory(jinja_text *t) {
    t->is_failed = true;
    return jinja_fail_code(t->run, RELAY_RESOURCE_EXHAUSTED, "needs more than %zu bytes of memory",
                           t->run->limits.max_memory_bytes);
}

static bool reserve(jinja_text *t, size_t more) {
    if (t->is_failed) return false;
    if (t->cap - t->len >= more) return true;
    size_t cap = t->cap < 64 ? 64 : 2 * t->cap;
    if (cap < t->len + more) cap = t->len + more;
    char *s = cap > UINT32_MAX ? NULL : relay_arena_alloc(&t->run->arena, cap);
    uint8_t *from = s == NULL || t->from == NULL ? NULL : relay_arena_alloc(&t->run->arena, cap);
    if (s == NULL || (t->from != NULL && from == NULL)) return out_of_memory(t);
    if (t->len != 0) memcpy(s, t->s, t->len);
    if (from != NULL) memcpy(from, t->from, t->len);
    t->s = s;
    t->from = from;
    t->cap = cap;
    return true;
}

// Origins byte by byte from here on.
static bool make_mixed(jinja_text *t) {
    t->from = relay_arena_alloc(&t->run->arena, t->cap);
    if (t->from == NULL) return out_of_memory(t);
    memset(t->from, jinja_origin_byte(t->origin), t->len);
    return true;
}

void jinja_text_add(jinja_text *t, const char *s, size_t len, uint8_t origin) {
    if (len == 0 || !reserve(t, len)) return;
    if (t->len == 0 && t->from == NULL) t->origin = origin;
    if (t->from == NULL && origin != t->origin && !make_mixed(t)) return;
    memcpy(t->s + t->len, s, len);
    if (t->from != NULL) memset(t->from + t->len, jinja_origin_byte(origin), len);
    t->len += len;
}

void jinja_text_add_part(jinja_text *t, jinja_value str, size_t begin, size_t len) {
    if (str.origin != JINJA_MIXED) {
        jinja_text_add(t, str.s + begin, len, str.origin);
        return;
    }
    if (len == 0 || !reserve(t, len) || (t->from == NULL && !make_mixed(t))) return;
    memcpy(t->s + t->len, str.s + begin, len);
    memcpy(t->from + t->len, str.from + begin, len);
    t->len += len;
}

void jinja_text_add_value(jinja_text *t, jinja_value str) {
    jinja_text_add_part(t, str, 0, str.len);
}

void jinja_text_add_char(jinja_text *t, uint32_t code_point, uint8_t origin) {
    char bytes[4];
    jinja_text_add(t, bytes, relay_utf8_encode(code_point, bytes), origin);
}

// The first n of `len` bytes are set: the rest repeats them.
static void repeat(void *bytes, size_t n, size_t len) {
    while (n < len) {
        size_t more = n < len - n ? n : len - n;
        memcpy((char *)bytes + n, bytes, more);
        n += more;
    }
}

void jinja_text_fill(jinja_text *t, jinja_value fill, size_t times) {
    size_t begin = t->len, total;
    if (fill.len == 0 || times == 0) return;
    if (__builtin_mul_overflow(fill.len, times, &total) || total > t->run->limits.max_memory_bytes) {
        out_of_memory(t);
        return;
    }
    if (!reserve(t, total)) return;
    jinja_text_add_value(t, fill);
    if (t->is_failed) return;
    repeat(t->s + begin, fill.len, total);
    if (t->from != NULL) repeat(t->from + begin, fill.len, total);
    t->len = begin + total;
}

bool jinja_text_finish(jinja_text *t, jinja_value *out) {
    if (t->is_failed) return false;
    *out = jinja_str(t->s != NULL ? t->s : "", t->len, t->from != NULL ? JINJA_MIXED : t->origin);
    out->from = t->from;
    return jinja_spend_bytes(t->run, t->len);
}

// ---- parts and sums

jinja_value jinja_str_part(jinja_value str, size_t begin, size_t len) {
    str.s += begin;
    str.len = (uint32_t)len;
    if (str.origin == JINJA_MIXED) str.from += begin;
    return str;
}

static void set_from(uint8_t *from, jinja_value str) {
    if (str.origin == JINJA_MIXED)
        memcpy(from, str.from, str.len);
    else
        memset(from, jinja_origin_byte(str.origin), str.len);
}

// The block that ends where `str` does and has room for `more` bytes.
static jinja_tail *find_tail(jinja_run *run, jinja_value str, size_t more) {
    for (uint32_t i = 0; i < JINJA_TAILS; i++) {
        jinja_tail *tail = &run->tails[i];
        if (tail->s != NULL && str.s >= tail->s && str.s + str.len == tail->s + tail->len &&
            tail->cap - tail->len >= more)
            return tail;
    }
    return NULL;
}

static bool new_tail(jinja_run *run, size_t len, jinja_tail **out) {
    jinja_tail *tail = &run->tails[run->next_tail++ % JINJA_TAILS];
    size_t cap = len + len / 2;
    *tail = (jinja_tail){.s = jinja_alloc(run, cap, 1), .from = jinja_alloc(run, cap, 1), .cap = cap};
    if (tail->s == NULL || tail->from == NULL) {
        *tail = (jinja_tail){0};
        return false;
    }
    *out = tail;
    return true;
}

bool jinja_str_join(jinja_run *run, const jinja_value *strs, uint32_t n, jinja_value *out) {
    size_t total = 0;
    bool same = true;
    for (uint32_t i = 0; i < n; i++) {
        total += strs[i].len;
        same = same && strs[i].origin == strs[0].origin && strs[i].origin != JINJA_MIXED;
    }
    if (total > UINT32_MAX) return jinja_fail_code(run, RELAY_RESOURCE_EXHAUSTED, "makes a string of more than 4 GiB");
    uint8_t origin = same && n > 0 ? strs[0].origin : JINJA_MIXED;
    if (total < JINJA_TAIL_BYTES) {
        char *s = jinja_alloc(run, total, 1);
        uint8_t *from = origin == JINJA_MIXED ? jinja_alloc(run, total, 1) : NULL;
        if (s == NULL || (origin == JINJA_MIXED && from == NULL)) return false;
        size_t len = 0;
        for (uint32_t i = 0; i < n; i++) {
            memcpy(s + len, strs[i].s, strs[i].len);
            if (from != NULL) set_from(from + len, strs[i]);
            len += strs[i].len;
        }
        *out = jinja_str(s, total, origin);
        out->from = from;
        return jinja_spend(run, 1);
    }
    jinja_tail *tail = find_tail(run, strs[0], total - strs[0].len);
    uint32_t first = tail != NULL;
    size_t begin = tail != NULL ? tail->len - strs[0].len : 0;
    if (tail == NULL && !new_tail(run, total, &tail)) return false;
    size_t before = tail->len;
    for (uint32_t i = first; i < n; i++) {
        memcpy(tail->s + tail->len, strs[i].s, strs[i].len);
        set_from(tail->from + tail->len, strs[i]);
        tail->len += strs[i].len;
    }
    *out = jinja_str(tail->s + begin, total, origin);
    out->from = tail->from + begin;
    return jinja_spend_bytes(run, tail->len - before);
}

bool jinja_str_repeat(jinja_run *run, jinja_value str, int64_t times, jinja_value *out) {
    jinja_text t;
    jinja_text_init(&t, run);
    if (times > 0) jinja_text_fill(&t, str, (size_t)times);
    if (!jinja_text_finish(&t, out)) return false;
    out->is_markup = str.is_markup;
    return true;
}

// ---- characters

bool jinja_str_is_ascii(jinja_value str) {
    size_t i = 0;
    for (; i + 8 <= str.len; i += 8) {
        uint64_t word;
        memcpy(&word, str.s + i, 8);
        if ((word & 0x8080808080808080u) != 0) return false;
    }
    for (; i < str.len; i++)
        if ((uint8_t)str.s[i] >= 0x80) return false;
    return true;
}

size_t jinja_str_chars(jinja_value str) {
    size_t n = 0;
    for (size_t i = 0; i < str.len; i++)
        n += ((uint8_t)str.s[i] & 0xC0) != 0x80;
    return n;
}

size_t jinja_str_offset(jinja_value str, size_t index) {
    size_t i = 0;
    for (; i < str.len; i++)
        if (((uint8_t)str.s[i] & 0xC0) != 0x80 && index-- == 0) break;
    return i;
}

bool jinja_str_next(jinja_run *run, jinja_value str, size_t *at, uint32_t *cp) {
    *at += relay_utf8_decode(str.s + *at, str.len - *at, cp);
    return *cp < 0x80 || jinja_spend(run, 1);
}

// ---- searching and cutting

size_t jinja_str_find(jinja_value str, jinja_value needle, size_t begin) {
    if (begin > str.len) return SIZE_MAX;
    const char *p = memmem(str.s + begin, str.len - begin, needle.s, needle.len);
    return p == NULL ? SIZE_MAX : (size_t)(p - str.s);
}

size_t jinja_str_rfind(jinja_value str, jinja_value needle, size_t end) {
    if (needle.len > end) return SIZE_MAX;
    if (needle.len == 0) return end;
    for (size_t limit = end - needle.len + 1; limit > 0;) {
        const char *p = memrchr(str.s, needle.s[0], limit);
        if (p == NULL) return SIZE_MAX;
        if (memcmp(p, needle.s, needle.len) == 0) return (size_t)(p - str.s);
        limit = (size_t)(p - str.s);
    }
    return SIZE_MAX;
}

bool jinja_str_rfind_spending(jinja_run *run, jinja_value str, jinja_value needle, size_t *at) {
    *at = needle.len == 0 ? str.len : SIZE_MAX;
    for (size_t i = needle.len > str.len || needle.len == 0 ? 0 : str.len - needle.len + 1; i-- > 0;) {
        if (str.s[i] != needle.s[0] || str.s[i + needle.len - 1] != needle.s[needle.len - 1]) continue;
        if (!jinja_spend_bytes(run, needle.len)) return false;
        if (memcmp(str.s + i, needle.s, needle.len) != 0) continue;
        *at = i;
        break;
    }
    return true;
}

static bool is_stripped(jinja_value str, size_t begin, size_t len, jinja_value chars) {
    if (chars.kind == JINJA_STR) return memmem(chars.s, chars.len, str.s + begin, len) != NULL;
    uint32_t cp;
    relay_utf8_decode(str.s + begin, len, &cp);
    return jinja_is_space(cp);
}

bool jinja_str_strip_spending(jinja_run *run, jinja_value str, jinja_value chars, int sides, jinja_value *out) {
    // Many characters are looked through for every one of the string's: that is paid for before.
    bool is_costly = chars.kind == JINJA_STR && chars.len >= 8;
    if (is_costly && !jinja_spend_chars(run, (1 + (uint64_t)str.len) * (1 + chars.len / 8))) return false;
    *out = jinja_str_strip(str, chars, sides);
    return is_costly || jinja_spend_chars(run, 1 + str.len - out->len);
}

jinja_value jinja_str_strip(jinja_value str, jinja_value chars, int sides) {
    size_t begin = 0, end = str.len;
    while ((sides & JINJA_STRIP_LEFT) != 0 && begin < end) {
        uint32_t cp;
        size_t n = relay_utf8_decode(str.s + begin, end - begin, &cp);
        if (!is_stripped(str, begin, n, chars)) break;
        begin += n;
    }
    while ((sides & JINJA_STRIP_RIGHT) != 0 && begin < end) {
        size_t last = end - 1;
        while (last > begin && ((uint8_t)str.s[last] & 0xC0) == 0x80)
            last--;
        if (!is_stripped(str, last, end - last, chars)) break;
        end = last;
    }
    return jinja_str_part(str, begin, end - begin);
}

// Python puts the new text before every character and at the end when the old text is empty.
static void replace_nothing(jinja_text *t, jinja_value str, jinja_value new_text, int64_t count) {
    size_t at = 0;
    while (at < str.len && count != 0) {
        jinja_text_add_value(t, new_text);
        count--;
        uint32_t cp;
        size_t n = relay_utf8_decode(str.s + at, str.len - at, &cp);
        jinja_text_add_part(t, str, at, n);
        at += n;
    }
    jinja_text_add_part(t, str, at, str.len - at);
    if (count != 0) jinja_text_add_value(t, new_text);
}

bool jinja_str_replace(jinja_run *run, jinja_value str, jinja_value old, jinja_value new_text, int64_t count,
                       jinja_value *out) {
    if (!jinja_spend_bytes(run, str.len)) return false;
    jinja_text t;
    jinja_text_init(&t, run);
    if (old.len == 0) {
        if (!jinja_spend_chars(run, str.len)) return false;
        replace_nothing(&t, str, new_text, count);
    } else {
        size_t at = 0, hit;
        while (count != 0 && !t.is_failed && (hit = jinja_str_find(str, old, at)) != SIZE_MAX) {
            jinja_text_add_part(&t, str, at, hit - at);
            jinja_text_add_value(&t, new_text);
            at = hit + old.len;
            if (count > 0) count--;
            if (!jinja_spend(run, 1)) return false;
        }
        jinja_text_add_part(&t, str, at, str.len - at);
    }
    if (!jinja_text_finish(&t, out)) return false;
    out->is_markup = str.is_markup;
    return true;
}

// A list of strings that grows.
typedef struct pieces {
    jinja_run *run;
    jinja_value *items;
    uint32_t n, cap;
} pieces;

static bool add_piece(pieces *p, jinja_value piece) {
    if (p->n == p->cap) {
        uint32_t cap = p->cap == 0 ? 8 : 2 * p->cap;
        jinja_value *items = jinja_alloc(p->run, cap, sizeof *items);
        if (items == NULL) return false;
        if (p->n != 0) memcpy(items, p->items, p->n * sizeof *items);
        p->items = items;
        p->cap = cap;
    }
    p->items[p->n++] = piece;
    return jinja_spend(p->run, 1);
}

static bool split_at(pieces *p, jinja_value str, jinja_value separator, int64_t max_split) {
    size_t at = 0, hit;
    while (max_split != 0 && (hit = jinja_str_find(str, separator, at)) != SIZE_MAX) {
        if (!add_piece(p, jinja_str_part(str, at, hit - at))) return false;
        at = hit + separator.len;
        if (max_split > 0) max_split--;
    }
    return add_piece(p, jinja_str_part(str, at, str.len - at));
}

static bool rsplit_at(pieces *p, jinja_value str, jinja_value separator, int64_t max_split) {
    size_t end = str.len, hit;
    while (max_split != 0 && (hit = jinja_str_rfind(str, separator, end)) != SIZE_MAX) {
        if (!add_piece(p, jinja_str_part(str, hit + separator.len, end - hit - separator.len))) return false;
        end = hit;
        if (max_split > 0) max_split--;
    }
    return add_piece(p, jinja_str_part(str, 0, end));
}

static size_t space_length(jinja_value str, size_t at) {
    uint32_t cp;
    size_t n = relay_utf8_decode(str.s + at, str.len - at, &cp);
    return jinja_is_space(cp) ? n : 0;
}

static bool split_words(pieces *p, jinja_value str, int64_t max_split) {
    for (;;) {
        str = jinja_str_strip(str, jinja_none(), JINJA_STRIP_LEFT);
        if (str.len == 0) return true;
        if (max_split == 0) return add_piece(p, str);
        size_t end = 0;
        uint32_t cp;
        while (end < str.len && space_length(str, end) == 0)
            end += relay_utf8_decode(str.s + end, str.len - end, &cp);
        if (!add_piece(p, jinja_str_part(str, 0, end))) return false;
        str = jinja_str_part(str, end, str.len - end);
        if (max_split > 0) max_split--;
    }
}

static bool rsplit_words(pieces *p, jinja_value str, int64_t max_split) {
    for (;;) {
        str = jinja_str_strip(str, jinja_none(), JINJA_STRIP_RIGHT);
        if (str.len == 0) return true;
        if (max_split == 0) return add_piece(p, str);
        size_t begin = str.len;
        while (begin > 0) {
            size_t last = begin - 1;
            while (last > 0 && ((uint8_t)str.s[last] & 0xC0) == 0x80)
                last--;
            if (space_length(str, last) != 0) break;
            begin = last;
        }
        if (!add_piece(p, jinja_str_part(str, begin, str.len - begin))) return false;
        str = jinja_str_part(str, 0, begin);
        if (max_split > 0) max_split--;
    }
}

bool jinja_str_split(jinja_run *run, jinja_value str, jinja_value separator, int64_t max_split, bool from_right,
                     jinja_value *out) {
    pieces p = {.run = run};
    bool is_words = separator.kind != JINJA_STR, ok;
    if (!(is_words ? jinja_spend_chars(run, str.len) : jinja_spend_bytes(run, str.len))) return false;
    if (is_words)
        ok = from_right ? rsplit_words(&p, str, max_split) : split_words(&p, str, max_split);
    else if (separator.len == 0)
        return jinja_fail(run, "empty separator");
    else if (from_right)
        ok = jinja_spend(run, (uint64_t)str.len * separator.len / 64) && rsplit_at(&p, str, separator, max_split);
    else
        ok = split_at(&p, str, separator, max_split);
    if (!ok) return false;
    for (uint32_t i = 0, j = p.n; from_right && i + 1 < j; i++) {
        jinja_value last = p.items[--j];
        p.items[j] = p.items[i];
        p.items[i] = last;
    }
    return jinja_list_wrap(run, JINJA_LIST, p.items, p.n, out);
}

static bool is_line_end(uint32_t cp) {
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

bool jinja_str_splitlines(jinja_run *run, jinja_value str, bool keep_ends, jinja_value *out) {
    pieces p = {.run = run};
    size_t begin = 0, at = 0;
    if (!jinja_spend_chars(run, str.len)) return false;
    while (at < str.len) {
        uint32_t cp;
        size_t n = relay_utf8_decode(str.s + at, str.len - at, &cp);
        if (!is_line_end(cp)) {
            at += n;
            continue;
        }
        size_t end = at;
        at += n;
        if (cp == '\r' && at < str.len && str.s[at] == '\n') at++;
        if (!add_piece(&p, jinja_str_part(str, begin, (keep_ends ? at : end) - begin))) return false;
        begin = at;
    }
    if (begin < str.len && !add_piece(&p, jinja_str_part(str, begin, str.len - begin))) return false;
    return jinja_list_wrap(run, JINJA_LIST, p.items, p.n, out);
}

bool jinja_str_escape(jinja_run *run, jinja_value str, jinja_value *out) {
    *out = str;
    out->is_markup = true;
    if (str.is_markup) return true;
    if (!jinja_spend_chars(run, str.len)) return false;
    jinja_text t;
    jinja_text_init(&t, run);
    size_t done = 0;
    for (size_t i = 0; i < str.len; i++) {
        const char *entity = NULL;
        switch (str.s[i]) {
        case '&':
            entity = "&amp;";
            break;
        case '<':
            entity = "&lt;";
            break;
        case '>':
            entity = "&gt;";
            break;
        case '\'':
            entity = "&#39;";
            break;
        case '"':
            entity = "&#34;";
            break;
        }
        if (entity == NULL) continue;
        jinja_text_add_part(&t, str, done, i - done);
        jinja_text_add(&t, entity, strlen(entity), jinja_origin_at(str, i));
        done = i + 1;
    }
    jinja_text_add_part(&t, str, done, str.len - done);
    if (!jinja_text_finish(&t, out)) return false;
    out->is_markup = true;
    return true;
}
