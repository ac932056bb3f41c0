#include "tokenizer_svc/generation.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/ident.h"
#include "common/log.h"
#include "common/message.h"
#include "tokenizer_svc/text_stream.h"

// Of text and of token details that wait for the end of the answer, with final_only.
static const size_t MAX_TEXT_BYTES = 60u << 20, MAX_DETAIL_BYTES = 256u << 20;

enum { MAX_SAMPLER_STATE_BYTES = 64 };

struct relay_generation {
    relay_rpc_call *call; // borrowed: it owns this; from start to the last news of the link with a reference
    const relay_text_model *model;
    relay_model_link *link;
    const relay_generation_metrics *metrics;
    relay_mono_us received_at;

    // Set by prepare.
    char request_id[RELAY_REQUEST_ID_MAX_BYTES + 1];
    bool is_final_only, wants_details, wants_logprobs, includes_stop;
    uint32_t min_new_tokens, n_prompt, n_resumed;
    const char *prompt_field; // which one the prompt came in
    uint32_t *stop_ids;
    size_t n_stop_ids;
    char *stop_strings[RELAY_MAX_STOP_STRINGS];
    relay_text_stream *stream;

    pthread_mutex_t lock; // guards the two below
    relay_link_ticket ticket;
    bool is_cancelled;

    // The link's thread.
    relay_buf text; // not told yet
    relay_arena details_arena;
    Relay__V1__TokenDetail **details; // not told yet
    size_t n_details, details_cap;
    uint32_t n_output; // resumed ones included
    bool has_started, is_started_told;
    uint32_t cached_tokens;
    uint64_t seed;
    uint8_t sampler_state[MAX_SAMPLER_STATE_BYTES]; // after the last token taken
    size_t n_sampler_state;
    char pod[256];
    bool is_stopped; // a stop string has completed
    uint32_t stop_index;
    bool is_over; // the client gets nothing more
    relay_mono_us first_token_at;
};

relay_generation *relay_generation_create(relay_rpc_call *call, const relay_text_model *model, relay_model_link *link,
                                          const relay_generation_metrics *metrics) {
    relay_generation *g = relay_calloc(1, sizeof *g);
    g->call = call;
    g->model = model;
    g->link = link;
    g->metrics = metrics;
    g->received_at = relay_mono_now();
    pthread_mutex_init(&g->lock, NULL);
    relay_buf_init(&g->text, MAX_TEXT_BYTES);
    relay_arena_init(&g->details_arena, MAX_DETAIL_BYTES);
    return g;
}

void relay_generation_destroy(relay_generation *g) {
    if (g == NULL) return;
    for (uint32_t i = 0; i < RELAY_MAX_STOP_STRINGS; i++)
        free(g->stop_strings[i]);
    free(g->stop_ids);
    free(g->details);
    relay_text_stream_destroy(g->stream);
    relay_arena_fini(&g->details_arena);
    relay_buf_fini(&g->text);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

// ---- Prepare: worker

static relay_code read_request_id(relay_generation *g, const Relay__V1__GenerateRequest *m, relay_err *e) {
    if (!m->has_request_id || m->request_id.len == 0) {
        uint8_t id[8];
        relay_ident_random(id, sizeof id);
        relay_ident_hex(g->request_id, id, sizeof id);
        return RELAY_OK;
    }
    if (m->request_id.len > RELAY_REQUEST_ID_MAX_BYTES) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "request_id has %zu bytes; at most %d are allowed",
                          m->request_id.len, RELAY_REQUEST_ID_MAX_BYTES);
    }
    memcpy(g->request_id, m->request_id.data, m->request_id.len);
    return RELAY_OK;
}

// What the template ends a turn with ends the answer: unless the client wants it to go on.
static const relay_turn_end *wanted_turn_end(const Relay__V1__GenerateRequest *m, const relay_prompt *prompt) {
    bool ignores = m->stop != NULL && m->stop->has_ignore_eos && m->stop->ignore_eos;
    return ignores ? NULL : prompt->turn_end;
}

