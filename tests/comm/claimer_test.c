/* On several hosts one rank of each host tells the others of a failure: the one that claims it first (mail.c). Here
 * that rank is killed when it has claimed it and before its first mail has left, and so is the next one that takes the
 * claim over. All survivors still learn of the deaths in time, and get the same list. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/soon.h"
#include "support/suite.h"
#include "transport/hosts/hosts.h"

#define MOST 24
#define HANGS 60

struct life {
    char url[64];
    int ranks, hosts; /* as many ranks on each host */
    int host;         /* whose rank `victim` dies, and then whose claimers */
    int victim, claimers;
};

struct told {
    atomic_int ready, kills; /* claimers that are still to be killed */
    struct {
        _Atomic int64_t killed_at, knew_at;
        int code, left, list[MOST];
        int64_t listed_at;
        char text[300], end[PROCESS_END];
    } rank[MOST];
};

/* ---- the claimer ---- */

/* Of this process, which is one rank. */
static struct {
    weft_comm *comm;
    struct told *told;
    const struct wire_ops *ops;
} own;

static void end_here(void)
{
    atomic_store(&own.told->rank[own.comm->rank].killed_at, clock_now());
    raise(SIGKILL);
}

static int mail(struct wire *w, int peer, const void *bytes, size_t n)
{
    if (atomic_load(&own.comm->group->speaks) == own.comm->rank + 1 && atomic_fetch_sub(&own.told->kills, 1) > 0)
        end_here();
    return own.ops->mail(w, peer, bytes, n);
}

/* From here on this rank ends before the first mail that it sends as the one that has the claim. */
static void end_as_claimer(weft_comm *c, struct told *told)
{
    static struct wire_ops ops;
    struct wire *wire = c->link->hosts->wire;
    own = (__typeof__(own)){c, told, wire->ops};
    ops = *wire->ops;
    ops.mail = mail;
    wire->ops = &ops;
}

/* ---- one life ---- */

static int first_of(const struct life *l, int host)
{
    return host * l->ranks / l->hosts;
}

/* The first rank of the host tells others in any case. So it is in no call until all others know. */
static void stay_away(const struct life *l, struct told *told, int rank)
{
    int64_t until = clock_now() + HANGS * SECOND;
    for (int r = 0; r < l->ranks; r++)
        while (r != rank && !atomic_load(&told->rank[r].killed_at) && !atomic_load(&told->rank[r].knew_at) &&
               clock_now() < until)
            clock_pause(MS);
}

static void live(const struct life *l, int rank, struct told *told)
{
    __typeof__(&told->rank[0]) t = &told->rank[rank];
    int host = rank * l->hosts / l->ranks;
    weft_comm *c;
    size_t n = 0;
    hosts_live_on((char)('a' + host));
    t->code = process_open(l->url, rank, l->ranks, 20 * SECOND, &c);
    if (!t->code)
        t->code = weft_comm_barrier(c, WEFT_DEADLINE);
    snprintf(t->text, sizeof t->text, "%s", weft_errmsg());
    if (t->code)
        return;
    if (host == l->host)
        end_as_claimer(c, told);
    atomic_fetch_add(&told->ready, 1);
    while (atomic_load(&told->ready) < l->ranks)
        clock_pause(MS / 5);
    if (rank == l->victim) {
        atomic_store(&t->killed_at, clock_now());
        raise(SIGKILL);
    }
    if (rank == first_of(l, l->host))
        stay_away(l, told, rank);
    t->code = weft_comm_barrier(c, WEFT_DEADLINE);
    atomic_store(&t->knew_at, clock_now());
    snprintf(t->text, sizeof t->text, "%s", weft_errmsg());
    if (t->code == WEFT_EPEER) {
        t->code = weft_comm_survivors(c, t->list, MOST, &n);
        t->listed_at = clock_now();
        t->left = (int)n;
        if (t->code)
            snprintf(t->text, sizeof t->text, "%s", weft_errmsg());
    }
    weft_comm_close(c);
}

