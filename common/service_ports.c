#include "common/service_ports.h"

#include "common/daemon.h"
#include "common/log.h"
#include "common/version.h"

// Who asks often wants to know soon; never less patient than a second, which a busy peer may need.
static uint32_t keepalive_timeout_ms(int64_t keepalive_ms) {
    return keepalive_ms < 1000 ? 1000 : keepalive_ms > 20000 ? 20000 : (uint32_t)keepalive_ms;
}

relay_code relay_service_ports_bind(relay_service_ports *p, const relay_service_settings *s,
                                    const char *const *services, size_t n_services, uint32_t max_request_bytes,
                                    relay_err *e) {
    p->metrics = relay_metrics_create();
    relay_metrics_add_process(p->metrics);
    relay_rpc_server_opts opts = {
        .listen = s->listen,
        .max_calls = (uint32_t)s->max_calls,
        .max_request_bytes = max_request_bytes,
        .keepalive_time_ms = (uint32_t)s->keepalive_ms,
        .keepalive_timeout_ms = keepalive_timeout_ms(s->keepalive_ms),
        .metrics = p->metrics,
    };
    relay_code code = relay_rpc_server_create(&p->server, &opts, e);
    if (code != RELAY_OK) return code;
    p->health = relay_rpc_health_create(p->server, services, n_services);
    p->reflection = relay_rpc_reflection_create(p->server, services, n_services);
    return RELAY_OK;
}

relay_code relay_service_ports_open(relay_service_ports *p, const relay_service_settings *s,
                                    bool (*is_healthy)(void *arg, char *why, size_t why_cap),
                                    bool (*is_ready)(void *arg, char *why, size_t why_cap), void *arg, relay_err *e) {
    uint16_t admin_port = 0;
    if (s->admin_listen[0] != '\0') {
        relay_admin_http_opts admin = {.listen = s->admin_listen,
                                       .metrics = p->metrics,
                                       .is_healthy = is_healthy,
                                       .is_ready = is_ready,
                                       .arg = arg};
        relay_code code = relay_admin_http_start(&p->admin, &admin, e);
        if (code != RELAY_OK) return code;
        admin_port = relay_admin_http_port(p->admin);
    }
    relay_code code = relay_rpc_server_start(p->server, e);
    if (code != RELAY_OK) return code;
    p->is_open = true;
    uint16_t port = relay_rpc_server_port(p->server);
    RELAY_LOG(RELAY_LOG_INFO, "ports open", "version=%s grpc_port=%u admin_port=%u", RELAY_VERSION, port, admin_port);
    return s->port_file[0] == '\0' ? RELAY_OK : relay_daemon_write_port_file(s->port_file, port, admin_port, e);
}

static void hurry(void *arg) {
    relay_rpc_server_hurry(arg);
}

void relay_service_ports_close(relay_service_ports *p, relay_mono_us grace_us) {
    if (p->is_open) {
        relay_rpc_health_close_watches(p->health);
        relay_daemon_on_second_signal(hurry, p->server);
        relay_rpc_server_drain(p->server, grace_us);
        relay_daemon_on_second_signal(NULL, NULL);
    }
    relay_admin_http_stop(p->admin);
}

void relay_service_ports_destroy(relay_service_ports *p) {
    relay_rpc_server_destroy(p->server);
    relay_rpc_reflection_destroy(p->reflection);
    relay_rpc_health_destroy(p->health);
    relay_metrics_destroy(p->metrics);
}
