/* Whether the process of a peer is alive. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"
#include "transport/shm/shm.h"

/* Asks /proc, which costs more than a pidfd. It is asked once when the pidfd is made, to make sure that the pidfd is of
 * the right process, and always if there is no pidfd. */
static bool has_ended(const struct shm_process *p)
{
    bool zombie = false;
    uint64_t start = process_start(p->pid, &zombie);
    if (start)
        return zombie || (p->start && start != p->start);
    return kill((pid_t)p->pid, 0) && errno == ESRCH;
}

bool shm_process_died(struct shm_link *l, int rank)
{
    const struct shm_process *p = &l->home->head->process[shm_process_of(l, rank)];
    int *fd = &l->home->watch[shm_process_of(l, rank)];
    if (*fd == -1) {
        int found = (int)syscall(SYS_pidfd_open, (pid_t)p->pid, 0);
        bool ended = has_ended(p);
        if (ended && found >= 0) /* the pidfd is of the process that has the number now */
            close(found);
        *fd = ended || found < 0 ? -2 : found;
        return ended;
    }
    if (*fd == -2)
        return has_ended(p);
    struct pollfd ask = {.fd = *fd, .events = POLLIN};
    return poll(&ask, 1, 0) > 0 && ask.revents & POLLIN;
}
