// Grammars in GBNF, the notation of llama.cpp (its grammars/README.md), read into a grammar.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_GBNF_H
#define RELAY_MODEL_SVC_CONSTRAINT_GBNF_H

#include <stddef.h>

#include "model_svc/constraint/grammar.h"

// `text` is valid UTF-8. Its rule "root" becomes the grammar's root.
relay_code relay_gbnf_read(relay_grammar *g, const char *text, size_t len, const char *field,
                           relay_err *e) RELAY_NODISCARD;

#endif
