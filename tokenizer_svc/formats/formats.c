// A file's format is what its first bytes say, for a name says little ("tokenizer.model" is SentencePiece's of Llama 2
// and tiktoken's of Llama 3). Only a vocab.txt has nothing at its beginning that tells.
#include "tokenizer_svc/formats/formats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"
#include "tokenizer_svc/formats/gguf_tokenizer.h"
#include "tokenizer_svc/formats/sentencepiece.h"
#include "tokenizer_svc/formats/tekken.h"
#include "tokenizer_svc/formats/tiktoken.h"
#include "tokenizer_svc/formats/tokenizer_json.h"
#include "tokenizer_svc/formats/vocab_files.h"

enum { MAX_FILE_BYTES = 1 << 30, MAX_PATH_BYTES = 4096 };

typedef struct mapped_file {
    void *data; // NULL where the file is empty
    size_t len;
} mapped_file;

static void unmap(mapped_file *f) {
    if (f->data != NULL) munmap(f->data, f->len);
    *f = (mapped_file){0};
}

static relay_code map(mapped_file *f, const char *path, relay_err *e) {
    *f = (mapped_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // of a pipe that nobody writes to, too, at once
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        relay_code code =
            relay_fail(e, errno == ENOENT ? RELAY_NOT_FOUND : RELAY_INVALID_ARGUMENT, "%s", strerror(errno));
        if (fd >= 0) close(fd);
        return code;
    }
    relay_code code = RELAY_OK;
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE_BYTES) {
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "it must be a regular file of at most %d bytes", MAX_FILE_BYTES);
    } else if (st.st_size > 0) {
        void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s", strerror(errno));
        else
            *f = (mapped_file){.data = data, .len = (size_t)st.st_size};
    }
    close(fd);
    return code;
}

// ---- One file

static relay_code read_gguf(relay_tokenizer_spec *spec, const char *path, relay_err *e) {
    relay_gguf *g;
    relay_code code = relay_gguf_open(&g, path, e);
    if (code != RELAY_OK) return code;
    code = relay_gguf_tokenizer_read(spec, g, e);
    relay_gguf_close(g);
    return code;
}

static relay_code parse(yyjson_doc **doc, const mapped_file *f, relay_err *e) {
    return relay_json_parse(doc, f->data, f->len, RELAY_JSON_MAX_DEPTH, "JSON", e);
}

static relay_code read_tokenizer_json(relay_tokenizer_spec *spec, yyjson_val *root, const char *path, relay_err *e);

static void free_document(void *file) {
    yyjson_doc_free(file);
}

static relay_code read_json(relay_tokenizer_spec *spec, const char *path, const mapped_file *f, relay_err *e) {
    yyjson_doc *doc;
    relay_code code = parse(&doc, f, e);
    if (code != RELAY_OK) return code;
    if (relay_tokenizer_json_is(yyjson_doc_get_root(doc))) {
        spec->file = doc; // which its strings stay in
        spec->file_free = free_document;
        return read_tokenizer_json(spec, yyjson_doc_get_root(doc), path, e);
    }
    if (relay_tekken_is(yyjson_doc_get_root(doc)))
        code = relay_tekken_read(spec, yyjson_doc_get_root(doc), e);
    else
        code = relay_fail(e, RELAY_UNIMPLEMENTED, "JSON that is neither a tokenizer.json nor a tekken.json");
    yyjson_doc_free(doc);
    return code;
}

static void free_mapped(void *file) {
    unmap(file);
    free(file);
}

