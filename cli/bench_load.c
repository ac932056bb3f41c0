// This thread sends; the client's takes what comes and puts each call that is over on a list, by which this thread
// goes on: with the conversation's next turn, or with another conversation.
#include "cli/bench_load.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "cli/cli.h"
#include "common/message.h"
#include "relay/v1/model.pb-c.h"

enum { SECOND_US = 1000000, LOOK_US = 50000 }; // how often Ctrl-C is looked for

typedef struct load load;

// A conversation that has begun.
typedef struct talk {
    load *l;
    struct talk *next; // in `over`
    struct talk *prev_open, *next_open;
    uint32_t turn, n_output;
    uint32_t *ids; // what was said so far
    size_t n_ids, cap_ids;
    relay_rpc_stream *stream;
    relay_mono_us due, last_at; // of the call; 0: no token came yet
    bool is_failed;
} talk;

struct load {
    const relay_bench_load_opts *opts;
    relay_bench_load_figures *out; // guarded by `lock` while calls are open
    uint64_t random;
    uint32_t vocab_size;
    talk *open; // all that have begun and are not over
    uint32_t n_open;
    pthread_mutex_t lock;
    pthread_cond_t came; // something is in `over`
    talk *over;
};

// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
static uint32_t random_id(load *l) {
    uint64_t z = l->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) % l->vocab_size);
}

static uint32_t *more_ids(talk *t, size_t n) {
    if (t->n_ids + n > t->cap_ids) {
        t->cap_ids = 2 * t->cap_ids + n;
        t->ids = relay_realloc(t->ids, t->cap_ids * sizeof *t->ids);
    }
    t->n_ids += n;
    return t->ids + t->n_ids - n;
}

// ---- On the client's thread

static void on_message(void *arg, ProtobufCMessage *message) {
    talk *t = arg;
    const Relay__V1__GenerateTokensResponse *m = (const Relay__V1__GenerateTokensResponse *)message;
    relay_bench_turn *turn = &t->l->out->turns[t->turn];
    pthread_mutex_lock(&t->l->lock);
    if (m->started != NULL) {
        turn->n_prompt += m->started->prompt_tokens;
        turn->n_cached += m->started->cached_tokens;
    }
    if (m->n_token_ids != 0) {
        relay_mono_us now = relay_mono_now();
        relay_bench_times_add(t->last_at == 0 ? &turn->first : &t->l->out->gaps,
                              now - (t->last_at == 0 ? t->due : t->last_at));
        t->last_at = now;
        t->l->out->n_output += m->n_token_ids;
        uint32_t *ids = more_ids(t, m->n_token_ids);
        for (size_t i = 0; i < m->n_token_ids; i++)
            ids[i] = m->token_ids[i];
    }
    pthread_mutex_unlock(&t->l->lock);
}

static void on_done(void *arg, relay_code code, const relay_err *e) {
    talk *t = arg;
    load *l = t->l;
    pthread_mutex_lock(&l->lock);
    l->out->n_calls++;
    t->is_failed = code != RELAY_OK;
    if (code == RELAY_OK) {
        l->out->turns[t->turn].n_answered++;
    } else if (!(code == RELAY_CANCELLED && relay_cli_is_interrupted()) && l->out->n_failed++ == 0) {
        l->out->first_error = *e;
    }
    t->next = l->over;
    l->over = t;
    pthread_cond_signal(&l->came);
    pthread_mutex_unlock(&l->lock);
}

// ---- On the caller's

// Its next call, with `n_new` ids more than what was said. False where it could not be made: counted as failed.
static bool send_turn(load *l, talk *t, uint32_t n_new, relay_mono_us due) {
    static const relay_rpc_stream_callbacks callbacks = {.on_message = on_message, .on_done = on_done};
    uint32_t *ids = more_ids(t, n_new);
    for (uint32_t i = 0; i < n_new; i++)
        ids[i] = random_id(l);
    t->due = due;
    t->last_at = 0;
    Relay__V1__GenerateTokensRequest request = RELAY__V1__GENERATE_TOKENS_REQUEST__INIT;
    Relay__V1__StopCriteria stop = RELAY__V1__STOP_CRITERIA__INIT;
    Relay__V1__SamplingParams sampling = RELAY__V1__SAMPLING_PARAMS__INIT;
    request.n_prompt_token_ids = t->n_ids;
    request.prompt_token_ids = t->ids;
    request.stop = &stop;
    request.sampling = &sampling;
    RELAY_SET(&stop, max_new_tokens, t->n_output);
    RELAY_SET(&stop, ignore_eos, 1);
    RELAY_SET(&sampling, temperature, 0);
    relay_err e = {0};
    relay_mono_us deadline = l->opts->timeout == 0 ? RELAY_NEVER_US : relay_mono_now() + l->opts->timeout;
    relay_code code =
        relay_rpc_stream_open(&t->stream, l->opts->client, "/relay.v1.ModelService/GenerateTokens",
                              &relay__v1__generate_tokens_response__descriptor, NULL, 0, deadline, &callbacks, t, &e);
    if (code != RELAY_OK) {
        t->stream = NULL;
        pthread_mutex_lock(&l->lock);
        l->out->n_calls++;
        if (l->out->n_failed++ == 0) l->out->first_error = e;
        pthread_mutex_unlock(&l->lock);
        return false;
    }
    // Packing reads the ids: nothing has been sent before, so nothing appends to them.
    if (relay_rpc_stream_send(t->stream, &request.base) != RELAY_OK) relay_rpc_stream_cancel(t->stream);
    relay_rpc_stream_half_close(t->stream);
    return true;
}

