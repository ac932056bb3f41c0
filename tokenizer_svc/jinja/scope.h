// Names become places. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_SCOPE_H
#define RELAY_TOKENIZER_SVC_JINJA_SCOPE_H

#include "tokenizer_svc/jinja/template.h"

// Resolves every variable, filter and test of the tree.
bool jinja_resolve(jinja_compiler *c) RELAY_NODISCARD;

#endif
