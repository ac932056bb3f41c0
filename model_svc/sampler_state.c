#include "model_svc/sampler_state.h"

#include <math.h>
#include <string.h>

enum { VERSION = 1 };

void relay_sampler_state_write(uint8_t out[RELAY_SAMPLER_STATE_BYTES], float mirostat_mu) {
    uint32_t bits;
    memcpy(&bits, &mirostat_mu, sizeof bits);
    out[0] = VERSION;
    for (uint32_t i = 0; i < 4; i++)
        out[1 + i] = (uint8_t)(bits >> 8 * i);
}

relay_code relay_sampler_state_read(float *mirostat_mu, const uint8_t *data, size_t len, relay_err *e) {
    if (len != RELAY_SAMPLER_STATE_BYTES || data[0] != VERSION) {
        return relay_fail(
            e, RELAY_INVALID_ARGUMENT,
            "resume.sampler_state has %zu bytes and begins with %u; allowed is what a response said: %d bytes "
            "that begin with %d",
            len, len == 0 ? 0 : (unsigned)data[0], RELAY_SAMPLER_STATE_BYTES, VERSION);
    }
    uint32_t bits = 0;
    float mu;
    for (uint32_t i = 0; i < 4; i++)
        bits |= (uint32_t)data[1 + i] << 8 * i;
    memcpy(&mu, &bits, sizeof mu);
    if (!isfinite(mu)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "resume.sampler_state holds %g; allowed is a finite number",
                          (double)mu);
    }
    *mirostat_mu = mu;
    return RELAY_OK;
}
