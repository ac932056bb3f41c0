// The link to several model pods: which one takes a generation, and what becomes of it when one goes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/message.h"
#include "tests/tokenizer_svc/text_world.h"
#include "tokenizer_svc/model_link.h"

enum { N_PODS = 3 };

typedef struct pods {
    service_world *worlds[N_PODS];
    tcp_proxy *proxies[N_PODS];
    char addresses[N_PODS][64];
    relay_model_link *link;
    uint32_t last_told; // by on_ready_pods
} pods;

static void on_ready_pods(void *arg, uint32_t n_ready) {
    __atomic_store_n(&((pods *)arg)->last_told, n_ready, __ATOMIC_SEQ_CST);
}

static void pods_init(pods *p) {
    const char *addresses[N_PODS];
    memset(p, 0, sizeof *p);
    for (int i = 0; i < N_PODS; i++) {
        p->worlds[i] = service_world_create((service_world_opts){0});
        p->proxies[i] = tcp_proxy_create(relay_rpc_server_port(p->worlds[i]->server));
        snprintf(p->addresses[i], sizeof p->addresses[i], "127.0.0.1:%u", tcp_proxy_port(p->proxies[i]));
        addresses[i] = p->addresses[i];
    }
    p->link = relay_model_link_create(&(relay_model_link_opts){
        .addresses = addresses,
        .n_addresses = N_PODS,
        .client = "test",
        .fingerprint = relay_vocab_fingerprint(p->worlds[0]->vocab),
        .on_ready_pods = on_ready_pods,
        .arg = p,
    });
    text_world_wait_for_pods(p->link, N_PODS);
}

static void pods_fini(pods *p) {
    relay_model_link_destroy(p->link);
    for (int i = 0; i < N_PODS; i++) {
        tcp_proxy_destroy(p->proxies[i]);
        service_world_destroy(p->worlds[i]);
    }
}

// ---- A generation as the link's user sees it

typedef struct generation {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    token_answer answer;
    bool is_ended;
    relay_link_ticket ticket;
} generation;

static void on_response(void *arg, const Relay__V1__GenerateTokensResponse *r) {
    generation *g = arg;
    pthread_mutex_lock(&g->mutex);
    assert_false(g->is_ended);
    token_answer_add(&g->answer, r);
    g->is_ended = r->finished != NULL;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

static void on_error(void *arg, relay_code code, const relay_err *e) {
    generation *g = arg;
    pthread_mutex_lock(&g->mutex);
    assert_false(g->is_ended);
    g->answer.code = code;
    snprintf(g->answer.error, sizeof g->answer.error, "%s", e->message);
    g->is_ended = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

static relay_code start(pods *p, generation *g, uint32_t n_tokens, const char *sequence_id, relay_err *e) {
    static const relay_link_handler handler = {.on_response = on_response, .on_error = on_error};
    memset(g, 0, sizeof *g);
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->changed, NULL);
    token_request r;
    token_request_init(&r, 10, n_tokens, 1);
    if (sequence_id != NULL) RELAY_SET(&r.message, sequence_id, relay_message_text(sequence_id));
    return relay_model_link_start(p->link, &r.message, RELAY_NEVER_US, &handler, g, &g->ticket, e);
}

static void wait_until_ended(generation *g) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&g->mutex);
    while (!g->is_ended) {
        if (pthread_cond_timedwait(&g->changed, &g->mutex, &until) != 0) fail_msg("a generation does not end");
    }
    pthread_mutex_unlock(&g->mutex);
}

static void hold_all(pods *p) {
    for (int i = 0; i < N_PODS; i++)
        service_world_hold(p->worlds[i]);
}

static void release_all(pods *p) {
    for (int i = 0; i < N_PODS; i++)
        service_world_release(p->worlds[i]);
}

// ---- Tests

static void a_conversation_stays_with_its_pod(void **state) {
    pods p;
    pods_init(&p);
    uint32_t used = 0;
    for (int i = 0; i < 30; i++) {
        char id[32];
        snprintf(id, sizeof id, "talk %d", i);
        static generation first, again;
        relay_err e;
        assert_int_equal(start(&p, &first, 5, id, &e), RELAY_OK);
        assert_int_equal(start(&p, &again, 5, id, &e), RELAY_OK);
        assert_int_equal(first.ticket.pod, again.ticket.pod);
        used |= 1u << first.ticket.pod;
        wait_until_ended(&first);
        wait_until_ended(&again);
        assert_int_equal(first.answer.n_ids, 5);
    }
    assert_int_equal(used, (1u << N_PODS) - 1); // and conversations are spread
    pods_fini(&p);
}