/* The ranks that must be on a list, and on no list. A second claimer may die when the list has been agreed on. */
static void expect(const struct life *l, const struct told *told, bool must[MOST], bool never[MOST])
{
    int first = -1, killed = 0;
    for (int r = 0; r < l->ranks; r++) {
        int64_t at = atomic_load(&told->rank[r].killed_at);
        must[r] = !at;
        never[r] = r == l->victim;
        if (at && r != l->victim && (first < 0 || at < atomic_load(&told->rank[first].killed_at)))
            first = r;
        killed += at && r != l->victim;
    }
    if (!killed)
        fail_msg("%s, %d ranks on %d hosts, without %d: no claimer was killed", l->url, l->ranks, l->hosts, l->victim);
    never[first] = true;
}

static bool is_right(const struct life *l, const struct told *told, int rank, const bool must[MOST],
                     const bool never[MOST])
{
    __typeof__(&told->rank[0]) t = &told->rank[rank], lowest = t;
    bool on[MOST] = {false}, right = !t->code && !*t->end;
    for (int r = l->ranks - 1; r >= 0; r--)
        lowest = must[r] ? &told->rank[r] : lowest;
    for (int i = 0; i < t->left; i++)
        on[t->list[i]] = true;
    for (int r = 0; r < l->ranks; r++)
        right &= !(must[r] && !on[r]) && !(never[r] && on[r]);
    return right && t->left == lowest->left && !memcmp(t->list, lowest->list, (size_t)t->left * sizeof *t->list);
}

static void judge(const struct life *l, const struct told *told)
{
    int64_t from = atomic_load(&told->rank[l->victim].killed_at), last = from;
    bool must[MOST], never[MOST];
    expect(l, told, must, never);
    for (int r = 0; r < l->ranks; r++)
        last = atomic_load(&told->rank[r].knew_at) > last ? atomic_load(&told->rank[r].knew_at) : last;
    for (int r = 0; r < l->ranks; r++) {
        __typeof__(&told->rank[0]) t = &told->rank[r];
        int64_t after = atomic_load(&t->knew_at) - from, listed = t->listed_at - last;
        bool away = r == first_of(l, l->host); /* it waited for the others */
        if (must[r] && (!is_right(l, told, r, must, never) || (!away && !soon_enough(after - 3 * SECOND)) ||
                        !soon_enough(listed - 3 * SECOND)))
            fail_msg("%s, %d ranks on %d hosts, without %d and up to %d claimers: rank %d knew after %lld ms, a list "
                     "of %d ranks came %lld ms after the last one knew, code %d: %s %s",
                     l->url, l->ranks, l->hosts, l->victim, l->claimers, r, (long long)(after / MS), t->left,
                     (long long)(listed / MS), t->code, t->text, t->end);
    }
}

static void one_life(const struct life *l)
{
    struct told *told = ranks_shared(sizeof *told);
    pid_t pids[MOST];
    atomic_store(&told->kills, l->claimers);
    for (int r = 0; r < l->ranks; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0) {
            live(l, r, told);
            _exit(0);
        }
    }
    for (int r = 0; r < l->ranks; r++)
        process_end(pids[r], told->rank[r].end);
    judge(l, told);
    munmap(told, sizeof *told);
}

/* `first`: the victim is the first rank of its host. Otherwise it is another one, and the first rank is in no call. */
static void campaign(bool first, int64_t lives, uint64_t number)
{
    hosts_need_wire();
    for (int64_t i = 0; suite_seed(&i, 0, lives); i++) {
        struct random r = random_of(number, i);
        int here = (int)random_in(&r, 5, 6);
        struct life l = {.hosts = (int)random_in(&r, 2, 4), .claimers = (int)random_in(&r, 1, 2)};
        l.ranks = here * l.hosts;
        l.host = (int)random_in(&r, 0, l.hosts - 1);
        l.victim = first_of(&l, l.host) + (first ? 0 : (int)random_in(&r, 1, here - 1));
        snprintf(l.url, sizeof l.url, "auto:claim-%ld-%d-%lld", (long)getpid(), first, (long long)i);
        one_life(&l);
    }
    soon_judge();
}

static void claimer_that_dies_has_a_successor(void **state)
{
    (void)state;
    campaign(false, test_share(4, 300), 15);
}

static void claimer_that_dies_after_the_first_rank_has_a_successor(void **state)
{
    (void)state;
    campaign(true, test_share(2, 300), 16);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(claimer_that_dies_has_a_successor),
                                       cmocka_unit_test(claimer_that_dies_after_the_first_rank_has_a_successor),
                                       cmocka_unit_test(no_files_memory_or_sockets_are_left)};
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, hosts_setup, hosts_teardown));
}