// The spec takes the mapping, which SentencePiece's pieces lie in.
static relay_code read_sentencepiece(relay_tokenizer_spec *spec, mapped_file *f, relay_err *e) {
    mapped_file *kept = relay_calloc(1, sizeof *kept);
    *kept = *f;
    *f = (mapped_file){0};
    spec->file = kept;
    spec->file_free = free_mapped;
    return relay_sentencepiece_read(spec, kept->data, kept->len, e);
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static char first_byte(const mapped_file *f) {
    const char *s = f->data;
    size_t i = 0;
    while (i < f->len && strchr(" \t\r\n", s[i]) != NULL && s[i] != 0)
        i++;
    return i < f->len ? s[i] : 0;
}

static relay_code read_mapped(relay_tokenizer_spec *spec, const char *path, const char *encoding, mapped_file *f,
                              relay_err *e) {
    if (encoding != NULL || relay_tiktoken_is(f->data, f->len))
        return relay_tiktoken_read(spec, f->data, f->len, encoding, e);
    if (f->len >= 4 && memcmp(f->data, "GGUF", 4) == 0) return read_gguf(spec, path, e);
    if (first_byte(f) == '{') return read_json(spec, path, f, e);
    if (relay_sentencepiece_is(f->data, f->len)) return read_sentencepiece(spec, f, e);
    if (ends_with(path, "vocab.txt")) return relay_bert_files_read(spec, f->data, f->len, NULL, e);
    return relay_fail(
        e, RELAY_UNIMPLEMENTED,
        "the file is of no format that Relay knows: GGUF, tokenizer.json, SentencePiece, tiktoken, tekken.json, "
        "vocab.txt");
}

static relay_code read_file(relay_tokenizer_spec *spec, const char *path, const char *encoding, relay_err *e) {
    mapped_file f;
    relay_code code = map(&f, path, e);
    if (code == RELAY_OK) code = read_mapped(spec, path, encoding, &f, e);
    unmap(&f);
    return code;
}

// ---- A folder

static bool join(char out[MAX_PATH_BYTES], const char *folder, const char *name) {
    int n = snprintf(out, MAX_PATH_BYTES, "%s/%s", folder, name);
    return n > 0 && n < MAX_PATH_BYTES;
}

static bool holds(const char *folder, const char *name) {
    char path[MAX_PATH_BYTES];
    return join(path, folder, name) && access(path, F_OK) == 0;
}

// Maps a file of the folder. An optional one that is not there is empty.
static relay_code map_in(mapped_file *f, const char *folder, const char *name, bool is_optional, relay_err *e) {
    *f = (mapped_file){0};
    if (is_optional && !holds(folder, name)) return RELAY_OK;
    char path[MAX_PATH_BYTES];
    if (!join(path, folder, name)) return relay_fail(e, RELAY_INVALID_ARGUMENT, "the path is too long");
    relay_err why;
    relay_code code = map(f, path, &why);
    return code == RELAY_OK ? RELAY_OK : relay_fail(e, code, "%s: %s", name, why.message);
}

// The JSON object in a file of the folder; NULL where it is optional and not there.
static relay_code parse_in(yyjson_doc **doc, const char *folder, const char *name, bool is_optional, relay_err *e) {
    mapped_file f;
    *doc = NULL;
    if (is_optional && !holds(folder, name)) return RELAY_OK;
    relay_code code = map_in(&f, folder, name, is_optional, e);
    if (code != RELAY_OK) return code;
    code = relay_json_parse(doc, f.data == NULL ? "" : f.data, f.len, RELAY_JSON_MAX_DEPTH, name, e);
    unmap(&f);
    if (code == RELAY_OK && !yyjson_is_obj(yyjson_doc_get_root(*doc)))
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s must be a JSON object", name);
    return code;
}

static relay_code read_gpt2_folder(relay_tokenizer_spec *spec, const char *folder, const char *vocab_name,
                                   const char *merges_name, relay_err *e) {
    yyjson_doc *vocab = NULL, *config = NULL;
    mapped_file merges = {0};
    relay_code code = parse_in(&vocab, folder, vocab_name, false, e);
    if (code == RELAY_OK) code = parse_in(&config, folder, "tokenizer_config.json", true, e);
    if (code == RELAY_OK) code = map_in(&merges, folder, merges_name, false, e);
    if (code == RELAY_OK)
        code = relay_gpt2_files_read(spec, yyjson_doc_get_root(vocab), merges.data, merges.len,
                                     yyjson_doc_get_root(config), e);
    unmap(&merges);
    yyjson_doc_free(config);
    yyjson_doc_free(vocab);
    return code;
}

static relay_code read_bert_folder(relay_tokenizer_spec *spec, const char *folder, relay_err *e) {
    yyjson_doc *config = NULL;
    mapped_file vocab = {0};
    relay_code code = parse_in(&config, folder, "tokenizer_config.json", true, e);
    if (code == RELAY_OK) code = map_in(&vocab, folder, "vocab.txt", false, e);
    if (code == RELAY_OK) code = relay_bert_files_read(spec, vocab.data, vocab.len, yyjson_doc_get_root(config), e);
    unmap(&vocab);
    yyjson_doc_free(config);
    return code;
}

static relay_code read_folder(relay_tokenizer_spec *spec, const char *folder, relay_err *e) {
    static const char *const single[] = {"tokenizer.json", "tekken.json", "tokenizer.model", "tiktoken.model",
                                         "qwen.tiktoken"};
    char path[MAX_PATH_BYTES];
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (holds(folder, single[i]) && join(path, folder, single[i])) return read_file(spec, path, NULL, e);
    if (holds(folder, "vocab.json")) return read_gpt2_folder(spec, folder, "vocab.json", "merges.txt", e);
    if (holds(folder, "encoder.json")) return read_gpt2_folder(spec, folder, "encoder.json", "vocab.bpe", e);
    if (holds(folder, "vocab.txt")) return read_bert_folder(spec, folder, e);
    return relay_fail(
        e, RELAY_NOT_FOUND,
        "the folder holds none of tokenizer.json, tekken.json, tokenizer.model, tiktoken.model, qwen.tiktoken, "
        "vocab.json, encoder.json and vocab.txt");
}

// ---- Beside a tokenizer.json

static const char JINJA[] = ".jinja";

// Templates that are files of their own; the text of each lies in its mapping.
typedef struct jinja_files {
    relay_named_template *templates;
    mapped_file *mapped;
    char **names; // of templates[]
    uint32_t n;
} jinja_files;

static void jinja_files_fini(jinja_files *j) {
    for (uint32_t i = 0; i < j->n; i++) {
        unmap(&j->mapped[i]);
        free(j->names[i]);
    }
    free(j->templates);
    free(j->mapped);
    free(j->names);
}

static relay_code add_jinja(jinja_files *j, const char *folder, const char *file, const char *name, size_t name_len,
                            relay_err *e) {
    mapped_file *f = &j->mapped[j->n];
    relay_code code = map_in(f, folder, file, true, e);
    if (code != RELAY_OK || !holds(folder, file)) return code;
    j->names[j->n] = relay_strndup(name, name_len);
    j->templates[j->n] = (relay_named_template){.name = {j->names[j->n], (uint32_t)name_len},
                                                .source = {f->data == NULL ? "" : f->data, (uint32_t)f->len}};
    j->n++;
    return RELAY_OK;
}

static int is_jinja(const struct dirent *entry) {
    return strlen(entry->d_name) > strlen(JINJA) && ends_with(entry->d_name, JINJA);
}

// chat_template.jinja, and what additional_chat_templates/ holds, by name.
static relay_code map_jinja_files(jinja_files *j, const char *folder, relay_err *e) {
    char additional[MAX_PATH_BYTES];
    struct dirent **entries = NULL;
    int n_entries = join(additional, folder, "additional_chat_templates")
                        ? scandir(additional, &entries, is_jinja, alphasort)
                        : -1; // no such folder
    size_t n = n_entries < 0 ? 0 : (size_t)n_entries;
    *j = (jinja_files){.templates = relay_calloc(n + 1, sizeof *j->templates),
                       .mapped = relay_calloc(n + 1, sizeof *j->mapped),
                       .names = relay_calloc(n + 1, sizeof *j->names)};
    relay_code code = add_jinja(j, folder, "chat_template.jinja", "default", strlen("default"), e);
    for (size_t i = 0; i < n; i++) {
        const char *file = entries[i]->d_name;
        if (code == RELAY_OK) code = add_jinja(j, additional, file, file, strlen(file) - strlen(JINJA), e);
        free(entries[i]);
    }
    free(entries);
    return code;
}

static relay_code read_tokenizer_json(relay_tokenizer_spec *spec, yyjson_val *root, const char *path, relay_err *e) {
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                                        "chat_template.json"};
    enum { N = sizeof names / sizeof *names };
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? relay_strndup(".", 1) : relay_strndup(path, (size_t)(slash - path));
    yyjson_doc *docs[N] = {0};
    jinja_files jinja = {0};
    relay_code code = RELAY_OK;
    for (size_t i = 0; i < N && code == RELAY_OK; i++)
        code = parse_in(&docs[i], folder, names[i], true, e);
    if (code == RELAY_OK) code = map_jinja_files(&jinja, folder, e);
    if (code == RELAY_OK) {
        relay_tokenizer_json_files files = {
            .config = yyjson_doc_get_root(docs[0]),
            .special_tokens_map = yyjson_doc_get_root(docs[1]),
            .generation_config = yyjson_doc_get_root(docs[2]),
            .chat_template = yyjson_doc_get_root(docs[3]),
            .jinja = jinja.templates,
            .n_jinja = jinja.n,
        };
        code = relay_tokenizer_json_read(spec, root, &files, e);
    }
    for (size_t i = 0; i < N; i++)
        yyjson_doc_free(docs[i]);
    jinja_files_fini(&jinja);
    free(folder);
    return code;
}

