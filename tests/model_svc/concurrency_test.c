// Sixty-four calls at a time, of every kind, that come, go and are cut at any moment; and afterwards nothing is left.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model_svc/service_world.h"

enum { N_THREADS = 8, N_CALLS = 8, N_ROUNDS = 4, N_TOKENS = 40 };

typedef struct client_thread {
    service_world *w;
    relay_rpc_client *client;
    uint32_t number;
    uint32_t n_whole; // answers that came whole, and were right
    const char *error;
} client_thread;

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525 + 1013904223; // Numerical Recipes' generator: enough to mix cases
    return *state >> 16;
}

static void check_answer(client_thread *t, const token_request *r, const token_answer *a, uint64_t seed) {
    uint32_t expected[256];
    uint32_t n_prompt = (uint32_t)r->message.n_prompt_token_ids;
    memcpy(expected, r->prompt, n_prompt * sizeof expected[0]);
    fake_continue(expected, n_prompt, N_TOKENS, seed);
    if (a->n_ids != N_TOKENS || memcmp(a->ids, expected + n_prompt, N_TOKENS * sizeof expected[0]) != 0) {
        t->error = "a wrong answer";
    } else {
        t->n_whole++;
    }
}

static void run_calls(client_thread *t, uint32_t *random) {
    relay_rpc_stream *calls[N_CALLS];
    token_request *r = calloc(N_CALLS, sizeof *r);
    token_answer *a = calloc(1, sizeof *a);
    for (uint32_t i = 0; i < N_CALLS; i++) {
        token_request_init(&r[i], 5 + next_random(random) % 100, N_TOKENS, i);
        calls[i] = generate_open(t->client, &r[i].message);
    }
    for (uint32_t i = 0; i < N_CALLS; i++) {
        bool is_cut = next_random(random) % 3 == 0;
        if (is_cut) relay_rpc_stream_cancel(calls[i]);
        generate_read(calls[i], a);
        if (!is_cut) check_answer(t, &r[i], a, i);
        relay_rpc_stream_release(calls[i]);
    }
    free(a);
    free(r);
}

static void run_session(client_thread *t, uint32_t *random) {
    session *s = session_open(t->w, t->client);
    token_request *r = calloc(N_CALLS, sizeof *r);
    for (uint32_t i = 0; i < N_CALLS; i++) {
        token_request_init(&r[i], 5 + next_random(random) % 100, N_TOKENS, i);
        session_start(s, i, &r[i].message);
    }
    bool is_cut = next_random(random) % 3 == 0;
    for (uint32_t i = 0; i < N_CALLS && !is_cut; i++) {
        bool cancels = next_random(random) % 4 == 0;
        if (cancels) session_cancel(s, i);
        session_read_until_end(s, i);
        if (!cancels) check_answer(t, &r[i], &s->answers[i], i);
    }
    session_close(s);
    free(r);
}

static void *run_client(void *arg) {
    client_thread *t = arg;
    uint32_t random = t->number;
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        if ((t->number + round) % 2 == 0) {
            run_calls(t, &random);
        } else {
            run_session(t, &random);
        }
    }
    return NULL;
}

static void sixty_four_calls_at_a_time_leave_nothing_behind(void **state) {
    service_world *w =
        service_world_create((service_world_opts){.max_running = 24, .max_queued_requests = 256, .n_blocks = 128});
    client_thread threads[N_THREADS];
    pthread_t ids[N_THREADS];
    for (uint32_t i = 0; i < N_THREADS; i++) {
        threads[i] = (client_thread){.w = w, .client = service_world_connect(w), .number = i};
        assert_int_equal(pthread_create(&ids[i], NULL, run_client, &threads[i]), 0);
    }
    uint32_t n_whole = 0;
    for (uint32_t i = 0; i < N_THREADS; i++) {
        pthread_join(ids[i], NULL);
        relay_rpc_client_destroy(threads[i].client);
        if (threads[i].error != NULL) fail_msg("%s", threads[i].error);
        n_whole += threads[i].n_whole;
    }
    assert_true(n_whole > N_THREADS * N_CALLS); // it is not only cuts
    service_world_wait_for(w, load_is_empty);
    service_world_wait_for_calls(w, 0);
    service_world_destroy(w);
}

static void a_server_stops_in_the_middle_of_everything(void **state) {
    service_world *w = service_world_create((service_world_opts){.max_running = 8});
    session *s = session_open(w, w->client);
    token_request r;
    relay_rpc_stream *calls[16];
    for (uint32_t i = 0; i < 16; i++) {
        token_request_init(&r, 20, 400, i);
        session_start(s, i, &r.message);
        calls[i] = generate_open(w->client, &r.message);
    }
    for (uint32_t i = 0; i < 16; i++) {
        while (!s->answers[i].is_accepted && !s->answers[i].is_failed)
            session_read(s, 1000000);
    }
    service_world_stop(w);
    token_answer *a = calloc(1, sizeof *a);
    for (uint32_t i = 0; i < 16; i++) {
        generate_read(calls[i], a); // each ends: whole, drained, or refused
        assert_true(a->code == RELAY_OK ? a->is_finished : a->code == RELAY_UNAVAILABLE);
        relay_rpc_stream_release(calls[i]);
    }
    free(a);
    session_read_until_over(s);
    for (uint32_t i = 0; i < 16; i++)
        assert_true(s->answers[i].is_finished);
    session_close(s);
    service_world_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixty_four_calls_at_a_time_leave_nothing_behind),
        cmocka_unit_test(a_server_stops_in_the_middle_of_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
