/* HOST:PORT and sockets. */
#ifndef WEFT_RENDEZVOUS_ADDRESS_H
#define WEFT_RENDEZVOUS_ADDRESS_H
#include <stdint.h>

#define ADDRESS_TEXT 320

struct address {
    char host[256]; /* a name or a number, without brackets */
    int port;
};

/* Reads "HOST:PORT", "[V6]:PORT" or ":PORT" (loopback). Returns 0 or WEFT_EINVAL. */
int address_parse(const char *text, struct address *out);
void address_format(const struct address *a, char text[ADDRESS_TEXT]);

/* Makes a non-blocking socket that listens there. With port 0 the system chooses one and a->port is set to it. A
 * positive result is an errno and no error is set: the address is in use (EADDRINUSE), or is another machine's
 * (EADDRNOTAVAIL). */
int address_listen(struct address *a, int *fd);
/* Makes a connected, non-blocking socket. A positive result is the errno that says why there is none (yet). */
int address_connect(const struct address *a, int64_t until, int *fd);
/* The time until which one of several addresses is tried: an address that does not answer must not use up the time of
 * the others. */
int64_t address_turn(int64_t until);
int address_here(int fd, struct address *out); /* this end's address, as a number */
#endif