static bool is_stop_id(const relay_generation *g, uint32_t id) {
    for (size_t i = 0; i < g->n_stop_ids; i++) {
        if (g->stop_ids[i] == id) return true;
    }
    return false;
}

static void set_stop_ids(relay_generation *g, const Relay__V1__TextStop *stop, const relay_turn_end *turn_end) {
    size_t n = stop == NULL ? 0 : stop->n_stop_token_ids;
    g->stop_ids = relay_calloc(n + 1, sizeof *g->stop_ids);
    if (n != 0) memcpy(g->stop_ids, stop->stop_token_ids, n * sizeof *g->stop_ids);
    g->n_stop_ids = n;
    if (turn_end == NULL || !turn_end->has_id || is_stop_id(g, turn_end->id)) return;
    uint32_t n_eos;
    const uint32_t *eos = relay_vocab_eos(relay_text_model_vocab(g->model), &n_eos);
    for (uint32_t i = 0; i < n_eos; i++)
        if (eos[i] == turn_end->id) return; // the model knows it
    g->stop_ids[g->n_stop_ids++] = turn_end->id;
}

static relay_code open_text(relay_generation *g, const Relay__V1__GenerateRequest *m, const relay_prompt *prompt,
                            relay_err *e) {
    const Relay__V1__TextStop *stop = m->stop;
    const Relay__V1__TextOutput *output = m->output;
    size_t n_strings = stop == NULL ? 0 : stop->n_stop_strings;
    if (n_strings > RELAY_MAX_STOP_STRINGS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "stop.stop_strings has %zu strings; at most %d are allowed",
                          n_strings, RELAY_MAX_STOP_STRINGS);
    }
    relay_stop_string strings[RELAY_MAX_STOP_STRINGS];
    for (size_t i = 0; i < n_strings; i++) {
        strings[i] = (relay_stop_string){(const char *)stop->stop_strings[i].data, stop->stop_strings[i].len};
        g->stop_strings[i] = relay_strndup(strings[i].len == 0 ? "" : strings[i].bytes, strings[i].len);
    }
    const relay_turn_end *turn_end = wanted_turn_end(m, prompt);
    if (turn_end != NULL && turn_end->string != NULL && n_strings < RELAY_MAX_STOP_STRINGS) {
        strings[n_strings] = (relay_stop_string){turn_end->string, turn_end->string_len};
        g->stop_strings[n_strings++] = relay_strndup(turn_end->string, turn_end->string_len);
    }
    uint32_t n_tail = prompt->encoding.n < RELAY_PROMPT_TAIL ? prompt->encoding.n : RELAY_PROMPT_TAIL;
    relay_text_stream_opts opts = {
        .vocab = relay_text_model_vocab(g->model),
        .skip_special_tokens = output == NULL || !output->has_skip_special_tokens || output->skip_special_tokens,
        .stop_strings = strings,
        .n_stop_strings = (uint32_t)n_strings,
        .stop_strings_field = "stop.stop_strings",
        .include_stop_string = g->includes_stop,
        .prompt_tail = prompt->encoding.ids + (prompt->encoding.n - n_tail),
        .n_prompt_tail = n_tail,
    };
    return relay_text_stream_create(&g->stream, &opts, e);
}

// The next output token; false where it completed a stop string. Its text is appended to `text`.
static bool push_token(relay_generation *g, uint32_t id, relay_buf *text) {
    g->n_output++;
    // The model ends with a stop id, and its text is no part of the answer.
    bool ends = is_stop_id(g, id) && g->n_output > g->min_new_tokens;
    if (ends && !g->includes_stop) return true;
    relay_text_step step;
    relay_text_stream_push(g->stream, &id, 1, g->n_output >= g->min_new_tokens, text, &step);
    if (step.is_stopped) g->stop_index = step.stop_index;
    return !step.is_stopped;
}

