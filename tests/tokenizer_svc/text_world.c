#include "tests/tokenizer_svc/text_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/message.h"
#include "common/utf8.h"
#include "tests/tokenizer_svc/small_vocab.h"

enum { PATIENCE_US = 20 * 1000000, N_BYTES = 256, N_MERGED = 4, N_CONTROL = 5 };

static const char default_template[] =
    "{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '<|assistant|>' }}{{ m.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

// ---- The vocabulary

// Number i of the pieces.
static void make_piece(char *out, size_t cap, uint32_t i) {
    switch (i % 6) {
    case 0:
        snprintf(out, cap, " word%u", i);
        break;
    case 1: // two of three bytes of a character
        snprintf(out, cap, "%c%c", (char)(0xe4 + i / 6 / 64), (char)(0x80 + i / 6 % 64));
        break;
    case 2: // the rest of one, and a letter
        snprintf(out, cap, "%c%u", (char)(0x80 + i / 6 % 64), i);
        break;
    case 3:
        snprintf(out, cap, "\xc3\xa9%u", i);
        break;
    case 4:
        snprintf(out, cap, "%u\xe6\x97\xa5", i);
        break;
    default:
        snprintf(out, cap, "%u\xf0\x9f\x98\x80", i);
        break;
    }
}

void text_world_write_file(const text_world_opts *opts, int number, char *path, size_t cap) {
    static const char *const merges[] = {"h e", "l l", "he ll", "hell o", NULL};
    static const char *const control[] = {TEXT_BOS, TEXT_EOS, TEXT_USER, TEXT_ASSISTANT, "<|last|>", NULL};
    enum { N_PIECES = FAKE_VOCAB - N_BYTES - N_MERGED - N_CONTROL };
    static char pieces[N_PIECES][32];
    static const char *pointers[N_PIECES + 1];
    for (uint32_t i = 0; i < N_PIECES; i++) {
        make_piece(pieces[i], sizeof pieces[i], i);
        pointers[i] = pieces[i];
    }
    gguf_writer *g = small_vocab_write(
        &(small_vocab_spec){.pre = "smollm", .merges = merges, .pieces = pointers, .control = control});
    gguf_writer_string(g, "general.name", "tiny");
    gguf_writer_u32(g, "tokenizer.ggml.bos_token_id", FAKE_VOCAB - N_CONTROL);
    gguf_writer_u32(g, "tokenizer.ggml.eos_token_id", FAKE_VOCAB - N_CONTROL + 1);
    gguf_writer_bool(g, "tokenizer.ggml.add_bos_token", !opts->has_no_bos);
    if (!opts->has_no_template) {
        gguf_writer_string(g, "tokenizer.chat_template",
                           opts->chat_template != NULL ? opts->chat_template : default_template);
        static const char *const names[] = {"short", "broken"};
        gguf_writer_string_array(g, "tokenizer.chat_templates", names, 2);
        gguf_writer_string(g, "tokenizer.chat_template.short", "{{ messages[0].content }}");
        gguf_writer_string(g, "tokenizer.chat_template.broken", "{% if %}");
    }
    const char *folder = getenv("TEST_TMPDIR");
    snprintf(path, cap, "%s/text_world_%d_%d.gguf", folder == NULL ? "/tmp" : folder, (int)getpid(), number);
    assert_true(gguf_writer_save(g, path));
    gguf_writer_destroy(g);
}

// ---- The world

void text_world_wait_for_pods(relay_model_link *link, uint32_t n_ready) {
    relay_mono_us until = relay_mono_now() + PATIENCE_US;
    for (;;) {
        relay_link_summary summary;
        relay_model_link_get_summary(link, &summary);
        if (summary.ready_pods == n_ready) return;
        if (relay_mono_now() > until) fail_msg("%u model servers are ready, not %u", summary.ready_pods, n_ready);
        usleep(2000);
    }
}

