// Network addresses as flags give them: HOST:PORT, [IPV6]:PORT, or :PORT for every address.
#ifndef RELAY_COMMON_ADDRESS_H
#define RELAY_COMMON_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct relay_address {
    const char *host; // in the text that was read, without brackets, not NUL-terminated
    size_t host_len;  // 0: every address
    uint16_t port;    // 0: a free one
} relay_address;

// False, and `out` untouched, if the text is no address. The host is not looked up.
bool relay_address_read(relay_address *out, const char *text);

#endif
