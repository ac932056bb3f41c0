// Field numbers are those of google/protobuf/descriptor.proto.
#include "common/descriptor_set.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/pb_wire.h"
#include "proto/descriptors.h"

enum { SET_FILE = 1 };
enum {
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_IMPORT = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    FILE_EXTENSION = 7
};
enum { MESSAGE_FIELD = 2, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4, MESSAGE_EXTENSION = 6, MESSAGE_ONEOF = 8 };
enum { ENUM_VALUE = 2, SERVICE_METHOD = 2, FIELD_TYPE = 5, TYPE_STRING = 9 };
// Of every declaration but files.
enum { DECLARATION_NAME = 1 };

enum { NESTING_MAX = 32 };
#define NAMES_MAX ((size_t)4 << 20) // bytes of all full names

struct relay_descriptor_set {
    relay_arena names; // and imports
    relay_descriptor_file *files;
    uint32_t n_files;
    relay_symbol *symbols; // sorted by name
    size_t n_symbols, symbols_cap;
};

// A piece of the input.
typedef struct text {
    const char *s;
    size_t len;
} text;

static text text_of(const relay_pb_field *f) {
    return (text){(const char *)f->data, f->size};
}

// The first length-delimited field `number`; empty if there is none.
static text find_text(relay_pb_reader r, uint32_t number) {
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.number == number && f.is_bytes) return text_of(&f);
    }
    return (text){"", 0};
}

// ---- Symbols

// Adds `scope`.`name` and gives the full name; NULL when names run out of room.
static const char *add_symbol(relay_descriptor_set *d, const char *scope, text name, relay_symbol_kind kind) {
    size_t scope_len = strlen(scope);
    char *full = relay_arena_alloc(&d->names, scope_len + name.len + 2);
    if (full == NULL) return NULL;
    if (scope_len != 0) {
        memcpy(full, scope, scope_len);
        full[scope_len++] = '.';
    }
    memcpy(full + scope_len, name.s, name.len);
    if (d->n_symbols == d->symbols_cap) {
        d->symbols_cap = d->symbols_cap == 0 ? 256 : 2 * d->symbols_cap;
        d->symbols = relay_realloc(d->symbols, d->symbols_cap * sizeof *d->symbols);
    }
    d->symbols[d->n_symbols++] = (relay_symbol){.name = full, .kind = kind, .file = d->n_files - 1};
    return full;
}

static bool add_enum(relay_descriptor_set *d, const char *scope, const relay_pb_field *declaration) {
    relay_pb_reader r = relay_pb_read(declaration->data, declaration->size);
    if (add_symbol(d, scope, find_text(r, DECLARATION_NAME), RELAY_SYMBOL_ENUM) == NULL) return false;
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.number != ENUM_VALUE || !f.is_bytes) continue;
        // Values are names beside their enum, not inside it.
        text name = find_text(relay_pb_read(f.data, f.size), DECLARATION_NAME);
        if (add_symbol(d, scope, name, RELAY_SYMBOL_ENUM_VALUE) == NULL) return false;
    }
    return !r.is_failed;
}

static bool add_field(relay_descriptor_set *d, const char *scope, const relay_pb_field *declaration) {
    relay_pb_reader r = relay_pb_read(declaration->data, declaration->size);
    text name = find_text(r, DECLARATION_NAME);
    relay_symbol_kind kind = RELAY_SYMBOL_FIELD;
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.number == FIELD_TYPE && f.value == TYPE_STRING) kind = RELAY_SYMBOL_TEXT_FIELD;
    }
    return !r.is_failed && add_symbol(d, scope, name, kind) != NULL;
}

static bool add_message(relay_descriptor_set *d, const char *scope, const relay_pb_field *declaration, unsigned depth) {
    if (depth == NESTING_MAX) return false;
    relay_pb_reader r = relay_pb_read(declaration->data, declaration->size);
    const char *name = add_symbol(d, scope, find_text(r, DECLARATION_NAME), RELAY_SYMBOL_MESSAGE);
    relay_pb_field f;
    bool ok = name != NULL;
    while (ok && relay_pb_next(&r, &f)) {
        if (!f.is_bytes) continue;
        switch (f.number) {
        case MESSAGE_FIELD:
        case MESSAGE_EXTENSION:
            ok = add_field(d, name, &f);
            break;
        case MESSAGE_NESTED:
            ok = add_message(d, name, &f, depth + 1);
            break;
        case MESSAGE_ENUM:
            ok = add_enum(d, name, &f);
            break;
        case MESSAGE_ONEOF:
            ok = add_symbol(d, name, find_text(relay_pb_read(f.data, f.size), DECLARATION_NAME), RELAY_SYMBOL_ONEOF) !=
                 NULL;
            break;
        default:
            break;
        }
    }
    return ok && !r.is_failed;
}

static bool add_service(relay_descriptor_set *d, const char *scope, const relay_pb_field *declaration) {
    relay_pb_reader r = relay_pb_read(declaration->data, declaration->size);
    const char *name = add_symbol(d, scope, find_text(r, DECLARATION_NAME), RELAY_SYMBOL_SERVICE);
    if (name == NULL) return false;
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.number != SERVICE_METHOD || !f.is_bytes) continue;
        text method = find_text(relay_pb_read(f.data, f.size), DECLARATION_NAME);
        if (add_symbol(d, name, method, RELAY_SYMBOL_METHOD) == NULL) return false;
    }
    return !r.is_failed;
}

