// The flags of relay-model, with their defaults, ranges and help.
#ifndef RELAY_MODEL_SVC_SETTINGS_H
#define RELAY_MODEL_SVC_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/service_settings.h"
#include "common/status.h"

// As the flags of the same names (settings.c). Strings are never NULL after a read.
typedef struct relay_model_settings {
    const char *model, *kernels, *kv_type;
    uint64_t kv_memory;
    int64_t threads, max_context, max_running, token_budget, prompt_chunk, step_target_ms, max_lease_ms,
        max_queued_requests, max_queued_tokens;
    relay_service_settings service;
} relay_model_settings;

// From argv and the environment. OK with *help_shown where --help was asked for.
relay_code relay_model_settings_read(relay_model_settings *s, int argc, char **argv, bool *help_shown,
                                     relay_err *e) RELAY_NODISCARD;

#endif
