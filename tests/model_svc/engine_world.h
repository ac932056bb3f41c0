// An engine over the scripted model, with what it published: tests wait for events instead of sleeping.
#ifndef RELAY_TESTS_MODEL_SVC_ENGINE_WORLD_H
#define RELAY_TESTS_MODEL_SVC_ENGINE_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "model_svc/engine.h"
#include "tests/model_svc/fake_model.h"

typedef struct engine_world {
    relay_engine *engine;
    relay_engine_opts opts;
    fake_model model;
    pthread_mutex_t mutex; // guards what the publisher writes: the requests' fields below, and these
    pthread_cond_t changed;
    uint64_t last_step; // of the last event
    uint32_t n_ended;
    bool holds_publisher; // publish() waits while it is set
    uint64_t n_steps;     // begun
    uint64_t last_free;   // steps up to this one run; the next waits in the middle
    const char *error;    // the first event that came out of order
} engine_world;

typedef struct engine_request {
    relay_request request;
    engine_world *world;
    uint64_t key;
    uint32_t *ids;   // [n_tokens]
    uint32_t *drawn; // [max_new_tokens]
    uint32_t n_drawn;
    uint32_t n_scored; // ids of the prompt
    bool is_started, is_ended;
    uint64_t first_token_in, ended_in; // steps
    relay_event last;
} engine_request;

// Room for 32 sequences of some thousand ids, 128 requests and 100,000 ids in the queue.
extern const relay_engine_opts engine_roomy;

// `opts` with model and publish left out.
void engine_world_init(engine_world *w, const relay_engine_opts *opts);
// Stops the engine if the test has not, and fails the test if anything did not agree.
void engine_world_fini(engine_world *w);
engine_request *engine_request_create(engine_world *w, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed);
void engine_request_destroy(engine_request *r);
void engine_requests_destroy(engine_request **r, uint32_t n);
relay_code engine_request_submit(engine_request *r, relay_err *e);
// Makes one and submits it, which must succeed.
engine_request *engine_submit_new(engine_world *w, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed);
relay_engine_load engine_load(engine_world *w);
uint32_t engine_used_blocks(engine_world *w);
// Lets `n` steps run from where it stands, then holds the one after them in its middle; UINT64_MAX lets all run.
void engine_let_run(engine_world *w, uint64_t n);
void engine_hold_publisher(engine_world *w, bool holds);
// Wait, at most for 20 seconds, then fail.
void engine_wait_for_held_step(engine_world *w);
void engine_wait_for_tokens(engine_request *r, uint32_t n);
void engine_wait_for_end(engine_request *r);
void engine_wait_until_idle(engine_world *w);
// It has ended for this reason, and its ids are those that the model says when it runs alone.
void engine_expect_finish(const engine_request *r, relay_finish why);
void engine_expect_own_ids(const engine_request *r);
// The same for threads that may not fail a test.
bool engine_ends(engine_request *r);
bool engine_has_own_ids(const engine_request *r);

#endif