static int compare_symbols(const void *a, const void *b) {
    return strcmp(((const relay_symbol *)a)->name, ((const relay_symbol *)b)->name);
}

// ---- Files

static bool add_file(relay_descriptor_set *d, const relay_pb_field *declaration) {
    d->files = relay_realloc(d->files, (d->n_files + 1) * sizeof *d->files);
    relay_descriptor_file *file = &d->files[d->n_files++];
    *file = (relay_descriptor_file){.data = declaration->data, .size = declaration->size};
    relay_pb_reader r = relay_pb_read(declaration->data, declaration->size);
    text name = find_text(r, FILE_NAME), package = find_text(r, FILE_PACKAGE);
    const char *scope = relay_arena_copy(&d->names, package.s, package.len);
    file->name = relay_arena_copy(&d->names, name.s, name.len);
    bool ok = scope != NULL && file->name != NULL;
    relay_pb_field f;
    while (ok && relay_pb_next(&r, &f)) {
        if (!f.is_bytes) continue;
        switch (f.number) {
        case FILE_IMPORT:
            file->n_imports++;
            break;
        case FILE_MESSAGE:
            ok = add_message(d, scope, &f, 0);
            break;
        case FILE_ENUM:
            ok = add_enum(d, scope, &f);
            break;
        case FILE_SERVICE:
            ok = add_service(d, scope, &f);
            break;
        case FILE_EXTENSION:
            ok = add_field(d, scope, &f);
            break;
        default:
            break;
        }
    }
    return ok && !r.is_failed;
}

static relay_code resolve_imports(relay_descriptor_set *d, relay_descriptor_file *file, relay_err *e) {
    uint32_t *imports = relay_arena_alloc(&d->names, file->n_imports * sizeof *imports);
    if (imports == NULL) return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: too many imports", file->name);
    file->imports = imports;
    relay_pb_reader r = relay_pb_read(file->data, file->size);
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.number != FILE_IMPORT || !f.is_bytes) continue;
        text name = text_of(&f);
        if (!relay_descriptor_set_find_file(d, name.s, name.len, imports++)) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: the import \"%.*s\" is not in the set", file->name,
                              (int)name.len, name.s);
        }
    }
    return RELAY_OK;
}

relay_code relay_descriptor_set_parse(relay_descriptor_set **out, const uint8_t *data, size_t size, relay_err *e) {
    *out = NULL;
    relay_code code = RELAY_OK;
    relay_descriptor_set *d = relay_calloc(1, sizeof *d);
    relay_arena_init(&d->names, NAMES_MAX);
    relay_pb_reader r = relay_pb_read(data, size);
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.number != SET_FILE || !f.is_bytes) continue;
        if (!add_file(d, &f)) {
            const char *name = d->files[d->n_files - 1].name;
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "file %u (\"%s\") is malformed or too large", d->n_files - 1,
                              name != NULL ? name : "");
            goto done;
        }
    }
    if (r.is_failed) {
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "the descriptor set is malformed behind file %u", d->n_files);
        goto done;
    }
    for (uint32_t i = 0; i < d->n_files && code == RELAY_OK; i++)
        code = resolve_imports(d, &d->files[i], e);
    if (code != RELAY_OK) goto done;
    if (d->n_symbols != 0) qsort(d->symbols, d->n_symbols, sizeof *d->symbols, compare_symbols);
    for (size_t i = 1; i < d->n_symbols; i++) {
        if (strcmp(d->symbols[i - 1].name, d->symbols[i].name) != 0) continue;
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "\"%s\" is declared twice", d->symbols[i].name);
        goto done;
    }
    *out = d;
    d = NULL;
done:
    relay_descriptor_set_destroy(d);
    return code;
}

void relay_descriptor_set_destroy(relay_descriptor_set *d) {
    if (d == NULL) return;
    free(d->files);
    free(d->symbols);
    relay_arena_fini(&d->names);
    free(d);
}

static relay_descriptor_set *builtin;

static void parse_builtin(void) {
    RELAY_ASSERT(relay_descriptor_set_parse(&builtin, relay_descriptors_data, relay_descriptors_size, NULL) ==
                 RELAY_OK);
}

const relay_descriptor_set *relay_descriptor_set_builtin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, parse_builtin);
    return builtin;
}

// ---- Look-ups

uint32_t relay_descriptor_set_n_files(const relay_descriptor_set *d) {
    return d->n_files;
}

const relay_descriptor_file *relay_descriptor_set_file(const relay_descriptor_set *d, uint32_t index) {
    RELAY_ASSERT(index < d->n_files);
    return &d->files[index];
}

// As strcmp, between a string and `len` bytes.
static int compare_name(const char *s, const char *name, size_t len) {
    int order = strncmp(s, name, len);
    if (order != 0) return order;
    // A NUL among the bytes ends the comparison early: such a name is no one's.
    return strlen(s) == len ? 0 : 1;
}

bool relay_descriptor_set_find_file(const relay_descriptor_set *d, const char *name, size_t len, uint32_t *index) {
    for (uint32_t i = 0; i < d->n_files; i++) {
        if (compare_name(d->files[i].name, name, len) != 0) continue;
        *index = i;
        return true;
    }
    return false;
}

const relay_symbol *relay_descriptor_set_find_symbol(const relay_descriptor_set *d, const char *name, size_t len) {
    size_t low = 0, high = d->n_symbols;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_name(d->symbols[middle].name, name, len);
        if (order == 0) return &d->symbols[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}
