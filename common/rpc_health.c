// grpc.health.v1.Health.
//
// A watch is told the status when it begins and after each change. At most one status is on its way to a client: while
// the write is in flight, changes only change the health, and when the write is done (on_drained) the newest goes out
// if it differs from what was sent. So a client that reads slowly costs one message, and still ends up with the truth.
//
// `mu` guards the status and the list of watches, and is taken before a call's lock. The list holds no references: a
// watch leaves it in on_destroy, under `mu`.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc_standard.h"
#include "grpc/health/v1/health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckRequest check_request;
typedef Grpc__Health__V1__HealthCheckResponse check_response;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;

#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

typedef struct watch {
    struct watch *prev, *next;
    relay_rpc_call *call;
    bool is_known; // the service is one of ours
    serving_status sent;
} watch;

struct relay_rpc_health {
    char **services;
    size_t n_services;
    pthread_mutex_t mu;
    watch *watches;        // guarded by mu
    serving_status status; // guarded by mu
    bool is_closing;       // guarded by mu
};

static bool knows(const relay_rpc_health *h, const check_request *request) {
    if (request->service.len == 0) return true;
    for (size_t i = 0; i < h->n_services; i++) {
        if (strlen(h->services[i]) == request->service.len &&
            memcmp(h->services[i], request->service.data, request->service.len) == 0)
            return true;
    }
    return false;
}

static void on_check(relay_rpc_call *call, ProtobufCMessage *message) {
    relay_rpc_health *h = relay_rpc_call_service(call);
    const check_request *request = (const check_request *)message;
    relay_err e;
    if (relay_rpc_check_utf8(message, &e) != RELAY_OK) {
        relay_rpc_call_finish(call, e.code, &e);
        return;
    }
    if (!knows(h, request)) {
        relay_fail(&e, RELAY_NOT_FOUND, "unknown service \"%.*s\"", (int)request->service.len,
                   (const char *)request->service.data);
        relay_rpc_call_finish(call, e.code, &e);
        return;
    }
    check_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.has_status = 1;
    pthread_mutex_lock(&h->mu);
    response.status = h->status;
    pthread_mutex_unlock(&h->mu);
    relay_rpc_call_reply(call, &response.base);
}

// Under mu.
static void send_status(watch *w, serving_status status) {
    check_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.has_status = 1;
    response.status = status;
    // A call that is over takes nothing; nothing is owed to it either.
    if (relay_rpc_call_send(w->call, &response.base) == RELAY_OK) w->sent = status;
}

static serving_status status_for(const relay_rpc_health *h, const watch *w) {
    return w->is_known ? h->status : STATUS(SERVICE_UNKNOWN);
}

static void end_watch(watch *w) {
    relay_err e;
    relay_fail(&e, RELAY_UNAVAILABLE, "the server is shutting down");
    relay_rpc_call_finish(w->call, e.code, &e);
}

static void on_watch(relay_rpc_call *call, ProtobufCMessage *message) {
    relay_rpc_health *h = relay_rpc_call_service(call);
    relay_err e;
    if (relay_rpc_check_utf8(message, &e) != RELAY_OK) {
        relay_rpc_call_finish(call, e.code, &e);
        return;
    }
    watch *w = relay_calloc(1, sizeof *w);
    w->call = call;
    w->is_known = knows(h, (const check_request *)message);
    relay_rpc_call_set_data(call, w);
    pthread_mutex_lock(&h->mu);
    w->next = h->watches;
    if (w->next != NULL) w->next->prev = w;
    h->watches = w;
    send_status(w, status_for(h, w));
    if (h->is_closing) end_watch(w);
    pthread_mutex_unlock(&h->mu);
}

static void on_watch_drained(relay_rpc_call *call) {
    relay_rpc_health *h = relay_rpc_call_service(call);
    watch *w = relay_rpc_call_data(call);
    pthread_mutex_lock(&h->mu);
    if (status_for(h, w) != w->sent) send_status(w, status_for(h, w));
    pthread_mutex_unlock(&h->mu);
}

static void on_watch_destroy(relay_rpc_call *call) {
    relay_rpc_health *h = relay_rpc_call_service(call);
    watch *w = relay_rpc_call_data(call);
    if (w == NULL) return;
    pthread_mutex_lock(&h->mu);
    if (w->next != NULL) w->next->prev = w->prev;
    if (w->prev != NULL) {
        w->prev->next = w->next;
    } else {
        h->watches = w->next;
    }
    pthread_mutex_unlock(&h->mu);
    free(w);
}

relay_rpc_health *relay_rpc_health_create(relay_rpc_server *s, const char *const *services, size_t n_services) {
    relay_rpc_health *h = relay_calloc(1, sizeof *h);
    pthread_mutex_init(&h->mu, NULL);
    h->status = STATUS(NOT_SERVING);
    h->services = relay_calloc(n_services, sizeof *h->services);
    h->n_services = n_services;
    for (size_t i = 0; i < n_services; i++)
        h->services[i] = relay_strndup(services[i], strlen(services[i]));
    const relay_rpc_method methods[] = {
        {
            .path = "/grpc.health.v1.Health/Check",
            .kind = RELAY_RPC_UNARY,
            .request = &grpc__health__v1__health_check_request__descriptor,
            .response = &grpc__health__v1__health_check_response__descriptor,
            .service = h,
            .on_message = on_check,
            .is_always_admitted = true,
        },
        {
            .path = "/grpc.health.v1.Health/Watch",
            .kind = RELAY_RPC_SERVER_STREAM,
            .request = &grpc__health__v1__health_check_request__descriptor,
            .response = &grpc__health__v1__health_check_response__descriptor,
            .service = h,
            .on_message = on_watch,
            .on_drained = on_watch_drained,
            .on_destroy = on_watch_destroy,
            .is_always_admitted = true,
        },
    };
    relay_rpc_server_add(s, methods, sizeof methods / sizeof *methods);
    return h;
}

void relay_rpc_health_set(relay_rpc_health *h, bool is_serving) {
    pthread_mutex_lock(&h->mu);
    h->status = is_serving ? STATUS(SERVING) : STATUS(NOT_SERVING);
    for (watch *w = h->watches; w != NULL; w = w->next) {
        if (status_for(h, w) != w->sent && relay_rpc_call_outbox_used(w->call) == 0) send_status(w, status_for(h, w));
    }
    pthread_mutex_unlock(&h->mu);
}

void relay_rpc_health_close_watches(relay_rpc_health *h) {
    pthread_mutex_lock(&h->mu);
    h->is_closing = true;
    for (watch *w = h->watches; w != NULL; w = w->next) {
        if (status_for(h, w) != w->sent) send_status(w, status_for(h, w));
        end_watch(w);
    }
    pthread_mutex_unlock(&h->mu);
}

void relay_rpc_health_destroy(relay_rpc_health *h) {
    if (h == NULL) return;
    RELAY_ASSERT(h->watches == NULL); // the server, destroyed before, has destroyed every call
    for (size_t i = 0; i < h->n_services; i++)
        free(h->services[i]);
    free(h->services);
    pthread_mutex_destroy(&h->mu);
    free(h);
}