// Brings text and counts to where the lost call left the client.
static relay_code take_resumed(relay_generation *g, const Relay__V1__GenerateRequest *m, relay_err *e) {
    size_t n = m->n_resume_token_ids;
    relay_code code = relay_text_model_check_ids(g->model, m->resume_token_ids, n, "resume_token_ids", e);
    relay_buf known;
    relay_buf_init(&known, MAX_TEXT_BYTES);
    for (size_t i = 0; i < n && code == RELAY_OK; i++) {
        relay_buf_clear(&known);
        if (push_token(g, m->resume_token_ids[i], &known)) continue;
        code = relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "resume_token_ids[%zu] completes stop.stop_strings[%u]: nothing is left to generate", i,
                          g->stop_index);
    }
    relay_buf_fini(&known);
    g->n_resumed = (uint32_t)n;
    return code;
}

relay_code relay_generation_prepare(relay_generation *g, const Relay__V1__GenerateRequest *m,
                                    const relay_prompt *prompt, relay_err *e) {
    const Relay__V1__TextStop *stop = m->stop;
    const Relay__V1__TextOutput *output = m->output;
    g->n_prompt = prompt->encoding.n;
    g->prompt_field = m->input_case == RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT ? "prompt"
                      : m->input_case == RELAY__V1__GENERATE_REQUEST__INPUT_CHAT ? "chat"
                                                                                 : "token_ids.ids";
    if (output != NULL) {
        g->is_final_only = output->has_final_only && output->final_only;
        g->wants_logprobs = output->has_top_logprobs;
        g->wants_details = g->wants_logprobs || (output->has_return_token_ids && output->return_token_ids);
    }
    if (stop != NULL) {
        g->includes_stop = stop->has_include_stop_string && stop->include_stop_string;
        if (stop->has_min_new_tokens) g->min_new_tokens = stop->min_new_tokens;
    }
    set_stop_ids(g, stop, wanted_turn_end(m, prompt));
    if (m->has_num_sequences && m->num_sequences > 1) {
        return relay_fail(e, RELAY_UNIMPLEMENTED,
                          "num_sequences above 1 is not supported by the text service; ModelService has it");
    }
    relay_code code = read_request_id(g, m, e);
    if (code == RELAY_OK) code = open_text(g, m, prompt, e);
    if (code == RELAY_OK) code = take_resumed(g, m, e);
    // Whoever goes on with an answer has had the prompt's text.
    if (code == RELAY_OK && g->n_resumed == 0) relay_buf_append(&g->text, prompt->text, prompt->text_len);
    return code;
}

const uint32_t *relay_generation_stop_ids(const relay_generation *g, size_t *n) {
    *n = g->n_stop_ids;
    return g->stop_ids;
}

const char *relay_generation_request_id(const relay_generation *g) {
    return g->request_id;
}

// ---- To the client: link thread

static void cancel_model(relay_generation *g) {
    pthread_mutex_lock(&g->lock);
    relay_link_ticket ticket = g->ticket;
    pthread_mutex_unlock(&g->lock);
    relay_model_link_cancel(g->link, ticket);
}

static void fail(relay_generation *g, relay_code code, const relay_err *e) {
    if (g->is_over) return;
    g->is_over = true;
    relay_rpc_call_finish(g->call, code, e);
}

static void add(relay_counter *c, uint64_t n) {
    if (c != NULL) relay_counter_add(c, n);
}

static void send(relay_generation *g, const Relay__V1__GenerateResponse *response) {
    relay_code code = relay_rpc_call_send(g->call, &response->base);
    if (code == RELAY_OK) return;
    g->is_over = true;
    if (code == RELAY_RESOURCE_EXHAUSTED) {
        relay_err e;
        relay_fail(&e, code, "the client does not read its answer: %llu bytes are waiting for it",
                   (unsigned long long)relay_rpc_call_outbox_used(g->call));
        RELAY_LOG(RELAY_LOG_WARN, "slow reader cut off", "request_id=%s peer=%s", g->request_id,
                  relay_rpc_call_peer(g->call));
        add(g->metrics->slow_readers, 1);
        relay_rpc_call_abort(g->call, code, &e);
    }
    cancel_model(g);
}