text_world *text_world_create(text_world_opts o) {
    text_world *w = relay_calloc(1, sizeof *w);
    text_world_write_file(&o, 0, w->file, sizeof w->file);
    o.model.vocab_file = o.model_differs ? "tests/data/stories260K.gguf" : w->file;
    if (o.max_text_bytes == 0) o.max_text_bytes = 64 << 10;
    w->model = service_world_create(o.model);
    uint16_t model_port = relay_rpc_server_port(w->model->server);
    if (o.has_proxy) {
        w->proxy = tcp_proxy_create(model_port);
        model_port = tcp_proxy_port(w->proxy);
    }
    snprintf(w->model_address, sizeof w->model_address, "127.0.0.1:%u", model_port);

    relay_err e;
    if (relay_text_model_load(&w->text, w->file, "", &e) != RELAY_OK) fail_msg("%s", e.message);
    w->metrics = relay_metrics_create();
    relay_rpc_server_opts server = {.listen = "127.0.0.1:0", .metrics = w->metrics, .outbox_bytes = o.outbox_bytes};
    if (relay_rpc_server_create(&w->server, &server, &e) != RELAY_OK) fail_msg("%s", e.message);
    w->workers = relay_workers_create(o.n_workers == 0 ? 2 : o.n_workers, o.max_jobs == 0 ? 256 : o.max_jobs);
    if (!o.has_no_model) {
        const char *address = w->model_address;
        w->link = relay_model_link_create(&(relay_model_link_opts){
            .addresses = &address,
            .n_addresses = 1,
            .client = "text_world",
            .fingerprint = relay_vocab_fingerprint(relay_text_model_vocab(w->text)),
        });
        if (!o.model_differs) text_world_wait_for_pods(w->link, 1);
    }
    relay_tokenizer_service_opts tokenizer = {
        .model = w->text, .workers = w->workers, .max_text_bytes = o.max_text_bytes};
    w->tokenizer = relay_tokenizer_service_create(w->server, &tokenizer);
    relay_generation_service_opts generation = {.model = w->text,
                                                .workers = w->workers,
                                                .link = w->link,
                                                .metrics = w->metrics,
                                                .max_text_bytes = o.max_text_bytes};
    w->generation = relay_generation_service_create(w->server, &generation);
    if (relay_rpc_server_start(w->server, &e) != RELAY_OK) fail_msg("%s", e.message);
    char target[64];
    snprintf(target, sizeof target, "127.0.0.1:%u", relay_rpc_server_port(w->server));
    relay_rpc_client_opts client = {.target = target};
    assert_int_equal(relay_rpc_client_create(&w->client, &client, NULL), RELAY_OK);
    return w;
}

void text_world_destroy(text_world *w) {
    relay_rpc_client_destroy(w->client);
    relay_rpc_server_drain(w->server, 1000000);
    relay_workers_destroy(w->workers);
    relay_model_link_destroy(w->link);
    relay_generation_service_destroy(w->generation);
    relay_tokenizer_service_destroy(w->tokenizer);
    relay_rpc_server_destroy(w->server);
    relay_metrics_destroy(w->metrics);
    relay_text_model_destroy(w->text);
    if (w->proxy != NULL) tcp_proxy_destroy(w->proxy);
    service_world_destroy(w->model);
    unlink(w->file);
    free(w);
}

uint32_t text_world_id(text_world *w, const char *bytes) {
    const relay_vocab *v = relay_text_model_vocab(w->text);
    uint32_t id;
    if (relay_vocab_find(v, bytes, strlen(bytes), &id) || relay_vocab_find_special(v, bytes, strlen(bytes), &id))
        return id;
    fail_msg("no token \"%s\"", bytes);
    return 0;
}

ProtobufCMessage *text_world_call(text_world *w, const char *service, const char *method, const ProtobufCMessage *m,
                                  const ProtobufCMessageDescriptor *response, relay_err *e) {
    char path[128];
    snprintf(path, sizeof path, "/%s/%s", service, method);
    ProtobufCMessage *out = NULL;
    *e = (relay_err){0};
    relay_mono_us deadline = relay_mono_now() + PATIENCE_US;
    relay_code code = relay_rpc_client_unary(w->client, path, m, response, NULL, 0, deadline, &out, e);
    return code == RELAY_OK ? out : NULL;
}

char *text_world_detokenize(text_world *w, const uint32_t *ids, size_t n, bool skip_special, size_t *len) {
    Relay__V1__DetokenizeRequest m = RELAY__V1__DETOKENIZE_REQUEST__INIT;
    m.n_token_ids = n;
    m.token_ids = (uint32_t *)(uintptr_t)ids;
    RELAY_SET(&m, skip_special_tokens, skip_special);
    relay_err e;
    ProtobufCMessage *r = text_world_call(w, RELAY_TOKENIZER_SERVICE_NAME, "Detokenize", &m.base,
                                          &relay__v1__detokenize_response__descriptor, &e);
    if (r == NULL) fail_msg("Detokenize: %s", e.message);
    ProtobufCBinaryData text = ((Relay__V1__DetokenizeResponse *)r)->text;
    char *copy = relay_strndup(text.len == 0 ? "" : (const char *)text.data, text.len);
    *len = text.len;
    protobuf_c_message_free_unpacked(r, NULL);
    return copy;
}

// ---- Generate

