#include "model_svc/answer.h"

#include <stdlib.h>
#include <string.h>

#include "common/ident.h"
#include "common/log.h"
#include "common/message.h"
#include "common/status.h"
#include "model_svc/request_read.h"

relay_answer *relay_answer_create(void) {
    relay_answer *a = relay_calloc(1, sizeof *a);
    a->request.owner = a;
    uint8_t id[RELAY_SERVER_REQUEST_ID_BYTES];
    relay_ident_random(id, sizeof id);
    relay_ident_hex(a->server_request_id, id, sizeof id);
    return a;
}

void relay_answer_destroy(relay_answer *a) {
    if (a == NULL) return;
    relay_request_fini(&a->request);
    free(a->token_ids);
    free(a->logprobs);
    free(a->top_ids);
    free(a->top_logprobs);
    free(a->tops);
    free(a->top_pointers);
    free(a);
}

static bool has_logprobs(const relay_answer *a) {
    return a->request.sampling.logprob_mode != RELAY_LOGPROB_NONE;
}

static void grow(relay_answer *a) {
    // A stream tells every step, so that a few are enough; what is told only at its end doubles.
    a->cap = a->cap == 0 ? 4 : 2 * a->cap;
    uint64_t n = a->cap, n_top = a->request.sampling.n_top;
    a->token_ids = relay_realloc(a->token_ids, n * sizeof *a->token_ids);
    if (!has_logprobs(a)) return;
    a->logprobs = relay_realloc(a->logprobs, n * sizeof *a->logprobs);
    if (n_top == 0) return;
    a->top_ids = relay_realloc(a->top_ids, n * n_top * sizeof *a->top_ids);
    a->top_logprobs = relay_realloc(a->top_logprobs, n * n_top * sizeof *a->top_logprobs);
    a->tops = relay_realloc(a->tops, n * sizeof *a->tops);
    a->top_pointers = relay_realloc(a->top_pointers, n * sizeof *a->top_pointers);
}

static void note_token(relay_answer *a, const relay_sample_result *sample) {
    if (a->first_token_at == 0) a->first_token_at = relay_mono_now();
    if (a->n_tokens == a->cap) grow(a);
    uint32_t i = a->n_tokens++;
    a->token_ids[i] = sample->token_id;
    if (!has_logprobs(a)) return;
    a->logprobs[i] = sample->logprob;
    uint32_t n_top = a->request.sampling.n_top;
    if (n_top == 0) return;
    memcpy(a->top_ids + (size_t)i * n_top, sample->top_ids, sample->n_top * sizeof *a->top_ids);
    memcpy(a->top_logprobs + (size_t)i * n_top, sample->top_logprobs, sample->n_top * sizeof *a->top_logprobs);
    Relay__V1__TopLogprobs *top = &a->tops[i];
    relay__v1__top_logprobs__init(top);
    top->n_token_ids = top->n_logprobs = sample->n_top;
    RELAY_SET(top, chosen_rank, sample->rank);
}

void relay_answer_note(relay_answer *a, const relay_event *event) {
    switch (event->kind) {
    case RELAY_EVENT_STARTED:
        a->is_started = true;
        a->cached_tokens = event->cached_tokens;
        break;
    case RELAY_EVENT_TOKEN:
        note_token(a, &event->sample);
        break;
    case RELAY_EVENT_FINISHED:
    case RELAY_EVENT_FAILED:
        a->is_ended = true;
        a->end = *event;
        break;
    }
}

static void put_started(relay_answer *a, const char *pod) {
    Relay__V1__TokensStarted *s = &a->started;
    relay__v1__tokens_started__init(s);
    RELAY_SET(s, prompt_tokens, a->request.n_prompt);
    RELAY_SET(s, cached_tokens, a->cached_tokens);
    RELAY_SET(s, seed, a->request.sampling.seed);
    RELAY_SET(s, pod, relay_message_text(pod));
    RELAY_SET(s, server_request_id, relay_message_text(a->server_request_id));
    a->response.started = s;
    a->is_started_told = true;
}

