// The parameters of a generation as flags: one a field of GenerateRequest, SamplingParams with its Mirostat, Dry and
// Constraint, TextStop and TextOutput.
//
// A flag that is not given leaves its field unset, which means the model's default. Values go to the server as they
// are: it knows the ranges, and its errors name the field. Here only what the field's type cannot hold is refused.
#ifndef RELAY_CLI_SAMPLING_FLAGS_H
#define RELAY_CLI_SAMPLING_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/config.h"
#include "common/status.h"
#include "relay/v1/generation.pb-c.h"

enum { RELAY_SAMPLING_FLAGS = 47, RELAY_SAMPLING_FLAG_NAME_MAX = 24 };

typedef struct relay_sampling_flags {
    relay_config_entry *entries; // [RELAY_SAMPLING_FLAGS], borrowed
    char names[RELAY_SAMPLING_FLAGS][RELAY_SAMPLING_FLAG_NAME_MAX];
    union {
        double number;
        int64_t integer;
        bool boolean;
        const char *text;
        relay_config_texts texts;
    } values[RELAY_SAMPLING_FLAGS];
    bool is_set[RELAY_SAMPLING_FLAGS];
    relay_arena set_texts; // what was given to relay_sampling_flags_set
    // What the request points to.
    relay_arena lists;
    Relay__V1__SamplingParams sampling;
    Relay__V1__Constraint constraint;
    Relay__V1__Choices choices;
    Relay__V1__Mirostat mirostat;
    Relay__V1__Dry dry;
    Relay__V1__TextStop stop;
    Relay__V1__TextOutput output;
} relay_sampling_flags;

// Fills `entries` with RELAY_SAMPLING_FLAGS flags that write into `flags`. Both stay where they are until _fini.
void relay_sampling_flags_init(relay_sampling_flags *flags, relay_config_entry *entries);
void relay_sampling_flags_fini(relay_sampling_flags *flags);
// Sets one parameter by its flag's name, as `/set temperature 0.7` of a chat does, dashes or underscores; "" unsets
// it. The value is copied.
relay_code relay_sampling_flags_set(relay_sampling_flags *flags, const char *name, const char *value,
                                    relay_err *e) RELAY_NODISCARD;
// "temperature=0.7 top-k=40", of those that are set; the caller frees.
char *relay_sampling_flags_describe(const relay_sampling_flags *flags);
// Points the request's sampling, stop and output at this struct's messages, filled from the flags; valid until the
// next call.
relay_code relay_sampling_flags_apply(relay_sampling_flags *flags, Relay__V1__GenerateRequest *request,
                                      relay_err *e) RELAY_NODISCARD;

#endif
