// Whom a command asks for text's sake: a tokenizer file in this process, or a server over gRPC. The answers are the
// same: the code behind both is tokenizer_svc/text_methods.
#ifndef RELAY_CLI_TEXT_SERVICE_H
#define RELAY_CLI_TEXT_SERVICE_H

#include <stdbool.h>

#include "cli/cli.h"
#include "common/status.h"

typedef struct relay_cli_text relay_cli_text;

typedef enum relay_cli_text_method {
    RELAY_CLI_TOKENIZE,
    RELAY_CLI_DETOKENIZE,
    RELAY_CLI_RENDER_CHAT,
} relay_cli_text_method;

// The flag that names a file; its value is where `*tokenizer` points, "" where it was not given.
relay_config_entry relay_cli_text_flag(const char **tokenizer);

// With `tokenizer` not "" in this process; else, where `needs_none`, with no tokenizer at all and without a server
// unless one was named; else the server. Returns an exit code, having printed what is wrong; *out is NULL then.
int relay_cli_text_open(relay_cli_text **out, const char *tokenizer, const relay_cli_common *common, bool needs_none);
void relay_cli_text_close(relay_cli_text *t);
// The model's name where a tokenizer is loaded in this process, else what --model says; "" for none.
const char *relay_cli_text_model(const relay_cli_text *t);

// `reply` takes the response, borrowed until it returns, once where this is OK.
relay_code relay_cli_text_call(relay_cli_text *t, relay_cli_text_method method, const ProtobufCMessage *request,
                               void (*reply)(void *arg, const ProtobufCMessage *response), void *arg,
                               relay_err *e) RELAY_NODISCARD;

#endif
