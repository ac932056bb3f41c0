// Load on a model server, made of conversations: GenerateTokens calls of given lengths, made as some of them end (a
// closed loop) or at given times (an open one), and the times of what came back.
//
// A conversation has one turn or more; each later one's prompt is all that was said before, and some more ids. Prompts
// are random ids, so that nothing is found in the server's prefix cache but what its own conversation left there.
// Answers have the length that was asked for: greedy, past any end of sequence.
#ifndef RELAY_CLI_BENCH_LOAD_H
#define RELAY_CLI_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/bench_times.h"
#include "common/rpc_client.h"

enum { RELAY_BENCH_MAX_TURNS = 64 };

typedef struct relay_bench_conversation {
    relay_mono_us at; // of its first turn, from the start; in an open loop
    uint32_t n_prompt, n_output;
} relay_bench_conversation;

typedef struct relay_bench_load_opts {
    relay_rpc_client *client; // borrowed
    const relay_bench_conversation *conversations;
    uint32_t n_conversations;
    uint32_t n_turns;       // of each, 1 to RELAY_BENCH_MAX_TURNS
    uint32_t n_next_prompt; // ids that a later turn adds to what was said
    uint32_t in_flight;     // conversations at a time; 0: an open loop, by their times
    bool in_batches;        // with in_flight: the next ones only when all of the last have ended
    relay_mono_us timeout;  // of a call; 0: none
    uint64_t seed;          // of the prompts
} relay_bench_load_opts;

typedef struct relay_bench_turn {
    uint32_t n_answered;
    uint64_t n_prompt, n_cached; // tokens: of prompts, and of those what the server had
    relay_bench_times first;     // from when a call was due to its first token
} relay_bench_turn;

typedef struct relay_bench_load_figures {
    relay_bench_turn turns[RELAY_BENCH_MAX_TURNS];
    relay_bench_times gaps; // between one message with tokens and the next of the same call
    uint64_t n_output;      // tokens, those of calls that failed too
    uint32_t n_calls, n_failed;
    relay_err first_error; // where n_failed > 0
    relay_mono_us took;    // from the start to the last answer
} relay_bench_load_figures;

// Returns when every conversation is over, those that Ctrl-C cut short too. An error is one of asking the server what
// model it has; calls that fail are counted.
relay_code relay_bench_load_run(const relay_bench_load_opts *opts, relay_bench_load_figures *out,
                                relay_err *e) RELAY_NODISCARD;
void relay_bench_load_figures_fini(relay_bench_load_figures *f);

#endif
