#include "model_svc/answer.h"

#include <stdlib.h>
#include <string.h>

#include "common/ident.h"
#include "common/log.h"
#include "common/message.h"
#include "common/status.h"
#include "model_svc/step.h"
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
    for (uint32_t i = 0; i < a->n_parts; i++) {
        relay_answer_part *p = &a->parts[i];
        free(p->token_ids);
        free(p->logprobs);
        free(p->top_ids);
        free(p->top_logprobs);
        free(p->tops);
        free(p->top_pointers);
    }
    free(a->parts);
    free(a->score_logprobs);
    free(a->score_ids);
    free(a->score_tops);
    free(a->score_messages);
    free(a->score_pointers);
    relay_request_fini(&a->request);
    free(a);
}

void relay_answer_prepare(relay_answer *a) {
    a->n_parts = a->request.n_sequences;
    a->parts = relay_calloc(a->n_parts, sizeof a->parts[0]);
    for (uint32_t i = 0; i < a->n_parts; i++)
        a->parts[i].index = a->request.sampling.sequence_index + i;
}

// Ids with logprobs that a token's top_logprobs has at most: the most likely, then those wanted.
static uint32_t top_room(const relay_answer *a) {
    return a->request.sampling.n_top + a->request.n_wanted_ids;
}

static bool has_logprobs(const relay_answer *a) {
    return a->request.sampling.logprob_mode != RELAY_LOGPROB_NONE;
}

static void grow(const relay_answer *a, relay_answer_part *p) {
    // A stream tells every step, so that a few are enough; what is told only at its end doubles.
    p->cap = p->cap == 0 ? 4 : 2 * p->cap;
    uint64_t n = p->cap, n_top = top_room(a);
    p->token_ids = relay_realloc(p->token_ids, n * sizeof *p->token_ids);
    if (!has_logprobs(a)) return;
    p->logprobs = relay_realloc(p->logprobs, n * sizeof *p->logprobs);
    if (n_top == 0) return;
    p->top_ids = relay_realloc(p->top_ids, n * n_top * sizeof *p->top_ids);
    p->top_logprobs = relay_realloc(p->top_logprobs, n * n_top * sizeof *p->top_logprobs);
    p->tops = relay_realloc(p->tops, n * sizeof *p->tops);
    p->top_pointers = relay_realloc(p->top_pointers, n * sizeof *p->top_pointers);
}

static bool carries_state(const relay_answer *a) {
    return a->request.sampling.mirostat != 0;
}

static void note_token(relay_answer *a, relay_answer_part *p, const relay_sample_result *sample) {
    if (a->first_token_at == 0) a->first_token_at = relay_mono_now();
    if (p->n_tokens == p->cap) grow(a, p);
    uint32_t i = p->n_tokens++;
    p->token_ids[i] = sample->token_id;
    if (carries_state(a)) relay_sampler_state_write(p->sampler_state, sample->mirostat_mu);
    if (!has_logprobs(a)) return;
    p->logprobs[i] = sample->logprob;
    uint32_t room = top_room(a), n_wanted = a->request.n_wanted_ids;
    if (room == 0) return;
    uint32_t *ids = p->top_ids + (size_t)i * room;
    float *logprobs = p->top_logprobs + (size_t)i * room;
    memcpy(ids, sample->top_ids, sample->n_top * sizeof *ids);
    memcpy(logprobs, sample->top_logprobs, sample->n_top * sizeof *logprobs);
    if (n_wanted != 0) {
        memcpy(ids + sample->n_top, a->request.wanted_ids, n_wanted * sizeof *ids);
        memcpy(logprobs + sample->n_top, sample->wanted_logprobs, n_wanted * sizeof *logprobs);
    }
    Relay__V1__TopLogprobs *top = &p->tops[i];
    relay__v1__top_logprobs__init(top);
    top->n_token_ids = top->n_logprobs = sample->n_top + n_wanted;
    if (sample->rank != 0) RELAY_SET(top, chosen_rank, sample->rank);
}

static void note_score(relay_answer *a, const relay_sample_result *sample) {
    const uint64_t n_top = a->request.n_prompt_top;
    if (a->first_score == a->n_scores) a->first_score = a->n_scores = 0; // all are told
    if (a->n_scores == a->scores_cap) {
        a->scores_cap = a->scores_cap == 0 ? RELAY_MAX_SCORED_ROWS : 2 * a->scores_cap;
        const uint64_t n = a->scores_cap;
        a->score_logprobs = relay_realloc(a->score_logprobs, n * sizeof *a->score_logprobs);
        a->score_ids = relay_realloc(a->score_ids, n * n_top * sizeof *a->score_ids + 1);
        a->score_tops = relay_realloc(a->score_tops, n * n_top * sizeof *a->score_tops + 1);
        a->score_messages = relay_realloc(a->score_messages, n * sizeof *a->score_messages);
        a->score_pointers = relay_realloc(a->score_pointers, n * sizeof *a->score_pointers);
    }
    const uint32_t i = a->n_scores++;
    a->score_logprobs[i] = sample->logprob;
    if (n_top == 0) return;
    memcpy(a->score_ids + i * n_top, sample->top_ids, sample->n_top * sizeof *a->score_ids);
    memcpy(a->score_tops + i * n_top, sample->top_logprobs, sample->n_top * sizeof *a->score_tops);
    Relay__V1__TopLogprobs *top = &a->score_messages[i];
    relay__v1__top_logprobs__init(top);
    top->n_token_ids = top->n_logprobs = sample->n_top;
    RELAY_SET(top, chosen_rank, sample->rank);
}

