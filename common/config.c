// Words are read first and say which entries the flags have given; the environment fills in the others. Each kind of
// value has one setter, which leaves the value alone unless the text is right, and one wording of what it wants, which
// errors and --help share.
#include "common/config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/address.h"
#include "common/buf.h"

enum { HELP_COLUMN = 28, HELP_WIDTH = 100, HELP_MAX_BYTES = 1 << 20, NAME_MAX_BYTES = 128 };

static const struct {
    const char *suffix;
    unsigned shift;
} units[] = {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}};

// ---- Values

static bool has_range(const relay_config_entry *entry) {
    return entry->min != 0 || entry->max != 0;
}

static void put_bytes(relay_buf *b, uint64_t v) {
    for (size_t i = 0; i < sizeof units / sizeof *units && v != 0; i++) {
        if (v % (UINT64_C(1) << units[i].shift) != 0) continue;
        relay_buf_printf(b, "%" PRIu64 "%s", v >> units[i].shift, units[i].suffix);
        return;
    }
    relay_buf_printf(b, "%" PRIu64, v);
}

// "an integer from 1 to 64": what a value must be.
static void put_wanted(relay_buf *b, const relay_config_entry *entry) {
    switch (entry->kind) {
    case RELAY_CONFIG_STRING:
        relay_buf_printf(b, "one of %s", entry->choices != NULL ? entry->choices : "");
        return;
    case RELAY_CONFIG_ADDRESS:
        relay_buf_puts(b, "HOST:PORT or [IPV6]:PORT, the port from 0 to 65535");
        if (entry->may_be_empty) relay_buf_puts(b, ", or empty");
        return;
    case RELAY_CONFIG_BOOL:
        relay_buf_puts(b, "true or false");
        return;
    case RELAY_CONFIG_INT:
        relay_buf_puts(b, "an integer");
        if (has_range(entry)) relay_buf_printf(b, " from %.0f to %.0f", entry->min, entry->max);
        return;
    case RELAY_CONFIG_FLOAT:
        relay_buf_puts(b, "a number");
        if (has_range(entry)) relay_buf_printf(b, " from %g to %g", entry->min, entry->max);
        return;
    case RELAY_CONFIG_BYTES:
        relay_buf_puts(b, "a size such as 512MiB");
        if (!has_range(entry)) return;
        relay_buf_puts(b, " from ");
        put_bytes(b, (uint64_t)entry->min);
        relay_buf_puts(b, " to ");
        put_bytes(b, (uint64_t)entry->max);
        return;
    case RELAY_CONFIG_TEXTS:
        relay_buf_printf(b, "given at most %d times", RELAY_CONFIG_MAX_TEXTS);
        return;
    }
}

static bool in_range(const relay_config_entry *entry, double v) {
    return !has_range(entry) || (v >= entry->min && v <= entry->max);
}

static bool set_string(const relay_config_entry *entry, const char *text) {
    size_t len = strlen(text);
    bool is_choice = entry->choices == NULL;
    for (const char *at = entry->choices; at != NULL && !is_choice;) {
        size_t n = strcspn(at, "|");
        is_choice = n == len && memcmp(at, text, len) == 0;
        at = at[n] == '|' ? at + n + 1 : NULL;
    }
    if (is_choice) *(const char **)entry->value = text;
    return is_choice;
}

static bool set_address(const relay_config_entry *entry, const char *text) {
    relay_address a;
    if (!relay_address_read(&a, text) && !(entry->may_be_empty && text[0] == '\0')) return false;
    *(const char **)entry->value = text;
    return true;
}

static bool set_bool(const relay_config_entry *entry, const char *text) {
    bool is_true = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
    if (!is_true && strcmp(text, "false") != 0 && strcmp(text, "0") != 0) return false;
    *(bool *)entry->value = is_true;
    return true;
}

static bool set_int(const relay_config_entry *entry, const char *text) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != 0 || errno != 0 || isspace((unsigned char)*text) || !in_range(entry, (double)v))
        return false;
    *(int64_t *)entry->value = v;
    return true;
}

static bool set_float(const relay_config_entry *entry, const char *text) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != 0 || isspace((unsigned char)*text) || !isfinite(v) || !in_range(entry, v)) return false;
    *(double *)entry->value = v;
    return true;
}

static bool set_texts(const relay_config_entry *entry, const char *text) {
    relay_config_texts *list = entry->value;
    if (list->n == RELAY_CONFIG_MAX_TEXTS) return false;
    list->texts[list->n++] = text;
    return true;
}

