/* How many messages a rank sends and gets while survivors agree, on tcp:, where every rank is a host of its own: no
 * rank hears each of the others, or tells each of them. Calls that send are counted where they leave the library, and
 * what comes is what others have sent. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/suite.h"

#define MOST 96
#define HANGS 120

struct told {
    atomic_int ready;
    struct {
        int code, n, sent;
        int64_t took;
        bool same;
        char text[300];
    } rank[MOST];
};

static atomic_int sends;

ssize_t __real_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
    atomic_fetch_add(&sends, 1);
    return __real_send(fd, bytes, n, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
    atomic_fetch_add(&sends, 1);
    return __real_sendmsg(fd, m, flags);
}

static void live(const char *url, int rank, int ranks, int victim, struct told *told)
{
    weft_comm *c;
    int list[MOST];
    size_t n = 0;
    __typeof__(&told->rank[0]) t = &told->rank[rank];
    t->code = process_open(url, rank, ranks, 30 * SECOND, &c);
    if (!t->code)
        t->code = weft_comm_barrier(c, WEFT_DEADLINE);
    snprintf(t->text, sizeof t->text, "%s", weft_errmsg());
    if (t->code)
        return;
    atomic_fetch_add(&told->ready, 1);
    if (rank == victim)
        raise(SIGKILL);
    while (!(t->code = weft_comm_barrier(c, WEFT_DEADLINE)))
        ;
    int before = atomic_load(&sends);
    int64_t from = clock_now();
    t->code = weft_comm_survivors(c, list, MOST, &n);
    t->took = clock_now() - from;
    t->sent = atomic_load(&sends) - before;
    snprintf(t->text, sizeof t->text, "%s", weft_errmsg());
    t->n = (int)n;
    t->same = (int)n == ranks - 1;
    for (int i = 0; i < (int)n; i++)
        t->same &= list[i] == i + (i >= victim);
    weft_comm_close(c);
}

/* Returns the most messages that a rank has sent. */
static int most_sent(int ranks, int victim)
{
    struct told *told = ranks_shared(sizeof *told);
    pid_t pids[MOST];
    char url[64];
    int most = 0, all = 0;
    int64_t slowest = 0;
    snprintf(url, sizeof url, "tcp:count-%ld-%d-%d", (long)getpid(), ranks, victim);
    for (int r = 0; r < ranks; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0) {
            live(url, r, ranks, victim, told);
            _exit(0);
        }
    }
    for (int r = 0; r < ranks; r++)
        assert_int_equal(waitpid(pids[r], NULL, 0), pids[r]);
    for (int r = 0; r < ranks; r++) {
        if (r == victim)
            continue;
        if (told->rank[r].code || !told->rank[r].same)
            fail_msg("rank %d of %d: code %d, a list of %d ranks: %s", r, ranks, told->rank[r].code, told->rank[r].n,
                     told->rank[r].text);
        most = told->rank[r].sent > most ? told->rank[r].sent : most;
        slowest = told->rank[r].took > slowest ? told->rank[r].took : slowest;
        all += told->rank[r].sent;
    }
    print_message("%d ranks without rank %d: a rank sends %.1f messages, and %d at most; %lld ms\n", ranks, victim,
                  (double)all / (ranks - 1), most, (long long)(slowest / MS));
    munmap(told, sizeof *told);
    return most;
}

/* The leader of the others is rank 0, and if that has died rank 1. */
static void messages_of_a_rank_do_not_grow_with_the_ranks(void **state)
{
    (void)state;
    const int victims[] = {0, 1, 15};
    for (int i = 0; i < 3; i++) {
        int few = most_sent(24, victims[i]), many = most_sent(MOST, victims[i]);
        if (many > 2 * few)
            fail_msg("a rank of 24 sends up to %d messages, and one of %d up to %d", few, MOST, many);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages_of_a_rank_do_not_grow_with_the_ranks),
                                       cmocka_unit_test(no_files_memory_or_sockets_are_left)};
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, hosts_setup, hosts_teardown));
}
