#include "model_svc/settings.h"

#include <inttypes.h>
#include <stddef.h>
#include <unistd.h>

#include "common/config.h"
#include "kernels/kernels.h"
#include "model_svc/request.h"

enum { N_OWN_FLAGS = 13 };

// What a table of ranges cannot say.
static relay_code check(const relay_model_settings *s, relay_err *e) {
    if (s->model == NULL || s->model[0] == '\0') {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "--model is not set; it names the GGUF file to serve");
    }
    if (s->token_budget < s->max_running) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "--token-budget is %lld; it must be at least --max-running, %lld",
                          (long long)s->token_budget, (long long)s->max_running);
    }
    if (s->max_context == 1) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "--max-context is 1; it must be 0, or 2 or more");
    }
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (s->kv_memory > memory) {
        return relay_fail(e, RELAY_FAILED_PRECONDITION,
                          "--kv-memory is %" PRIu64 " bytes; this machine has %" PRIu64 " bytes of memory",
                          s->kv_memory, memory);
    }
    const relay_kernels *kernels;
    relay_err why = {0};
    if (s->kernels[0] != '\0' && relay_kernels_choose(&kernels, s->kernels, &why) != RELAY_OK) {
        return relay_fail(e, RELAY_FAILED_PRECONDITION, "--kernels: %s", why.message);
    }
    return RELAY_OK;
}

relay_code relay_model_settings_read(relay_model_settings *s, int argc, char **argv, bool *help_shown, relay_err *e) {
    *s = (relay_model_settings){
        .kernels = "",
        .kv_type = "f16",
        .max_running = 64,
        .token_budget = 512,
        .step_target_ms = 50,
        .max_lease_ms = 600000,
        .max_queued_requests = 1024,
        .max_queued_tokens = 1 << 20,
    };
    relay_config_entry entries[N_OWN_FLAGS + RELAY_SERVICE_FLAGS] = {
        {"model", RELAY_CONFIG_STRING, &s->model, .metavar = "FILE", .help = "the model, a GGUF file; required"},
        {"threads", RELAY_CONFIG_INT, &s->threads, 0, 1024, "N", .help = "threads that compute; 0: one a processor"},
        {"kernels", RELAY_CONFIG_STRING, &s->kernels, .metavar = "NAME",
         .help = "kernels to compute with; empty: the fastest that this processor runs"},
        {"kv-type", RELAY_CONFIG_STRING, &s->kv_type, .metavar = "TYPE", .help = "how keys and values are kept",
         .choices = RELAY_KV_TYPE_NAMES},
        {"kv-memory", RELAY_CONFIG_BYTES, &s->kv_memory, .metavar = "BYTES",
         .help = "memory for keys and values; 0: 1 GiB, or less where the context needs less"},
        {"max-context", RELAY_CONFIG_INT, &s->max_context, 0, 1 << 24, "TOKENS",
         .help = "most tokens of one sequence, answer included; 0: what the model was trained for"},
        {"max-running", RELAY_CONFIG_INT, &s->max_running, 1, RELAY_MAX_SEQUENCES, "N",
         .help = "sequences computed at a time"},
        {"token-budget", RELAY_CONFIG_INT, &s->token_budget, 1, 1 << 16, "N",
         .help = "most tokens computed in one step; at least max-running"},
        {"prompt-chunk", RELAY_CONFIG_INT, &s->prompt_chunk, 0, 1 << 16, "N",
         .help = "most prompt tokens of one sequence in a step; 0: what the budget leaves"},
        {"step-target-ms", RELAY_CONFIG_INT, &s->step_target_ms, 0, 60000, "MS",
         .help = "how long a step may last while somebody waits for tokens: bounds the prompts in it; 0: no bound"},
        {"max-lease-ms", RELAY_CONFIG_INT, &s->max_lease_ms, 0, 86400000, "MS",
         .help = "how long a finished sequence's keys and values may be kept at most, where lease_ms asks for it"},
        {"max-queued-requests", RELAY_CONFIG_INT, &s->max_queued_requests, 1, 1 << 16, "N",
         .help = "requests that may wait; more are refused"},
        {"max-queued-tokens", RELAY_CONFIG_INT, &s->max_queued_tokens, 1, 1LL << 32, "N",
         .help = "prompt tokens that may wait; more are refused"},
    };
    relay_service_settings_init(&s->service, "127.0.0.1:50052", entries + N_OWN_FLAGS);
    const relay_config config = {
        .program = "relay-model",
        .env_prefix = "RELAY_MODEL",
        .usage = "--model FILE [flags]",
        .summary = "Serves a model: token ids in, token ids out, over gRPC (relay.v1.ModelService).",
        .entries = entries,
        .n_entries = sizeof entries / sizeof entries[0],
    };
    relay_code code = relay_config_parse(&config, argc, argv, NULL, NULL, help_shown, e);
    if (code != RELAY_OK || *help_shown) return code;
    return check(s, e);
}
