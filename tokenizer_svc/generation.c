#include "tokenizer_svc/generation.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ident.h"
#include "common/log.h"
#include "common/message.h"
#include "tokenizer_svc/answer.h"

// Of text and of token details that wait for the end of the answers, with final_only.
static const size_t MAX_TEXT_BYTES = 60u << 20, MAX_DETAIL_BYTES = 256u << 20;

enum { MAX_PIECE_SCORES = 1000 }; // of the prompt, in one message: at 20 ids each they stay below 256 kB

// An answer, and what the client knows of it.
typedef struct told_answer {
    relay_answer answer;
    bool is_finished; // its end is told
} told_answer;

struct relay_generation {
    relay_rpc_call *call; // borrowed: it owns this; from start to the last news of the link with a reference
    const relay_text_model *model;
    relay_model_link *link;
    const relay_generation_metrics *metrics;
    relay_mono_us received_at;

    // Set by prepare.
    char request_id[RELAY_REQUEST_ID_MAX_BYTES + 1];
    bool is_final_only;
    uint32_t n_prompt, n_resumed;
    const char *prompt_field; // which one the prompt came in
    uint32_t *stop_ids;
    size_t n_stop_ids;
    char *stop_strings[RELAY_MAX_STOP_STRINGS];
    uint32_t n_answers;
    told_answer *answers; // [n_answers]; the link's thread's from start on

    pthread_mutex_t lock; // guards the two below
    relay_link_ticket ticket;
    bool is_cancelled;

    // The link's thread.
    bool has_started, is_started_told;
    uint32_t cached_tokens;
    uint64_t seed;
    char pod[256];
    uint32_t n_ended; // answers that the model has ended
    bool is_over;     // the client gets nothing more
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
    return g;
}

void relay_generation_destroy(relay_generation *g) {
    if (g == NULL) return;
    for (uint32_t i = 0; i < RELAY_MAX_STOP_STRINGS; i++)
        free(g->stop_strings[i]);
    free(g->stop_ids);
    for (uint32_t i = 0; i < g->n_answers && g->answers != NULL; i++)
        relay_answer_fini(&g->answers[i].answer);
    free(g->answers);
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

static relay_code copy_stops(relay_generation *g, const Relay__V1__GenerateRequest *m, const relay_prompt *prompt,
                             relay_stop_string *strings, uint32_t *n, relay_err *e) {
    const Relay__V1__TextStop *stop = m->stop;
    size_t n_strings = stop == NULL ? 0 : stop->n_stop_strings;
    if (n_strings > RELAY_MAX_STOP_STRINGS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "stop.stop_strings has %zu strings; at most %d are allowed",
                          n_strings, RELAY_MAX_STOP_STRINGS);
    }
    for (size_t i = 0; i < n_strings; i++)
        strings[i] = (relay_stop_string){(const char *)stop->stop_strings[i].data, stop->stop_strings[i].len};
    const relay_turn_end *turn_end = wanted_turn_end(m, prompt);
    if (turn_end != NULL && turn_end->string != NULL && n_strings < RELAY_MAX_STOP_STRINGS)
        strings[n_strings++] = (relay_stop_string){turn_end->string, turn_end->string_len};
    for (size_t i = 0; i < n_strings; i++)
        g->stop_strings[i] = relay_strndup(strings[i].len == 0 ? "" : strings[i].bytes, strings[i].len);
    *n = (uint32_t)n_strings;
    return RELAY_OK;
}