static void end(load *l, talk *t) {
    if (t->prev_open != NULL)
        t->prev_open->next_open = t->next_open;
    else
        l->open = t->next_open;
    if (t->next_open != NULL) t->next_open->prev_open = t->prev_open;
    l->n_open--;
    free(t->ids);
    free(t);
}

static void begin(load *l, const relay_bench_conversation *c, relay_mono_us due) {
    talk *t = relay_calloc(1, sizeof *t);
    *t = (talk){.l = l, .n_output = c->n_output, .next_open = l->open};
    if (l->open != NULL) l->open->prev_open = t;
    l->open = t;
    l->n_open++;
    if (!send_turn(l, t, c->n_prompt, due)) end(l, t);
}

// A call is over: the next turn, unless that was the last one.
static void go_on(load *l, talk *t) {
    relay_rpc_stream_release(t->stream);
    t->stream = NULL;
    bool is_last = t->is_failed || ++t->turn == l->opts->n_turns || relay_cli_is_interrupted();
    if (is_last || !send_turn(l, t, l->opts->n_next_prompt, relay_mono_now())) end(l, t);
}

// Waits until a call is over, but no longer than until `until`.
static talk *wait_over(load *l, relay_mono_us until) {
    relay_mono_us look = relay_mono_now() + LOOK_US;
    if (look > until) look = until;
    const struct timespec at = {.tv_sec = look / SECOND_US, .tv_nsec = look % SECOND_US * 1000};
    pthread_mutex_lock(&l->lock);
    int rc = 0;
    while (l->over == NULL && rc == 0)
        rc = pthread_cond_timedwait(&l->came, &l->lock, &at);
    talk *over = l->over;
    l->over = NULL;
    pthread_mutex_unlock(&l->lock);
    return over;
}

static void cancel_open(load *l) {
    for (talk *t = l->open; t != NULL; t = t->next_open)
        relay_rpc_stream_cancel(t->stream);
}

static void drive(load *l) {
    const relay_bench_load_opts *o = l->opts;
    uint32_t next = 0;
    relay_mono_us start = relay_mono_now();
    bool is_cancelled = false, is_filling = true;
    while (next < o->n_conversations || l->n_open > 0) {
        if (relay_cli_is_interrupted() && !is_cancelled) {
            is_cancelled = true;
            next = o->n_conversations;
            cancel_open(l);
            continue;
        }
        relay_mono_us until = RELAY_NEVER_US;
        if (o->in_flight != 0 && o->in_batches) is_filling = l->n_open == 0;
        while (next < o->n_conversations && is_filling) {
            relay_mono_us due = o->in_flight != 0 ? relay_mono_now() : start + o->conversations[next].at;
            if (o->in_flight != 0 && l->n_open >= o->in_flight) break;
            if (due > relay_mono_now()) {
                until = due;
                break;
            }
            begin(l, &o->conversations[next++], due);
        }
        for (talk *t = wait_over(l, until), *following; t != NULL; t = following) {
            following = t->next;
            go_on(l, t);
        }
    }
    l->out->took = relay_mono_now() - start;
}

static relay_code ask_vocabulary(load *l, relay_err *e) {
    Relay__V1__GetModelInfoRequest request = RELAY__V1__GET_MODEL_INFO_REQUEST__INIT;
    ProtobufCMessage *response = NULL;
    relay_code code = relay_rpc_client_unary(l->opts->client, "/relay.v1.ModelService/GetModelInfo", &request.base,
                                             &relay__v1__get_model_info_response__descriptor, NULL, 0,
                                             relay_mono_now() + 10 * SECOND_US, &response, e);
    if (code != RELAY_OK) return code;
    l->vocab_size = ((const Relay__V1__GetModelInfoResponse *)response)->vocab_size;
    protobuf_c_message_free_unpacked(response, NULL);
    if (l->vocab_size == 0) return relay_fail(e, RELAY_INTERNAL, "the server's model has no vocabulary");
    return RELAY_OK;
}

relay_code relay_bench_load_run(const relay_bench_load_opts *opts, relay_bench_load_figures *out, relay_err *e) {
    *out = (relay_bench_load_figures){0};
    load l = {.opts = opts, .out = out, .random = opts->seed, .lock = PTHREAD_MUTEX_INITIALIZER};
    relay_code code = ask_vocabulary(&l, e);
    if (code != RELAY_OK) return code;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l.came, &monotonic);
    pthread_condattr_destroy(&monotonic);
    drive(&l);
    pthread_cond_destroy(&l.came);
    pthread_mutex_destroy(&l.lock);
    return RELAY_OK;
}

void relay_bench_load_figures_fini(relay_bench_load_figures *f) {
    for (uint32_t i = 0; i < RELAY_BENCH_MAX_TURNS; i++)
        relay_bench_times_fini(&f->turns[i].first);
    relay_bench_times_fini(&f->gaps);
}