static void put_finished(const relay_generation *g, const Relay__V1__TokensFinished *model,
                         Relay__V1__GenerationFinished *out) {
    relay__v1__generation_finished__init(out);
    RELAY_SET(out, output_tokens, g->n_output);
    RELAY_SET(out, failovers, 0);
    if (model != NULL) out->timings = model->timings;
    if (g->is_stopped) {
        RELAY_SET(out, reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE);
        RELAY_SET(out, stop_string, relay_message_text(g->stop_strings[g->stop_index]));
        return;
    }
    RELAY_SET(out, reason, model->reason);
    if (model->cause_case == RELAY__V1__TOKENS_FINISHED__CAUSE_STOP_TOKEN_ID) {
        RELAY_SET(out, stop_token_id, model->stop_token_id);
    }
}

// Tells what has gathered. `finished` NULL: more will come.
static void tell(relay_generation *g, Relay__V1__GenerationFinished *finished) {
    if (g->is_over || (g->is_final_only && finished == NULL)) return;
    bool tells_start = g->has_started && !g->is_started_told;
    if (!tells_start && g->text.len == 0 && g->n_details == 0 && finished == NULL) return;
    Relay__V1__GenerateResponse response = RELAY__V1__GENERATE_RESPONSE__INIT;
    Relay__V1__GenerationStarted started = RELAY__V1__GENERATION_STARTED__INIT;
    if (tells_start) {
        RELAY_SET(&started, prompt_tokens, g->n_prompt);
        RELAY_SET(&started, cached_tokens, g->cached_tokens);
        RELAY_SET(&started, seed, g->seed);
        RELAY_SET(&started, model, relay_message_text(relay_text_model_name(g->model)));
        RELAY_SET(&started, model_pod, relay_message_text(g->pod));
        response.started = &started;
        g->is_started_told = true;
    }
    if (g->text.len != 0) RELAY_SET(&response, text, relay_message_bytes(g->text.data, g->text.len));
    response.n_tokens = g->n_details;
    response.tokens = g->details;
    response.finished = finished;
    if (g->n_sampler_state != 0) {
        RELAY_SET(&response, sampler_state, relay_message_bytes(g->sampler_state, g->n_sampler_state));
        g->n_sampler_state = 0;
    }
    send(g, &response);
    relay_buf_clear(&g->text);
    relay_arena_fini(&g->details_arena);
    g->n_details = 0;
}

// ---- From the model pod: link thread

static void take_started(relay_generation *g, const Relay__V1__TokensStarted *s) {
    g->has_started = true;
    g->cached_tokens = s->cached_tokens;
    g->seed = s->seed;
    size_t len = s->pod.len < sizeof g->pod ? s->pod.len : sizeof g->pod - 1;
    if (len != 0) memcpy(g->pod, s->pod.data, len);
}

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
static bool add_detail(relay_generation *g, const Relay__V1__GenerateTokensResponse *r, size_t i) {
    const relay_token *token = relay_vocab_token(relay_text_model_vocab(g->model), r->token_ids[i]);
    Relay__V1__TokenDetail *d = relay_arena_alloc(&g->details_arena, sizeof *d);
    if (d == NULL) return false;
    relay__v1__token_detail__init(d);
    RELAY_SET(d, token_id, r->token_ids[i]);
    RELAY_SET(d, piece, relay_message_bytes(token->bytes, token->len));
    if (g->wants_logprobs && i < r->n_logprobs) RELAY_SET(d, logprob, r->logprobs[i]);
    if (g->wants_logprobs && i < r->n_top_logprobs) {
        d->top = copy_top(&g->details_arena, r->top_logprobs[i]);
        if (d->top == NULL) return false;
    }
    if (g->n_details == g->details_cap) {
        g->details_cap = g->details_cap == 0 ? 8 : 2 * g->details_cap;
        g->details = relay_realloc(g->details, g->details_cap * sizeof(Relay__V1__TokenDetail *));
    }
    g->details[g->n_details++] = d;
    return true;
}