// At most so many of the scores that are not told yet; false where there are more. The arrays stay as they are to the
// next note.
static bool put_scores(relay_answer *a, relay_answer_part *p, uint32_t max) {
    Relay__V1__PromptLogprobs *m = &a->prompt_logprobs;
    const uint64_t n_top = a->request.n_prompt_top;
    const uint32_t first = a->first_score;
    const uint32_t n = a->n_scores - first < max ? a->n_scores - first : max;
    relay__v1__prompt_logprobs__init(m);
    RELAY_SET(m, first_position, a->told_scores + 1);
    m->n_logprobs = n;
    m->logprobs = a->score_logprobs + first;
    for (uint32_t i = first; i < first + n && n_top != 0; i++) {
        a->score_messages[i].token_ids = a->score_ids + i * n_top;
        a->score_messages[i].logprobs = a->score_tops + i * n_top;
        a->score_pointers[i] = &a->score_messages[i];
    }
    m->n_top = n_top == 0 ? 0 : n;
    m->top = a->score_pointers + first;
    p->response.prompt_logprobs = m;
    a->told_scores += n;
    a->first_score += n;
    return a->first_score == a->n_scores;
}

void relay_answer_note(relay_answer *a, const relay_event *event) {
    relay_answer_part *p = &a->parts[event->index - a->parts[0].index];
    switch (event->kind) {
    case RELAY_EVENT_STARTED:
        // The first one computes the prompt; the others find what it made.
        if (!a->is_started) a->cached_tokens = event->cached_tokens;
        a->is_started = true;
        break;
    case RELAY_EVENT_SCORE:
        note_score(a, &event->sample);
        break;
    case RELAY_EVENT_TOKEN:
        note_token(a, p, &event->sample);
        break;
    case RELAY_EVENT_FINISHED:
        p->is_finished = true;
        p->finish = *event;
        a->output_tokens += event->output_tokens;
        a->preemptions += event->preemptions;
        break;
    case RELAY_EVENT_FAILED:
    case RELAY_EVENT_LEASE:
        break;
    }
    if (event->is_last) {
        a->is_ended = true;
        a->end = *event;
    }
}

static void put_started(relay_answer *a, relay_answer_part *p, const char *pod) {
    Relay__V1__TokensStarted *s = &a->started;
    relay__v1__tokens_started__init(s);
    RELAY_SET(s, prompt_tokens, a->request.n_prompt);
    RELAY_SET(s, cached_tokens, a->cached_tokens);
    RELAY_SET(s, seed, a->request.sampling.seed);
    RELAY_SET(s, pod, relay_message_text(pod));
    RELAY_SET(s, server_request_id, relay_message_text(a->server_request_id));
    p->response.started = s;
    a->is_started_told = true;
}

static void put_tokens(const relay_answer *a, relay_answer_part *p) {
    Relay__V1__GenerateTokensResponse *r = &p->response;
    r->n_token_ids = p->n_tokens;
    r->token_ids = p->token_ids;
    if (has_logprobs(a)) {
        r->n_logprobs = p->n_tokens;
        r->logprobs = p->logprobs;
    }
    if (carries_state(a)) RELAY_SET(r, sampler_state, relay_message_bytes(p->sampler_state, sizeof p->sampler_state));
    uint32_t room = top_room(a);
    if (room != 0) {
        // Pointers only here: the arrays may have moved since the tokens were noted.
        for (uint32_t i = 0; i < p->n_tokens; i++) {
            p->tops[i].token_ids = p->top_ids + (size_t)i * room;
            p->tops[i].logprobs = p->top_logprobs + (size_t)i * room;
            p->top_pointers[i] = &p->tops[i];
        }
        r->n_top_logprobs = p->n_tokens;
        r->top_logprobs = p->top_pointers;
    }
    p->n_tokens = 0;
}

static void put_finished(relay_answer_part *p) {
    const relay_event *end = &p->finish;
    Relay__V1__TokensFinished *f = &p->finished;
    relay__v1__tokens_finished__init(f);
    relay__v1__request_timings__init(&p->timings);
    RELAY_SET(&p->timings, queue_us, end->queue_us);
    RELAY_SET(&p->timings, prefill_us, end->prefill_us);
    RELAY_SET(&p->timings, decode_us, end->decode_us);
    f->timings = &p->timings;
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
    p->response.finished = f;
    p->is_finished_told = true;
}

Relay__V1__GenerateTokensResponse *relay_answer_tell(relay_answer *a, relay_answer_part *p, uint32_t max_scores,
                                                     const char *pod) {
    // The prompt's scores come in pieces also where the rest is one message, and before any token.
    bool tells_scores = p == a->parts && a->n_scores > a->first_score;
    bool tells_finish = p->is_finished && !p->is_finished_told;
    bool tells_answer = !a->request.is_final_only || tells_finish;
    bool tells_start = !a->is_started_told && (a->is_started || tells_finish) && (tells_answer || tells_scores);
    if (!tells_scores && !(tells_answer && (tells_start || p->n_tokens != 0 || tells_finish))) return NULL;
    relay__v1__generate_tokens_response__init(&p->response);
    RELAY_SET(&p->response, index, p->index);
    if (tells_start) put_started(a, p, pod);
    if (tells_scores && !put_scores(a, p, max_scores)) return &p->response;
    if (tells_answer && p->n_tokens != 0) put_tokens(a, p);
    if (tells_finish) put_finished(p);
    return &p->response;
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
              a->output_tokens, a->cached_tokens, (double)end->queue_us / 1000, ttft_ms,
              (double)(relay_mono_now() - r->received_at) / 1000, a->preemptions, end_name(end));
}
