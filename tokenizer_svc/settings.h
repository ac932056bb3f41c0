// The flags of relay-tokenizer, with their defaults, ranges and help.
#ifndef RELAY_TOKENIZER_SVC_SETTINGS_H
#define RELAY_TOKENIZER_SVC_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/service_settings.h"
#include "common/status.h"
#include "tokenizer_svc/model_link.h"

// As the flags of the same names (settings.c). Strings are never NULL after a read.
typedef struct relay_tokenizer_settings {
    const char *tokenizer, *model_name, *model_server;
    int64_t threads, max_queued_jobs;
    uint64_t max_text_bytes;
    relay_service_settings service;
    // model_server, taken apart.
    const char *model_servers[RELAY_MAX_MODEL_SERVERS];
    uint32_t n_model_servers;
    char *servers_text; // owned: what they point into
} relay_tokenizer_settings;

// From argv and the environment. OK with *help_shown where --help was asked for. Needs relay_tokenizer_settings_fini in
// any case.
relay_code relay_tokenizer_settings_read(relay_tokenizer_settings *s, int argc, char **argv, bool *help_shown,
                                         relay_err *e) RELAY_NODISCARD;
void relay_tokenizer_settings_fini(relay_tokenizer_settings *s);

#endif