static bool set_bytes(const relay_config_entry *entry, const char *text) {
    if (!isdigit((unsigned char)*text)) return false;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno != 0) return false;
    uint64_t unit = 1;
    for (size_t i = 0; i < sizeof units / sizeof *units && *end != 0; i++) {
        if (strcmp(end, units[i].suffix) != 0) continue;
        unit = UINT64_C(1) << units[i].shift;
        end += strlen(end);
    }
    uint64_t v;
    if (*end != 0 || __builtin_mul_overflow(n, unit, &v) || !in_range(entry, (double)v)) return false;
    *(uint64_t *)entry->value = v;
    return true;
}

relay_code relay_config_set(const relay_config_entry *entry, const char *source, const char *text, relay_err *e) {
    static bool (*const setters[])(const relay_config_entry *, const char *) = {
        [RELAY_CONFIG_STRING] = set_string, [RELAY_CONFIG_ADDRESS] = set_address, [RELAY_CONFIG_BOOL] = set_bool,
        [RELAY_CONFIG_INT] = set_int,       [RELAY_CONFIG_FLOAT] = set_float,     [RELAY_CONFIG_BYTES] = set_bytes,
        [RELAY_CONFIG_TEXTS] = set_texts,
    };
    if (setters[entry->kind](entry, text)) {
        if (entry->was_set != NULL) *entry->was_set = true;
        return RELAY_OK;
    }
    relay_buf wanted;
    relay_buf_init(&wanted, RELAY_ERR_MESSAGE_MAX);
    put_wanted(&wanted, entry);
    relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is \"%.100s\"; it must be %s", source, text, wanted.data);
    relay_buf_fini(&wanted);
    return RELAY_INVALID_ARGUMENT;
}

// ---- Help

