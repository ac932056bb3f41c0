#include "tokenizer_svc/dispatch.h"

#include <stdlib.h>

#include "common/message.h"

// A request of more bytes is a long job: about a millisecond of tokenizing.
enum { SHORT_REQUEST_BYTES = 32 << 10 };

typedef struct job {
    relay_rpc_call *call; // a reference
    ProtobufCMessage *message;
    relay_handler handler;
} job;

static void finish_job(job *j, relay_code code, const relay_err *e) {
    if (code != RELAY_OK) relay_rpc_call_finish(j->call, code, e);
    protobuf_c_message_free_unpacked(j->message, NULL);
    relay_rpc_call_unref(j->call);
    free(j);
}

static void run(void *arg) {
    job *j = arg;
    relay_err e = {0};
    relay_code code = RELAY_OK;
    // Whoever has gone while the job waited costs nothing more.
    if (!relay_rpc_call_is_over(j->call)) {
        code = relay_message_check(j->message, &e);
        if (code == RELAY_OK) code = relay_rpc_check_utf8(j->message, &e);
        if (code == RELAY_OK) code = j->handler(j->call, j->message, &e);
    }
    finish_job(j, code, &e);
}

bool relay_dispatch_is_over(void *call) {
    return relay_rpc_call_is_over(call);
}

void relay_dispatch(relay_workers *workers, relay_rpc_call *call, bool is_long, relay_handler handler) {
    job *j = relay_calloc(1, sizeof *j);
    *j = (job){.call = call, .message = relay_rpc_call_take_message(call), .handler = handler};
    relay_rpc_call_ref(call);
    relay_err e = {0};
    is_long = is_long || relay_rpc_call_request_bytes(call) > SHORT_REQUEST_BYTES;
    relay_code code = relay_workers_submit(workers, is_long ? RELAY_LANE_LONG : RELAY_LANE_SHORT, run, j, &e);
    if (code != RELAY_OK) finish_job(j, code, &e);
}
