// From bytes to a request of the engine: whatever is accepted is within every bound that the engine relies on.
#include <stdlib.h>
#include <string.h>

#include "common/message.h"
#include "common/vocab.h"
#include "model_svc/request_read.h"
#include "tests/fuzz/fuzz.h"
#include "tests/model_svc/constraint/byte_vocab.h"

enum { VOCAB = 300, CONTEXT = 40 };

static const uint32_t eos_ids[] = {2, 9};
static const uint8_t fingerprint[RELAY_FINGERPRINT_BYTES];
static relay_request_rules rules = {
    .vocab_size = VOCAB,
    .max_context = CONTEXT,
    .eos_ids = eos_ids,
    .n_eos_ids = 2,
    .fingerprint = fingerprint,
    .defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
};

static void check_request(const relay_request *r) {
    RELAY_ASSERT(r->n_prompt >= 1 && r->n_prompt <= r->n_tokens && r->n_tokens < CONTEXT);
    for (uint32_t i = 0; i < r->n_tokens; i++)
        RELAY_ASSERT(r->token_ids[i] < VOCAB);
    RELAY_ASSERT(r->max_new_tokens >= 1 && r->min_new_tokens <= r->max_new_tokens);
    RELAY_ASSERT(r->n_tokens - r->n_prompt < r->max_new_tokens);
    RELAY_ASSERT(r->n_stop_ids <= RELAY_MAX_STOP_TOKEN_IDS);
    for (uint32_t i = 0; i < r->n_stop_ids; i++)
        RELAY_ASSERT(r->stop_ids[i] < VOCAB && (i == 0 || r->stop_ids[i - 1] < r->stop_ids[i]));
    const relay_sample_params *p = &r->sampling;
    RELAY_ASSERT(p->temperature >= 0 && p->temperature <= 2);
    RELAY_ASSERT(p->top_p > 0 && p->top_p <= 1);
    RELAY_ASSERT(p->min_p >= 0 && p->min_p <= 1);
    RELAY_ASSERT(p->repetition_penalty > 0 && p->repetition_penalty <= 2);
    RELAY_ASSERT(p->frequency_penalty >= -2 && p->frequency_penalty <= 2);
    RELAY_ASSERT(p->presence_penalty >= -2 && p->presence_penalty <= 2);
    RELAY_ASSERT(p->n_top <= RELAY_MAX_TOP_LOGPROBS && p->seed < 1ull << 53);
    RELAY_ASSERT(strlen(r->request_id) <= RELAY_MAX_LABEL_BYTES && strlen(r->sequence_id) <= RELAY_MAX_LABEL_BYTES);
}

static void on_settled(void *arg) {
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (rules.constraints == NULL) {
        rules.constraints = relay_constraint_cache_create(byte_vocab_create(), VOCAB, on_settled, NULL);
    }
    Relay__V1__GenerateTokensRequest *m = relay__v1__generate_tokens_request__unpack(NULL, size, data);
    if (m == NULL) return 0;
    relay_err e;
    relay_request r;
    if (relay_message_check(&m->base, &e) == RELAY_OK && relay_request_read(&r, m, &rules, &e) == RELAY_OK) {
        protobuf_c_message_free_unpacked(&m->base, NULL); // the request keeps nothing of it
        m = NULL;
        check_request(&r);
        relay_request_fini(&r);
    }
    if (m != NULL) protobuf_c_message_free_unpacked(&m->base, NULL);
    return 0;
}

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    static uint32_t ids[] = {1, 2, 255, 299}, stops[] = {7, 7, 3};
    Relay__V1__GenerateTokensRequest m = RELAY__V1__GENERATE_TOKENS_REQUEST__INIT;
    Relay__V1__SamplingParams sampling = RELAY__V1__SAMPLING_PARAMS__INIT;
    Relay__V1__StopCriteria stop = RELAY__V1__STOP_CRITERIA__INIT;
    Relay__V1__OutputOptions output = RELAY__V1__OUTPUT_OPTIONS__INIT;
    Relay__V1__Resume resume = RELAY__V1__RESUME__INIT;
    m.n_prompt_token_ids = 4;
    m.prompt_token_ids = ids;
    if (i >= 1) {
        m.sampling = &sampling;
        RELAY_SET(&sampling, temperature, 0.5f);
        RELAY_SET(&sampling, top_p, 0.9f);
        RELAY_SET(&sampling, min_p, 0.1f);
        RELAY_SET(&sampling, repetition_penalty, 1.1f);
        RELAY_SET(&sampling, frequency_penalty, -0.1f);
        RELAY_SET(&sampling, seed, 1234567);
    }
    if (i >= 2) {
        m.stop = &stop;
        m.output = &output;
        m.resume = &resume;
        RELAY_SET(&stop, max_new_tokens, 12);
        RELAY_SET(&stop, min_new_tokens, 3);
        stop.n_stop_token_ids = 3;
        stop.stop_token_ids = stops;
        RELAY_SET(&output, top_logprobs, 20);
        RELAY_SET(&output, logprob_mode, RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_PROCESSED);
        resume.n_generated_token_ids = 2;
        resume.generated_token_ids = ids;
        RELAY_SET(&m, request_id, relay_message_text("request"));
        RELAY_SET(&m, tokenizer_fingerprint, relay_message_bytes(fingerprint, sizeof fingerprint));
        RELAY_SET(&m, time_limit_ms, 5);
    }
    size_t size = relay__v1__generate_tokens_request__get_packed_size(&m);
    if (i > 2 || size > cap) return 0;
    return relay__v1__generate_tokens_request__pack(&m, out);
}
