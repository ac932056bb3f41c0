// The model service in one process with its client: over the scripted model, whose steps a test can hold and count, or
// over stories260K.
#ifndef RELAY_TESTS_MODEL_SVC_SERVICE_WORLD_H
#define RELAY_TESTS_MODEL_SVC_SERVICE_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/rpc_client.h"
#include "common/rpc_server.h"
#include "model_svc/model.h"
#include "model_svc/service.h"
#include "relay/v1/model.pb-c.h"
#include "tests/model_svc/fake_model.h"

typedef struct service_world_opts {
    bool is_real;           // stories260K
    const char *vocab_file; // a GGUF file; NULL: that of stories260K
    bool is_loading;        // the service is not given its engine
    uint32_t threads;       // of the real model; 0: 1
    uint32_t kv_blocks;     // of the real model; 0: enough
    uint32_t max_context, n_blocks, max_running, token_budget, prompt_chunk, max_queued_requests, max_queued_tokens;
    uint32_t keepalive_ms, outbox_bytes;
} service_world_opts;

typedef struct service_world {
    relay_gguf *file;
    relay_vocab *vocab;
    relay_model *model; // NULL where it is scripted
    fake_model fake;
    relay_model_info info;
    relay_metrics *metrics;
    relay_engine *engine;
    relay_rpc_server *server;
    relay_model_service *service;
    relay_rpc_client *client;
    bool is_stopped;
    // The gate of the scripted model's steps.
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t permits; // steps that may be taken; UINT32_MAX: any number
    uint64_t n_steps;
} service_world;

// Fields that are 0 get values of a small server.
service_world *service_world_create(service_world_opts opts);
// Checks that the scripted model found nothing wrong.
void service_world_destroy(service_world *w);
// Drains the service, stops the engine, then the server, as the process does.
void service_world_stop(service_world *w);
relay_rpc_client *service_world_connect(service_world *w);
relay_rpc_client *service_world_connect_to(service_world *w, uint16_t port);

// From now on the model takes no step but those that service_world_step allows; this waits until they are taken.
void service_world_hold(service_world *w);
void service_world_step(service_world *w, uint32_t n);
// Lets it take up to n more and does not wait.
void service_world_allow(service_world *w, uint32_t n);
void service_world_release(service_world *w);

// Taken so far: the engine's number of the last one.
uint64_t service_world_steps(service_world *w);

// Waits (at most 20 s) for the load that GetLoad tells.
typedef bool (*load_condition)(const Relay__V1__Load *load);
void service_world_wait_for(service_world *w, load_condition holds);
// The same in a world that is held: takes steps until it is so. (A load is told at a step's end.)
void service_world_step_until(service_world *w, load_condition holds);
bool load_is_empty(const Relay__V1__Load *load);
bool load_has_one_running(const Relay__V1__Load *load); // and none waiting
bool load_has_one_waiting(const Relay__V1__Load *load); // and one running
bool load_has_two_waiting(const Relay__V1__Load *load); // and one running
// Waits until that many calls are open: then what became of the others is known to the service.
void service_world_wait_for_calls(service_world *w, uint32_t n);
uint64_t service_world_counter(service_world *w, const char *name);

// ---- Requests

// Ids 1, 2, ... with a seed; greedy off. The pointers of `r` point into itself: it must not be copied.
typedef struct token_request {
    Relay__V1__GenerateTokensRequest message;
    Relay__V1__SamplingParams sampling;
    Relay__V1__StopCriteria stop;
    Relay__V1__OutputOptions output;
    uint32_t prompt[1024];
} token_request;
void token_request_init(token_request *r, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed);

// What came back for one sequence.
typedef struct token_answer {
    uint32_t ids[4096];
    float logprobs[4096];
    uint32_t n_ids, n_logprobs, n_messages;
    float scores[4096]; // logprobs of the prompt, from its second id on
    uint32_t n_scores, n_score_messages;
    uint64_t score_hash;                   // of them with their top logprobs
    uint64_t top_hash;                     // of all top logprobs
    uint32_t n_last_top, last_top_ids[64]; // of the last token
    float last_top_logprobs[64];
    uint8_t sampler_state[16];
    uint32_t n_sampler_state;
    bool is_accepted, is_started, is_finished, is_failed;
    uint32_t prompt_tokens, cached_tokens;
    uint64_t seed;
    char server_request_id[64];
    Relay__V1__FinishReason reason;
    uint32_t stop_token_id, stop_sequence_index, output_tokens, preemptions;
    relay_code code; // of the error
    char error[RELAY_ERR_MESSAGE_MAX], reason_text[64];
    uint32_t retry_after_ms;
    uint64_t first_step, last_step; // of a session
} token_answer;
void token_answer_add(token_answer *a, const Relay__V1__GenerateTokensResponse *r);

relay_rpc_stream *generate_open(relay_rpc_client *c, const Relay__V1__GenerateTokensRequest *m);
// Reads to the end of the call; its status is in code and error.
void generate_read(relay_rpc_stream *s, token_answer *a);
// The same for `n` answers to one request, by index; code and error are in the first.
void generate_read_all(relay_rpc_stream *s, token_answer *a, uint32_t n);
// Both, and releases the stream.
void generate(relay_rpc_client *c, const Relay__V1__GenerateTokensRequest *m, token_answer *a);

// ---- Sessions

enum { SESSION_KEYS = 128 };

typedef struct session {
    service_world *world;
    relay_rpc_stream *stream;
    token_answer answers[SESSION_KEYS]; // by stream key
    uint64_t step;                      // last told
    uint32_t n_messages, n_ended;
    bool has_welcome, is_draining;
    uint32_t running; // as the last load told
    // Its end.
    bool is_over;
    relay_code code;
    char error[RELAY_ERR_MESSAGE_MAX];
} session;

// Opens and says hello with the model's fingerprint; waits for the welcome.
session *session_open(service_world *w, relay_rpc_client *c);
// Opens and says nothing.
session *session_open_silent(service_world *w, relay_rpc_client *c);
void session_hello(session *s, const uint8_t *fingerprint, size_t len);
void session_send(session *s, const Relay__V1__SessionRequest *m);
void session_start(session *s, uint64_t key, const Relay__V1__GenerateTokensRequest *m);
void session_cancel(session *s, uint64_t key);
void session_credit(session *s, uint64_t key, uint32_t tokens);
// One message, at most `wait_us`; false if none came.
bool session_read(session *s, int64_t wait_us);
// Reads until that step has been told.
void session_read_until_step(session *s, uint64_t step);
// Reads until the answer has ended, or the session has.
void session_read_until_end(session *s, uint64_t key);
void session_read_until_over(session *s);
void session_close(session *s);

#endif
