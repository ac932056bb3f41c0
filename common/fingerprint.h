// The fingerprint of a vocabulary as it travels with requests.
#ifndef RELAY_COMMON_FINGERPRINT_H
#define RELAY_COMMON_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "common/vocab.h"

// OK where the client's is `want` [RELAY_FINGERPRINT_BYTES]; FAILED_PRECONDITION naming both where it is another,
// because then its ids would mean other text; INVALID_ARGUMENT where it is no fingerprint.
relay_code relay_fingerprint_check(const uint8_t *got, size_t got_len, const uint8_t *want,
                                   relay_err *e) RELAY_NODISCARD;

#endif
