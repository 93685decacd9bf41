#define _GNU_SOURCE
#include "wire_strangers.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int wire_stranger(const struct tcp_card *card, const void *says, size_t n)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(card->at[0].port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && (connect(fd, (struct sockaddr *)&to, sizeof to) || send(fd, says, n, MSG_NOSIGNAL) != (ssize_t)n)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

void strangers_body(struct wire_rank *r)
{
    const struct tcp_wire *w = (const struct tcp_wire *)r->w;
    const struct tcp_card *card = &w->cards[(r->rank + 1) % r->size];
    struct tcp_call call = {.magic = UINT64_C(0x3370637474666577), .number = 1};
    int fds[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        /* nothing, too little, something else, much else, a call without the key, and one of a rank that there is not
         */
        unsigned char noise[600];
        memset(noise, 'G', sizeof noise);
        size_t n = i % 6 == 0 ? 0 : i % 6 == 1 ? 7 : i % 6 == 2 ? sizeof call : sizeof noise;
        if (i % 6 >= 4) {
            call.from = i % 6 == 4 ? (uint32_t)r->rank : (uint32_t)r->size;
            call.to = (uint32_t)((r->rank + 1) % r->size);
            memcpy(noise, &call, n = sizeof call);
        }
        fds[i] = wire_stranger(card, noise, n);
        WIRE_CHECK(r, fds[i] >= 0);
        if (i % 16 == 0)
            r->w->ops->progress(r->w); /* mail of those who are further is for later */
    }
    wire_mail_body(r);
    wire_ahead_body(r);
    WIRE_CHECK(r, w->nnewcomers <= 2 * r->size + 64);
    char byte;
    WIRE_CHECK(r, recv(fds[2], &byte, 1, 0) <= 0); /* it was shown the door */
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    wire_barrier(r);
    WIRE_UNTIL(r, w->nnewcomers == 0);
}
