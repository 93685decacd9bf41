/* See rank_output.h. A line longer than the buffer is printed in pieces, each with the rank before it. */
#include "cli/run/rank_output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void rank_output_open(struct rank_output *t, int fd, FILE *to, int rank)
{
    fcntl(fd, F_SETFL, O_NONBLOCK);
    *t = (struct rank_output){.fd = fd, .to = to, .rank = rank};
}

static void print(struct rank_output *t, size_t n)
{
    fprintf(t->to, "[%d] ", t->rank);
    fwrite(t->line, 1, n, t->to);
    if (!n || t->line[n - 1] != '\n')
        putc('\n', t->to);
    fflush(t->to);
    t->n -= n;
    memmove(t->line, t->line + n, t->n);
}

static void print_lines(struct rank_output *t)
{
    const char *end;
    while (t->n && (end = memchr(t->line, '\n', t->n)))
        print(t, (size_t)(end - t->line) + 1);
    if (t->n == sizeof t->line)
        print(t, t->n);
}

void rank_output_read(struct rank_output *t)
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

void rank_output_close(struct rank_output *t)
{
    int left = 0; /* only what is there now: processes that the rank has left behind may write for ever */
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