static void without_a_conversation_the_least_loaded_pod_is_taken(void **state) {
    pods p;
    pods_init(&p);
    hold_all(&p);
    static generation g[9];
    uint32_t counts[N_PODS] = {0};
    relay_err e;
    for (int i = 0; i < 9; i++) {
        assert_int_equal(start(&p, &g[i], 5, NULL, &e), RELAY_OK);
        counts[g[i].ticket.pod]++;
    }
    for (int i = 0; i < N_PODS; i++)
        assert_int_equal(counts[i], 3);
    release_all(&p);
    for (int i = 0; i < 9; i++)
        wait_until_ended(&g[i]);
    pods_fini(&p);
}

static void a_pod_that_is_lost_ends_its_own_and_no_other(void **state) {
    pods p;
    pods_init(&p);
    hold_all(&p);
    static generation g[N_PODS];
    relay_err e;
    for (int i = 0; i < N_PODS; i++)
        assert_int_equal(start(&p, &g[i], 300, NULL, &e), RELAY_OK);
    uint32_t lost = g[0].ticket.pod;
    tcp_proxy_cut(p.proxies[lost]);
    wait_until_ended(&g[0]);
    assert_int_equal(g[0].answer.code, RELAY_UNAVAILABLE);
    assert_non_null(strstr(g[0].answer.error, p.addresses[lost]));
    release_all(&p);
    for (int i = 1; i < N_PODS; i++) {
        wait_until_ended(&g[i]);
        assert_int_equal(g[i].answer.n_ids, 300);
    }
    text_world_wait_for_pods(p.link, N_PODS); // it comes back
    assert_int_equal(__atomic_load_n(&p.last_told, __ATOMIC_SEQ_CST), N_PODS);
    service_world_wait_for(p.worlds[lost], load_is_empty);
    pods_fini(&p);
}

static void a_pod_that_goes_silent_is_given_up(void **state) {
    pods p;
    pods_init(&p);
    hold_all(&p);
    static generation g;
    relay_err e;
    assert_int_equal(start(&p, &g, 300, NULL, &e), RELAY_OK);
    tcp_proxy_freeze(p.proxies[g.ticket.pod]);
    wait_until_ended(&g);
    assert_int_equal(g.answer.code, RELAY_UNAVAILABLE);
    text_world_wait_for_pods(p.link, N_PODS - 1);
    release_all(&p);
    pods_fini(&p);
}

static void a_draining_pod_is_passed_over(void **state) {
    pods p;
    pods_init(&p);
    hold_all(&p);
    static generation busy, next[6];
    relay_err e;
    assert_int_equal(start(&p, &busy, 100, NULL, &e), RELAY_OK);
    uint32_t draining = busy.ticket.pod;
    service_world_step_until(p.worlds[draining], load_has_one_running);
    relay_model_service_drain(p.worlds[draining]->service);
    usleep(1000000); // it says so on its session
    for (int i = 0; i < 6; i++) {
        assert_int_equal(start(&p, &next[i], 5, NULL, &e), RELAY_OK);
        assert_true(next[i].ticket.pod != draining);
    }
    release_all(&p);
    wait_until_ended(&busy);
    assert_int_equal(busy.answer.n_ids, 100); // what it had was finished
    for (int i = 0; i < 6; i++)
        wait_until_ended(&next[i]);
    pods_fini(&p);
}

static void cancel_ends_a_generation_once(void **state) {
    pods p;
    pods_init(&p);
    hold_all(&p);
    static generation g;
    relay_err e;
    assert_int_equal(start(&p, &g, 400, NULL, &e), RELAY_OK);
    service_world_step_until(p.worlds[g.ticket.pod], load_has_one_running);
    relay_model_link_cancel(p.link, g.ticket);
    relay_model_link_cancel(p.link, g.ticket);
    service_world_step_until(p.worlds[g.ticket.pod], load_is_empty);
    wait_until_ended(&g);
    assert_int_equal(g.answer.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_CANCELLED);
    relay_model_link_cancel(p.link, g.ticket); // it has ended
    relay_model_link_cancel(p.link, (relay_link_ticket){0});
    release_all(&p);
    pods_fini(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_stays_with_its_pod),
        cmocka_unit_test(without_a_conversation_the_least_loaded_pod_is_taken),
        cmocka_unit_test(a_pod_that_is_lost_ends_its_own_and_no_other),
        cmocka_unit_test(a_pod_that_goes_silent_is_given_up),
        cmocka_unit_test(a_draining_pod_is_passed_over),
        cmocka_unit_test(cancel_ends_a_generation_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
