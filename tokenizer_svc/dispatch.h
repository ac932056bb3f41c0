// A call's message handed from its queue thread to a worker.
#ifndef RELAY_TOKENIZER_SVC_DISPATCH_H
#define RELAY_TOKENIZER_SVC_DISPATCH_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "common/rpc_server.h"
#include "common/status.h"
#include "tokenizer_svc/workers.h"

// Runs on a worker. The message has been checked (known fields and values, text that is UTF-8); it is borrowed until
// the handler returns. OK: the handler has answered the call, or somebody will who holds a reference. An error ends the
// call.
typedef relay_code (*relay_handler)(relay_rpc_call *call, const ProtobufCMessage *message, relay_err *e);

// A call as a relay_render_watch.
bool relay_dispatch_is_over(void *call);
// Inside on_message. A large request goes to the lane for long jobs, and so does one that `is_long` in any case. Ends
// the call with RESOURCE_EXHAUSTED where the workers have too much to do.
void relay_dispatch(relay_workers *workers, relay_rpc_call *call, bool is_long, relay_handler handler);

#endif
