#include "common/rpc_core.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/log.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

// ---- The library

// Clients can make the C core complain, once a request if they like: so many lines a second are let through.
enum { LOG_LINES_A_SECOND = 10 };

static void log_line(gpr_log_func_args *line) {
    static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    static relay_mono_us second_began; // these three under mu
    static unsigned n_lines, n_dropped;
    relay_log_level level = line->severity == GPR_LOG_SEVERITY_ERROR ? RELAY_LOG_WARN : RELAY_LOG_DEBUG;
    if (!relay_log_enabled(level)) return;
    pthread_mutex_lock(&mu);
    relay_mono_us now = relay_mono_now();
    if (now - second_began >= 1000000) {
        second_began = now;
        n_lines = 0;
    }
    bool is_dropped = level != RELAY_LOG_DEBUG && ++n_lines > LOG_LINES_A_SECOND;
    unsigned n_before = n_dropped;
    n_dropped = is_dropped ? n_dropped + 1 : 0;
    pthread_mutex_unlock(&mu);
    if (is_dropped) return;
    RELAY_LOG(level, "grpc", "text=%s at=%s:%d dropped=%u", line->message, line->file, line->line, n_before);
}

static void set_log_function(void) {
    gpr_set_log_function(log_line);
}

void relay_rpc_core_up(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_log_function);
    grpc_init();
}

void relay_rpc_core_down(void) {
    grpc_shutdown();
}

// ---- Queues

static _Thread_local bool is_queue_thread;

void relay_rpc_queue_init(relay_rpc_queue *q) {
    *q = (relay_rpc_queue){.cq = grpc_completion_queue_create_for_next(NULL)};
}

static void run_queue(relay_rpc_queue *q) {
    for (;;) {
        grpc_event event = grpc_completion_queue_next(q->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN) return;
        if (event.type != GRPC_OP_COMPLETE) continue;
        relay_rpc_tag *tag = event.tag;
        RELAY_RPC_TAKE_TAG(tag);
        tag->done(tag, event.success != 0);
    }
}

static void *queue_main(void *arg) {
    is_queue_thread = true;
    run_queue(arg);
    return NULL;
}

relay_code relay_rpc_queue_start(relay_rpc_queue *q, const char *thread_name, relay_err *e) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&q->thread, NULL, queue_main, q);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "cannot start a thread: %s", strerror(rc));
    q->has_thread = true;
    pthread_setname_np(q->thread, thread_name);
    return RELAY_OK;
}

void relay_rpc_queue_stop(relay_rpc_queue *q) {
    grpc_completion_queue_shutdown(q->cq);
    if (q->has_thread) {
        pthread_join(q->thread, NULL);
    } else {
        run_queue(q);
    }
    grpc_completion_queue_destroy(q->cq);
    *q = (relay_rpc_queue){0};
}

bool relay_rpc_on_queue_thread(void) {
    return is_queue_thread;
}

void relay_rpc_start_batch(grpc_call *call, const grpc_op *ops, size_t n_ops, relay_rpc_tag *tag) {
    RELAY_RPC_GIVE_TAG(tag);
    grpc_call_error rc = grpc_call_start_batch(call, ops, n_ops, tag, NULL);
    RELAY_ASSERT(rc == GRPC_CALL_OK);
}

// ---- Messages

relay_code relay_rpc_pack(const ProtobufCMessage *m, uint32_t limit, grpc_slice *out, relay_err *e) {
    size_t size = protobuf_c_message_get_packed_size(m);
    if (size > limit) {
        return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "%s of %zu bytes is larger than the limit of %u bytes",
                          m->descriptor->name, size, limit);
    }
    *out = grpc_slice_malloc(size);
    protobuf_c_message_pack(m, GRPC_SLICE_START_PTR(*out));
    return RELAY_OK;
}

typedef struct unpack_budget {
    size_t left;
    bool is_spent;
} unpack_budget;

static void *budget_alloc(void *arg, size_t size) {
    unpack_budget *budget = arg;
    if (size > budget->left) {
        budget->is_spent = true;
        return NULL;
    }
    budget->left -= size;
    return malloc(size);
}

static void budget_free(void *arg, void *p) {
    free(p);
}

