#include "tests/common/rpc_world.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

enum { HANGING_MAX = 512 };

struct rpc_world {
    relay_rpc_server *server;
    relay_rpc_client *client;
    char target[64];
    bool is_drained;
    pthread_mutex_t mu; // guards what follows
    pthread_cond_t cond;
    rpc_world_counts counts;
    relay_rpc_call *hanging[HANGING_MAX]; // references of the service
    size_t n_hanging;
};

// What the service keeps of a call.
typedef struct call_state {
    int in_callback;
    pthread_t thread;
    char *joined;
} call_state;

#define TEXT_TYPE &relay__v1__detokenize_response__descriptor

Relay__V1__DetokenizeResponse rpc_text(const char *text) {
    Relay__V1__DetokenizeResponse m = RELAY__V1__DETOKENIZE_RESPONSE__INIT;
    m.has_text = 1;
    m.text = (ProtobufCBinaryData){.data = (uint8_t *)text, .len = strlen(text)};
    return m;
}

static char *text_of(const ProtobufCMessage *message) {
    const Relay__V1__DetokenizeResponse *m = (const Relay__V1__DetokenizeResponse *)message;
    return relay_strndup((const char *)m->text.data, m->text.len);
}

// ---- The service

static rpc_world *world_of(relay_rpc_call *call) {
    return relay_rpc_call_service(call);
}

// Counts an event and checks that callbacks of one call never overlap and stay on one thread.
static call_state *enter(relay_rpc_call *call, size_t counter) {
    rpc_world *w = world_of(call);
    call_state *state = relay_rpc_call_data(call);
    bool is_wrong = state->in_callback != 0 || !pthread_equal(state->thread, pthread_self());
    state->in_callback++;
    pthread_mutex_lock(&w->mu);
    if (is_wrong) w->counts.callback_overlap = true;
    ++*(uint32_t *)((char *)&w->counts + counter);
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->mu);
    return state;
}

static void leave(relay_rpc_call *call) {
    ((call_state *)relay_rpc_call_data(call))->in_callback--;
}

static void on_start(relay_rpc_call *call) {
    call_state *state = relay_calloc(1, sizeof *state);
    state->thread = pthread_self();
    relay_rpc_call_set_data(call, state);
    enter(call, offsetof(rpc_world_counts, started));
    leave(call);
}

static void on_cancel(relay_rpc_call *call) {
    enter(call, offsetof(rpc_world_counts, cancelled));
    leave(call);
}

static void on_drained(relay_rpc_call *call) {
    enter(call, offsetof(rpc_world_counts, drained));
    leave(call);
}

static void on_destroy(relay_rpc_call *call) {
    call_state *state = enter(call, offsetof(rpc_world_counts, destroyed));
    free(state->joined);
    free(state);
}

static void reply_text(relay_rpc_call *call, const char *text) {
    Relay__V1__DetokenizeResponse m = rpc_text(text);
    relay_rpc_call_reply(call, &m.base);
}

// Keeps the call until rpc_world_release.
static void hang(relay_rpc_call *call) {
    rpc_world *w = world_of(call);
    relay_rpc_call_ref(call);
    pthread_mutex_lock(&w->mu);
    w->hanging[w->n_hanging++] = call;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->mu);
}

static void on_echo(relay_rpc_call *call, ProtobufCMessage *message) {
    enter(call, offsetof(rpc_world_counts, messages));
    // The same bytes again, so that any text comes back, one with NUL too.
    relay_rpc_call_reply(call, message);
    leave(call);
}

static void on_fail(relay_rpc_call *call, ProtobufCMessage *message) {
    enter(call, offsetof(rpc_world_counts, messages));
    char *text = text_of(message);
    relay_err e;
    relay_fail(&e, RELAY_RESOURCE_EXHAUSTED, "%s", text);
    e.retry_after_ms = 1234;
    relay_rpc_call_finish(call, e.code, &e);
    free(text);
    leave(call);
}

