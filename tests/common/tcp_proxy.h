// A TCP proxy on 127.0.0.1 that can lose a connection in the two ways networks do: cut it, or go silent.
#ifndef RELAY_TESTS_COMMON_TCP_PROXY_H
#define RELAY_TESTS_COMMON_TCP_PROXY_H

#include <stdint.h>

typedef struct tcp_proxy tcp_proxy;

tcp_proxy *tcp_proxy_create(uint16_t to_port);
uint16_t tcp_proxy_port(const tcp_proxy *p);
// From here on nothing is passed on, and neither side is told.
void tcp_proxy_freeze(tcp_proxy *p);
// Closes the connections that there are; new ones are taken.
void tcp_proxy_cut(tcp_proxy *p);
// Closes everything and joins the thread.
void tcp_proxy_destroy(tcp_proxy *p);

#endif
