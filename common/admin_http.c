// The socket is made here and handed to libmicrohttpd, so that a bad address or a port in use is told in full.
#include "common/admin_http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/address.h"

enum { WHY_MAX = 256, CONNECTION_BYTES = 32 * 1024, BACKLOG = 64 };

struct relay_admin_http {
    relay_admin_http_opts opts;
    struct MHD_Daemon *daemon;
    uint16_t port;
};

// ---- Answers

// The body is copied.
static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *content_type, const char *body,
                              size_t len) {
    struct MHD_Response *r = MHD_create_response_from_buffer(len, (void *)body, MHD_RESPMEM_MUST_COPY);
    if (r == NULL) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *c, unsigned status, const char *text) {
    return answer(c, status, "text/plain; charset=utf-8", text, strlen(text));
}

static enum MHD_Result answer_state(struct MHD_Connection *c, bool (*is_fine)(void *, char *, size_t), void *arg) {
    char line[WHY_MAX + 2] = "";
    bool fine = is_fine(arg, line, WHY_MAX);
    size_t len = strnlen(line, WHY_MAX);
    memcpy(line + len, "\n", 2);
    return answer_text(c, fine ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, line);
}

static enum MHD_Result answer_metrics(struct MHD_Connection *c, relay_metrics *metrics) {
    relay_buf text;
    relay_buf_init(&text, RELAY_ADMIN_MAX_METRICS_BYTES);
    relay_metrics_write(metrics, &text);
    enum MHD_Result result =
        text.is_failed ? answer_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "the metrics are larger than the limit\n")
                       : answer(c, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text.data, text.len);
    relay_buf_fini(&text);
    return result;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_len, void **state) {
    const relay_admin_http *a = arg;
    const relay_admin_http_opts *o = &a->opts;
    bool is_metrics = strcmp(url, "/metrics") == 0;
    bool is_health = strcmp(url, "/healthz") == 0, is_ready = strcmp(url, "/readyz") == 0;
    if (!is_metrics && !is_health && !is_ready)
        return answer_text(c, MHD_HTTP_NOT_FOUND, "there are /metrics, /healthz and /readyz\n");
    // Answered before a body is read: libmicrohttpd then closes the connection behind the answer.
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "use GET or HEAD\n");
    if (is_metrics) return answer_metrics(c, o->metrics);
    return answer_state(c, is_health ? o->is_healthy : o->is_ready, o->arg);
}

// ---- The socket

static relay_code open_socket(const char *listen_on, int *out, relay_err *e) {
    relay_address address;
    char host[NI_MAXHOST], port[8];
    if (!relay_address_read(&address, listen_on) || address.host_len >= sizeof host)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "admin address \"%.100s\": must be HOST:PORT, [IPV6]:PORT or :PORT, port 0 to 65535",
                          listen_on);
    snprintf(host, sizeof host, "%.*s", (int)address.host_len, address.host);
    snprintf(port, sizeof port, "%u", address.port);
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *list;
    int failed = getaddrinfo(host[0] != 0 ? host : NULL, port, &hints, &list);
    if (failed != 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "admin address \"%.100s\": %s", listen_on, gai_strerror(failed));

    relay_code code = RELAY_OK;
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
        bind(fd, list->ai_addr, list->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        code = relay_fail(e, RELAY_UNAVAILABLE, "admin address \"%.100s\": %s", listen_on, strerror(errno));
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    *out = fd;
    return code;
}

static uint16_t port_of(int fd) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {0};
    socklen_t len = sizeof address;
    getsockname(fd, &address.any, &len);
    return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

// ---- The object

relay_code relay_admin_http_start(relay_admin_http **out, const relay_admin_http_opts *opts, relay_err *e) {
    *out = NULL;
    int fd;
    relay_code code = open_socket(opts->listen, &fd, e);
    if (code != RELAY_OK) return code;
    relay_admin_http *a = relay_calloc(1, sizeof *a);
    a->opts = *opts;
    a->opts.listen = NULL; // the caller's, and of no more use
    a->port = port_of(fd);
    a->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, on_request, a,
                                 MHD_OPTION_LISTEN_SOCKET, fd,                                       //
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)RELAY_ADMIN_MAX_CONNECTIONS, //
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)RELAY_ADMIN_TIMEOUT_S,     //
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,       //
                                 MHD_OPTION_END);
    if (a->daemon == NULL) { // the socket is libmicrohttpd's, also then
        free(a);
        return relay_fail(e, RELAY_INTERNAL, "admin address \"%.100s\": libmicrohttpd does not start", opts->listen);
    }
    *out = a;
    return RELAY_OK;
}

uint16_t relay_admin_http_port(const relay_admin_http *a) {
    return a->port;
}

void relay_admin_http_stop(relay_admin_http *a) {
    if (a == NULL) return;
    MHD_stop_daemon(a->daemon); // closes the socket
    free(a);
}
