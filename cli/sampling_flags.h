// The parameters of a generation as flags: one a field of SamplingParams, TextStop and TextOutput.
//
// A flag that is not given leaves its field unset, which means the model's default. Values go to the server as they
// are: it knows the ranges, and its errors name the field.
#ifndef RELAY_CLI_SAMPLING_FLAGS_H
#define RELAY_CLI_SAMPLING_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config.h"
#include "common/status.h"
#include "relay/v1/generation.pb-c.h"

enum { RELAY_SAMPLING_FLAGS = 22, RELAY_CLI_MAX_STOPS = 16, RELAY_CLI_MAX_IDS = 1024 };

typedef struct relay_sampling_flags {
    union {
        double number;
        int64_t integer;
        bool boolean;
        const char *text;
    } values[RELAY_SAMPLING_FLAGS];
    bool is_set[RELAY_SAMPLING_FLAGS];
    char *owned[RELAY_SAMPLING_FLAGS]; // texts given to relay_sampling_flags_set
    // --stop, each time it is given
    ProtobufCBinaryData stop_strings[RELAY_CLI_MAX_STOPS];
    size_t n_stop_strings;
    uint32_t stop_token_ids[RELAY_CLI_MAX_IDS];
    // What the request points to.
    Relay__V1__SamplingParams sampling;
    Relay__V1__TextStop stop;
    Relay__V1__TextOutput output;
} relay_sampling_flags;

// Fills `entries` with RELAY_SAMPLING_FLAGS flags that write into `flags`.
void relay_sampling_flags_init(relay_sampling_flags *flags, relay_config_entry *entries);
void relay_sampling_flags_fini(relay_sampling_flags *flags);
// Takes every `--stop TEXT` out of argv, which may stand there several times. False when one lacks its text or there
// are too many.
bool relay_sampling_flags_take_stops(relay_sampling_flags *flags, int *argc, char **argv);
// Sets one parameter by its flag's name, as `/set temperature 0.7` of a chat does; "" unsets it. The value is copied.
relay_code relay_sampling_flags_set(relay_sampling_flags *flags, const char *name, const char *value, relay_err *e);
// "temperature=0.7 top-k=40", of those that are set; the caller frees.
char *relay_sampling_flags_describe(const relay_sampling_flags *flags);
// Points the request's sampling, stop and output at this struct's messages, filled from the flags.
relay_code relay_sampling_flags_apply(relay_sampling_flags *flags, Relay__V1__GenerateRequest *request, relay_err *e);

#endif
