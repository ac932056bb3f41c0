// The strings that break DRY's repeats, as ids: every token whose text holds one of them, because that is where a
// string shows up in a sequence of ids, whatever it is joined with.
#ifndef RELAY_TOKENIZER_SVC_BREAKERS_H
#define RELAY_TOKENIZER_SVC_BREAKERS_H

#include "common/status.h"
#include "common/vocab.h"
#include "relay/v1/sampling.pb-c.h"

enum { RELAY_MAX_BREAKERS = 64, RELAY_MAX_BREAKER_BYTES = 64 };

// The ids of dry->breakers, ascending, behind those of dry->breaker_token_ids; of "\n", ":", "\"" and "*" where dry has
// neither. The caller frees. INVALID_ARGUMENT naming a string that is empty, too long or in no token.
relay_code relay_breakers_make(uint32_t **ids, size_t *n, const Relay__V1__Dry *dry, const relay_vocab *vocab,
                               relay_err *e) RELAY_NODISCARD;

#endif
