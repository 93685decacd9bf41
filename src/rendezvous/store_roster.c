/* One copy for each host of what all ranks have told.
 *
 * The ranks of a store that share a network namespace elect one of them: the first that binds a socket whose name
 * nobody else can know, the store's number. It gathers from the store. The others connect to the socket, and only then
 * tell the store their own part. So when the rank that gathers has the parts of all ranks, all that wait for it stand
 * in the queue of its socket. It sends the first few of them the file that has the copy, sealed, or the error, and the
 * socket itself. Each of these takes the next few from the queue in the same way. So a rank sends a few messages,
 * however many ranks wait. If all ranks that have the socket end, or are done, the kernel closes it, and those that
 * still wait gather themselves. So does a rank for which there is no room in the queue. Nothing is left behind,
 * whichever rank ends when. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/math.h"
#include "rendezvous/deadline.h"
#include "rendezvous/store.h"

#define QUEUE 65536 /* the system has a limit of its own */
#define BEGIN_NS INT64_C(1000000)
#define BEGIN_MOST_NS INT64_C(50000000)
#define PATIENCE_NS INT64_C(1000000000) /* to get into the queue of a rank that has bound its name */
#define GRACE_NS INT64_C(2000000000)    /* after the timeout: the rank that gathers says which ranks are missing */
#define SLICE_MS 50
#define FAN 8 /* ranks to which a rank hands the copy: more than enough, if some of them end */

enum role { ALONE, GATHERS, WAITS };

/* What a rank that waits is sent; with code 0 a file comes with it. */
struct word {
    int32_t code;
    uint32_t len;
    char text[1000];
};

/* ---- the socket ---- */

static socklen_t address(const struct store *s, const char *prefix, struct sockaddr_un *a)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "weft-roster2:%016llx%016llx:%d:%.40s",
                     (unsigned long long)s->id[0], (unsigned long long)s->id[1], s->size, prefix);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool is_own_user(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) && who.uid == geteuid();
}

/* One attempt; EAGAIN: the rank that has the name does not listen yet, or has ended. */
static int try_elect(const struct sockaddr_un *a, socklen_t n, int *fd, enum role *role)
{
    const struct sockaddr *at = (const struct sockaddr *)a;
    *role = ALONE;
    *fd = forks_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (*fd < 0)
        return errno;
    if (!bind(*fd, at, n)) {
        if (listen(*fd, QUEUE))
            return errno;
        *role = GATHERS;
        return 0;
    }
    if (errno != EADDRINUSE)
        return errno;
    if (connect(*fd, at, n))
        return errno == ECONNREFUSED ? EAGAIN : errno;
    if (!is_own_user(*fd))
        return EPERM;
    *role = WAITS;
    return 0;
}

static enum role elect(const struct store *s, const char *prefix, int *fd)
{
    struct sockaddr_un a;
    socklen_t n = address(s, prefix, &a);
    int64_t pause = BEGIN_NS, until = deadline_in(PATIENCE_NS);
    enum role role = ALONE;
    *fd = -1;
    if (s->size == 1 || (!s->id[0] && !s->id[1]))
        return ALONE;
    while (try_elect(&a, n, fd, &role) == EAGAIN && deadline_now() < until) {
        forks_close(*fd);
        deadline_pause(&pause, BEGIN_MOST_NS, until);
    }
    if (role == ALONE) {
        forks_close(*fd);
        *fd = -1;
    }
    return role;
}

/* ---- handing out ---- */

/* What a rank hands to others. */
struct gift {
    struct word word;
    int listener, file; /* -1: there is none; with an error there is no file */
};

enum { FILES = 2 }; /* in a message: the listener, and the file */

static void send_gift(int to, const struct gift *g)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)&g->word, .iov_len = offsetof(struct word, text) + g->word.len};
    int files[FILES] = {g->listener, g->file}, n = g->file >= 0 ? 2 : 1;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof files)];
    } control = {0};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE((size_t)n * sizeof *files)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)n * sizeof *files);
    memcpy(CMSG_DATA(c), files, (size_t)n * sizeof *files);
    sendmsg(to, &m, MSG_NOSIGNAL | MSG_DONTWAIT); /* the queue of a new connection has room */
}

