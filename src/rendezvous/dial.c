#define _GNU_SOURCE
#include "rendezvous/dial.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "rendezvous/deadline.h"

/* After a send or recv has set errno: returns 0 if the caller shall try again, otherwise the reason, ETIMEDOUT if the
 * time is over. */
static int try_again(int fd, short events, int64_t until)
{
    if (errno == EINTR)
        return 0;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return errno;
    return poll(&(struct pollfd){.fd = fd, .events = events}, 1, deadline_left_ms(until)) ? 0 : ETIMEDOUT;
}

int dial_send(int fd, const unsigned char *bytes, size_t n, int64_t until)
{
    int why = 0;
    for (size_t sent = 0; sent < n && !why;) {
        ssize_t more = send(fd, bytes + sent, n - sent, MSG_NOSIGNAL);
        if (more >= 0)
            sent += (size_t)more;
        else
            why = try_again(fd, POLLOUT, until);
    }
    return why;
}

int dial_receive_more(int fd, unsigned char *bytes, size_t *have, size_t n, int64_t until)
{
    int why = 0;
    while (*have < n && !why) {
        ssize_t more = recv(fd, bytes + *have, n - *have, 0);
        if (more > 0)
            *have += (size_t)more;
        else
            why = more ? try_again(fd, POLLIN, until) : ECONNRESET;
    }
    return why;
}

int dial_receive(int fd, unsigned char *bytes, size_t n, int64_t until)
{
    size_t have = 0;
    return dial_receive_more(fd, bytes, &have, n, until);
}

enum dial_result dial_prove(int fd, const struct sodium *na, const char *token, unsigned ciphers, int64_t until,
                            struct frame_end *end, int *why, uint64_t *full)
{
    unsigned char hello[FRAME_HELLO], proof[FRAME_PROOF], decision[FRAME_DECISION], key[SODIUM_KEY];
    frame_token_key(na, token, key);
    frame_begin(end, na, false, key, ciphers, hello);
    na->wipe(key, sizeof key);
    if ((*why = dial_send(fd, hello, sizeof hello, until)) || (*why = dial_receive(fd, hello, FRAME_MAGIC_SIZE, until)))
        return DIAL_AGAIN;
    bool is_full = !memcmp(hello, FRAME_FULL, FRAME_MAGIC_SIZE);
    if (!is_full && frame_version(hello) != FRAME_SAME)
        return DIAL_STRANGE;
    if ((*why = dial_receive(fd, hello + FRAME_MAGIC_SIZE, FRAME_SAYS, until)))
        return DIAL_AGAIN;
    if (is_full) {
        memcpy(full, hello + FRAME_MAGIC_SIZE, sizeof *full);
        return DIAL_FULL;
    }
    if (!frame_meet(end, hello))
        return DIAL_STRANGE;
    frame_prove(end, proof);
    if ((*why = dial_send(fd, proof, sizeof proof, until)) ||
        (*why = dial_receive(fd, decision, sizeof decision, until)))
        return DIAL_AGAIN;
    if (decision[0])
        return DIAL_REFUSED;
    return frame_believe(end, decision + 1) ? DIAL_PROVED : DIAL_FALSE;
}