// ---- Any of them

// "FILE:ENCODING", where there is no file of the whole name: the place of the colon, else NULL.
static const char *find_encoding(const char *path) {
    struct stat st;
    const char *colon = strrchr(path, ':');
    return colon != NULL && colon != path && strchr(colon, '/') == NULL && stat(path, &st) != 0 ? colon : NULL;
}

relay_code relay_tokenizer_spec_read(relay_tokenizer_spec *out, const char *path, relay_err *e) {
    *out = (relay_tokenizer_spec){0};
    relay_arena_init(&out->arena, SIZE_MAX / 2); // bounded by the file
    char file[MAX_PATH_BYTES];
    const char *colon = find_encoding(path);
    int n = snprintf(file, sizeof file, "%.*s", colon == NULL ? (int)strlen(path) : (int)(colon - path), path);
    if (n < 0 || n >= (int)sizeof file)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "the path of the tokenizer has more than %d bytes",
                          MAX_PATH_BYTES - 1);
    relay_err why;
    struct stat st;
    relay_code code = stat(file, &st) == 0 && S_ISDIR(st.st_mode)
                          ? read_folder(out, file, &why)
                          : read_file(out, file, colon == NULL ? NULL : colon + 1, &why);
    return code == RELAY_OK ? RELAY_OK : relay_fail(e, code, "%s: %s", file, why.message);
}
