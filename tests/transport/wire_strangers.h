/* Strangers at the door of a wire of sockets: what they send, or do not send, costs them their connection and nobody
 * else anything. */
#ifndef WEFT_TESTS_WIRE_STRANGERS_H
#define WEFT_TESTS_WIRE_STRANGERS_H
#include <stddef.h>

#include "transport/wire/tcp/wire_tcp.h"
#include "wire_bodies.h"

#define STRANGERS 200 /* more than a group of two could have */
int wire_stranger(const struct tcp_card *card, const void *says, size_t n);
void strangers_body(struct wire_rank *r);
#endif