/* To the next few that wait. A rank that gets nothing gathers itself. */
static void hand_out(const struct gift *g)
{
    for (int i = 0, fd; i < FAN && (fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0; i++) {
        forks_own(fd);
        if (is_own_user(fd))
            send_gift(fd, g);
        forks_close(fd);
    }
}

/* The rank that gathers hands out the file, or this thread's error, unless that is its own trouble. */
static void hand_out_own(int listener, int err, int file)
{
    struct gift g = {.word = {.code = err}, .listener = listener, .file = err ? -1 : file};
    if (err)
        g.word.len = (uint32_t)min64(snprintf(g.word.text, sizeof g.word.text, "%s", weft_errmsg()),
                                     (int64_t)sizeof g.word.text - 1);
    if (err != WEFT_ENOMEM && err != WEFT_ETRANSPORT && (err || file >= 0))
        hand_out(&g);
}

/* ---- the copy ---- */

static void unmap(struct roster *r)
{
    munmap((void *)(uintptr_t)r->all, r->size);
}

/* Maps a file that nobody can change any more. */
static int map(int file, const struct roster_ask *ask, int ranks, struct roster *out)
{
    size_t size = roster_size(ask, ranks);
    const char *all = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    if (all == MAP_FAILED)
        return error_nomem();
    *out = (struct roster){.all = all, .more = all + roster_more_at(ask, ranks), .size = size, .drop = unmap};
    return 0;
}

/* The parts of all ranks, which have been told, one after the other to `to`; NULL: nowhere. */
static int collect(struct store *s, const char *prefix, const struct roster_ask *ask, char *to, int64_t until)
{
    unsigned char *packed = malloc(STORE_PARTS);
    int err = packed ? 0 : error_nomem();
    for (int r = 0, count = 0; r < s->size && !err;) {
        err = store_parts_some(s, prefix, r, packed, &count, until);
        const unsigned char *at = packed;
        for (; count && !err; count--, r++) {
            uint32_t n;
            memcpy(&n, at, 4);
            if (n != ask->bytes)
                err = error_set(WEFT_EMISMATCH, "rank %d uses another version of weft or of its libraries", r);
            else if (to)
                memcpy(to + (size_t)r * n, at + 4, n);
            at += 4 + n;
        }
    }
    free(packed);
    return err;
}

/* In memory of this process. */
static int gather_alone(struct store *s, const char *prefix, const struct roster_ask *ask, int64_t until,
                        struct roster *out)
{
    char *all = calloc(1, roster_size(ask, s->size));
    int err = all ? collect(s, prefix, ask, all, until) : error_nomem();
    if (!err)
        err = roster_make(ask, s->size, all, out);
    if (err)
        free(all);
    return err;
}

/* In a file for all that wait. */
static int gather_for_all(struct store *s, const char *prefix, const struct roster_ask *ask, int64_t until,
                          struct roster *out, int *file)
{
    size_t size = roster_size(ask, s->size);
    int fd = memfd_create("weft roster", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char *all = fd >= 0 && !ftruncate(fd, (off_t)size) ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                                                       : MAP_FAILED;
    if (all == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return gather_alone(s, prefix, ask, until, out);
    }
    int err = collect(s, prefix, ask, all, until);
    if (!err && ask->sum_up)
        err = ask->sum_up(ask->arg, all, all + roster_more_at(ask, s->size));
    munmap(all, size);
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    if (!err)
        err = map(fd, ask, s->size, out);
    *file = fd;
    return err;
}

/* ---- waiting ---- */

enum { NOTHING = 1 }; /* the rank that gathers has ended, or cannot share */

/* Takes what a rank hands out. False: the other end is closed, or is no rank of this group. */
static bool take_gift(int fd, struct gift *g)
{
    struct iovec part = {.iov_base = &g->word, .iov_len = sizeof g->word};
    int files[FILES] = {-1, -1};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof files)];
    } control;
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len <= CMSG_LEN(sizeof files))
        memcpy(files, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    g->listener = files[0];
    g->file = files[1];
    return n >= (ssize_t)offsetof(struct word, text) && g->listener >= 0 && (g->word.code || g->file >= 0) &&
           g->word.len <= (size_t)n - offsetof(struct word, text);
}

static int use_gift(const struct gift *g, const struct roster_ask *ask, int ranks, struct roster *out)
{
    if (g->word.code)
        return error_set(g->word.code, "%.*s", (int)g->word.len, g->word.text);
    off_t bytes = lseek(g->file, 0, SEEK_END);
    int seals = fcntl(g->file, F_GET_SEALS);
    bool fits = bytes == (off_t)roster_size(ask, ranks) && seals >= 0 && seals & F_SEAL_SHRINK;
    return fits ? map(g->file, ask, ranks, out) : NOTHING;
}

/* Others wait for what this rank was handed: they come first. */
static int take_word(int fd, const struct roster_ask *ask, int ranks, struct roster *out)
{
    struct gift g = {.listener = -1, .file = -1};
    bool taken = take_gift(fd, &g);
    if (taken)
        hand_out(&g);
    int err = taken ? use_gift(&g, ask, ranks, out) : NOTHING;
    if (g.listener >= 0)
        close(g.listener);
    if (g.file >= 0)
        close(g.file);
    return err;
}

static int await_word(struct store *s, const char *prefix, int fd, const struct roster_ask *ask, int64_t until,
                      struct roster *out)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t limit = until > INT64_MAX - GRACE_NS ? until : until + GRACE_NS;
    for (;;) {
        int left = deadline_left_ms(limit), slice = s->watch.vain && left > SLICE_MS ? SLICE_MS : left;
        if (poll(&p, 1, slice) > 0)
            return take_word(fd, ask, s->size, out);
        int err = s->watch.vain ? store_parts_vain(s, prefix) : 0;
        if (err)
            return err;
        if (deadline_left_ms(limit) == 0)
            return error_set(WEFT_ETIMEOUT, "%s: the rank of this host that gathers '%s' has not done so in time",
                             s->url, prefix);
    }
}

int store_roster(struct store *s, const char *prefix, const struct roster_ask *ask, int64_t timeout_ns,
                 struct roster *out)
{
    int64_t until = deadline_in(timeout_ns);
    int fd, file = -1;
    enum role role = elect(s, prefix, &fd);
    int err = store_offer(s, prefix, ask->mine, ask->bytes, timeout_ns);
    if (!err && role == WAITS && s->rank == 0 && s->kind->first_collects)
        err = collect(s, prefix, ask, NULL, until);
    if (!err && role == WAITS)
        err = await_word(s, prefix, fd, ask, until, out);
    if ((!err && role == ALONE) || err == NOTHING)
        err = gather_alone(s, prefix, ask, until, out);
    if (!err && role == GATHERS)
        err = gather_for_all(s, prefix, ask, until, out, &file);
    if (role == GATHERS)
        hand_out_own(fd, err, file);
    if (file >= 0)
        close(file);
    forks_close(fd);
    return err;
}
