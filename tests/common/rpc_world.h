// A server and a client in one process, with a small service that shows every kind of call: the world of the rpc tests.
//
// All messages are relay.v1.DetokenizeResponse, for its one text field. The service counts what happens to its calls,
// so that a test can wait for an event instead of sleeping.
#ifndef RELAY_TESTS_COMMON_RPC_WORLD_H
#define RELAY_TESTS_COMMON_RPC_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rpc_client.h"
#include "common/rpc_server.h"
#include "relay/v1/tokenizer.pb-c.h"

// Answers with the request's text.
#define ECHO "/relay.test.Echo/Unary"
// Fails with RESOURCE_EXHAUSTED, the request's text as message and a retry hint of 1234 ms.
#define FAIL "/relay.test.Echo/Fail"
// Sends "0", "1", ... as many as the request's text says, and ends with OK.
#define COUNT "/relay.test.Echo/Count"
// Joins the texts of a stream and answers at its end.
#define JOIN "/relay.test.Echo/Join"
// Answers each message of a stream, ends with OK at the half-close.
#define CHAT "/relay.test.Echo/Chat"
// Sends one message if the text is "first", and goes on for ever: until rpc_world_release, or the call is cancelled.
#define HANG "/relay.test.Echo/Hang"
// Answers with the peer.
#define PEER "/relay.test.Echo/Peer"
// Answers although max_calls is reached.
#define ALWAYS "/relay.test.Echo/Always"

typedef struct rpc_world rpc_world;

// What has happened to the calls of this world. Read under a lock by rpc_world_wait and rpc_world_count.
typedef struct rpc_world_counts {
    uint32_t started, messages, half_closed, cancelled, drained, destroyed;
    bool callback_overlap; // two callbacks of one call at a time, or one on a wrong thread
} rpc_world_counts;

rpc_world *rpc_world_create(const relay_rpc_server_opts *server_opts, const relay_rpc_client_opts *client_opts);
void rpc_world_destroy(rpc_world *w);
relay_rpc_client *rpc_world_client(rpc_world *w);
relay_rpc_server *rpc_world_server(rpc_world *w);
const char *rpc_world_target(rpc_world *w);
// A client of its own connection; the caller destroys it.
relay_rpc_client *rpc_world_new_client(rpc_world *w, const relay_rpc_client_opts *opts);
// The server drains and is destroyed with the world unless the test does it: drains now.
void rpc_world_drain(rpc_world *w, relay_mono_us grace_us);

rpc_world_counts rpc_world_count(rpc_world *w);
// Waits until `counts` fields reach at least those given (0 is "any"); fails the test after ten seconds.
void rpc_world_wait(rpc_world *w, rpc_world_counts at_least);
// The call that hangs, with a reference for the test; waits for it.
relay_rpc_call *rpc_world_hanging(rpc_world *w);
// Sends texts of 1000 letters to a client that does not read, until the transport has taken all it will take and the
// outbox of `outbox_bytes` is full too. Gives their number.
int rpc_world_stuff(relay_rpc_call *call, uint64_t outbox_bytes);
// Finishes every hanging call with OK and lets go of it.
void rpc_world_release(rpc_world *w);

// ---- Shorthands for clients

Relay__V1__DetokenizeResponse rpc_text(const char *text);
// Deadline of calls that are expected to end by themselves.
relay_mono_us rpc_soon(void);
relay_rpc_stream *rpc_open(relay_rpc_client *c, const char *path);
// Opens, sends one text and half-closes.
relay_rpc_stream *rpc_ask(relay_rpc_client *c, const char *path, const char *text);
void rpc_send(relay_rpc_stream *s, const char *text);
// The next message's text must be this.
void rpc_expect(relay_rpc_stream *s, const char *text);
// The stream must end here with this code; returns the error's message (static).
const char *rpc_expect_end(relay_rpc_stream *s, relay_code code);
// A unary call; on OK copies the answer to `answer` (256 bytes), else the message.
relay_code rpc_unary(relay_rpc_client *c, const char *path, const char *text, char *answer);

#endif
