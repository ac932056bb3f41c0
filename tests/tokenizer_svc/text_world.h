// Both services in one process: the text services, linked to a model service over the scripted model, and a client.
//
// The vocabulary has the model's 1000 ids: single bytes, words, characters of two to four bytes, and pieces that begin
// or end inside a character, so that what the model says is a hard case for whoever makes text of it.
#ifndef RELAY_TESTS_TOKENIZER_SVC_TEXT_WORLD_H
#define RELAY_TESTS_TOKENIZER_SVC_TEXT_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rpc_client.h"
#include "common/rpc_server.h"
#include "relay/v1/generation.pb-c.h"
#include "relay/v1/tokenizer.pb-c.h"
#include "tests/common/tcp_proxy.h"
#include "tests/model_svc/service_world.h"
#include "tokenizer_svc/generate.h"
#include "tokenizer_svc/service.h"

// The special tokens. Chats are rendered as <|user|>text<|end|> and so on, <|assistant|> in front of the answer.
#define TEXT_BOS       "<|begin|>"
#define TEXT_EOS       "<|end|>"
#define TEXT_USER      "<|user|>"
#define TEXT_ASSISTANT "<|assistant|>"

typedef struct text_world_opts {
    bool has_no_model;  // no model server is named
    bool has_proxy;     // between the text service and the model service
    bool model_differs; // the model service has another vocabulary
    bool has_no_template;
    bool has_no_bos;           // BOS is not added
    const char *chat_template; // NULL: as above
    uint64_t max_text_bytes;   // 0: 64 KiB
    uint32_t n_workers, max_jobs, outbox_bytes;
    service_world_opts model;
} text_world_opts;

typedef struct text_world {
    char file[512];
    service_world *model;
    tcp_proxy *proxy; // NULL without one
    char model_address[64];
    relay_text_model *text;
    relay_metrics *metrics;
    relay_workers *workers;
    relay_model_link *link;
    relay_rpc_server *server;
    relay_tokenizer_service *tokenizer;
    relay_generation_service *generation;
    relay_rpc_client *client;
} text_world;

// Waits until the link is ready, where there is one that can be.
text_world *text_world_create(text_world_opts opts);
void text_world_destroy(text_world *w);
// Writes such a vocabulary to a file in the test's own folder; `number` tells files apart.
void text_world_write_file(const text_world_opts *opts, int number, char *path, size_t cap);
void text_world_wait_for_pods(relay_model_link *link, uint32_t n_ready);

uint32_t text_world_id(text_world *w, const char *bytes);
// What Detokenize makes of the ids. The caller frees.
char *text_world_detokenize(text_world *w, const uint32_t *ids, size_t n, bool skip_special, size_t *len);

// A unary call: the response, or NULL with *e.
ProtobufCMessage *text_world_call(text_world *w, const char *service, const char *method, const ProtobufCMessage *m,
                                  const ProtobufCMessageDescriptor *response, relay_err *e);

// ---- Generate

// A prompt of ids; the pointers of `r` point into itself: it must not be copied.
typedef struct text_request {
    Relay__V1__GenerateRequest message;
    Relay__V1__SamplingParams sampling;
    Relay__V1__TextStop stop;
    Relay__V1__TextOutput output;
    Relay__V1__TokenIds ids;
    uint32_t prompt[256];
    ProtobufCBinaryData stop_strings[20];
} text_request;
void text_request_init(text_request *r, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed);
void text_request_add_stop(text_request *r, const char *bytes, size_t len);

typedef struct text_answer {
    char text[1 << 16];
    size_t text_len;
    uint32_t ids[4096];
    float logprobs[4096];
    uint32_t n_ids, n_logprobs, n_tops, n_messages;
    bool is_started, is_finished;
    uint32_t prompt_tokens;
    uint64_t seed;
    char pod[256], model[128];
    Relay__V1__FinishReason reason;
    char stop_string[300];
    uint32_t stop_token_id, output_tokens;
    bool has_timings;
    uint64_t queue_us;
    relay_code code;
    char error[RELAY_ERR_MESSAGE_MAX];
    uint32_t retry_after_ms;
} text_answer;

relay_rpc_stream *text_open(relay_rpc_client *c, const Relay__V1__GenerateRequest *m);
// Adds the next message; false at the end of the call.
bool text_read(relay_rpc_stream *s, text_answer *a);
void text_read_all(relay_rpc_stream *s, text_answer *a);
void text_generate(text_world *w, const Relay__V1__GenerateRequest *m, text_answer *a);

#endif
