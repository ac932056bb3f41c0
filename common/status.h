// Error codes and the error a fallible function fills in.
//
// The codes are gRPC's, so that the services need no mapping table. A fallible function returns a relay_code and takes
// a relay_err * last, which may be NULL. It writes the error only when it fails, and the first failure wins: callers
// return it as it is. The message is what the client reads: stable English that names the field, the value and the
// limit.
#ifndef RELAY_COMMON_STATUS_H
#define RELAY_COMMON_STATUS_H

#include <stdint.h>

#define RELAY_CODES(X)                                                                                                 \
    X(OK, 0)                                                                                                           \
    X(CANCELLED, 1)                                                                                                    \
    X(UNKNOWN, 2)                                                                                                      \
    X(INVALID_ARGUMENT, 3)                                                                                             \
    X(DEADLINE_EXCEEDED, 4)                                                                                            \
    X(NOT_FOUND, 5)                                                                                                    \
    X(ALREADY_EXISTS, 6)                                                                                               \
    X(PERMISSION_DENIED, 7)                                                                                            \
    X(RESOURCE_EXHAUSTED, 8)                                                                                           \
    X(FAILED_PRECONDITION, 9)                                                                                          \
    X(ABORTED, 10)                                                                                                     \
    X(OUT_OF_RANGE, 11)                                                                                                \
    X(UNIMPLEMENTED, 12)                                                                                               \
    X(INTERNAL, 13)                                                                                                    \
    X(UNAVAILABLE, 14)                                                                                                 \
    X(DATA_LOSS, 15)                                                                                                   \
    X(UNAUTHENTICATED, 16)

typedef enum relay_code {
#define RELAY_CODE_ENUM(name, value) RELAY_##name = value,
    RELAY_CODES(RELAY_CODE_ENUM)
#undef RELAY_CODE_ENUM
} relay_code;

enum { RELAY_ERR_MESSAGE_MAX = 512 };

typedef struct relay_err {
    relay_code code;
    uint32_t retry_after_ms;             // when to try again; 0: no hint. Sent with RESOURCE_EXHAUSTED and UNAVAILABLE.
    char message[RELAY_ERR_MESSAGE_MAX]; // NUL-terminated, valid UTF-8 (longer text is cut at a character)
} relay_err;

#define RELAY_NODISCARD          __attribute__((warn_unused_result))
#define RELAY_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

// The code's name as gRPC spells it, such as "INVALID_ARGUMENT"; "UNKNOWN" for a value that is none.
const char *relay_code_name(relay_code code);

// Fills in `e` (may be NULL) and returns `code`: `return relay_fail(e, RELAY_NOT_FOUND, "model \"%s\" ...", name);`
relay_code relay_fail(relay_err *e, relay_code code, const char *fmt, ...) RELAY_PRINTF(3, 4);

// Programmer errors only, never input: prints the place and the condition, and aborts.
#define RELAY_ASSERT(cond)                                                                                             \
    do {                                                                                                               \
        if (__builtin_expect(!(cond), 0)) relay_assert_failed(#cond, __FILE__, __LINE__);                              \
    } while (0)
void relay_assert_failed(const char *cond, const char *file, int line) __attribute__((noreturn));

// Allocation that aborts when memory is out: start-up and bounded request state. Zeroed; free with free().
void *relay_calloc(uint64_t count, uint64_t size) RELAY_NODISCARD;
void *relay_realloc(void *p, uint64_t size) RELAY_NODISCARD;
// A NUL-terminated copy of `len` bytes; the caller frees.
char *relay_strndup(const char *s, uint64_t len) RELAY_NODISCARD;

#endif
