#include "tests/model_svc/service_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/message.h"

enum { PATIENCE_US = 20 * 1000000 };

// ---- The world

// The engine's thread, in a step.
static void pass_gate(void *arg, const relay_step *step) {
    service_world *w = arg;
    pthread_mutex_lock(&w->mutex);
    while (w->permits == 0)
        pthread_cond_wait(&w->changed, &w->mutex);
    if (w->permits != UINT32_MAX) w->permits--;
    w->n_steps++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static void make_fake(service_world *w, const service_world_opts *o) {
    fake_model_init(&w->fake, 1, &o->n_blocks);
    w->fake.on_step = pass_gate;
    w->fake.on_step_arg = w;
    w->info = (relay_model_info){
        .name = "fake",
        .architecture = "fake",
        .weight_format = "none",
        .vocab_size = FAKE_VOCAB,
        .max_context = o->max_context,
        .n_groups = 1,
        .groups = {{.block_bytes = 64, .n_blocks = o->n_blocks}},
        .numerics_id = "fake",
        .default_sampling = {.temperature = 1, .top_k = 7, .top_p = 1, .typical_p = 1, .repetition_penalty = 1},
    };
}

static void load_real(service_world *w, const service_world_opts *o) {
    relay_model_opts opts = {
        .n_threads = o->threads,
        .kv_type = RELAY_KV_F16,
        .max_context = o->max_context,
        .max_rows = o->token_budget,
        .max_sequences = o->max_running,
    };
    // Of stories260K: 5 layers, 4 KV heads of 8 values, keys and values of two bytes.
    if (o->kv_blocks != 0) opts.kv_bytes = (uint64_t)o->kv_blocks * RELAY_BLOCK_TOKENS * 5 * 4 * 8 * 2 * 2;
    relay_err e;
    if (relay_model_load(&w->model, w->file, "stories260K.gguf", &opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    w->info = *relay_model_get_info(w->model);
}

static void set_default(uint32_t *field, uint32_t value) {
    if (*field == 0) *field = value;
}

service_world *service_world_create(service_world_opts o) {
    relay_log_init(RELAY_LOG_ERROR, RELAY_LOG_KEY_VALUE);
    service_world *w = relay_calloc(1, sizeof *w);
    w->permits = UINT32_MAX;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    set_default(&o.threads, 1);
    set_default(&o.max_context, 512);
    set_default(&o.n_blocks, 1024);
    set_default(&o.max_running, 32);
    set_default(&o.token_budget, 256);
    set_default(&o.max_queued_requests, 64);
    set_default(&o.max_queued_tokens, 1 << 20);
    relay_err e;
    const char *file = o.vocab_file != NULL ? o.vocab_file : "tests/data/stories260K.gguf";
    if (relay_gguf_open(&w->file, file, &e) != RELAY_OK) fail_msg("%s", e.message);
    if (relay_vocab_load_gguf(&w->vocab, w->file, &e) != RELAY_OK) fail_msg("%s", e.message);
    w->metrics = relay_metrics_create();
    relay_rpc_server_opts server = {.listen = "127.0.0.1:0",
                                    .metrics = w->metrics,
                                    .keepalive_time_ms = o.keepalive_ms,
                                    .keepalive_timeout_ms = o.keepalive_ms,
                                    .outbox_bytes = o.outbox_bytes};
    if (relay_rpc_server_create(&w->server, &server, &e) != RELAY_OK) fail_msg("%s", e.message);
    w->service = relay_model_service_create(w->server, w->metrics);
    if (relay_rpc_server_start(w->server, &e) != RELAY_OK) fail_msg("%s", e.message);
    w->client = service_world_connect(w);

    if (o.is_real) {
        load_real(w, &o);
    } else {
        make_fake(w, &o);
    }
    relay_engine_opts engine = {
        .model_ops = o.is_real ? &relay_model_decoder_ops : &fake_model_ops,
        .model = o.is_real ? (void *)w->model : (void *)&w->fake,
        .n_groups = w->info.n_groups,
        .vocab_size = w->info.vocab_size,
        .max_context = w->info.max_context,
        .max_running = o.max_running,
        .token_budget = o.token_budget,
        .prompt_chunk = o.prompt_chunk,
        .max_leases = 8,
        .max_queued_requests = o.max_queued_requests,
        .max_queued_tokens = o.max_queued_tokens,
        .publish = relay_model_service_publish,
        .publish_arg = w->service,
        .metrics = w->metrics,
    };
    memcpy(engine.groups, w->info.groups, sizeof engine.groups);
    if (relay_engine_create(&w->engine, &engine, &e) != RELAY_OK) fail_msg("%s", e.message);
    if (!o.is_loading) relay_model_service_serve(w->service, w->engine, &w->info, w->vocab, "test", 60000);
    return w;
}

relay_rpc_client *service_world_connect_to(service_world *w, uint16_t port) {
    relay_rpc_client *c;
    char target[64];
    snprintf(target, sizeof target, "127.0.0.1:%u", port);
    relay_rpc_client_opts opts = {.target = target};
    assert_int_equal(relay_rpc_client_create(&c, &opts, NULL), RELAY_OK);
    return c;
}

relay_rpc_client *service_world_connect(service_world *w) {
    return service_world_connect_to(w, relay_rpc_server_port(w->server));
}

static void *stop_engine(void *arg) {
    relay_engine_stop(arg);
    return NULL;
}

void service_world_stop(service_world *w) {
    if (w->is_stopped) return;
    w->is_stopped = true;
    relay_model_service_drain(w->service);
    // A step that is held goes on once the engine has been told to stop, so that it is the last.
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_engine, w->engine), 0);
    usleep(20000);
    service_world_release(w);
    pthread_join(thread, NULL);
    relay_rpc_server_drain(w->server, 1000000);
}

void service_world_destroy(service_world *w) {
    service_world_stop(w);
    relay_rpc_client_destroy(w->client);
    relay_model_service_destroy(w->service);
    const char *why = w->engine != NULL ? relay_engine_check(w->engine) : NULL;
    if (why != NULL) fail_msg("%s", why);
    relay_engine_destroy(w->engine);
    relay_rpc_server_destroy(w->server);
    relay_model_destroy(w->model);
    relay_vocab_destroy(w->vocab);
    relay_gguf_close(w->file);
    relay_metrics_destroy(w->metrics);
    if (w->fake.error != NULL) fail_msg("%s", w->fake.error);
    fake_model_fini(&w->fake);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

void service_world_hold(service_world *w) {
    pthread_mutex_lock(&w->mutex);
    w->permits = 0;
    pthread_mutex_unlock(&w->mutex);
}

void service_world_step(service_world *w, uint32_t n) {
    pthread_mutex_lock(&w->mutex);
    w->permits += n;
    pthread_cond_broadcast(&w->changed);
    while (w->permits != 0)
        pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}

void service_world_allow(service_world *w, uint32_t n) {
    pthread_mutex_lock(&w->mutex);
    w->permits += n;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

void service_world_release(service_world *w) {
    pthread_mutex_lock(&w->mutex);
    w->permits = UINT32_MAX;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

uint64_t service_world_steps(service_world *w) {
    pthread_mutex_lock(&w->mutex);
    uint64_t n = w->n_steps;
    pthread_mutex_unlock(&w->mutex);
    return n;
}

bool load_is_empty(const Relay__V1__Load *load) {
    return load->running == 0 && load->waiting == 0 && load->free_blocks + load->cached_blocks == load->total_blocks;
}

bool load_has_one_running(const Relay__V1__Load *load) {
    return load->running == 1 && load->waiting == 0;
}

bool load_has_one_waiting(const Relay__V1__Load *load) {
    return load->running == 1 && load->waiting == 1;
}

bool load_has_two_waiting(const Relay__V1__Load *load) {
    return load->running == 1 && load->waiting == 2;
}

void service_world_wait_for_calls(service_world *w, uint32_t n) {
    const relay_gauge *active = relay_metrics_gauge(w->metrics, "relay_rpc_active", "", NULL);
    relay_mono_us until = relay_mono_now() + PATIENCE_US;
    while (relay_gauge_value(active) != (double)n) {
        if (relay_mono_now() > until) fail_msg("%g calls stay open, not %u", relay_gauge_value(active), n);
        usleep(1000);
    }
}

uint64_t service_world_counter(service_world *w, const char *name) {
    return relay_counter_value(relay_metrics_counter(w->metrics, name, "", NULL));
}

static void wait_for(service_world *w, load_condition holds, bool takes_steps) {
    relay_mono_us until = relay_mono_now() + PATIENCE_US;
    for (;;) {
        Relay__V1__GetLoadRequest request = RELAY__V1__GET_LOAD_REQUEST__INIT;
        ProtobufCMessage *m;
        relay_err e;
        if (relay_rpc_client_unary(w->client, "/relay.v1.ModelService/GetLoad", &request.base,
                                   &relay__v1__get_load_response__descriptor, NULL, 0, RELAY_NEVER_US, &m,
                                   &e) != RELAY_OK) {
            fail_msg("GetLoad: %s", e.message);
        }
        const Relay__V1__Load *load = ((Relay__V1__GetLoadResponse *)m)->load;
        bool is_there = holds(load);
        if (!is_there && relay_mono_now() > until) {
            fail_msg("the load stays at running=%u waiting=%u free_blocks=%u cached_blocks=%u of %u", load->running,
                     load->waiting, load->free_blocks, load->cached_blocks, load->total_blocks);
        }
        protobuf_c_message_free_unpacked(m, NULL);
        if (is_there) return;
        if (takes_steps) service_world_step(w, 1);
        usleep(1000);
    }
}

void service_world_wait_for(service_world *w, load_condition holds) {
    wait_for(w, holds, false);
}

void service_world_step_until(service_world *w, load_condition holds) {
    wait_for(w, holds, true);
}

// ---- Requests and answers

void token_request_init(token_request *r, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed) {
    assert_true(n_prompt <= sizeof r->prompt / sizeof r->prompt[0]);
    memset(r, 0, sizeof *r);
    relay__v1__generate_tokens_request__init(&r->message);
    relay__v1__sampling_params__init(&r->sampling);
    relay__v1__stop_criteria__init(&r->stop);
    relay__v1__output_options__init(&r->output);
    // Below 500, so that they are ids of both models' vocabularies.
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = 1 + (i * 7 + (uint32_t)seed) % 499;
    r->message.n_prompt_token_ids = n_prompt;
    r->message.prompt_token_ids = r->prompt;
    r->message.sampling = &r->sampling;
    r->message.stop = &r->stop;
    RELAY_SET(&r->sampling, seed, seed);
    RELAY_SET(&r->stop, ignore_eos, 1);
    if (max_new_tokens != 0) RELAY_SET(&r->stop, max_new_tokens, max_new_tokens);
}

static void copy_text(char *to, size_t cap, ProtobufCBinaryData from) {
    size_t n = from.len < cap - 1 ? from.len : cap - 1;
    if (n != 0) memcpy(to, from.data, n);
    to[n] = '\0';
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t len) {
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
    return hash;
}

void token_answer_add(token_answer *a, const Relay__V1__GenerateTokensResponse *r) {
    a->n_messages++;
    assert_false(a->is_finished);
    if (r->started != NULL) {
        assert_false(a->is_started);
        a->is_started = true;
        a->prompt_tokens = r->started->prompt_tokens;
        a->cached_tokens = r->started->cached_tokens;
        a->seed = r->started->seed;
        copy_text(a->server_request_id, sizeof a->server_request_id, r->started->server_request_id);
    }
    assert_true(a->is_started);
    if (r->prompt_logprobs != NULL) {
        const Relay__V1__PromptLogprobs *scores = r->prompt_logprobs;
        assert_int_equal(a->n_ids, 0);
        assert_int_equal(scores->first_position, a->n_scores + 1);
        assert_true(scores->n_logprobs >= scores->n_top);
        for (size_t i = 0; i < scores->n_logprobs; i++)
            a->scores[a->n_scores++] = scores->logprobs[i];
        for (size_t i = 0; i < scores->n_top; i++) {
            const Relay__V1__TopLogprobs *top = scores->top[i];
            a->score_hash = hash_bytes(a->score_hash, top->token_ids, top->n_token_ids * sizeof *top->token_ids);
            a->score_hash = hash_bytes(a->score_hash, top->logprobs, top->n_logprobs * sizeof *top->logprobs);
            a->score_hash = hash_bytes(a->score_hash, &top->chosen_rank, sizeof top->chosen_rank);
        }
        a->n_score_messages++;
    }
    for (size_t i = 0; i < r->n_token_ids; i++)
        a->ids[a->n_ids++] = r->token_ids[i];
    for (size_t i = 0; i < r->n_logprobs; i++)
        a->logprobs[a->n_logprobs++] = r->logprobs[i];
    for (size_t i = 0; i < r->n_top_logprobs; i++) {
        const Relay__V1__TopLogprobs *top = r->top_logprobs[i];
        a->top_hash = hash_bytes(a->top_hash, top->token_ids, top->n_token_ids * sizeof *top->token_ids);
        a->top_hash = hash_bytes(a->top_hash, top->logprobs, top->n_logprobs * sizeof *top->logprobs);
        a->top_hash = hash_bytes(a->top_hash, &top->chosen_rank, sizeof top->chosen_rank);
        assert_true(top->n_token_ids == top->n_logprobs && top->n_token_ids <= 64);
        a->n_last_top = (uint32_t)top->n_token_ids;
        memcpy(a->last_top_ids, top->token_ids, top->n_token_ids * sizeof *top->token_ids);
        memcpy(a->last_top_logprobs, top->logprobs, top->n_logprobs * sizeof *top->logprobs);
    }
    if (r->has_sampler_state) {
        assert_true(r->sampler_state.len <= sizeof a->sampler_state);
        a->n_sampler_state = (uint32_t)r->sampler_state.len;
        memcpy(a->sampler_state, r->sampler_state.data, a->n_sampler_state);
    }
    if (r->finished != NULL) {
        a->is_finished = true;
        a->reason = r->finished->reason;
        a->output_tokens = r->finished->output_tokens;
        a->preemptions = r->finished->preemptions;
        if (r->finished->cause_case == RELAY__V1__TOKENS_FINISHED__CAUSE_STOP_TOKEN_ID) {
            a->stop_token_id = r->finished->stop_token_id;
        } else if (r->finished->cause_case == RELAY__V1__TOKENS_FINISHED__CAUSE_STOP_SEQUENCE_INDEX) {
            a->stop_sequence_index = r->finished->stop_sequence_index;
        }
    }
}

relay_rpc_stream *generate_open(relay_rpc_client *c, const Relay__V1__GenerateTokensRequest *m) {
    relay_rpc_stream *s;
    relay_err e;
    if (relay_rpc_stream_open(&s, c, "/relay.v1.ModelService/GenerateTokens",
                              &relay__v1__generate_tokens_response__descriptor, NULL, 0,
                              relay_mono_now() + 2 * PATIENCE_US, NULL, NULL, &e) != RELAY_OK) {
        fail_msg("GenerateTokens: %s", e.message);
    }
    assert_int_equal(relay_rpc_stream_send(s, &m->base), RELAY_OK);
    relay_rpc_stream_half_close(s);
    return s;
}

void generate_read_all(relay_rpc_stream *s, token_answer *a, uint32_t n) {
    memset(a, 0, n * sizeof *a);
    for (;;) {
        ProtobufCMessage *m;
        bool timed_out;
        relay_err e = {0};
        a->code = relay_rpc_stream_next(s, relay_mono_now() + PATIENCE_US, &m, &timed_out, &e);
        if (timed_out) fail_msg("no message within %d s", PATIENCE_US / 1000000);
        if (m == NULL) {
            a->retry_after_ms = e.retry_after_ms;
            snprintf(a->error, sizeof a->error, "%s", e.message);
            return;
        }
        const Relay__V1__GenerateTokensResponse *r = (Relay__V1__GenerateTokensResponse *)m;
        uint32_t i = n == 1 ? 0 : r->index;
        assert_true(i < n);
        if (i > 0 && a[0].is_started) a[i].is_started = true; // the first message of the call says so for all
        token_answer_add(&a[i], r);
        protobuf_c_message_free_unpacked(m, NULL);
    }
}

void generate_read(relay_rpc_stream *s, token_answer *a) {
    generate_read_all(s, a, 1);
}

void generate(relay_rpc_client *c, const Relay__V1__GenerateTokensRequest *m, token_answer *a) {
    relay_rpc_stream *s = generate_open(c, m);
    generate_read(s, a);
    relay_rpc_stream_release(s);
}

// ---- Sessions

session *session_open_silent(service_world *w, relay_rpc_client *c) {
    session *s = calloc(1, sizeof *s);
    s->world = w;
    relay_err e;
    if (relay_rpc_stream_open(&s->stream, c, "/relay.v1.ModelService/Session", &relay__v1__session_response__descriptor,
                              NULL, 0, RELAY_NEVER_US, NULL, NULL, &e) != RELAY_OK) {
        fail_msg("Session: %s", e.message);
    }
    return s;
}

void session_send(session *s, const Relay__V1__SessionRequest *m) {
    assert_int_equal(relay_rpc_stream_send(s->stream, &m->base), RELAY_OK);
}

void session_hello(session *s, const uint8_t *fingerprint, size_t len) {
    Relay__V1__SessionHello hello = RELAY__V1__SESSION_HELLO__INIT;
    if (fingerprint != NULL) RELAY_SET(&hello, tokenizer_fingerprint, relay_message_bytes(fingerprint, len));
    Relay__V1__SessionRequest m = RELAY__V1__SESSION_REQUEST__INIT;
    m.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_HELLO;
    m.hello = &hello;
    session_send(s, &m);
}

session *session_open(service_world *w, relay_rpc_client *c) {
    session *s = session_open_silent(w, c);
    session_hello(s, relay_vocab_fingerprint(w->vocab), RELAY_FINGERPRINT_BYTES);
    assert_true(session_read(s, PATIENCE_US));
    if (s->is_over) fail_msg("hello: %s", s->error);
    assert_true(s->has_welcome);
    return s;
}

void session_start(session *s, uint64_t key, const Relay__V1__GenerateTokensRequest *request) {
    Relay__V1__SessionStart start = RELAY__V1__SESSION_START__INIT;
    RELAY_SET(&start, stream_key, key);
    start.request = (Relay__V1__GenerateTokensRequest *)(uintptr_t)request;
    Relay__V1__SessionRequest m = RELAY__V1__SESSION_REQUEST__INIT;
    m.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_START;
    m.start = &start;
    session_send(s, &m);
}

void session_cancel(session *s, uint64_t key) {
    Relay__V1__SessionCancel cancel = RELAY__V1__SESSION_CANCEL__INIT;
    RELAY_SET(&cancel, stream_key, key);
    Relay__V1__SessionRequest m = RELAY__V1__SESSION_REQUEST__INIT;
    m.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_CANCEL;
    m.cancel = &cancel;
    session_send(s, &m);
}

void session_credit(session *s, uint64_t key, uint32_t tokens) {
    Relay__V1__SessionCredit credit = RELAY__V1__SESSION_CREDIT__INIT;
    RELAY_SET(&credit, stream_key, key);
    RELAY_SET(&credit, tokens, tokens);
    Relay__V1__SessionRequest m = RELAY__V1__SESSION_REQUEST__INIT;
    m.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_CREDIT;
    m.credit = &credit;
    session_send(s, &m);
}

static void take_delta(session *s, const Relay__V1__SessionDelta *d, const Relay__V1__SessionResponse *m) {
    assert_true(d->stream_key < SESSION_KEYS);
    token_answer *a = &s->answers[d->stream_key];
    if (d->has_accepted) {
        assert_true(d->accepted && !a->is_accepted);
        memset(a, 0, sizeof *a); // the key's earlier sequence has ended
        a->is_accepted = true;
    }
    if (d->response != NULL) {
        assert_true(a->is_accepted && m->has_step);
        uint32_t before = a->n_ids;
        token_answer_add(a, d->response);
        if (before == 0 && a->n_ids != 0) a->first_step = m->step;
        a->last_step = m->step;
        if (a->is_finished) s->n_ended++;
        if (a->is_finished) a->is_accepted = false;
    }
    if (d->error != NULL) {
        assert_false(a->is_failed && a->is_accepted);
        a->is_failed = true;
        a->is_accepted = false;
        a->code = (relay_code)d->error->code;
        a->retry_after_ms = d->error->retry_after_ms;
        copy_text(a->error, sizeof a->error, d->error->message);
        copy_text(a->reason_text, sizeof a->reason_text, d->error->reason);
        s->n_ended++;
    }
}

bool session_read(session *s, int64_t wait_us) {
    if (s->is_over) return false;
    ProtobufCMessage *message;
    bool timed_out = false;
    relay_err e = {0};
    relay_code code = relay_rpc_stream_next(s->stream, relay_mono_now() + wait_us, &message, &timed_out, &e);
    if (timed_out) return false;
    if (message == NULL) {
        s->is_over = true;
        s->code = code;
        snprintf(s->error, sizeof s->error, "%s", e.message);
        return true;
    }
    const Relay__V1__SessionResponse *m = (Relay__V1__SessionResponse *)message;
    s->n_messages++;
    if (m->welcome != NULL) s->has_welcome = true;
    assert_true(s->has_welcome);
    if (m->has_step) {
        assert_true(m->step >= s->step);
        s->step = m->step;
    }
    if (m->load != NULL) s->running = m->load->running;
    if (m->has_draining) s->is_draining = m->draining;
    for (size_t i = 0; i < m->n_deltas; i++)
        take_delta(s, m->deltas[i], m);
    protobuf_c_message_free_unpacked(message, NULL);
    return true;
}

void session_read_until_step(session *s, uint64_t step) {
    while (s->step < step) {
        if (!session_read(s, PATIENCE_US)) fail_msg("step %llu is not told", (unsigned long long)step);
    }
}

void session_read_until_end(session *s, uint64_t key) {
    token_answer *a = &s->answers[key];
    while (!a->is_finished && !a->is_failed && !s->is_over) {
        if (!session_read(s, PATIENCE_US)) fail_msg("sequence %llu does not end", (unsigned long long)key);
    }
}

void session_read_until_over(session *s) {
    while (!s->is_over) {
        if (!session_read(s, PATIENCE_US)) fail_msg("the session does not end");
    }
}

void session_close(session *s) {
    relay_rpc_stream_cancel(s->stream);
    relay_rpc_stream_release(s->stream);
    free(s);
}
