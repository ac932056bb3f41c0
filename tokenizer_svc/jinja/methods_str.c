// Methods of strings.
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"
#include "tokenizer_svc/jinja/unicode.h"

// What another string is that becomes part of a string. Markup takes anything, and escapes it.
static bool other_text(jinja_run *run, jinja_value self, jinja_value v, const char *what, jinja_value *out) {
    if (!self.is_markup) return jinja_arg_str(run, v, what, out);
    return jinja_to_str(run, v, out) && jinja_str_escape(run, *out, out);
}

// ---- case

#define CASE_METHOD(function, to)                                                                                      \
    static bool function(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {                 \
        return jinja_only_positions(run, args, #function, 0, 0) && jinja_str_case(run, self, to, out);                 \
    }
CASE_METHOD(upper, JINJA_UPPER)
CASE_METHOD(lower, JINJA_LOWER)
CASE_METHOD(capitalize, JINJA_CAPITALIZE)
CASE_METHOD(title, JINJA_TITLE)
CASE_METHOD(swapcase, JINJA_SWAPCASE)
CASE_METHOD(casefold, JINJA_CASEFOLD)

// ---- white space and affixes

static bool strip_sides(jinja_run *run, jinja_value self, const jinja_args *args, int sides, jinja_value *out) {
    jinja_value chars = jinja_none();
    if (!jinja_only_positions(run, args, "strip", 0, 1)) return false;
    if (args->n_pos > 0 && args->pos[0].kind != JINJA_NONE && !jinja_arg_str(run, args->pos[0], "strip", &chars))
        return false;
    return jinja_str_strip_spending(run, self, chars, sides, out);
}

static bool strip(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return strip_sides(run, self, args, JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT, out);
}

static bool lstrip(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return strip_sides(run, self, args, JINJA_STRIP_LEFT, out);
}

static bool rstrip(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return strip_sides(run, self, args, JINJA_STRIP_RIGHT, out);
}

static bool has_affix(jinja_value str, jinja_value affix, bool at_end) {
    if (affix.len > str.len) return false;
    return memcmp(at_end ? str.s + str.len - affix.len : str.s, affix.s, affix.len) == 0;
}

static bool remove_affix(jinja_run *run, jinja_value self, const jinja_args *args, bool at_end, jinja_value *out) {
    jinja_value affix;
    if (!jinja_only_positions(run, args, at_end ? "removesuffix" : "removeprefix", 1, 1) ||
        !jinja_arg_str(run, args->pos[0], "removeprefix, removesuffix", &affix))
        return false;
    *out = self;
    if (!jinja_spend_bytes(run, affix.len)) return false;
    if (affix.len > 0 && has_affix(self, affix, at_end))
        *out = jinja_str_part(self, at_end ? 0 : affix.len, self.len - affix.len);
    return true;
}

static bool removeprefix(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return remove_affix(run, self, args, false, out);
}

static bool removesuffix(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return remove_affix(run, self, args, true, out);
}

// ---- searching

// The part of the string between the character positions that find() and others take as 2nd and 3rd argument; *begin is
// its first character's number. False as a result (*is_empty): the range is empty before its beginning.
static bool search_range(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *part, int64_t *begin,
                         bool *is_outside) {
    if (!jinja_spend_bytes(run, self.len)) return false;
    int64_t n = (int64_t)jinja_str_chars(self), end = n;
    *begin = 0;
    if (args->n_pos > 1 && !jinja_arg_int_or_none(run, args->pos[1], "start", 0, begin)) return false;
    if (args->n_pos > 2 && !jinja_arg_int_or_none(run, args->pos[2], "end", n, &end)) return false;
    if (*begin < 0) *begin = *begin + n < 0 ? 0 : *begin + n;
    if (end < 0) end = end + n < 0 ? 0 : end + n;
    if (end > n) end = n;
    *is_outside = *begin > end;
    if (*is_outside) {
        *part = jinja_str_part(self, 0, 0);
        return true;
    }
    size_t first = jinja_str_offset(self, (size_t)*begin);
    jinja_value rest = jinja_str_part(self, first, self.len - first);
    *part = jinja_str_part(rest, 0, jinja_str_offset(rest, (size_t)(end - *begin)));
    return true;
}

static bool starts_or_ends(jinja_run *run, jinja_value self, const jinja_args *args, bool at_end, jinja_value *out) {
    const char *what = at_end ? "endswith" : "startswith";
    jinja_value part, affix;
    int64_t begin;
    bool is_outside, matches = false;
    if (!jinja_only_positions(run, args, what, 1, 3)) return false;
    if (args->n_pos == 1) {
        part = self;
        is_outside = false;
    } else if (!search_range(run, self, args, &part, &begin, &is_outside)) {
        return false;
    }
    if (args->pos[0].kind == JINJA_TUPLE) {
        const jinja_list *all = args->pos[0].list;
        for (uint32_t i = 0; i < all->n && !matches; i++) {
            if (!jinja_arg_str(run, all->items[i], what, &affix) || !jinja_spend_bytes(run, affix.len)) return false;
            matches = !is_outside && has_affix(part, affix, at_end);
        }
    } else {
        if (!jinja_arg_str(run, args->pos[0], what, &affix)) return false;
        if (!jinja_spend_bytes(run, affix.len)) return false;
        matches = !is_outside && has_affix(part, affix, at_end);
    }
    *out = jinja_bool(matches);
    return true;
}

static bool startswith(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return starts_or_ends(run, self, args, false, out);
}

static bool endswith(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return starts_or_ends(run, self, args, true, out);
}

static bool find_text(jinja_run *run, jinja_value self, const jinja_args *args, bool from_right, bool must_find,
                      jinja_value *out) {
    jinja_value part, needle;
    int64_t begin;
    bool is_outside;
    if (!jinja_only_positions(run, args, "find", 1, 3) || !jinja_arg_str(run, args->pos[0], "find", &needle) ||
        !search_range(run, self, args, &part, &begin, &is_outside))
        return false;
    if (from_right && !jinja_spend(run, (uint64_t)part.len * needle.len / 64)) return false;
    size_t at = is_outside   ? SIZE_MAX
                : from_right ? jinja_str_rfind(part, needle, part.len)
                             : jinja_str_find(part, needle, 0);
    if (at == SIZE_MAX && must_find) return jinja_fail(run, "substring not found");
    *out = jinja_int(at == SIZE_MAX ? -1 : begin + (int64_t)jinja_str_chars(jinja_str_part(part, 0, at)));
    return true;
}

static bool find(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return find_text(run, self, args, false, false, out);
}

static bool rfind(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return find_text(run, self, args, true, false, out);
}

static bool index_of(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return find_text(run, self, args, false, true, out);
}

static bool rindex_of(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return find_text(run, self, args, true, true, out);
}

static bool count(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value part, needle;
    int64_t begin, n = 0;
    bool is_outside;
    if (!jinja_only_positions(run, args, "count", 1, 3) || !jinja_arg_str(run, args->pos[0], "count", &needle) ||
        !search_range(run, self, args, &part, &begin, &is_outside))
        return false;
    if (needle.len == 0) {
        n = is_outside ? 0 : (int64_t)jinja_str_chars(part) + 1;
    } else {
        for (size_t at = 0; (at = jinja_str_find(part, needle, at)) != SIZE_MAX; at += needle.len) {
            if (!jinja_spend(run, 1)) return false;
            n++;
        }
    }
    *out = jinja_int(n);
    return true;
}

// ---- cutting and joining

static bool split_from(jinja_run *run, jinja_value self, const jinja_args *args, bool from_right, jinja_value *out) {
    static const char *const names[] = {"sep", "maxsplit"};
    jinja_value a[2];
    int64_t most;
    if (!jinja_bind(run, args, "split()", names, 2, 0, a) || !jinja_arg_int(run, a[1], "split", -1, &most) ||
        (jinja_arg_is_given(a[0]) && !jinja_arg_str(run, a[0], "split", &a[0])))
        return false;
    return jinja_str_split(run, self, a[0], most, from_right, out);
}

static bool split(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return split_from(run, self, args, false, out);
}

static bool rsplit(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return split_from(run, self, args, true, out);
}

static bool splitlines(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"keepends"};
    jinja_value keep;
    return jinja_bind(run, args, "splitlines()", names, 1, 0, &keep) &&
           jinja_str_splitlines(run, self, jinja_is_true(keep), out);
}

static bool partition_at(jinja_run *run, jinja_value self, const jinja_args *args, bool from_right, jinja_value *out) {
    jinja_value separator;
    if (!jinja_only_positions(run, args, "partition", 1, 1) ||
        !jinja_arg_str(run, args->pos[0], "partition", &separator) ||
        !jinja_spend_bytes(run, (uint64_t)self.len * (from_right ? separator.len : 1)))
        return false;
    if (separator.len == 0) return jinja_fail(run, "empty separator");
    size_t at = from_right ? jinja_str_rfind(self, separator, self.len) : jinja_str_find(self, separator, 0);
    if (!jinja_list_make(run, JINJA_TUPLE, 3, out)) return false;
    jinja_value *parts = out->list->items;
    if (at == SIZE_MAX) {
        parts[0] = parts[1] = parts[2] = jinja_str_part(self, 0, 0);
        parts[from_right ? 2 : 0] = self;
        return true;
    }
    parts[0] = jinja_str_part(self, 0, at);
    parts[1] = jinja_str_part(self, at, separator.len);
    parts[2] = jinja_str_part(self, at + separator.len, self.len - at - separator.len);
    return true;
}

static bool partition(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return partition_at(run, self, args, false, out);
}

static bool rpartition(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return partition_at(run, self, args, true, out);
}

static bool replace(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value old, new_text;
    int64_t most = -1;
    if (!jinja_only_positions(run, args, "replace", 2, 3) || !jinja_arg_str(run, args->pos[0], "replace", &old) ||
        !other_text(run, self, args->pos[1], "replace", &new_text) ||
        (args->n_pos > 2 && !jinja_arg_int(run, args->pos[2], "replace", -1, &most)))
        return false;
    return jinja_str_replace(run, self, old, new_text, most, out);
}

static bool join(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_iter it;
    jinja_value item, str;
    jinja_text t;
    jinja_text_init(&t, run);
    if (!jinja_only_positions(run, args, "join", 1, 1) || !jinja_iter_begin(run, args->pos[0], &it)) return false;
    for (uint32_t i = 0; jinja_iter_next(&it, &item); i++) {
        if (item.kind != JINJA_STR && !self.is_markup)
            return jinja_fail(run, "sequence item %u: expected str instance, %s found", i, jinja_type_name(item));
        if (i > 0) jinja_text_add_value(&t, self);
        if (!other_text(run, self, item, "join", &str)) return false;
        jinja_text_add_value(&t, str);
    }
    if (run->has_failed || !jinja_text_finish(&t, out)) return false;
    out->is_markup = self.is_markup;
    return true;
}

// ---- filling up

// `left` and `right` fills around the string.
static bool pad(jinja_run *run, jinja_value self, jinja_value fill, int64_t left, int64_t right, jinja_value *out) {
    jinja_text t;
    jinja_text_init(&t, run);
    jinja_text_fill(&t, fill, left > 0 ? (size_t)left : 0);
    jinja_text_add_value(&t, self);
    jinja_text_fill(&t, fill, right > 0 ? (size_t)right : 0);
    if (!jinja_text_finish(&t, out)) return false;
    out->is_markup = self.is_markup;
    return true;
}

static bool pad_args(jinja_run *run, jinja_value self, const jinja_args *args, const char *what, jinja_value *fill,
                     int64_t *missing, int64_t *width) {
    *fill = JINJA_LITERAL(" ");
    if (!jinja_only_positions(run, args, what, 1, 2) || !jinja_arg_int(run, args->pos[0], what, 0, width) ||
        (args->n_pos > 1 && !other_text(run, self, args->pos[1], what, fill)) || !jinja_spend_bytes(run, self.len))
        return false;
    if (jinja_str_chars(*fill) != 1) return jinja_fail(run, "The fill character must be exactly one character long");
    int64_t n = (int64_t)jinja_str_chars(self);
    *missing = *width > n ? *width - n : 0;
    return true;
}

static bool ljust(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value fill;
    int64_t missing, width;
    return pad_args(run, self, args, "ljust", &fill, &missing, &width) && pad(run, self, fill, 0, missing, out);
}

static bool rjust(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value fill;
    int64_t missing, width;
    return pad_args(run, self, args, "rjust", &fill, &missing, &width) && pad(run, self, fill, missing, 0, out);
}

// The odd one goes left where the width is odd too.
static bool center(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value fill;
    int64_t missing, width;
    if (!pad_args(run, self, args, "center", &fill, &missing, &width)) return false;
    int64_t left = missing / 2 + (missing & width & 1);
    return pad(run, self, fill, left, missing - left, out);
}

static bool zfill(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    int64_t width;
    if (!jinja_only_positions(run, args, "zfill", 1, 1) || !jinja_arg_int(run, args->pos[0], "zfill", 0, &width) ||
        !jinja_spend_bytes(run, self.len))
        return false;
    int64_t missing = width - (int64_t)jinja_str_chars(self);
    size_t sign = self.len > 0 && (self.s[0] == '+' || self.s[0] == '-');
    jinja_text t;
    jinja_text_init(&t, run);
    jinja_text_add_part(&t, self, 0, sign);
    jinja_text_fill(&t, JINJA_LITERAL("0"), missing > 0 ? (size_t)missing : 0);
    jinja_text_add_part(&t, self, sign, self.len - sign);
    if (!jinja_text_finish(&t, out)) return false;
    out->is_markup = self.is_markup;
    return true;
}

static bool expandtabs(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"tabsize"};
    jinja_value size_value;
    int64_t size, column = 0;
    jinja_text t;
    jinja_text_init(&t, run);
    if (!jinja_bind(run, args, "expandtabs()", names, 1, 0, &size_value) ||
        !jinja_arg_int(run, size_value, "expandtabs", 8, &size))
        return false;
    if (!jinja_spend_chars(run, self.len)) return false;
    for (size_t i = 0; i < self.len && !t.is_failed;) {
        uint32_t cp;
        size_t n = relay_utf8_decode(self.s + i, self.len - i, &cp);
        if (cp == '\t') {
            int64_t blanks = size > 0 ? size - column % size : 0;
            jinja_text_fill(&t, jinja_str(" ", 1, jinja_origin_at(self, i)), (size_t)blanks);
            column += blanks;
        } else {
            jinja_text_add_part(&t, self, i, n);
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        }
        i += n;
    }
    if (!jinja_text_finish(&t, out)) return false;
    out->is_markup = self.is_markup;
    return true;
}

