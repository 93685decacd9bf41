/* Tagged output; see tag.h. A line longer than the buffer is printed in pieces, each with its tag. */
#include "cli/tag.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void tag_open(struct tag *t, int fd, FILE *to, int rank)
{
    fcntl(fd, F_SETFL, O_NONBLOCK);
    *t = (struct tag){.fd = fd, .to = to, .rank = rank};
}

static void print(struct tag *t, size_t n)
{
    fprintf(t->to, "[%d] ", t->rank);
    fwrite(t->line, 1, n, t->to);
    if (!n || t->line[n - 1] != '\n')
        putc('\n', t->to);
    fflush(t->to);
    t->n -= n;
    memmove(t->line, t->line + n, t->n);
}

static void print_lines(struct tag *t)
{
    const char *end;
    while (t->n && (end = memchr(t->line, '\n', t->n)))
        print(t, (size_t)(end - t->line) + 1);
    if (t->n == sizeof t->line)
        print(t, t->n);
}

void tag_read(struct tag *t)
{
    ssize_t got = read(t->fd, t->line + t->n, sizeof t->line - t->n);
    if (got > 0) {
        t->n += (size_t)got;
        print_lines(t);
        return;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (t->n)
        print(t, t->n);
    close(t->fd);
    t->fd = -1;
}

void tag_close(struct tag *t)
{
    int left = 0; /* now: what the rank has left behind may write for ever */
    if (t->fd >= 0 && ioctl(t->fd, FIONREAD, &left))
        left = 0;
    while (left > 0) {
        ssize_t got = read(t->fd, t->line + t->n, sizeof t->line - t->n);
        if (got <= 0)
            break;
        left -= (int)got;
        t->n += (size_t)got;
        print_lines(t);
    }
    if (t->n)
        print(t, t->n);
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}