static void on_count(relay_rpc_call *call, ProtobufCMessage *message) {
    enter(call, offsetof(rpc_world_counts, messages));
    char *text = text_of(message);
    int n = atoi(text);
    for (int i = 0; i < n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        Relay__V1__DetokenizeResponse m = rpc_text(number);
        if (relay_rpc_call_send(call, &m.base) != RELAY_OK) break;
    }
    relay_rpc_call_finish(call, RELAY_OK, NULL);
    free(text);
    leave(call);
}

static void on_join(relay_rpc_call *call, ProtobufCMessage *message) {
    call_state *state = enter(call, offsetof(rpc_world_counts, messages));
    char *text = text_of(message);
    size_t len = state->joined != NULL ? strlen(state->joined) : 0;
    state->joined = relay_realloc(state->joined, len + strlen(text) + 1);
    strcpy(state->joined + len, text);
    free(text);
    leave(call);
}

static void on_join_half_close(relay_rpc_call *call) {
    call_state *state = enter(call, offsetof(rpc_world_counts, half_closed));
    reply_text(call, state->joined != NULL ? state->joined : "");
    leave(call);
}

static void on_chat(relay_rpc_call *call, ProtobufCMessage *message) {
    enter(call, offsetof(rpc_world_counts, messages));
    if (relay_rpc_call_send(call, message) == RELAY_RESOURCE_EXHAUSTED) {
        relay_err e;
        relay_fail(&e, RELAY_RESOURCE_EXHAUSTED, "the client does not read its answers");
        relay_rpc_call_abort(call, e.code, &e);
    }
    leave(call);
}

static void on_chat_half_close(relay_rpc_call *call) {
    enter(call, offsetof(rpc_world_counts, half_closed));
    relay_rpc_call_finish(call, RELAY_OK, NULL);
    leave(call);
}

static void on_hang(relay_rpc_call *call, ProtobufCMessage *message) {
    enter(call, offsetof(rpc_world_counts, messages));
    char *text = text_of(message);
    if (strcmp(text, "first") == 0) {
        Relay__V1__DetokenizeResponse m = rpc_text("first");
        assert_int_equal(relay_rpc_call_send(call, &m.base), RELAY_OK);
    }
    hang(call);
    free(text);
    leave(call);
}

static void on_hang_cancel(relay_rpc_call *call) {
    enter(call, offsetof(rpc_world_counts, cancelled));
    rpc_world *w = world_of(call);
    pthread_mutex_lock(&w->mu);
    for (size_t i = 0; i < w->n_hanging; i++) {
        if (w->hanging[i] != call) continue;
        w->hanging[i] = w->hanging[--w->n_hanging];
        relay_rpc_call_unref(call);
        break;
    }
    pthread_mutex_unlock(&w->mu);
    leave(call);
}

static void on_peer(relay_rpc_call *call, ProtobufCMessage *message) {
    enter(call, offsetof(rpc_world_counts, messages));
    reply_text(call, relay_rpc_call_peer(call));
    leave(call);
}

static void add_methods(rpc_world *w) {
    const relay_rpc_method methods[] = {
        {.path = ECHO, .kind = RELAY_RPC_UNARY, .on_message = on_echo},
        {.path = FAIL, .kind = RELAY_RPC_UNARY, .on_message = on_fail},
        {.path = COUNT, .kind = RELAY_RPC_SERVER_STREAM, .on_message = on_count},
        {.path = JOIN, .kind = RELAY_RPC_CLIENT_STREAM, .on_message = on_join, .on_half_close = on_join_half_close},
        {.path = CHAT, .kind = RELAY_RPC_BIDI, .on_message = on_chat, .on_half_close = on_chat_half_close},
        {.path = HANG, .kind = RELAY_RPC_SERVER_STREAM, .on_message = on_hang, .on_cancel = on_hang_cancel},
        {.path = PEER, .kind = RELAY_RPC_UNARY, .on_message = on_peer},
        {.path = ALWAYS, .kind = RELAY_RPC_UNARY, .on_message = on_echo, .is_always_admitted = true},
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        relay_rpc_method m = methods[i];
        m.request = m.response = TEXT_TYPE;
        m.service = w;
        m.on_start = on_start;
        if (m.on_cancel == NULL) m.on_cancel = on_cancel;
        m.on_drained = on_drained;
        m.on_destroy = on_destroy;
        relay_rpc_server_add(w->server, &m, 1);
    }
}

