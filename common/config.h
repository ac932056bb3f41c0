// Settings from flags and the environment, described by one table.
//
// A setting `max-queue` is the flag `--max-queue N` (or `--max-queue=N`) and the variable `PREFIX_MAX_QUEUE`, where
// PREFIX is the program's, such as RELAY_MODEL. A flag wins over the environment, which wins over the default; of a
// flag given twice the last wins, and a variable that is empty counts as not set. `--help` prints the table. An unknown
// flag, a missing value, or a value outside its range is an error that names the setting, the value and the range.
#ifndef RELAY_COMMON_CONFIG_H
#define RELAY_COMMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

typedef enum relay_config_kind {
    RELAY_CONFIG_STRING,  // const char **; borrowed from argv or the environment
    RELAY_CONFIG_ADDRESS, // const char **; as common/address.h says; borrowed likewise
    RELAY_CONFIG_BOOL,    // bool *; `--x`, `--x=true`, `--x=false`, `--no-x`
    RELAY_CONFIG_INT,     // int64_t *; min and max say the range
    RELAY_CONFIG_FLOAT,   // double *; min and max say the range
    RELAY_CONFIG_BYTES,   // uint64_t *; a number of bytes, or one with KiB, MiB or GiB behind it
    RELAY_CONFIG_TEXTS,   // relay_config_texts *; may be given several times, each adds one
} relay_config_kind;

enum { RELAY_CONFIG_MAX_TEXTS = 16 };

typedef struct relay_config_texts {
    const char *texts[RELAY_CONFIG_MAX_TEXTS]; // borrowed, as a STRING is
    uint32_t n;
} relay_config_texts;

typedef struct relay_config_entry {
    const char *name; // as the flag, without dashes
    relay_config_kind kind;
    void *value;         // where it goes; holds the default before
    double min, max;     // for INT, FLOAT and BYTES, inclusive; both 0: any
    const char *metavar; // in --help: "PORT", "FILE"; NULL for a BOOL
    const char *help;    // a sentence; range, default and variable are added
    const char *choices; // STRING only: "f16|f32", or NULL for any text
    bool *was_set;       // set to true when flag or environment gave it; may be NULL
    bool has_no_default; // unset means something of its own: --help shows no default
    bool may_be_empty;   // ADDRESS only: "" is right too
} relay_config_entry;

typedef struct relay_config {
    const char *program;    // "relay-model"
    const char *env_prefix; // "RELAY_MODEL"; NULL: no environment
    const char *usage;      // "[flags]", "[flags] PROMPT"
    const char *summary;    // a sentence or a paragraph for --help
    const relay_config_entry *entries;
    uint32_t n_entries;
} relay_config;

// Sets one entry from `text` as its flag does, with the same checks; `source` is what the error calls it. `text` is
// borrowed by STRING, ADDRESS and TEXTS entries.
relay_code relay_config_set(const relay_config_entry *entry, const char *source, const char *text,
                            relay_err *e) RELAY_NODISCARD;

// Reads argv[1..argc). Words that are not flags, and everything behind `--`, are left in positional[0..*n_positional)
// (room for argc pointers); NULL refuses them. On --help (or -h) prints to standard output, sets *help_shown and
// returns OK without reading anything else. A value that begins with two dashes, or is -h, must be given as
// `--flag=--value`.
relay_code relay_config_parse(const relay_config *c, int argc, char **argv, const char **positional, int *n_positional,
                              bool *help_shown, relay_err *e) RELAY_NODISCARD;

#endif
