// One Generate call as the commands make it: the request sent, the answer written as it comes, times taken at this end.
#ifndef RELAY_CLI_GENERATION_H
#define RELAY_CLI_GENERATION_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/cli.h"
#include "common/buf.h"
#include "relay/v1/generation.pb-c.h"

typedef struct relay_generation {
    // in
    relay_rpc_client *client;
    relay_mono_us deadline;
    bool as_json; // one JSON object a message instead of the text
    // out
    relay_buf text; // the answer so far
    relay_buf ids;  // its token ids, uint32_t each, where the request asks for them
    uint32_t prompt_tokens, output_tokens;
    relay_mono_us started_at, first_at, last_at; // 0: did not come
    int finish;                                  // Relay__V1__FinishReason
    bool was_cancelled;
} relay_generation;

// A message of a conversation; the text is borrowed.
void relay_generation_set_message(Relay__V1__ChatMessage *m, const char *role, const char *text, size_t len);
// Runs the call, which Ctrl-C cancels; prints errors. Returns an exit code. The caller frees g->text and g->ids
// with relay_buf_fini.
int relay_generation_run(relay_generation *g, const Relay__V1__GenerateRequest *request);
// One line: prompt tokens, time to first token, time per output token, tokens, finish reason.
void relay_generation_print_stats(const relay_generation *g, FILE *f);

#endif