// ---- The world

rpc_world *rpc_world_create(const relay_rpc_server_opts *server_opts, const relay_rpc_client_opts *client_opts) {
    relay_log_init(RELAY_LOG_ERROR, RELAY_LOG_KEY_VALUE); // the C core warns of what the tests provoke
    rpc_world *w = relay_calloc(1, sizeof *w);
    pthread_mutex_init(&w->mu, NULL);
    pthread_cond_init(&w->cond, NULL);
    relay_rpc_server_opts opts = server_opts != NULL ? *server_opts : (relay_rpc_server_opts){0};
    opts.listen = "127.0.0.1:0";
    relay_err e;
    if (relay_rpc_server_create(&w->server, &opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    add_methods(w);
    if (relay_rpc_server_start(w->server, &e) != RELAY_OK) fail_msg("%s", e.message);
    snprintf(w->target, sizeof w->target, "127.0.0.1:%u", relay_rpc_server_port(w->server));
    w->client = rpc_world_new_client(w, client_opts);
    return w;
}

void rpc_world_destroy(rpc_world *w) {
    rpc_world_release(w);
    relay_rpc_client_destroy(w->client);
    if (!w->is_drained) relay_rpc_server_drain(w->server, 10 * 1000000);
    relay_rpc_server_destroy(w->server);
    assert_int_equal(w->counts.started, w->counts.destroyed);
    assert_false(w->counts.callback_overlap);
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->mu);
    free(w);
}

relay_rpc_client *rpc_world_client(rpc_world *w) {
    return w->client;
}

relay_rpc_server *rpc_world_server(rpc_world *w) {
    return w->server;
}

const char *rpc_world_target(rpc_world *w) {
    return w->target;
}

relay_rpc_client *rpc_world_new_client(rpc_world *w, const relay_rpc_client_opts *client_opts) {
    relay_rpc_client_opts opts = client_opts != NULL ? *client_opts : (relay_rpc_client_opts){0};
    opts.target = w->target;
    relay_rpc_client *client;
    relay_err e;
    if (relay_rpc_client_create(&client, &opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    if (relay_rpc_client_wait_ready(client, rpc_soon(), &e) != RELAY_OK) fail_msg("%s", e.message);
    return client;
}

void rpc_world_drain(rpc_world *w, relay_mono_us grace_us) {
    w->is_drained = true;
    relay_rpc_server_drain(w->server, grace_us);
}

rpc_world_counts rpc_world_count(rpc_world *w) {
    pthread_mutex_lock(&w->mu);
    rpc_world_counts counts = w->counts;
    pthread_mutex_unlock(&w->mu);
    return counts;
}

// Waits for a change of the world; fails the test after ten seconds in all. Under mu.
static void wait_for_change(rpc_world *w, relay_mono_us since, const char *what) {
    if (relay_mono_now() - since > 10 * 1000000) {
        pthread_mutex_unlock(&w->mu);
        fail_msg("%s did not happen within ten seconds", what);
    }
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec++;
    pthread_cond_timedwait(&w->cond, &w->mu, &t);
}

void rpc_world_wait(rpc_world *w, rpc_world_counts want) {
    relay_mono_us since = relay_mono_now();
    pthread_mutex_lock(&w->mu);
    const rpc_world_counts *have = &w->counts;
    while (have->started < want.started || have->messages < want.messages || have->half_closed < want.half_closed ||
           have->cancelled < want.cancelled || have->drained < want.drained || have->destroyed < want.destroyed)
        wait_for_change(w, since, "what the test waits for");
    pthread_mutex_unlock(&w->mu);
}

relay_rpc_call *rpc_world_hanging(rpc_world *w) {
    relay_mono_us since = relay_mono_now();
    pthread_mutex_lock(&w->mu);
    while (w->n_hanging == 0)
        wait_for_change(w, since, "a call that hangs");
    relay_rpc_call *call = w->hanging[0];
    relay_rpc_call_ref(call);
    pthread_mutex_unlock(&w->mu);
    return call;
}

int rpc_world_stuff(relay_rpc_call *call, uint64_t outbox_bytes) {
    char text[1001];
    memset(text, 'x', 1000);
    text[1000] = 0;
    Relay__V1__DetokenizeResponse m = rpc_text(text);
    int n = 0;
    // Windows grow while bytes arrive: it is full when nothing has moved for a while.
    for (relay_mono_us last = relay_mono_now(); relay_mono_now() - last < 100000;) {
        relay_code code = relay_rpc_call_send(call, &m.base);
        assert_true(relay_rpc_call_outbox_used(call) <= outbox_bytes);
        if (code == RELAY_OK) {
            last = relay_mono_now();
            n++;
        } else {
            assert_int_equal(code, RELAY_RESOURCE_EXHAUSTED);
            usleep(5000);
        }
    }
    return n;
}

void rpc_world_release(rpc_world *w) {
    pthread_mutex_lock(&w->mu);
    size_t n = w->n_hanging;
    w->n_hanging = 0;
    for (size_t i = 0; i < n; i++) {
        relay_rpc_call_finish(w->hanging[i], RELAY_OK, NULL);
        relay_rpc_call_unref(w->hanging[i]);
    }
    pthread_mutex_unlock(&w->mu);
}

// ---- Shorthands

relay_mono_us rpc_soon(void) {
    return relay_mono_now() + 20 * 1000000;
}

relay_rpc_stream *rpc_open(relay_rpc_client *c, const char *path) {
    relay_rpc_stream *s;
    relay_err e;
    if (relay_rpc_stream_open(&s, c, path, TEXT_TYPE, NULL, 0, rpc_soon(), NULL, NULL, &e) != RELAY_OK)
        fail_msg("%s", e.message);
    return s;
}

void rpc_send(relay_rpc_stream *s, const char *text) {
    Relay__V1__DetokenizeResponse m = rpc_text(text);
    assert_int_equal(relay_rpc_stream_send(s, &m.base), RELAY_OK);
}

relay_rpc_stream *rpc_ask(relay_rpc_client *c, const char *path, const char *text) {
    relay_rpc_stream *s = rpc_open(c, path);
    rpc_send(s, text);
    relay_rpc_stream_half_close(s);
    return s;
}

void rpc_expect(relay_rpc_stream *s, const char *text) {
    ProtobufCMessage *message;
    relay_err e;
    relay_code code = relay_rpc_stream_next(s, rpc_soon(), &message, NULL, &e);
    if (code != RELAY_OK) fail_msg("%s: %s", relay_code_name(code), e.message);
    if (message == NULL) fail_msg("the stream ended where \"%s\" was expected", text);
    char *got = text_of(message);
    assert_string_equal(got, text);
    free(got);
    protobuf_c_message_free_unpacked(message, NULL);
}

const char *rpc_expect_end(relay_rpc_stream *s, relay_code want) {
    static relay_err e;
    e = (relay_err){0};
    ProtobufCMessage *message;
    bool timed_out;
    relay_code code = relay_rpc_stream_next(s, rpc_soon(), &message, &timed_out, &e);
    assert_false(timed_out);
    assert_null(message);
    if (code != want) fail_msg("%s (%s), not %s", relay_code_name(code), e.message, relay_code_name(want));
    return e.message;
}

relay_code rpc_unary(relay_rpc_client *c, const char *path, const char *text, char *answer) {
    Relay__V1__DetokenizeResponse m = rpc_text(text);
    ProtobufCMessage *response;
    relay_err e = {0};
    relay_code code = relay_rpc_client_unary(c, path, &m.base, TEXT_TYPE, NULL, 0, rpc_soon(), &response, &e);
    if (code != RELAY_OK) {
        snprintf(answer, 256, "%.255s", e.message);
        return code;
    }
    char *got = text_of(response);
    snprintf(answer, 256, "%s", got);
    free(got);
    protobuf_c_message_free_unpacked(response, NULL);
    return RELAY_OK;
}
