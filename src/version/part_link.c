#define _GNU_SOURCE
#include "version/part_link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "rendezvous/deadline.h"
#include "rendezvous/dial.h"

int part_link_begin(struct part_link *l, int fd)
{
    *l = (struct part_link){.fd = forks_own(fd), .buffer = malloc(PART_LINK_ROOM), .frame = malloc(PART_LINK_ROOM)};
    if (l->buffer && l->frame)
        return 0;
    part_link_end(l);
    return error_nomem();
}

void part_link_end(struct part_link *l)
{
    if (l->sealed)
        frame_forget(&l->end);
    forks_close(l->fd);
    free(l->buffer);
    free(l->frame);
    *l = (struct part_link){.fd = -1};
}

int part_link_send(struct part_link *l, const void *message, size_t n, int64_t until)
{
    if (l->sealed) {
        size_t sealed = frame_seal(&l->end, message, n, l->frame);
        return sealed ? dial_send(l->fd, l->frame, sealed, until) : ENOMEM;
    }
    uint32_t length = (uint32_t)n;
    memcpy(l->frame, &length, FRAME_LENGTH);
    memcpy(l->frame + FRAME_LENGTH, message, n);
    return dial_send(l->fd, l->frame, FRAME_LENGTH + n, until);
}

unsigned char *part_link_room(struct part_link *l)
{
    return l->frame + FRAME_LENGTH + PART_LINK_HEAD;
}

size_t part_link_seal(struct part_link *l, bool torn, const unsigned char *bytes, size_t n)
{
    unsigned char head[PART_LINK_HEAD] = {torn};
    if (l->sealed)
        return frame_seal_parts(&l->end, head, sizeof head, bytes, n, l->frame);
    uint32_t length = (uint32_t)(sizeof head + n);
    memcpy(l->frame, &length, FRAME_LENGTH);
    memcpy(l->frame + FRAME_LENGTH, head, sizeof head);
    memmove(part_link_room(l), bytes, n);
    return FRAME_LENGTH + length;
}

int part_link_send_sealed(struct part_link *l, size_t size, int64_t until)
{
    return size ? dial_send(l->fd, l->frame, size, until) : ENOMEM;
}

/* The bytes that follow the length of the next frame. */
static int receive_length(struct part_link *l, size_t *bytes, int64_t until)
{
    uint32_t length;
    int why = dial_receive(l->fd, l->buffer, FRAME_LENGTH, until);
    if (why)
        return why;
    memcpy(&length, l->buffer, FRAME_LENGTH);
    *bytes = l->sealed ? frame_length(l->buffer) : length <= FRAME_MESSAGE_MAX ? length : 0;
    return *bytes ? 0 : EPROTO;
}

int part_link_receive_data(struct part_link *l, bool *torn, unsigned char *to, size_t room, size_t *n, int64_t until)
{
    unsigned char head[PART_LINK_HEAD];
    size_t bytes, rest = PART_LINK_HEAD + (l->sealed ? SODIUM_TAG : 0);
    int why = receive_length(l, &bytes, until);
    if (why)
        return why;
    if (bytes < rest || bytes - rest > room)
        return EPROTO;
    *n = bytes - rest;
    if (l->sealed) {
        why = dial_receive(l->fd, l->buffer, bytes, until);
        if (!why && !frame_open_parts(&l->end, l->buffer, bytes, head, sizeof head, to))
            why = EPROTO;
    } else {
        why = dial_receive(l->fd, head, sizeof head, until);
        if (!why)
            why = dial_receive(l->fd, to, *n, until);
    }
    if (why)
        return why;
    *torn = head[0];
    return head[0] > 1 || (!*torn && !*n) ? EPROTO : 0;
}

int part_link_receive(struct part_link *l, const unsigned char **message, size_t *n, int64_t until)
{
    size_t bytes;
    int why = receive_length(l, &bytes, until);
    if (why)
        return why;
    why = dial_receive(l->fd, l->buffer + FRAME_LENGTH, bytes, until);
    if (!why && l->sealed && !frame_open(&l->end, l->buffer + FRAME_LENGTH, bytes))
        why = EPROTO;
    *message = l->buffer + FRAME_LENGTH;
    *n = l->sealed ? bytes - SODIUM_TAG : bytes;
    return why;
}

/* One byte that carries a descriptor. There is room for two, since headers are aligned. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static int wait_for(int fd, short events, int64_t until)
{
    if (errno == EINTR)
        return 0;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return errno;
    return poll(&(struct pollfd){.fd = fd, .events = events}, 1, deadline_left_ms(until)) ? 0 : ETIMEDOUT;
}

int part_link_send_file(struct part_link *l, int fd, int64_t until)
{
    union control c;
    char byte = 0;
    memset(&c, 0, sizeof c);
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    for (int why = 0; !why; why = wait_for(l->fd, POLLOUT, until))
        if (sendmsg(l->fd, &m, MSG_NOSIGNAL) == 1)
            return 0;
    return errno ? errno : EPROTO;
}

int part_link_receive_file(struct part_link *l, int *fd, int64_t until)
{
    for (int why = 0; !why; why = wait_for(l->fd, POLLIN, until)) {
        union control c;
        char byte;
        struct iovec v = {&byte, 1};
        struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
        ssize_t n = recvmsg(l->fd, &m, MSG_CMSG_CLOEXEC);
        if (n == 0)
            return ECONNRESET;
        if (n < 0)
            continue;
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            return EPROTO;
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof *fd;
        for (size_t i = 0; i < count; i++) {
            memcpy(fd, CMSG_DATA(h) + i * sizeof *fd, sizeof *fd);
            if (count == 1)
                return 0;
            close(*fd); /* one is expected: the sender is not one of ours */
        }
        *fd = -1;
        return EPROTO;
    }
    return errno ? errno : EPROTO;
}