// All of them begin alike.
static relay_code open_answers(relay_generation *g, const Relay__V1__GenerateRequest *m, const relay_prompt *prompt,
                               relay_err *e) {
    const Relay__V1__TextStop *stop = m->stop;
    const Relay__V1__TextOutput *output = m->output;
    relay_stop_string strings[RELAY_MAX_STOP_STRINGS];
    uint32_t n_tail = prompt->encoding.n < RELAY_PROMPT_TAIL ? prompt->encoding.n : RELAY_PROMPT_TAIL;
    relay_answer_opts opts = {
        .stop_ids = g->stop_ids,
        .n_stop_ids = g->n_stop_ids,
        .min_new_tokens = stop != NULL && stop->has_min_new_tokens ? stop->min_new_tokens : 0,
        .wants_logprobs = output != NULL && output->has_top_logprobs,
        .max_text_bytes = MAX_TEXT_BYTES / g->n_answers,
        .max_detail_bytes = MAX_DETAIL_BYTES / g->n_answers,
    };
    opts.wants_details =
        opts.wants_logprobs || (output != NULL && output->has_return_token_ids && output->return_token_ids);
    opts.text = (relay_text_stream_opts){
        .vocab = relay_text_model_vocab(g->model),
        .decoder = relay_text_model_decoder(g->model),
        .skip_special_tokens = output == NULL || !output->has_skip_special_tokens || output->skip_special_tokens,
        .stop_strings = strings,
        .stop_strings_field = "stop.stop_strings",
        .include_stop_string = stop != NULL && stop->has_include_stop_string && stop->include_stop_string,
        .prompt_tail = prompt->encoding.ids + (prompt->encoding.n - n_tail),
        .n_prompt_tail = n_tail,
    };
    relay_code code = copy_stops(g, m, prompt, strings, &opts.text.n_stop_strings, e);
    if (code == RELAY_OK) g->answers = relay_calloc(g->n_answers, sizeof *g->answers);
    for (uint32_t i = 0; i < g->n_answers && code == RELAY_OK; i++)
        code = relay_answer_init(&g->answers[i].answer, &opts, e);
    return code;
}

static relay_code count_answers(relay_generation *g, const Relay__V1__GenerateRequest *m, relay_err *e) {
    uint32_t n = m->has_num_sequences ? m->num_sequences : 1;
    if (n == 0 || n > RELAY_MAX_ANSWERS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "num_sequences is %u; allowed is [1, %d]", n, RELAY_MAX_ANSWERS);
    }
    if (n > 1 && (m->n_resume_token_ids != 0 || m->has_resume_sampler_state)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "resume_token_ids is set and num_sequences is %u; one answer at a time can go on", n);
    }
    g->n_answers = n;
    return RELAY_OK;
}

// Brings text and counts to where the lost call left the client.
static relay_code take_resumed(relay_generation *g, const Relay__V1__GenerateRequest *m, relay_err *e) {
    size_t n = m->n_resume_token_ids;
    relay_code code = relay_text_model_check_ids(g->model, m->resume_token_ids, n, "resume_token_ids", e);
    if (code == RELAY_OK) code = relay_answer_resume(&g->answers[0].answer, m->resume_token_ids, n, e);
    g->n_resumed = (uint32_t)n;
    return code;
}

