// What the server and the client share of the gRPC C core. Included by rpc_*.c alone.
//
// Tags. Every operation is started with a relay_rpc_tag that lies inside the object it belongs to, and comes back
// exactly once on the thread of the object's queue, which calls `done`. Whoever starts an operation takes a reference
// to the object for its tag; `done` gives it back as the last thing it does. So an object is freed only when no tag is
// outstanding.
//
// Sanitizers. Debian's libgrpc is not instrumented, so ThreadSanitizer cannot see that starting an operation happens
// before its tag comes back. Every hand-over goes through the two macros below, and through nothing else.
#ifndef RELAY_COMMON_RPC_CORE_H
#define RELAY_COMMON_RPC_CORE_H

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <protobuf-c/protobuf-c.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/status.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define RELAY_RPC_GIVE_TAG(tag) __tsan_release(tag)
#define RELAY_RPC_TAKE_TAG(tag) __tsan_acquire(tag)
#else
#define RELAY_RPC_GIVE_TAG(tag) ((void)(tag))
#define RELAY_RPC_TAKE_TAG(tag) ((void)(tag))
#endif

typedef struct relay_rpc_tag relay_rpc_tag;
struct relay_rpc_tag {
    void (*done)(relay_rpc_tag *tag, bool ok); // on the queue's thread
};

// The object that holds `tag` as its member.
#define RELAY_RPC_HOLDER(tag, type, member) ((type *)((char *)(tag)-offsetof(type, member)))

// ---- The library

// Each server and each client holds the C core up once. What it logs goes to our log: errors as warnings (they concern
// one connection), the rest, which GRPC_VERBOSITY and GRPC_TRACE turn on, as debug lines.
void relay_rpc_core_up(void);
void relay_rpc_core_down(void);

// ---- A completion queue and the thread that runs it.

typedef struct relay_rpc_queue {
    grpc_completion_queue *cq;
    pthread_t thread;
    bool has_thread;
} relay_rpc_queue;

void relay_rpc_queue_init(relay_rpc_queue *q);
// Starts the thread, with every signal blocked: signals are the main thread's.
relay_code relay_rpc_queue_start(relay_rpc_queue *q, const char *thread_name, relay_err *e) RELAY_NODISCARD;
// Shuts the queue down, runs what is left of it (on the calling thread if it never had one of its own), joins the
// thread. No operation may be started on the queue from here on: the C core aborts the process if one is.
void relay_rpc_queue_stop(relay_rpc_queue *q);
// True on the thread of any queue: where nothing may block.
bool relay_rpc_on_queue_thread(void);

// Starts a batch; its tag will come back. The operations are built by us from checked parts, so that a refusal by the C
// core is a bug here: asserted.
void relay_rpc_start_batch(grpc_call *call, const grpc_op *ops, size_t n_ops, relay_rpc_tag *tag);

// ---- Messages and bytes.

// Packs into a slice that the caller owns. RESOURCE_EXHAUSTED when the message is longer than `limit` bytes.
relay_code relay_rpc_pack(const ProtobufCMessage *m, uint32_t limit, grpc_slice *out, relay_err *e) RELAY_NODISCARD;
// Gives the message (freed by protobuf_c_message_free_unpacked(m, NULL)); takes the bytes, also on failure.
// INVALID_ARGUMENT when they are no such message, or one that takes more than RELAY_RPC_PARSED_BASE_BYTES +
// RELAY_RPC_PARSED_FACTOR times its size in memory: two bytes on the wire can ask for a struct of hundreds. Well-meant
// messages stay far below it: ids take at most four bytes each, a short string about a dozen times its size.
enum { RELAY_RPC_PARSED_BASE_BYTES = 1 << 20, RELAY_RPC_PARSED_FACTOR = 16 };
relay_code relay_rpc_unpack(const ProtobufCMessageDescriptor *type, grpc_byte_buffer *bytes, ProtobufCMessage **out,
                            relay_err *e) RELAY_NODISCARD;

// ---- Packed messages that wait for the transport, in order. Guarded by the lock of the call that holds it.

// What a message counts beside its bytes: its item, the slice's header, the allocator's rounding.
enum { RELAY_RPC_OUTBOX_CHARGE = 128 };

typedef struct relay_rpc_outbox {
    struct relay_rpc_outbox_item *head, *tail;
    uint64_t used;      // bytes queued or in flight, RELAY_RPC_OUTBOX_CHARGE a message included
    uint64_t in_flight; // the part of `used` that was popped and is not yet sent
    uint64_t limit;
} relay_rpc_outbox;

// Takes the slice, also when it is refused. A message is refused when it would pass the limit; one that finds the
// outbox empty is always taken, so that a message larger than the outbox can be sent at all.
bool relay_rpc_outbox_push(relay_rpc_outbox *o, grpc_slice message) RELAY_NODISCARD;
// The next message, which the caller destroys; NULL if none. One at a time: _sent must come before the next.
grpc_byte_buffer *relay_rpc_outbox_pop(relay_rpc_outbox *o);
void relay_rpc_outbox_sent(relay_rpc_outbox *o);
// Drops what is queued; what is in flight stays counted.
void relay_rpc_outbox_clear(relay_rpc_outbox *o);

static inline bool relay_rpc_outbox_is_empty(const relay_rpc_outbox *o) {
    return o->head == NULL;
}

// ---- Small conversions.

gpr_timespec relay_rpc_deadline_to_gpr(relay_mono_us deadline);
relay_mono_us relay_rpc_deadline_from_gpr(gpr_timespec deadline);
// Integer and string arguments of a server or a channel.
grpc_arg relay_rpc_int_arg(const char *key, uint64_t value);
bool relay_rpc_slice_equals(grpc_slice slice, const char *s);
// A condition variable that waits by CLOCK_MONOTONIC.
void relay_rpc_cond_init(pthread_cond_t *cond);
// False when `until` came first. RELAY_NEVER_US waits without limit.
bool relay_rpc_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mu, relay_mono_us until);

#endif