static relay_code take_tokens(relay_generation *g, const Relay__V1__GenerateTokensResponse *r, relay_err *e) {
    relay_code code =
        relay_text_model_check_ids(g->model, r->token_ids, r->n_token_ids, "the model server's token_ids", NULL);
    if (code != RELAY_OK) return relay_fail(e, RELAY_INTERNAL, "the model server sent an id past the vocabulary");
    if (r->n_token_ids != 0 && g->first_token_at == 0) g->first_token_at = relay_mono_now();
    if (r->has_sampler_state && r->sampler_state.len <= sizeof g->sampler_state) {
        g->n_sampler_state = r->sampler_state.len;
        memcpy(g->sampler_state, r->sampler_state.data, g->n_sampler_state);
    }
    for (size_t i = 0; i < r->n_token_ids && !g->is_stopped; i++) {
        g->is_stopped = !push_token(g, r->token_ids[i], &g->text);
        if (g->wants_details && !add_detail(g, r, i)) {
            return relay_fail(e, RELAY_RESOURCE_EXHAUSTED,
                              "the tokens of the answer, told at its end, need more than %zu bytes", MAX_DETAIL_BYTES);
        }
    }
    if (g->text.is_failed) {
        return relay_fail(e, RELAY_RESOURCE_EXHAUSTED,
                          "the text of the answer, told at its end, is longer than %zu bytes", MAX_TEXT_BYTES);
    }
    if (g->is_stopped) cancel_model(g);
    return RELAY_OK;
}

static const char *reason_name(int reason) {
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(&relay__v1__finish_reason__descriptor, reason);
    return v == NULL ? "?" : v->name + strlen("FINISH_REASON_");
}

// How the answer ended, in a word. A call that its client's deadline cuts is a cancelled one to the model; the client's
// clock starts before that of the call here, so its giving up may come first by the way between.
static const char *end_name(const relay_generation *g, relay_code code, int reason, relay_mono_us now) {
    const int64_t way_us = 50000;
    bool is_cut =
        code == RELAY_CANCELLED || (code == RELAY_OK && reason == RELAY__V1__FINISH_REASON__FINISH_REASON_CANCELLED);
    if (is_cut && now >= relay_rpc_call_deadline(g->call) - way_us) code = RELAY_DEADLINE_EXCEEDED;
    return code == RELAY_OK ? reason_name(reason) : relay_code_name(code);
}

static void observe_since(relay_histogram *h, relay_mono_us begin, relay_mono_us end) {
    if (h != NULL) relay_histogram_observe(h, (double)(end - begin) / 1e6);
}

// `code` is that of an answer that failed, else `reason` says how it ended.
static void account(const relay_generation *g, relay_code code, int reason, const Relay__V1__RequestTimings *timings) {
    relay_mono_us now = relay_mono_now();
    const relay_generation_metrics *m = g->metrics;
    bool is_known = reason >= 0 && reason < RELAY_GENERATION_FINISH_REASONS;
    add(code == RELAY_OK && is_known ? m->finished[reason] : m->failed, 1);
    add(m->prompt_tokens, g->n_prompt);
    add(m->output_tokens, g->n_output - g->n_resumed);
    observe_since(m->total_seconds, g->received_at, now);
    if (g->first_token_at != 0) observe_since(m->first_token_seconds, g->received_at, g->first_token_at);
    double ttft_ms = g->first_token_at == 0 ? 0 : (double)(g->first_token_at - g->received_at) / 1000;
    RELAY_LOG(RELAY_LOG_INFO, "request finished",
              "request_id=%s pod=%s prompt_tokens=%u resumed_tokens=%u output_tokens=%u cached_tokens=%u queue_ms=%.1f "
              "ttft_ms=%.1f total_ms=%.1f finish=%s",
              g->request_id, g->pod, g->n_prompt, g->n_resumed, g->n_output - g->n_resumed, g->cached_tokens,
              timings == NULL ? 0.0 : (double)timings->queue_us / 1000, ttft_ms, (double)(now - g->received_at) / 1000,
              end_name(g, code, reason, now));
}