relay_code relay_generation_prepare(relay_generation *g, const Relay__V1__GenerateRequest *m,
                                    const relay_prompt *prompt, relay_err *e) {
    g->n_prompt = prompt->encoding.n;
    g->prompt_field = m->input_case == RELAY__V1__GENERATE_REQUEST__INPUT_PROMPT ? "prompt"
                      : m->input_case == RELAY__V1__GENERATE_REQUEST__INPUT_CHAT ? "chat"
                                                                                 : "token_ids.ids";
    g->is_final_only = m->output != NULL && m->output->has_final_only && m->output->final_only;
    set_stop_ids(g, m->stop, wanted_turn_end(m, prompt));
    relay_code code = count_answers(g, m, e);
    if (code == RELAY_OK) code = read_request_id(g, m, e);
    if (code == RELAY_OK) code = open_answers(g, m, prompt, e);
    if (code == RELAY_OK) code = take_resumed(g, m, e);
    // Whoever goes on with an answer has had the prompt's text.
    for (uint32_t i = 0; i < g->n_answers && code == RELAY_OK && g->n_resumed == 0; i++)
        relay_buf_append(&g->answers[i].answer.text, prompt->text, prompt->text_len);
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

static void put_finished(const relay_generation *g, const relay_answer *a, const Relay__V1__TokensFinished *model,
                         Relay__V1__GenerationFinished *out) {
    relay__v1__generation_finished__init(out);
    RELAY_SET(out, output_tokens, a->n_output);
    RELAY_SET(out, failovers, 0);
    if (model != NULL) out->timings = model->timings;
    if (a->is_stopped) {
        RELAY_SET(out, reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE);
        RELAY_SET(out, stop_string, relay_message_text(g->stop_strings[a->stop_index]));
        return;
    }
    RELAY_SET(out, reason, model->reason);
    if (model->cause_case == RELAY__V1__TOKENS_FINISHED__CAUSE_STOP_TOKEN_ID) {
        RELAY_SET(out, stop_token_id, model->stop_token_id);
    }
}

static void put_started(relay_generation *g, Relay__V1__GenerateResponse *response,
                        Relay__V1__GenerationStarted *started) {
    if (!g->has_started || g->is_started_told) return;
    relay__v1__generation_started__init(started);
    RELAY_SET(started, prompt_tokens, g->n_prompt);
    RELAY_SET(started, cached_tokens, g->cached_tokens);
    RELAY_SET(started, seed, g->seed);
    RELAY_SET(started, model, relay_message_text(relay_text_model_name(g->model)));
    RELAY_SET(started, model_pod, relay_message_text(g->pod));
    response->started = started;
    g->is_started_told = true;
}

// The prompt's logprobs go on as they come, in pieces, before anything of the answer.
static void tell_scores(relay_generation *g, const Relay__V1__PromptLogprobs *scores) {
    for (size_t first = 0; first < scores->n_logprobs && !g->is_over; first += MAX_PIECE_SCORES) {
        size_t left = scores->n_logprobs - first;
        Relay__V1__PromptLogprobs piece = *scores;
        piece.first_position += (uint32_t)first;
        piece.n_logprobs = left < MAX_PIECE_SCORES ? left : MAX_PIECE_SCORES;
        piece.logprobs += first;
        if (piece.n_top != 0) {
            piece.n_top = piece.n_logprobs;
            piece.top += first;
        }
        Relay__V1__GenerateResponse response = RELAY__V1__GENERATE_RESPONSE__INIT;
        Relay__V1__GenerationStarted started;
        put_started(g, &response, &started);
        response.prompt_logprobs = &piece;
        send(g, &response);
    }
}

// Tells what has gathered of an answer. `finished` NULL: more will come.
static void tell(relay_generation *g, uint32_t index, Relay__V1__GenerationFinished *finished) {
    relay_answer *a = &g->answers[index].answer;
    if (g->is_over || (g->is_final_only && finished == NULL)) return;
    bool tells_start = g->has_started && !g->is_started_told;
    if (!tells_start && a->text.len == 0 && a->n_details == 0 && finished == NULL) return;
    Relay__V1__GenerateResponse response = RELAY__V1__GENERATE_RESPONSE__INIT;
    Relay__V1__GenerationStarted started;
    put_started(g, &response, &started);
    if (g->n_answers > 1) RELAY_SET(&response, index, index);
    if (a->text.len != 0) RELAY_SET(&response, text, relay_message_bytes(a->text.data, a->text.len));
    response.n_tokens = a->n_details;
    response.tokens = a->details;
    response.finished = finished;
    if (a->n_sampler_state != 0) {
        RELAY_SET(&response, sampler_state, relay_message_bytes(a->sampler_state, a->n_sampler_state));
    }
    send(g, &response);
    relay_answer_clear(a);
}

// ---- From the model pod: link thread

static void take_started(relay_generation *g, const Relay__V1__TokensStarted *s) {
    g->has_started = true;
    g->cached_tokens = s->cached_tokens;
    g->seed = s->seed;
    size_t len = s->pod.len < sizeof g->pod ? s->pod.len : sizeof g->pod - 1;
    if (len != 0) memcpy(g->pod, s->pod.data, len);
}

static bool all_stopped(const relay_generation *g) {
    for (uint32_t i = 0; i < g->n_answers; i++)
        if (!g->answers[i].answer.is_stopped && !g->answers[i].is_finished) return false;
    return true;
}

static relay_code take_tokens(relay_generation *g, relay_answer *a, const Relay__V1__GenerateTokensResponse *r,
                              relay_err *e) {
    relay_code code =
        relay_text_model_check_ids(g->model, r->token_ids, r->n_token_ids, "the model server's token_ids", NULL);
    if (code != RELAY_OK) return relay_fail(e, RELAY_INTERNAL, "the model server sent an id past the vocabulary");
    if (r->n_token_ids != 0 && g->first_token_at == 0) g->first_token_at = relay_mono_now();
    code = relay_answer_take(a, r, e);
    // Where others go on, the model works for nobody on one that is stopped, until it ends that one by itself.
    if (code == RELAY_OK && a->is_stopped && all_stopped(g)) cancel_model(g);
    return code;
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

static uint32_t output_tokens(const relay_generation *g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_answers; i++)
        n += g->answers[i].answer.n_output;
    return n - g->n_resumed;
}

// Of the call, at its end. `code` is that of one that failed, else `reason` says how its last answer ended.
static void account(const relay_generation *g, relay_code code, int reason, const Relay__V1__RequestTimings *timings) {
    relay_mono_us now = relay_mono_now();
    const relay_generation_metrics *m = g->metrics;
    if (code != RELAY_OK) add(m->failed, 1);
    add(m->prompt_tokens, g->n_prompt);
    add(m->output_tokens, output_tokens(g));
    observe_since(m->total_seconds, g->received_at, now);
    if (g->first_token_at != 0) observe_since(m->first_token_seconds, g->received_at, g->first_token_at);
    double ttft_ms = g->first_token_at == 0 ? 0 : (double)(g->first_token_at - g->received_at) / 1000;
    RELAY_LOG(RELAY_LOG_INFO, "request finished",
              "request_id=%s pod=%s prompt_tokens=%u resumed_tokens=%u answers=%u output_tokens=%u cached_tokens=%u "
              "queue_ms=%.1f ttft_ms=%.1f total_ms=%.1f finish=%s",
              g->request_id, g->pod, g->n_prompt, g->n_resumed, g->n_answers, output_tokens(g), g->cached_tokens,
              timings == NULL ? 0.0 : (double)timings->queue_us / 1000, ttft_ms, (double)(now - g->received_at) / 1000,
              end_name(g, code, reason, now));
}

// Tells an answer's end, once. `model` NULL: it is stopped. Returns the reason.
static int finish_answer(relay_generation *g, uint32_t index, const Relay__V1__TokensFinished *model) {
    told_answer *t = &g->answers[index];
    if (t->is_finished) return RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE;
    t->is_finished = true;
    if (!g->is_over) relay_answer_finish(&t->answer);
    Relay__V1__GenerationFinished finished;
    put_finished(g, &t->answer, model, &finished);
    tell(g, index, &finished);
    int reason = (int)finished.reason;
    bool is_known = reason >= 0 && reason < RELAY_GENERATION_FINISH_REASONS;
    add(is_known ? g->metrics->finished[reason] : g->metrics->failed, 1);
    return reason;
}

// The call ends well.
static void finish(relay_generation *g, int reason, const Relay__V1__RequestTimings *timings) {
    fail(g, RELAY_OK, NULL);
    account(g, RELAY_OK, reason, timings);
    relay_rpc_call_unref(g->call); // may free g
}

static void on_response(void *arg, const Relay__V1__GenerateTokensResponse *r) {
    relay_generation *g = arg;
    uint32_t index = r->has_index ? r->index : 0;
    if (index >= g->n_answers) index = 0; // the link counts ends: a model server's mistake must not lose one
    told_answer *t = &g->answers[index];
    if (r->started != NULL) take_started(g, r->started);
    if (r->prompt_logprobs != NULL && r->prompt_logprobs->n_top <= r->prompt_logprobs->n_logprobs) {
        tell_scores(g, r->prompt_logprobs);
    }
    if (!g->is_over && !t->answer.is_stopped) {
        relay_err e;
        relay_code code = take_tokens(g, &t->answer, r, &e);
        if (code != RELAY_OK) {
            fail(g, code, &e);
            cancel_model(g);
        }
    }
    if (r->finished != NULL) {
        int reason = finish_answer(g, index, r->finished);
        if (++g->n_ended == g->n_answers) finish(g, reason, r->finished->timings);
    } else if (g->n_answers > 1 && t->answer.is_stopped) {
        finish_answer(g, index, NULL); // the others go on: its end is told at once
    } else {
        tell(g, index, NULL);
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
    if (all_stopped(g)) { // they were complete, whatever became of the pod
        int reason = 0;
        for (uint32_t i = 0; i < g->n_answers; i++)
            reason = finish_answer(g, i, NULL);
        finish(g, reason, NULL);
        return;
    }
    // The model server names its own fields; the client knows those that they were made of.
    relay_err told = *e;
    rename_field(&told, "prompt_token_ids", g->prompt_field);
    rename_field(&told, "resume.generated_token_ids", "resume_token_ids");
    rename_field(&told, "resume.sampler_state", "resume_sampler_state");
    fail(g, code, &told);
    account(g, code, 0, NULL);
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
