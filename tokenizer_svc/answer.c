#include "tokenizer_svc/answer.h"

#include <stdlib.h>
#include <string.h>

#include "common/message.h"

relay_code relay_answer_init(relay_answer *a, const relay_answer_opts *opts, relay_err *e) {
    a->opts = *opts;
    relay_buf_init(&a->text, opts->max_text_bytes);
    relay_arena_init(&a->details_arena, opts->max_detail_bytes);
    return relay_text_stream_create(&a->stream, &opts->text, e);
}

void relay_answer_fini(relay_answer *a) {
    relay_text_stream_destroy(a->stream);
    free(a->details);
    relay_arena_fini(&a->details_arena);
    relay_buf_fini(&a->text);
}

static bool is_stop_id(const relay_answer *a, uint32_t id) {
    for (size_t i = 0; i < a->opts.n_stop_ids; i++) {
        if (a->opts.stop_ids[i] == id) return true;
    }
    return false;
}

// The next output token; false where it completed a stop string. Its text is appended to `text`.
static bool push_token(relay_answer *a, uint32_t id, relay_buf *text) {
    a->n_output++;
    // The model ends with a stop id, and its text is no part of the answer.
    bool ends = is_stop_id(a, id) && a->n_output > a->opts.min_new_tokens;
    if (ends && !a->opts.text.include_stop_string) return true;
    relay_text_step step;
    relay_text_stream_push(a->stream, &id, 1, a->n_output >= a->opts.min_new_tokens, text, &step);
    if (step.is_stopped) a->stop_index = step.stop_index;
    return !step.is_stopped;
}

relay_code relay_answer_resume(relay_answer *a, const uint32_t *ids, size_t n, relay_err *e) {
    relay_code code = RELAY_OK;
    relay_buf known;
    relay_buf_init(&known, a->opts.max_text_bytes);
    for (size_t i = 0; i < n && code == RELAY_OK; i++) {
        relay_buf_clear(&known);
        if (push_token(a, ids[i], &known)) continue;
        code = relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "resume_token_ids[%zu] completes stop.stop_strings[%u]: nothing is left to generate", i,
                          a->stop_index);
    }
    relay_buf_fini(&known);
    return code;
}

// ---- Details

static void *copy_array(relay_arena *a, const void *from, size_t n, size_t size) {
    void *to = relay_arena_alloc(a, n * size);
    if (to != NULL && n != 0) memcpy(to, from, n * size);
    return to;
}

static Relay__V1__TopLogprobs *copy_top(relay_arena *a, const Relay__V1__TopLogprobs *from) {
    Relay__V1__TopLogprobs *to = relay_arena_alloc(a, sizeof *to);
    if (to == NULL) return NULL;
    *to = *from;
    to->token_ids = copy_array(a, from->token_ids, from->n_token_ids, sizeof *to->token_ids);
    to->logprobs = copy_array(a, from->logprobs, from->n_logprobs, sizeof *to->logprobs);
    return to->token_ids == NULL || to->logprobs == NULL ? NULL : to;
}

// False where details fill the room that is left for them.
static bool add_detail(relay_answer *a, const Relay__V1__GenerateTokensResponse *r, size_t i) {
    const relay_token *token = relay_vocab_token(a->opts.text.vocab, r->token_ids[i]);
    Relay__V1__TokenDetail *d = relay_arena_alloc(&a->details_arena, sizeof *d);
    if (d == NULL) return false;
    relay__v1__token_detail__init(d);
    RELAY_SET(d, token_id, r->token_ids[i]);
    RELAY_SET(d, piece, relay_message_bytes(token->bytes, token->len));
    if (a->opts.wants_logprobs && i < r->n_logprobs) RELAY_SET(d, logprob, r->logprobs[i]);
    if (a->opts.wants_logprobs && i < r->n_top_logprobs) {
        d->top = copy_top(&a->details_arena, r->top_logprobs[i]);
        if (d->top == NULL) return false;
    }
    if (a->n_details == a->details_cap) {
        a->details_cap = a->details_cap == 0 ? 8 : 2 * a->details_cap;
        a->details = relay_realloc(a->details, a->details_cap * sizeof(Relay__V1__TokenDetail *));
    }
    a->details[a->n_details++] = d;
    return true;
}

// ---- From the model

relay_code relay_answer_take(relay_answer *a, const Relay__V1__GenerateTokensResponse *r, relay_err *e) {
    if (r->has_sampler_state && r->sampler_state.len <= sizeof a->sampler_state) {
        a->n_sampler_state = r->sampler_state.len;
        memcpy(a->sampler_state, r->sampler_state.data, a->n_sampler_state);
    }
    for (size_t i = 0; i < r->n_token_ids && !a->is_stopped; i++) {
        a->is_stopped = !push_token(a, r->token_ids[i], &a->text);
        if (a->opts.wants_details && !add_detail(a, r, i)) {
            return relay_fail(e, RELAY_RESOURCE_EXHAUSTED,
                              "the tokens of the answer, told at its end, need more than %zu bytes",
                              a->opts.max_detail_bytes);
        }
    }
    if (!a->text.is_failed) return RELAY_OK;
    return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "the text of the answer, told at its end, is longer than %zu bytes",
                      a->opts.max_text_bytes);
}

void relay_answer_finish(relay_answer *a) {
    if (!a->is_stopped) relay_text_stream_finish(a->stream, &a->text);
}

void relay_answer_clear(relay_answer *a) {
    relay_buf_clear(&a->text);
    relay_arena_fini(&a->details_arena);
    a->n_details = 0;
    a->n_sampler_state = 0;
}
