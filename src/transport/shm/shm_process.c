/* Whether the process of a rank has ended.
 *
 * The ranks of a file watch each other together. A rank that waits looks at the flags of its peers, which costs no
 * system call. Every LOOK_NS one of the ranks that look asks the system for all of them, LOOKS processes in turn, and
 * sets the flags of those that have ended. If no rank has looked for some time, which happens when all sleep, the next
 * one asks for as many processes as would have had their turn. So n ranks that wait cost the system as many calls as
 * one does, no rank needs a file for each other one, and the end of any of n processes is known LOOK_NS * (n / LOOKS +
 * 1) after it, or when a rank wakes after that, as long as some rank waits. The turn belongs to no rank: if the rank
 * that took it ends, another one takes the next. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"
#include "transport/shm/shm.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* older headers lack it; the number is the same on all architectures */
#endif

#define LOOK_NS INT64_C(10000000)
#define LOOKS 64

static bool has_ended(const struct shm_process *p)
{
    bool zombie = false;
    uint64_t start = p->pid ? process_start(p->pid, &zombie) : 0;
    if (start)
        return zombie || (p->start && start != p->start);
    return p->pid && kill((pid_t)p->pid, 0) && errno == ESRCH;
}

static bool is_flagged(const struct shm_process *p)
{
    return atomic_load_explicit(&p->ended, memory_order_seq_cst);
}

/* Takes the turns that are due, and returns how many these are. A time that is further away than LOOK_NS is of a rank
 * whose clock is another one. */
static int64_t take_turns(struct shm_head *h)
{
    int64_t now = core_now(), due = atomic_load_explicit(&h->look_at, memory_order_relaxed);
    bool take = (now >= due || due - now > LOOK_NS) &&
                atomic_compare_exchange_strong_explicit(&h->look_at, &due, now + LOOK_NS, memory_order_relaxed,
                                                        memory_order_relaxed);
    return !take ? 0 : now > due ? 1 + (now - due) / LOOK_NS : 1;
}

static void look(struct shm_home *home)
{
    struct shm_head *h = home->head;
    int64_t turns = take_turns(h);
    if (!turns)
        return;
    uint32_t all = (uint32_t)home->ranks, n = turns > all / LOOKS ? all : LOOKS * (uint32_t)turns;
    uint32_t from = atomic_fetch_add_explicit(&h->looked, n, memory_order_relaxed) % all;
    for (uint32_t i = 0; i < n; i++) {
        struct shm_process *p = &h->process[(from + i) % all];
        if (!is_flagged(p) && has_ended(p) && !atomic_exchange_explicit(&p->ended, 1, memory_order_seq_cst))
            /* After the flag: a rank that sees the new number sees the flag, too. */
            atomic_fetch_add_explicit(&h->deaths, 1, memory_order_seq_cst);
    }
}

uint64_t shm_process_deaths(struct shm_link *l)
{
    look(l->home);
    return atomic_load_explicit(&l->home->head->deaths, memory_order_seq_cst);
}

bool shm_process_died(struct shm_link *l, int rank)
{
    const struct shm_process *p = &l->home->head->process[shm_process_of(l, rank)];
    if (!is_flagged(p))
        look(l->home);
    return is_flagged(p);
}

static bool make_pidfds(struct shm_home *h)
{
    h->pidfd = malloc((size_t)h->ranks * sizeof *h->pidfd);
    for (int r = 0; h->pidfd && r < h->ranks; r++)
        h->pidfd[r] = -1;
    return h->pidfd;
}

/* A pidfd costs less than /proc, which is asked once, when the pidfd is made, to make sure that the pidfd is of the
 * right process, and always if there is no pidfd. */
bool shm_process_died_now(struct shm_link *l, int rank)
{
    const struct shm_process *p = &l->home->head->process[shm_process_of(l, rank)];
    int none = -2, *fd = l->home->pidfd || make_pidfds(l->home) ? &l->home->pidfd[shm_process_of(l, rank)] : &none;
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