static void env_name(const relay_config *c, const relay_config_entry *entry, char name[NAME_MAX_BYTES]) {
    snprintf(name, NAME_MAX_BYTES, "%s_%s", c->env_prefix, entry->name);
    for (char *p = name + strlen(c->env_prefix); *p != 0; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

static void put_default(relay_buf *b, const relay_config_entry *entry) {
    switch (entry->kind) {
    case RELAY_CONFIG_STRING:
    case RELAY_CONFIG_ADDRESS: {
        const char *s = *(const char **)entry->value;
        relay_buf_puts(b, s != NULL && *s != 0 ? s : "none");
        return;
    }
    case RELAY_CONFIG_BOOL:
        relay_buf_puts(b, *(bool *)entry->value ? "true" : "false");
        return;
    case RELAY_CONFIG_INT:
        relay_buf_printf(b, "%" PRId64, *(int64_t *)entry->value);
        return;
    case RELAY_CONFIG_FLOAT:
        relay_buf_printf(b, "%g", *(double *)entry->value);
        return;
    case RELAY_CONFIG_TEXTS:
        relay_buf_puts(b, "none");
        return;
    case RELAY_CONFIG_BYTES:
        put_bytes(b, *(uint64_t *)entry->value);
        return;
    }
}

// Words of `text` from `column` on, broken before HELP_WIDTH and indented by `indent`.
static void put_wrapped(relay_buf *b, const char *text, size_t column, size_t indent) {
    bool at_start = true;
    while (*text != 0) {
        size_t n = strcspn(text, " ");
        if (!at_start && column + 1 + n > HELP_WIDTH) {
            relay_buf_printf(b, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!at_start) {
            relay_buf_putc(b, ' ');
            column++;
        }
        relay_buf_append(b, text, n);
        column += n;
        at_start = false;
        text += n;
        text += strspn(text, " ");
    }
    relay_buf_putc(b, '\n');
}

static void put_entry_help(relay_buf *b, const relay_config *c, const relay_config_entry *entry) {
    size_t start = b->len;
    relay_buf_printf(b, "  --%s%s%s", entry->name, entry->metavar != NULL ? " " : "",
                     entry->metavar != NULL ? entry->metavar : "");
    size_t column = b->len - start;
    if (column + 2 > HELP_COLUMN) {
        relay_buf_putc(b, '\n');
        column = 0;
    }
    relay_buf_printf(b, "%*s", (int)(HELP_COLUMN - column), "");

    relay_buf text;
    relay_buf_init(&text, HELP_MAX_BYTES);
    relay_buf_puts(&text, entry->help);
    const char *separator = " (";
    if (entry->choices != NULL || has_range(entry)) {
        relay_buf_puts(&text, separator);
        put_wanted(&text, entry);
        separator = "; ";
    }
    if (!entry->has_no_default) {
        relay_buf_printf(&text, "%sdefault: ", separator);
        put_default(&text, entry);
        separator = "; ";
    }
    if (c->env_prefix != NULL) {
        char name[NAME_MAX_BYTES];
        env_name(c, entry, name);
        relay_buf_printf(&text, "%s%s", separator, name);
        separator = "; ";
    }
    if (separator[0] == ';') relay_buf_putc(&text, ')');
    put_wrapped(b, text.data, HELP_COLUMN, HELP_COLUMN);
    relay_buf_fini(&text);
}

static void print_help(const relay_config *c) {
    relay_buf b;
    relay_buf_init(&b, HELP_MAX_BYTES);
    relay_buf_printf(&b, "usage: %s %s\n\n", c->program, c->usage);
    put_wrapped(&b, c->summary, 0, 0);
    relay_buf_puts(&b, "\nflags:\n");
    for (uint32_t i = 0; i < c->n_entries; i++)
        put_entry_help(&b, c, &c->entries[i]);
    relay_buf_printf(&b, "%-*sShows this.\n", HELP_COLUMN, "  --help");
    fwrite(b.data, 1, b.len, stdout);
    fflush(stdout);
    relay_buf_fini(&b);
}

// ---- Flags

static const relay_config_entry *find_entry(const relay_config *c, const char *name, size_t len) {
    for (uint32_t i = 0; i < c->n_entries; i++)
        if (strlen(c->entries[i].name) == len && memcmp(c->entries[i].name, name, len) == 0) return &c->entries[i];
    return NULL;
}

// argv[*i] is "--...": takes it, and the word behind it where that is its value.
static relay_code read_flag(const relay_config *c, int argc, char **argv, int *i, bool *from_flag, relay_err *e) {
    const char *name = argv[*i] + 2;
    size_t len = strcspn(name, "=");
    const char *text = name[len] == '=' ? name + len + 1 : NULL;
    const relay_config_entry *entry = find_entry(c, name, len);
    if (entry == NULL && text == NULL && strncmp(name, "no-", 3) == 0) {
        entry = find_entry(c, name + 3, len - 3);
        if (entry != NULL && entry->kind != RELAY_CONFIG_BOOL) entry = NULL;
        text = "false";
    }
    if (entry == NULL)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "unknown flag --%.*s (%s --help lists them)",
                          (int)(len < 100 ? len : 100), name, c->program);
    char source[NAME_MAX_BYTES];
    snprintf(source, sizeof source, "--%s", entry->name);
    if (text == NULL && entry->kind == RELAY_CONFIG_BOOL) text = "true";
    if (text == NULL) {
        if (*i + 1 == argc || strncmp(argv[*i + 1], "--", 2) == 0)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s needs a value (%s)", source, entry->metavar);
        text = argv[++*i];
    }
    from_flag[entry - c->entries] = true;
    return relay_config_set(entry, source, text, e);
}

static relay_code read_words(const relay_config *c, int argc, char **argv, const char **positional, int *n_positional,
                             bool *from_flag, relay_err *e) {
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        relay_code code = RELAY_OK;
        if (!only_words && strcmp(word, "--") == 0) {
            only_words = true;
        } else if (!only_words && strncmp(word, "--", 2) == 0) {
            code = read_flag(c, argc, argv, &i, from_flag, e);
        } else if (!only_words && word[0] == '-' && word[1] != 0) {
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "unknown flag %.100s (flags begin with two dashes)", word);
        } else if (positional == NULL) {
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "unexpected argument \"%.100s\"", word);
        } else {
            positional[(*n_positional)++] = word;
        }
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

static relay_code read_environment(const relay_config *c, const bool *from_flag, relay_err *e) {
    for (uint32_t i = 0; i < c->n_entries && c->env_prefix != NULL; i++) {
        char name[NAME_MAX_BYTES];
        env_name(c, &c->entries[i], name);
        const char *text = getenv(name);
        if (from_flag[i] || text == NULL || *text == 0) continue;
        relay_code code = relay_config_set(&c->entries[i], name, text, e);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

// Looked for before anything is read, so that the help shows defaults whatever else is said.
static bool asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

relay_code relay_config_parse(const relay_config *c, int argc, char **argv, const char **positional, int *n_positional,
                              bool *help_shown, relay_err *e) {
    *help_shown = asks_for_help(argc, argv);
    if (*help_shown) {
        print_help(c);
        return RELAY_OK;
    }
    bool *from_flag = relay_calloc(c->n_entries, sizeof *from_flag);
    if (n_positional != NULL) *n_positional = 0;
    relay_code code = read_words(c, argc, argv, positional, n_positional, from_flag, e);
    if (code == RELAY_OK) code = read_environment(c, from_flag, e);
    free(from_flag);
    return code;
}
