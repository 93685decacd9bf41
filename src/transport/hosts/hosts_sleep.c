/* Sleeping while a wire may bring something. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "transport/hosts/hosts_link.h"

#define NAP_NS 100000 /* between looks at a wire that has no file to wait for */

/* A rank sleeps on its bell, which the ranks of its host ring; the sentinel, a thread, rings it when the wire brings
 * something. epoll reports the wire to the sentinel once each time the rank asks for it, so that the sentinel does not
 * wake up while the rank is at work. The rank arms its bell before it asks: a ring after that is not lost (core_signal
 * says why). */
static void *sentinel(void *arg)
{
    struct hosts_link *l = arg;
    for (;;) {
        struct epoll_event e;
        int n = epoll_wait(l->events, &e, 1, -1);
        if (n == 1 && e.data.fd == l->stop)
            return NULL;
        if (n == 1)
            core_ring(l->base.group, l->base.rank);
    }
}

int hosts_sleep_post(struct hosts_link *l)
{
    struct wire *w = l->hosts.wire;
    struct epoll_event stop = {.events = EPOLLIN}, wire = {.events = EPOLLONESHOT};
    if (w->fd < 0)
        return 0;
    l->events = epoll_create1(EPOLL_CLOEXEC);
    l->stop = eventfd(0, EFD_CLOEXEC);
    stop.data.fd = l->stop;
    wire.data.fd = w->fd;
    if (l->events < 0 || l->stop < 0 || epoll_ctl(l->events, EPOLL_CTL_ADD, l->stop, &stop) ||
        epoll_ctl(l->events, EPOLL_CTL_ADD, w->fd, &wire))
        return error_set(WEFT_EIO, "cannot make an epoll set to wait for the network: %s", strerror(errno));
    int err = thread_start(&l->sentinel, sentinel, l);
    l->watched = !err;
    return err ? error_set(WEFT_EIO, "cannot start a thread to wait for the network: %s", strerror(err)) : 0;
}

void hosts_sleep_dismiss(struct hosts_link *l)
{
    uint64_t one = 1;
    if (l->watched && write(l->stop, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(l->sentinel, NULL);
    if (l->events >= 0)
        close(l->events);
    if (l->stop >= 0)
        close(l->stop);
}

bool hosts_sleep_arm(struct transport_link *base)
{
    struct wire *w = base->hosts->wire;
    struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = w->fd};
    if (w->fd < 0)
        return true;
    return w->ops->arm(w) && !epoll_ctl(((struct hosts_link *)base)->events, EPOLL_CTL_MOD, w->fd, &e);
}

int64_t hosts_sleep_nap(const struct transport_link *l, int64_t ns)
{
    return l->hosts->wire->fd < 0 && ns > NAP_NS ? NAP_NS : ns;
}
