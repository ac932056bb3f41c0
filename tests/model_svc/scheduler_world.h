// A small world for the scheduler: a scripted model, a step, a clock that only the test moves, and a record of each
// request with what was said of it. Every step checks every invariant.
#ifndef RELAY_TESTS_MODEL_SVC_SCHEDULER_WORLD_H
#define RELAY_TESTS_MODEL_SVC_SCHEDULER_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "model_svc/scheduler.h"
#include "tests/model_svc/fake_model.h"

typedef struct world_request {
    relay_request request; // its arrays are the test's own
    uint32_t *ids;         // [n_tokens] what it begins with
    uint32_t *drawn;       // [n_drawn] what its first answer was given
    uint32_t n_drawn;
    uint32_t n_scored; // ids of the prompt
    // The same of each answer, the first included, where there are several: [n_sequences], one behind the other in
    // `all_drawn`, max_new_tokens each.
    uint32_t *all_drawn, *n_all_drawn;
    relay_finish *finishes; // NONE: it goes on
    uint32_t cached_tokens; // as its start said
    uint32_t id;            // among the scheduler's sequences
    bool is_live;
    bool is_started;
    uint64_t added_after, started_in, first_token_in, ended_in; // steps
    relay_event last;                                           // FINISHED or FAILED; kind TOKEN before
} world_request;

typedef struct world {
    relay_scheduler *scheduler;
    relay_scheduler_opts opts;
    relay_step *step;
    relay_sample_result *results;
    fake_model model;
    relay_mono_us now;
    relay_mono_us step_us, row_us; // what a step takes beside its rows, and each of these; zero at init
    uint64_t arrivals;
    uint32_t n_live;    // requests
    uint64_t n_answers; // asked for since init
} world;

// Room for 32 sequences of some thousand ids in two KV groups; chunks of 64 in a budget of 128.
extern const relay_scheduler_opts world_roomy;

// `opts` with emit left out.
void world_init(world *w, const relay_scheduler_opts *opts);
void world_fini(world *w);
// A request with `n_prompt` ids made from `seed`, greedy, unlimited credit, no end ids, no deadline.
world_request *world_request_create(uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed);
void world_request_destroy(world_request *r);
void world_requests_destroy(world_request **r, uint32_t n);
// Lets it ask for `n` answers.
void world_request_set_answers(world_request *r, uint32_t n);
// Adds it as sequence `id`.
void world_add(world *w, world_request *r, uint32_t id);
// Makes one whose seed is its id, and adds it.
world_request *world_add_new(world *w, uint32_t id, uint32_t n_prompt, uint32_t max_new_tokens);
relay_scheduler_state world_state(const world *w);
// One step: false where nobody could move.
bool world_step(world *w);
// `n` steps in each of which somebody moves.
void world_steps(world *w, uint32_t n);
// Steps until nobody is left, at most `max_steps`.
void world_run(world *w, uint32_t max_steps);
// What it was given is what the model says when it runs alone, to its length; in each of its answers.
void world_expect_own_ids(const world_request *r);
void world_expect_finish(const world_request *r, relay_finish why);

#endif
