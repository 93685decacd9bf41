/* HOST:PORT and sockets. */
#ifndef WEFT_RENDEZVOUS_ADDRESS_H
#define WEFT_RENDEZVOUS_ADDRESS_H
#include <stdint.h>

#define ADDRESS_TEXT 320

struct address {
    char host[256]; /* a name or a number, without brackets */
    int port;
};

/* "HOST:PORT", "[V6]:PORT" or ":PORT", which is of loopback. WEFT_EINVAL. */
int address_parse(const char *text, struct address *out);
void address_format(const struct address *a, char text[ADDRESS_TEXT]);

/* A socket that listens there, not blocking; port 0 is one that the system chooses, and a->port becomes it. Positive,
 * not an error: the errno of an address that is somebody else's already (EADDRINUSE) or of another machine
 * (EADDRNOTAVAIL). */
int address_listen(struct address *a, int *fd);
/* A connected socket, not blocking. Positive: the errno of why there is none (yet). */
int address_connect(const struct address *a, int64_t until, int *fd);
/* Until when one of several addresses is tried: what is lost or taken by somebody who does not answer must not take the
 * time of the others. */
int64_t address_turn(int64_t until);
int address_here(int fd, struct address *out); /* this end's address, as a number */
#endif