// ---- formatting

static bool format(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return jinja_format_braces(run, self, args, out);
}

static bool format_map(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    if (!jinja_only_positions(run, args, "format_map", 1, 1)) return false;
    if (args->pos[0].kind != JINJA_DICT)
        return jinja_fail(run, "format_map() argument must be a mapping, not %s", jinja_type_name(args->pos[0]));
    const jinja_dict *d = args->pos[0].dict;
    for (uint32_t i = 0; i < d->n; i++)
        if (d->pairs[i].key.kind != JINJA_STR) return jinja_fail(run, "format_map() keys must be str");
    jinja_args named = {.named = d->pairs, .n_named = d->n};
    return jinja_format_braces(run, self, &named, out);
}

const jinja_builtin jinja_str_methods[] = {
    {"capitalize", capitalize},
    {"casefold", casefold},
    {"center", center},
    {"count", count},
    {"endswith", endswith},
    {"expandtabs", expandtabs},
    {"find", find},
    {"format", format},
    {"format_map", format_map},
    {"index", index_of},
    {"join", join},
    {"ljust", ljust},
    {"lower", lower},
    {"lstrip", lstrip},
    {"partition", partition},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"replace", replace},
    {"rfind", rfind},
    {"rindex", rindex_of},
    {"rjust", rjust},
    {"rpartition", rpartition},
    {"rsplit", rsplit},
    {"rstrip", rstrip},
    {"split", split},
    {"splitlines", splitlines},
    {"startswith", startswith},
    {"strip", strip},
    {"swapcase", swapcase},
    {"title", title},
    {"upper", upper},
    {"zfill", zfill},
    {NULL, NULL},
};