void text_request_init(text_request *r, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed) {
    memset(r, 0, sizeof *r);
    relay__v1__generate_request__init(&r->message);
    relay__v1__sampling_params__init(&r->sampling);
    relay__v1__text_stop__init(&r->stop);
    relay__v1__text_output__init(&r->output);
    relay__v1__token_ids__init(&r->ids);
    for (uint32_t i = 0; i < n_prompt; i++)
        r->prompt[i] = 300 + (i * 7 + (uint32_t)seed) % 600;
    r->ids.n_ids = n_prompt;
    r->ids.ids = r->prompt;
    r->message.input_case = RELAY__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
    r->message.token_ids = &r->ids;
    r->message.sampling = &r->sampling;
    r->message.stop = &r->stop;
    r->message.output = &r->output;
    r->stop.stop_strings = r->stop_strings;
    RELAY_SET(&r->sampling, seed, seed);
    RELAY_SET(&r->stop, ignore_eos, 1);
    RELAY_SET(&r->stop, max_new_tokens, max_new_tokens);
    RELAY_SET(&r->output, return_token_ids, 1);
}

void text_request_add_stop(text_request *r, const char *bytes, size_t len) {
    r->stop_strings[r->stop.n_stop_strings++] = relay_message_bytes(bytes, len);
}

static void copy_text(char *to, size_t cap, ProtobufCBinaryData from) {
    size_t n = from.len < cap - 1 ? from.len : cap - 1;
    if (n != 0) memcpy(to, from.data, n);
    to[n] = '\0';
}

static void take_message(text_answer *a, const Relay__V1__GenerateResponse *m) {
    assert_false(a->is_finished);
    a->n_messages++;
    if (m->started != NULL) {
        assert_int_equal(a->n_messages, 1);
        a->is_started = true;
        a->prompt_tokens = m->started->prompt_tokens;
        a->seed = m->started->seed;
        copy_text(a->pod, sizeof a->pod, m->started->model_pod);
        copy_text(a->model, sizeof a->model, m->started->model);
    }
    assert_true(a->is_started);
    // Whole characters, whatever the tokens are.
    assert_true(relay_utf8_is_valid((const char *)m->text.data, m->text.len));
    assert_true(a->text_len + m->text.len < sizeof a->text);
    if (m->text.len != 0) memcpy(a->text + a->text_len, m->text.data, m->text.len);
    a->text_len += m->text.len;
    for (size_t i = 0; i < m->n_tokens; i++) {
        const Relay__V1__TokenDetail *d = m->tokens[i];
        a->ids[a->n_ids++] = d->token_id;
        if (d->has_logprob) a->logprobs[a->n_logprobs++] = d->logprob;
        if (d->top != NULL) a->n_tops += (uint32_t)d->top->n_token_ids;
    }
    if (m->finished == NULL) return;
    a->is_finished = true;
    a->reason = m->finished->reason;
    a->stop_token_id = m->finished->stop_token_id;
    a->output_tokens = m->finished->output_tokens;
    a->has_timings = m->finished->timings != NULL;
    if (a->has_timings) a->queue_us = m->finished->timings->queue_us;
    copy_text(a->stop_string, sizeof a->stop_string, m->finished->stop_string);
}

relay_rpc_stream *text_open(relay_rpc_client *c, const Relay__V1__GenerateRequest *m) {
    relay_rpc_stream *s;
    relay_err e;
    if (relay_rpc_stream_open(&s, c, "/relay.v1.GenerationService/Generate", &relay__v1__generate_response__descriptor,
                              NULL, 0, relay_mono_now() + 2 * PATIENCE_US, NULL, NULL, &e) != RELAY_OK) {
        fail_msg("Generate: %s", e.message);
    }
    assert_int_equal(relay_rpc_stream_send(s, &m->base), RELAY_OK);
    relay_rpc_stream_half_close(s);
    return s;
}

bool text_read(relay_rpc_stream *s, text_answer *a) {
    ProtobufCMessage *m;
    bool timed_out;
    relay_err e = {0};
    a->code = relay_rpc_stream_next(s, relay_mono_now() + PATIENCE_US, &m, &timed_out, &e);
    if (timed_out) fail_msg("no message within %d s", PATIENCE_US / 1000000);
    if (m == NULL) {
        a->retry_after_ms = e.retry_after_ms;
        snprintf(a->error, sizeof a->error, "%s", e.message);
        return false;
    }
    take_message(a, (Relay__V1__GenerateResponse *)m);
    protobuf_c_message_free_unpacked(m, NULL);
    return true;
}

void text_read_all(relay_rpc_stream *s, text_answer *a) {
    memset(a, 0, sizeof *a);
    while (text_read(s, a)) {
    }
}

void text_generate(text_world *w, const Relay__V1__GenerateRequest *m, text_answer *a) {
    relay_rpc_stream *s = text_open(w->client, m);
    text_read_all(s, a);
    relay_rpc_stream_release(s);
}
