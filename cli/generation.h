// One Generate call as the commands make it: the request sent, the answer written as it comes, times taken at this end.
#ifndef RELAY_CLI_GENERATION_H
#define RELAY_CLI_GENERATION_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/cli.h"
#include "relay/v1/generation.pb-c.h"

typedef struct relay_generation {
    // in
    relay_rpc_client *client;
    relay_mono_us deadline;
    bool as_json;                          // one JSON object a message instead of the text
    volatile sig_atomic_t *is_interrupted; // set by a signal handler: the answer is cancelled; may be NULL
    // out
    relay_buf text; // the answer so far
    uint32_t prompt_tokens, output_tokens;
    relay_mono_us started_at, first_at, last_at; // 0: did not come
    int finish;                                  // Relay__V1__FinishReason
    bool was_cancelled;
} relay_generation;

// Runs the call; prints errors. Returns an exit code. The caller frees g->text with relay_buf_fini.
int relay_generation_run(relay_generation *g, const Relay__V1__GenerateRequest *request);
// One line: prompt tokens, time to first token, time per output token, tokens, finish reason.
void relay_generation_print_stats(const relay_generation *g, FILE *f);

#endif
