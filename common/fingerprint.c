#include "common/fingerprint.h"

#include <string.h>

#include "common/ident.h"

relay_code relay_fingerprint_check(const uint8_t *got, size_t got_len, const uint8_t *want, relay_err *e) {
    if (got_len != RELAY_FINGERPRINT_BYTES) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "tokenizer_fingerprint has %zu bytes; it is %d bytes long",
                          got_len, RELAY_FINGERPRINT_BYTES);
    }
    if (memcmp(got, want, RELAY_FINGERPRINT_BYTES) == 0) return RELAY_OK;
    char got_hex[2 * RELAY_FINGERPRINT_BYTES + 1], want_hex[2 * RELAY_FINGERPRINT_BYTES + 1];
    relay_ident_hex(got_hex, got, RELAY_FINGERPRINT_BYTES);
    relay_ident_hex(want_hex, want, RELAY_FINGERPRINT_BYTES);
    return relay_fail(e, RELAY_FAILED_PRECONDITION,
                      "tokenizer_fingerprint is %s, but this model's vocabulary is %s: the ids would mean other text",
                      got_hex, want_hex);
}