static void put_tokens(relay_answer *a) {
    Relay__V1__GenerateTokensResponse *r = &a->response;
    r->n_token_ids = a->n_tokens;
    r->token_ids = a->token_ids;
    if (has_logprobs(a)) {
        r->n_logprobs = a->n_tokens;
        r->logprobs = a->logprobs;
    }
    uint32_t n_top = a->request.sampling.n_top;
    if (n_top != 0) {
        // Pointers only here: the arrays may have moved since the tokens were noted.
        for (uint32_t i = 0; i < a->n_tokens; i++) {
            a->tops[i].token_ids = a->top_ids + (size_t)i * n_top;
            a->tops[i].logprobs = a->top_logprobs + (size_t)i * n_top;
            a->top_pointers[i] = &a->tops[i];
        }
        r->n_top_logprobs = a->n_tokens;
        r->top_logprobs = a->top_pointers;
    }
    a->n_tokens = 0;
}

static void put_finished(relay_answer *a) {
    const relay_event *end = &a->end;
    Relay__V1__TokensFinished *f = &a->finished;
    relay__v1__tokens_finished__init(f);
    relay__v1__request_timings__init(&a->timings);
    RELAY_SET(&a->timings, queue_us, end->queue_us);
    RELAY_SET(&a->timings, prefill_us, end->prefill_us);
    RELAY_SET(&a->timings, decode_us, end->decode_us);
    f->timings = &a->timings;
    RELAY_SET(f, reason, (Relay__V1__FinishReason)end->finish);
    RELAY_SET(f, output_tokens, end->output_tokens);
    RELAY_SET(f, preemptions, end->preemptions);
    if (end->finish == RELAY_FINISH_EOS || end->finish == RELAY_FINISH_STOP_TOKEN) {
        f->cause_case = RELAY__V1__TOKENS_FINISHED__CAUSE_STOP_TOKEN_ID;
        f->stop_token_id = end->stop_cause;
    } else if (end->finish == RELAY_FINISH_STOP_SEQUENCE) {
        f->cause_case = RELAY__V1__TOKENS_FINISHED__CAUSE_STOP_SEQUENCE_INDEX;
        f->stop_sequence_index = end->stop_cause;
    }
    a->response.finished = f;
}

Relay__V1__GenerateTokensResponse *relay_answer_tell(relay_answer *a, const char *pod) {
    bool is_finished = a->is_ended && a->end.kind == RELAY_EVENT_FINISHED;
    if (a->request.is_final_only && !is_finished) return NULL;
    bool tells_start = !a->is_started_told && (a->is_started || is_finished);
    if (!tells_start && a->n_tokens == 0 && !is_finished) return NULL;
    relay__v1__generate_tokens_response__init(&a->response);
    if (tells_start) put_started(a, pod);
    if (a->n_tokens != 0) put_tokens(a);
    if (is_finished) put_finished(a);
    return &a->response;
}

static const char *end_name(const relay_event *end) {
    if (end->kind == RELAY_EVENT_FAILED) return relay_code_name(end->code);
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&relay__v1__finish_reason__descriptor, (int)end->finish);
    // Without the prefix that the style of the contract asks for.
    return value == NULL ? "?" : value->name + strlen("FINISH_REASON_");
}

void relay_answer_log_end(const relay_answer *a) {
    const relay_request *r = &a->request;
    const relay_event *end = &a->end;
    double ttft_ms = a->first_token_at == 0 ? 0 : (double)(a->first_token_at - r->received_at) / 1000;
    RELAY_LOG(RELAY_LOG_INFO, "request finished",
              "request_id=%s sequence_id=%s tenant=%s trace_id=%s prompt_tokens=%u resumed_tokens=%u output_tokens=%u "
              "cached_tokens=%u queue_ms=%.1f ttft_ms=%.1f total_ms=%.1f preemptions=%u finish=%s",
              r->request_id, r->sequence_id, r->tenant, a->trace_id, r->n_prompt, r->n_tokens - r->n_prompt,
              end->output_tokens, a->cached_tokens, (double)end->queue_us / 1000, ttft_ms,
              (double)(relay_mono_now() - r->received_at) / 1000, end->preemptions, end_name(end));
}
