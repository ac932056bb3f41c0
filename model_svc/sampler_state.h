// The state that a sampler carries from one id to the next, as clients keep it for a resume: a version byte, then what
// it holds. Mirostat's is one float32, little-endian; other samplers have none.
#ifndef RELAY_MODEL_SVC_SAMPLER_STATE_H
#define RELAY_MODEL_SVC_SAMPLER_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum { RELAY_SAMPLER_STATE_BYTES = 5 };

void relay_sampler_state_write(uint8_t out[RELAY_SAMPLER_STATE_BYTES], float mirostat_mu);
// INVALID_ARGUMENT naming resume.sampler_state where it is none that this build writes.
relay_code relay_sampler_state_read(float *mirostat_mu, const uint8_t *data, size_t len, relay_err *e) RELAY_NODISCARD;

#endif
