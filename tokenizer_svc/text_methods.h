// What TokenizerService does, without the wire: a request message in, a response message out.
//
// The gRPC service (service.c) and the command line, which needs no server for it, give the same answers because they
// run the same code. Stateless; any number of threads.
#ifndef RELAY_TOKENIZER_SVC_TEXT_METHODS_H
#define RELAY_TOKENIZER_SVC_TEXT_METHODS_H

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/text_model.h"

typedef struct relay_text_call {
    const relay_text_model *model;   // borrowed; NULL: only chats whose request brings the template can be rendered
    uint64_t max_text_bytes;         // of all texts of one request
    const relay_render_watch *watch; // whose call it is; NULL: the answer is wanted in any case
    // Takes the response, which is borrowed until this returns. Called once by a method that returns OK, but for one
    // that ended early because nobody waits any more.
    void (*reply)(void *arg, const ProtobufCMessage *response);
    void *arg;
} relay_text_call;

// A method takes its own kind of request, whose text fields are valid UTF-8 (relay_rpc_check_utf8). Errors name the
// field, and nothing was replied then.
typedef relay_code (*relay_text_method)(const relay_text_call *call, const ProtobufCMessage *request, relay_err *e);

relay_code relay_text_tokenize(const relay_text_call *call, const ProtobufCMessage *request,
                               relay_err *e) RELAY_NODISCARD;
relay_code relay_text_tokenize_batch(const relay_text_call *call, const ProtobufCMessage *request,
                                     relay_err *e) RELAY_NODISCARD;
relay_code relay_text_render_chat(const relay_text_call *call, const ProtobufCMessage *request,
                                  relay_err *e) RELAY_NODISCARD;
relay_code relay_text_detokenize(const relay_text_call *call, const ProtobufCMessage *request,
                                 relay_err *e) RELAY_NODISCARD;
relay_code relay_text_detokenize_step(const relay_text_call *call, const ProtobufCMessage *request,
                                      relay_err *e) RELAY_NODISCARD;
relay_code relay_text_get_tokenizer_info(const relay_text_call *call, const ProtobufCMessage *request,
                                         relay_err *e) RELAY_NODISCARD;

#endif
