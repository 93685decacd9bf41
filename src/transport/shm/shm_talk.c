/* What ranks that find each other say, and through which sockets (shm_meet.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "transport/shm/shm_meet.h"

#define BEAT_MS 20 /* how often a rank asks whether it waits in vain, */
#define CROWD 64   /* and less often if there are more ranks than this */

/* The group's name is "weft:NAME", a rank's is "weft-rank:RANK:NAME". The rank comes first because NAME may itself end
 * in a colon and a number. */
static socklen_t address(const struct shm_link *l, int rank, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = rank < 0 ? snprintf(a->sun_path + 1, sizeof a->sun_path - 1, SHM_GATHERS "%s", l->name)
                     : snprintf(a->sun_path + 1, sizeof a->sun_path - 1, SHM_CLAIMS "%d:%s", rank, l->name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int new_socket(void)
{
    return forks_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

int shm_talk_listen_on(const struct sockaddr_un *a, socklen_t n, int backlog)
{
    int fd = new_socket();
    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)a, n) || listen(fd, backlog)) {
        int err = errno;
        forks_close(fd);
        return -err;
    }
    return fd;
}

int shm_talk_listen(const struct shm_link *l, int rank)
{
    struct sockaddr_un a;
    socklen_t n = address(l, rank, &a);
    return shm_talk_listen_on(&a, n, rank < 0 ? l->base.size + 16 : 1);
}

int shm_talk_connect_with(const struct sockaddr_un *a, socklen_t n, struct ucred *who)
{
    socklen_t len = sizeof *who;
    int fd = new_socket();
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)a, n) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &len)) {
        int err = errno;
        forks_close(fd);
        return -err;
    }
    return fd;
}

int shm_talk_connect(const struct shm_link *l, int rank, struct ucred *who)
{
    struct sockaddr_un a;
    socklen_t n = address(l, rank, &a);
    return shm_talk_connect_with(&a, n, who);
}

int shm_talk_error(const struct shm_link *l, int err)
{
    return error_set(WEFT_ETRANSPORT, "shm:%s: rank %d has no socket to find the other ranks by: %s", l->name,
                     l->base.rank, strerror(err));
}

int shm_talk_ms_until(int64_t until)
{
    int64_t left = until - core_now();
    return left <= 0 ? 0 : left > INT64_C(1000000000) * 3600 ? 3600000 : (int)(left / 1000000) + 1;
}

int shm_talk_wait_ms(const struct transport_ask *ask, int64_t until)
{
    int ms = shm_talk_ms_until(until), beat = BEAT_MS * (1 + ask->size / CROWD);
    return ask->vain && ms > beat ? beat : ms;
}

bool shm_talk_tell(int fd, const struct shm_message *m, const int files[2], size_t n)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)m, .iov_len = sizeof *m};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    if (n) {
        h.msg_control = control;
        h.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), files, n * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(fd, &h, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

void shm_talk_say(int fd, enum shm_kind kind, const char *text)
{
    struct shm_message m = {.protocol = SHM_PROTOCOL, .kind = kind};
    snprintf(m.text, sizeof m.text, "%s", text);
    shm_talk_tell(fd, &m, NULL, 0);
}

void shm_talk_refuse(int fd, int code, const char *text)
{
    struct shm_message m = {.protocol = SHM_PROTOCOL, .kind = SHM_REFUSED, .code = code};
    snprintf(m.text, sizeof m.text, "%s", text);
    shm_talk_tell(fd, &m, NULL, 0);
}

int shm_talk_hear(int fd, struct shm_message *m, int *files)
{
    struct iovec part = {.iov_base = m, .iov_len = sizeof *m};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n;
    do /* if the other end closed before it had read all, ECONNRESET is reported once, before its last message */
        n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    if (n < 0)
        return errno == EAGAIN ? -1 : 0;
    struct cmsghdr *c = n ? CMSG_FIRSTHDR(&h) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        int got[2];
        size_t many = c->cmsg_len < CMSG_LEN(sizeof got) ? 1 : 2;
        memcpy(got, CMSG_DATA(c), many * sizeof *got);
        for (size_t i = 0; i < many; i++)
            if (files)
                files[i] = got[i];
            else
                close(got[i]);
    } else if (n && files && h.msg_flags & MSG_CTRUNC) {
        files[0] = -EMFILE;
    }
    if (n != (ssize_t)sizeof *m)
        memset(m, 0, sizeof *m); /* from another program, or another version of weft */
    m->text[sizeof m->text - 1] = 0;
    return n > 0;
}