relay_code relay_rpc_unpack(const ProtobufCMessageDescriptor *type, grpc_byte_buffer *bytes, ProtobufCMessage **out,
                            relay_err *e) {
    *out = NULL;
    grpc_byte_buffer_reader reader;
    RELAY_ASSERT(grpc_byte_buffer_reader_init(&reader, bytes));
    // A message in one piece, the common case, is parsed where it lies.
    grpc_slice *piece = NULL, joined = grpc_empty_slice();
    if (grpc_byte_buffer_length(bytes) > 0 && bytes->data.raw.slice_buffer.count == 1) {
        RELAY_ASSERT(grpc_byte_buffer_reader_peek(&reader, &piece));
    } else {
        joined = grpc_byte_buffer_reader_readall(&reader);
        piece = &joined;
    }
    size_t size = GRPC_SLICE_LENGTH(*piece);
    size_t limit = RELAY_RPC_PARSED_BASE_BYTES + RELAY_RPC_PARSED_FACTOR * size;
    unpack_budget budget = {.left = limit};
    ProtobufCAllocator allocator = {.alloc = budget_alloc, .free = budget_free, .allocator_data = &budget};
    *out = protobuf_c_message_unpack(type, &allocator, size, GRPC_SLICE_START_PTR(*piece));
    grpc_slice_unref(joined);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(bytes);
    if (*out != NULL) return RELAY_OK;
    if (budget.is_spent) {
        return relay_fail(
            e, RELAY_INVALID_ARGUMENT,
            "the %s of %zu bytes has too many parts for its size: parsed, it passes the limit of %zu bytes", type->name,
            size, limit);
    }
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "the message of %zu bytes is not a valid %s", size, type->name);
}

// ---- Outbox

struct relay_rpc_outbox_item {
    struct relay_rpc_outbox_item *next;
    grpc_slice message;
};

static uint64_t charge(grpc_slice message) {
    return GRPC_SLICE_LENGTH(message) + RELAY_RPC_OUTBOX_CHARGE;
}

bool relay_rpc_outbox_push(relay_rpc_outbox *o, grpc_slice message) {
    if (o->used != 0 && o->used + charge(message) > o->limit) {
        grpc_slice_unref(message);
        return false;
    }
    struct relay_rpc_outbox_item *item = relay_calloc(1, sizeof *item);
    item->message = message;
    if (o->head == NULL) {
        o->head = item;
    } else {
        o->tail->next = item;
    }
    o->tail = item;
    o->used += charge(message);
    return true;
}

grpc_byte_buffer *relay_rpc_outbox_pop(relay_rpc_outbox *o) {
    RELAY_ASSERT(o->in_flight == 0);
    struct relay_rpc_outbox_item *item = o->head;
    if (item == NULL) return NULL;
    o->head = item->next;
    o->in_flight = charge(item->message);
    grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(&item->message, 1);
    grpc_slice_unref(item->message);
    free(item);
    return bytes;
}

void relay_rpc_outbox_sent(relay_rpc_outbox *o) {
    o->used -= o->in_flight;
    o->in_flight = 0;
}

void relay_rpc_outbox_clear(relay_rpc_outbox *o) {
    while (o->head != NULL) {
        struct relay_rpc_outbox_item *item = o->head;
        o->head = item->next;
        grpc_slice_unref(item->message);
        free(item);
    }
    o->used = o->in_flight;
}

// ---- Conversions

gpr_timespec relay_rpc_deadline_to_gpr(relay_mono_us deadline) {
    if (deadline == RELAY_NEVER_US) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_micros(deadline - relay_mono_now(), GPR_TIMESPAN));
}

relay_mono_us relay_rpc_deadline_from_gpr(gpr_timespec deadline) {
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) return RELAY_NEVER_US;
    gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
    // A year is for ever; it also keeps the sum in range.
    if (left.tv_sec > 365 * 24 * 3600) return RELAY_NEVER_US;
    return relay_mono_now() + left.tv_sec * 1000000 + left.tv_nsec / 1000;
}

grpc_arg relay_rpc_int_arg(const char *key, uint64_t value) {
    int n = value < INT_MAX ? (int)value : INT_MAX;
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = n};
}

bool relay_rpc_slice_equals(grpc_slice slice, const char *s) {
    return grpc_slice_str_cmp(slice, s) == 0;
}

void relay_rpc_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

bool relay_rpc_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mu, relay_mono_us until) {
    if (until == RELAY_NEVER_US) {
        pthread_cond_wait(cond, mu);
        return true;
    }
    if (relay_mono_now() >= until) return false;
    struct timespec t = {.tv_sec = until / 1000000, .tv_nsec = until % 1000000 * 1000};
    pthread_cond_timedwait(cond, mu, &t);
    return true;
}
