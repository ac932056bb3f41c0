// What the text service knows of one model: its name, vocabulary, tokenizer and chat templates. Immutable after load;
// any number of threads.
#ifndef RELAY_TOKENIZER_SVC_TEXT_MODEL_H
#define RELAY_TOKENIZER_SVC_TEXT_MODEL_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "common/vocab.h"
#include "relay/v1/chat.pb-c.h"
#include "tokenizer_svc/chat_template.h"
#include "tokenizer_svc/decoder.h"
#include "tokenizer_svc/tokenizer.h"
#include "tokenizer_svc/turn_end.h"

typedef struct relay_text_model relay_text_model;

// From a file or folder of any format (formats/formats.h). `name` is what clients call it, "" for what the file says,
// or its own name. A chat template that does not compile is no error here: whoever asks for it is told.
relay_code relay_text_model_load(relay_text_model **out, const char *path, const char *name,
                                 relay_err *e) RELAY_NODISCARD;
void relay_text_model_destroy(relay_text_model *m);

const char *relay_text_model_name(const relay_text_model *m);
const relay_vocab *relay_text_model_vocab(const relay_text_model *m);
const relay_tokenizer *relay_text_model_tokenizer(const relay_text_model *m);
const relay_text_decoder *relay_text_model_decoder(const relay_text_model *m);
bool relay_text_model_has_chat_template(const relay_text_model *m);
// Names of the templates beside the default one.
uint32_t relay_text_model_template_count(const relay_text_model *m);
const char *relay_text_model_template_name(const relay_text_model *m, uint32_t i);

// NOT_FOUND where a client asks for a model by another name; unset means this one.
relay_code relay_text_model_check_name(const relay_text_model *m, protobuf_c_boolean is_set, ProtobufCBinaryData name,
                                       relay_err *e) RELAY_NODISCARD;
// FAILED_PRECONDITION naming both where a client's ids are of another vocabulary; unset is fine.
relay_code relay_text_model_check_fingerprint(const relay_text_model *m, protobuf_c_boolean is_set,
                                              ProtobufCBinaryData fingerprint, relay_err *e) RELAY_NODISCARD;
// INVALID_ARGUMENT naming the first id that is not below the vocabulary's size.
relay_code relay_text_model_check_ids(const relay_text_model *m, const uint32_t *ids, size_t n, const char *field,
                                      relay_err *e) RELAY_NODISCARD;

// What a template sees of the special tokens; valid as long as the model.
relay_chat_tokens relay_text_model_chat_tokens(const relay_text_model *m);
// Renders with the template that `chat` names. FAILED_PRECONDITION where there is none. *turn_end: what that template
// ends an answer with; belongs to the model.
relay_code relay_text_model_render(const relay_text_model *m, const Relay__V1__Chat *chat,
                                   const relay_render_watch *watch, relay_rendered *out,
                                   const relay_turn_end **turn_end, relay_err *e) RELAY_NODISCARD;
// INVALID_ARGUMENT naming the first of the chat's token_ids that is not below the vocabulary's size.
relay_code relay_text_model_check_chat_ids(const relay_text_model *m, const Relay__V1__Chat *chat,
                                           relay_err *e) RELAY_NODISCARD;
// Tokenizes a rendered chat: names of special tokens count only where the template wrote them, so that no message can
// pretend to be another role's; with parse_special everywhere. BOS is added where the tokenizer file asks for it and
// the template has not done it. Turns of the chat that have token_ids are those ids, but for ids at their end that end
// an answer, which the template writes itself: text on either side is tokenized for itself. `chat` NULL: there are no
// such turns. Appends to *enc, which is empty.
relay_code relay_text_model_encode_rendered(const relay_text_model *m, const relay_rendered *rendered,
                                            const Relay__V1__Chat *chat, bool parse_special, relay_encoding *enc,
                                            relay_err *e) RELAY_NODISCARD;

#endif
