/* How many messages a rank sends and gets after a failure: no rank hears each of the others, or tells each of them. On
 * tcp: every rank is a host of its own; on auto: hosts have many ranks. Calls that send are counted where they leave
 * the library, and what comes is what others have sent. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/soon.h"
#include "support/suite.h"

#define MOST 96
#define HANGS 120
#define HOSTS 4
#define MOST_OF_HOSTS 60
#define MOST_WITHOUT 95

struct job {
    int ranks, victim;
    int hosts;   /* of auto:; 0: tcp:, where each rank is a host */
    bool silent; /* rank 0 lives, and does not ask for survivors */
    int more;    /* ranks behind the victim that end, too */
};

static bool ends(const struct job *job, int rank)
{
    return rank >= job->victim && rank <= job->victim + job->more;
}

struct told {
    atomic_int ready, done;
    struct {
        int code, n, sent; /* messages while survivors agree */
        int until_closed;  /* messages from the failure to the end */
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

/* Rank 0 waits until the others are done. They leave it out at their deadline. */
static void stay_silent(weft_comm *c, const struct job *job, const struct told *told)
{
    while (atomic_load(&told->done) < job->ranks - 2)
        poll(NULL, 0, 10);
    weft_comm_close(c);
}

static void live(const char *url, int rank, const struct job *job, struct told *told)
{
    int ranks = job->ranks, victim = job->victim;
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
    if (ends(job, rank))
        raise(SIGKILL);
    int met = atomic_load(&sends);
    while (!(t->code = weft_comm_barrier(c, WEFT_DEADLINE)))
        met = atomic_load(&sends);
    if (job->silent)
        c->deadline_ns = 2 * SECOND;
    if (job->silent && rank == 0) {
        stay_silent(c, job, told);
        return;
    }
    int before = atomic_load(&sends);
    int64_t from = clock_now();
    t->code = weft_comm_survivors(c, list, MOST, &n);
    t->took = clock_now() - from;
    t->sent = atomic_load(&sends) - before;
    snprintf(t->text, sizeof t->text, "%s", weft_errmsg());
    t->n = (int)n;
    t->same = (int)n == ranks - 1 - job->more - job->silent;
    for (int i = 0; i < (int)n; i++)
        t->same &= list[i] == i + job->silent + (i + job->silent >= victim ? 1 + job->more : 0);
    atomic_fetch_add(&told->done, 1);
    weft_comm_close(c);
    t->until_closed = atomic_load(&sends) - met;
}

/* Returns the most messages that a rank has sent: while survivors agree, or on auto: from the failure to the end. *took
 * is how long the slowest rank waited for the list. */
static int most_sent_in(const struct job *job, int64_t *took)
{
    int ranks = job->ranks, victim = job->victim, hosts = job->hosts;
    struct told *told = ranks_shared(sizeof *told);
    pid_t pids[MOST];
    char url[64];
    int most = 0, all = 0;
    int64_t slowest = 0;
    snprintf(url, sizeof url, "%s:count-%ld-%d-%d-%d", hosts ? "auto" : "tcp", (long)getpid(), ranks, victim,
             job->silent);
    for (int r = 0; r < ranks; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0) {
            setenv("WEFT_WIRE", "tcp", 1); /* UCX sends by itself */
            if (hosts)
                hosts_live_on((char)('a' + r * hosts / ranks));
            live(url, r, job, told);
            _exit(0);
        }
    }
    for (int r = 0; r < ranks; r++) {
        char end[PROCESS_END];
        process_end(pids[r], end);
        if (!ends(job, r) && *end)
            fail_msg("rank %d of %d: %s", r, ranks, end);
    }
    for (int r = 0; r < ranks; r++) {
        if (ends(job, r) || (job->silent && r == 0))
            continue;
        if (told->rank[r].code || !told->rank[r].same)
            fail_msg("rank %d of %d: code %d, a list of %d ranks: %s", r, ranks, told->rank[r].code, told->rank[r].n,
                     told->rank[r].text);
        int sent = hosts ? told->rank[r].until_closed : told->rank[r].sent;
        most = sent > most ? sent : most;
        slowest = told->rank[r].took > slowest ? told->rank[r].took : slowest;
        all += sent;
    }
    print_message(
        "%d ranks, %d hosts, without rank %d and %d more: a rank sends %.1f messages, and %d at most; %lld ms\n", ranks,
        hosts ? hosts : ranks, victim, job->more, (double)all / (ranks - 1 - job->more), most,
        (long long)(slowest / MS));
    munmap(told, sizeof *told);
    *took = slowest;
    return most;
}

static int most_sent(const struct job *job)
{
    int64_t took;
    return most_sent_in(job, &took);
}

/* The leader of the others is rank 0, and if that has died rank 1. */
static void messages_of_a_rank_do_not_grow_with_the_ranks(void **state)
{
    (void)state;
    const int victims[] = {0, 1, 15};
    for (int i = 0; i < 3; i++) {
        int few = most_sent(&(struct job){.ranks = 24, .victim = victims[i]}),
            many = most_sent(&(struct job){.ranks = MOST, .victim = victims[i]});
        if (many > 2 * few)
            fail_msg("a rank of 24 sends up to %d messages, and one of %d up to %d", few, MOST, many);
    }
}

/* One rank of each host tells the others, so the hosts count, and not their ranks. */
static void ranks_of_a_host_do_not_each_tell_other_hosts(void **state)
{
    (void)state;
    const int victims[] = {0, 30};
    for (int i = 0; i < 2; i++) {
        int sent = most_sent(&(struct job){.ranks = MOST, .victim = victims[i], .hosts = HOSTS});
        if (sent > MOST_OF_HOSTS)
            fail_msg("of %d ranks on %d hosts one sends %d messages after a failure", MOST, HOSTS, sent);
    }
}

static int64_t without_a_host(void *job)
{
    int64_t took;
    int sent = most_sent_in(job, &took);
    if (sent > 2 * MOST_OF_HOSTS)
        fail_msg("of %d ranks, a host of which has ended, one sends %d messages", MOST, sent);
    return 4 * took; /* these are few ranks: a host of four times as many must be known soon, too */
}

/* All ranks of a host end: those that led, or those of another host. Survivors do not find out one by one. */
static void a_host_that_ends_is_known_soon(void **state)
{
    (void)state;
    for (int host = 0; host < HOSTS; host += 2)
        soon_at_last(
            without_a_host,
            &(struct job){.ranks = MOST, .victim = MOST / HOSTS * host, .hosts = HOSTS, .more = MOST / HOSTS - 1});
}

/* The rank that should lead is silent. At their deadline the others find another one, without telling each other one by
 * one. */
static void ranks_without_a_leader_do_not_tell_all(void **state)
{
    (void)state;
    int sent = most_sent(&(struct job){.ranks = MOST, .victim = 40, .silent = true});
    if (sent > MOST_WITHOUT)
        fail_msg("of %d ranks without a leader one sends %d messages", MOST, sent);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages_of_a_rank_do_not_grow_with_the_ranks),
                                       cmocka_unit_test(ranks_of_a_host_do_not_each_tell_other_hosts),
                                       cmocka_unit_test(a_host_that_ends_is_known_soon),
                                       cmocka_unit_test(ranks_without_a_leader_do_not_tell_all),
                                       cmocka_unit_test(no_files_memory_or_sockets_are_left)};
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, hosts_setup, hosts_teardown));
}
