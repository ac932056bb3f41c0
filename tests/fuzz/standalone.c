// Runs a fuzz target without libFuzzer: every seed as it is, then mutations of seeds.
//
//   TARGET [-n MUTATIONS] [-s SEED] [-i FIRST] [FILE...]
//
// Files are seeds beside those that the target makes itself. What mutation number i is depends on SEED and i alone, so
// a run repeats exactly, and one that crashes says with which -s and -i -n 1 it comes back.
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/status.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_INPUT = 1 << 20, MAX_SEEDS = 4096, MAX_STACKED = 6 };

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) __attribute__((weak));
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

typedef struct input {
    uint8_t *data;
    size_t len;
} input;

static input seeds[MAX_SEEDS];
static size_t n_seeds;
static uint64_t run_seed = 1, mutation;

// ---- Seeds

static void add_seed(const uint8_t *data, size_t len) {
    RELAY_ASSERT(n_seeds < MAX_SEEDS);
    uint8_t *copy = relay_calloc(len + 1, 1);
    memcpy(copy, data, len);
    seeds[n_seeds++] = (input){copy, len};
}

static bool add_file(const char *path, uint8_t *buffer) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        perror(path);
        return false;
    }
    size_t len = fread(buffer, 1, MAX_INPUT, f);
    fclose(f);
    add_seed(buffer, len);
    return true;
}

// ---- Mutations

// SplitMix64 (Steele, Lea, Flood 2014).
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t n) {
    return n == 0 ? 0 : (size_t)(next_random(state) % n);
}

// Numbers at the borders of types, of either sign.
static uint64_t border_number(uint64_t *state) {
    uint64_t v = UINT64_C(1) << below(state, 64);
    switch (below(state, 4)) {
    case 0:
        return v - 1;
    case 1:
        return v + 1;
    case 2:
        return -v;
    default:
        return v;
    }
}

static void insert(input *in, size_t at, const uint8_t *bytes, size_t len) {
    if (len > MAX_INPUT - in->len) return;
    memmove(in->data + at + len, in->data + at, in->len - at);
    memcpy(in->data + at, bytes, len);
    in->len += len;
}

static void cut(input *in, size_t at, size_t len) {
    memmove(in->data + at, in->data + at + len, in->len - at - len);
    in->len -= len;
}

static void mutate(input *in, uint64_t *state) {
    size_t at = below(state, in->len);
    uint8_t bytes[16];
    uint64_t number = border_number(state);
    switch (below(state, 8)) {
    case 0: // flip a bit
        if (in->len != 0) in->data[at] ^= (uint8_t)(1u << below(state, 8));
        break;
    case 1: // set a byte
        if (in->len != 0) in->data[at] = (uint8_t)next_random(state);
        break;
    case 2: { // a number at a type's border
        size_t width = (size_t)1 << below(state, 4);
        if (width <= in->len - at) memcpy(in->data + at, &number, width);
        break;
    }
    case 3: // insert a few bytes
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)next_random(state);
        insert(in, at, bytes, 1 + below(state, sizeof bytes));
        break;
    case 4: // repeat a few bytes
        memset(bytes, in->len != 0 ? in->data[at] : 0, sizeof bytes);
        insert(in, at, bytes, 1 + below(state, sizeof bytes));
        break;
    case 5: // drop a part
        cut(in, at, below(state, (in->len - at < 32 ? in->len - at : 32) + 1));
        break;
    case 6: // end early
        if (below(state, 4) == 0) in->len = at;
        break;
    default: { // a part of another seed
        const input *other = &seeds[below(state, n_seeds)];
        size_t from = below(state, other->len);
        insert(in, at, other->data + from, below(state, other->len - from + 1));
    }
    }
}

static void make_mutation(input *in, uint64_t number) {
    uint64_t state = run_seed * 0xD6E8FEB86659FD93 ^ number;
    const input *seed = &seeds[below(&state, n_seeds)];
    memcpy(in->data, seed->data, seed->len);
    in->len = seed->len;
    for (size_t i = 1 + below(&state, MAX_STACKED); i > 0; i--)
        mutate(in, &state);
}

// ---- The run

// A copy of exactly the input's size, so that a sanitizer sees a read behind its end.
static void feed(const uint8_t *data, size_t len) {
    uint8_t *copy = malloc(len);
    RELAY_ASSERT(copy != NULL || len == 0);
    if (len != 0) memcpy(copy, data, len);
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static void say_where(void) {
    char text[128];
    int n = mutation == UINT64_MAX ? snprintf(text, sizeof text, "the crash is one of a seed as it is\n")
                                   : snprintf(text, sizeof text, "again with: -s %llu -i %llu -n 1\n",
                                              (unsigned long long)run_seed, (unsigned long long)mutation);
    (void)!write(STDERR_FILENO, text, (size_t)n);
}

static void on_signal(int signal_number) {
    say_where();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

int main(int argc, char **argv) {
    uint64_t n_mutations = 10000, first = 0;
    input in = {.data = relay_calloc(MAX_INPUT, 1)};
    bool ok = true;
    for (int i = 1; i < argc; i++) {
        uint64_t *number = strcmp(argv[i], "-n") == 0   ? &n_mutations
                           : strcmp(argv[i], "-s") == 0 ? &run_seed
                           : strcmp(argv[i], "-i") == 0 ? &first
                                                        : NULL;
        if (number == NULL)
            ok = add_file(argv[i], in.data) && ok;
        else if (++i < argc)
            *number = strtoull(argv[i], NULL, 10);
    }
    for (size_t i = 0; relay_fuzz_seed != NULL; i++) {
        size_t len = relay_fuzz_seed(i, in.data, MAX_INPUT);
        if (len == 0) break;
        add_seed(in.data, len);
    }
    if (!ok || n_seeds == 0) {
        fprintf(stderr, "no seeds\n");
        return 2;
    }
    if (__sanitizer_set_death_callback != NULL) __sanitizer_set_death_callback(say_where);
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        signal(fatal[i], on_signal);

    mutation = UINT64_MAX;
    for (size_t i = 0; i < n_seeds; i++)
        feed(seeds[i].data, seeds[i].len);
    for (mutation = first; mutation - first < n_mutations; mutation++) {
        make_mutation(&in, mutation);
        feed(in.data, in.len);
    }
    for (size_t i = 0; i < n_seeds; i++)
        free(seeds[i].data);
    free(in.data);
    return 0;
}
