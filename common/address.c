#include "common/address.h"

#include <stdlib.h>
#include <string.h>

bool relay_address_read(relay_address *out, const char *text) {
    const char *colon = strrchr(text, ':');
    if (colon == NULL) return false;
    size_t host_len = (size_t)(colon - text), port_len = strlen(colon + 1);
    bool has_brackets = host_len > 2 && text[0] == '[' && colon[-1] == ']';
    if (!has_brackets && strcspn(text, ":[]") != host_len) return false; // an IPv6 address needs its brackets
    if (port_len == 0 || port_len > 5 || strspn(colon + 1, "0123456789") != port_len) return false;
    unsigned long port = strtoul(colon + 1, NULL, 10);
    if (port > UINT16_MAX) return false;
    *out = (relay_address){.host = has_brackets ? text + 1 : text,
                           .host_len = has_brackets ? host_len - 2 : host_len,
                           .port = (uint16_t)port};
    return true;
}