static void finish(relay_generation *g, const Relay__V1__TokensFinished *model) {
    if (!g->is_stopped && !g->is_over) relay_text_stream_finish(g->stream, &g->text);
    Relay__V1__GenerationFinished finished;
    put_finished(g, model, &finished);
    tell(g, &finished);
    fail(g, RELAY_OK, NULL);
    account(g, RELAY_OK, (int)finished.reason, finished.timings);
}

static void on_response(void *arg, const Relay__V1__GenerateTokensResponse *r) {
    relay_generation *g = arg;
    if (r->started != NULL) take_started(g, r->started);
    if (!g->is_over && !g->is_stopped) {
        relay_err e;
        relay_code code = take_tokens(g, r, &e);
        if (code != RELAY_OK) {
            fail(g, code, &e);
            cancel_model(g);
        }
    }
    if (r->finished == NULL) {
        tell(g, NULL);
    } else {
        finish(g, r->finished);
        relay_rpc_call_unref(g->call); // may free g
    }
}

static void rename_field(relay_err *e, const char *theirs, const char *ours) {
    const char *at = strstr(e->message, theirs);
    if (at == NULL) return;
    char renamed[RELAY_ERR_MESSAGE_MAX];
    snprintf(renamed, sizeof renamed, "%.*s%s%s", (int)(at - e->message), e->message, ours, at + strlen(theirs));
    memcpy(e->message, renamed, sizeof renamed);
}

static void on_error(void *arg, relay_code code, const relay_err *e) {
    relay_generation *g = arg;
    if (g->is_stopped) {
        finish(g, NULL); // it was complete, whatever became of the pod
    } else {
        // The model server names its own fields; the client knows those that they were made of.
        relay_err told = *e;
        rename_field(&told, "prompt_token_ids", g->prompt_field);
        rename_field(&told, "resume.generated_token_ids", "resume_token_ids");
        rename_field(&told, "resume.sampler_state", "resume_sampler_state");
        fail(g, code, &told);
        account(g, code, 0, NULL);
    }
    relay_rpc_call_unref(g->call); // may free g
}

// ---- Start and cancel

relay_code relay_generation_start(relay_generation *g, const Relay__V1__GenerateTokensRequest *request, relay_err *e) {
    static const relay_link_handler handler = {.on_response = on_response, .on_error = on_error};
    relay_rpc_call_ref(g->call); // the link's, until its last news
    pthread_mutex_lock(&g->lock);
    // Under the lock, so that whoever wants to cancel finds the ticket; the link does not call back from inside.
    relay_code code =
        relay_model_link_start(g->link, request, relay_rpc_call_deadline(g->call), &handler, g, &g->ticket, e);
    relay_link_ticket ticket = g->ticket;
    bool is_cancelled = g->is_cancelled;
    pthread_mutex_unlock(&g->lock);
    if (code == RELAY_OK && is_cancelled) relay_model_link_cancel(g->link, ticket);
    if (code != RELAY_OK) relay_rpc_call_unref(g->call);
    return code;
}

void relay_generation_cancel(relay_generation *g) {
    pthread_mutex_lock(&g->lock);
    g->is_cancelled = true;
    relay_link_ticket ticket = g->ticket;
    pthread_mutex_unlock(&g->lock);
    if (g->link != NULL) relay_model_link_cancel(g->link, ticket);
}
