/* Ranks that end, on comms of several hosts: kill -9 at random moments of runs, barriers and binds, on ucx: and on
 * auto: with two and three hosts. Every survivor gets an error that names the rank and its host soon, all get the same
 * list of survivors, and they open a comm again in which the result is right. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/soon.h"
#include "support/suite.h"

#define MOST 6

struct life {
    int ranks, hosts, victim, turn; /* it ends there */
    bool stops;                     /* the victim does not end, it stops before the first bind */
    char at[40];                    /* where they meet; empty: where all tests do */
    int64_t deadline_ns;
    char url[64];
};

static int wanted(const struct life *l)
{
    return l->stops ? WEFT_ETIMEOUT : WEFT_EPEER;
}

/* What the ranks tell the test; each writes its own. */
struct told {
    _Atomic int64_t died_at;
    struct {
        int64_t knew_at, listed_at, opened_at, closed_at, ended_at;
        int code, left, list[MOST];
        bool fine;
        char text[700], end[700]; /* of the failure; of the comm that was opened again */
        char ended[PROCESS_END];  /* how its process ended, if not by an exit with 0; set by the test */
    } rank[MOST];
};

static int sum_layouts(int n, weft_layout **src, weft_layout **dst)
{
    char a[64], b[64];
    snprintf(a, sizeof a, "f32[3000] @x%d +sum(x)", n);
    snprintf(b, sizeof b, "f32[3000] @x%d", n);
    int err = weft_layout_parse(a, src);
    return err ? err : weft_layout_parse(b, dst);
}

/* Sums and barriers until `times`, or until something fails; the victim ends at turn `at` (negative: never). */
static int work(weft_comm *c, int times, int at, struct told *told)
{
    static float x[3000], y[3000];
    weft_layout *a = NULL, *b = NULL;
    weft_plan *plan = NULL;
    weft_exec *exec = NULL;
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts o = {.size = sizeof o, .machine = &machine};
    int n = weft_comm_size(c), me = weft_comm_rank(c);
    weft_view src = WEFT_VIEW(x, sizeof x), dst = WEFT_VIEW(y, sizeof y);
    int err = sum_layouts(n, &a, &b);
    if (!err)
        err = weft_comm_machine(c, &machine);
    if (!err)
        err = weft_lower(&(weft_move){"v", a, b}, 1, me, &o, &plan);
    if (!err)
        err = weft_bind(plan, c, &src, &dst, NULL, &exec);
    for (int k = 0; k < times && !err; k++) {
        if (k == at) {
            atomic_store(&told->died_at, clock_now());
            raise(SIGKILL);
        }
        for (int i = 0; i < 3000; i++)
            x[i] = (float)(me + k + i);
        err = k % 5 == 4 ? weft_comm_barrier(c, WEFT_DEADLINE) : weft_exec_run(exec);
        for (int i = 0; i < 3000 && !err && k % 5 != 4; i++)
            if (y[i] != (float)(n * (n - 1) / 2 + n * (k + i)))
                err = -1000;
    }
    weft_exec_close(exec);
    weft_plan_free(plan);
    weft_layout_free(a);
    weft_layout_free(b);
    return err;
}

static void live(const struct life *l, int rank, struct told *told)
{
    weft_comm *c, *again;
    char host[16];
    size_t n;
    int list[MOST];
    snprintf(host, sizeof host, "h%d", rank * l->hosts / l->ranks);
    setenv("WEFT_HOST", host, 1);
    if (*l->at)
        setenv("WEFT_AT", l->at, 1);
    if (process_open(l->url, rank, l->ranks, l->deadline_ns, &c)) {
        snprintf(told->rank[rank].text, sizeof told->rank[rank].text, "open: %s", weft_errmsg());
        return;
    }
    if (rank == l->victim && l->stops) {
        atomic_store(&told->died_at, clock_now());
        raise(SIGSTOP);
        return;
    }
    told->rank[rank].code = work(c, 1 << 30, rank == l->victim ? l->turn : -1, told);
    told->rank[rank].knew_at = clock_now();
    snprintf(told->rank[rank].text, sizeof told->rank[rank].text, "%s", weft_errmsg());
    if (told->rank[rank].code != wanted(l))
        return;
    if (weft_comm_survivors(c, list, MOST, &n)) {
        snprintf(told->rank[rank].end, sizeof told->rank[rank].end, "%s", weft_errmsg());
        return;
    }
    told->rank[rank].listed_at = clock_now();
    told->rank[rank].left = (int)n;
    memcpy(told->rank[rank].list, list, n * sizeof *list);
    int err = weft_comm_reopen(c, list, n, &again);
    told->rank[rank].opened_at = clock_now();
    weft_comm_close(c);
    told->rank[rank].closed_at = clock_now();
    if (!err) {
        err = work(again, 20, -1, told);
        snprintf(told->rank[rank].end, sizeof told->rank[rank].end, "%s", err ? weft_errmsg() : "right");
        weft_comm_close(again);
    } else {
        snprintf(told->rank[rank].end, sizeof told->rank[rank].end, "%s", weft_errmsg());
    }
    told->rank[rank].ended_at = clock_now();
    told->rank[rank].fine = !err;
}

/* When each rank knew, had the list, had the new comm, had closed the old one, and had ended, in ms from the death on.
 */
static void print_times(const struct life *l, const struct told *told)
{
    int64_t from = atomic_load(&told->died_at);
    for (int r = 0; r < l->ranks; r++)
        print_message(
            "rank %d: %lld %lld %lld %lld %lld\n", r, (long long)(told->rank[r].knew_at - from) / MS,
            (long long)(told->rank[r].listed_at - from) / MS, (long long)(told->rank[r].opened_at - from) / MS,
            (long long)(told->rank[r].closed_at - from) / MS, (long long)(told->rank[r].ended_at - from) / MS);
}

static void one_life(const struct life *l, int64_t *slowest)
{
    struct told *told = ranks_shared(sizeof *told);
    pid_t pids[MOST];
    char name[32];
    for (int r = 0; r < l->ranks; r++) {
        pids[r] = process_fork(60);
        if (pids[r] == 0) {
            live(l, r, told);
            _exit(0);
        }
    }
    for (int r = 0; r < l->ranks; r++)
        if (r != l->victim)
            process_end(pids[r], told->rank[r].ended);
    kill(pids[l->victim], SIGKILL);
    waitpid(pids[l->victim], NULL, 0);
    snprintf(name, sizeof name, "rank %d on host h%d", l->victim, l->victim * l->hosts / l->ranks);
    for (int r = 0; r < l->ranks; r++) {
        if (r == l->victim)
            continue;
        int64_t after = told->rank[r].knew_at - atomic_load(&told->died_at);
        if (*told->rank[r].ended || told->rank[r].code != wanted(l) ||
            (!l->stops && (!strstr(told->rank[r].text, name) || !soon_enough(after))))
            fail_msg("%s, %d ranks on %d hosts, %d ends at %d: rank %d after %lld ms: %d, %s %s", l->url, l->ranks,
                     l->hosts, l->victim, l->turn, r, (long long)(after / MS), told->rank[r].code, told->rank[r].text,
                     told->rank[r].ended);
        if (told->rank[r].left != l->ranks - 1 || !told->rank[r].fine) {
            print_times(l, told);
            fail_msg("%s, %d ranks on %d hosts, %d ends at %d: rank %d sees %d left, the new comm: %s", l->url,
                     l->ranks, l->hosts, l->victim, l->turn, r, told->rank[r].left, told->rank[r].end);
        }
        for (int i = 0; i < l->ranks - 1; i++)
            assert_int_equal(told->rank[r].list[i], i + (i >= l->victim));
        *slowest = after > *slowest ? after : *slowest;
    }
    munmap(told, sizeof *told);
}

/* The lowest rank, which gives the list, is the one that is silent: near it, and far from it. */
static void survivors_agree_when_the_lowest_rank_is_silent(void **state)
{
    (void)state;
    hosts_need_wire();
    int64_t slowest = 0;
    for (int hosts = 2; hosts <= 4; hosts += 2) {
        struct life l = {.ranks = 4, .hosts = hosts, .victim = 0, .stops = true, .deadline_ns = 3 * SECOND};
        snprintf(l.url, sizeof l.url, "auto:stop-%ld-%d", (long)getpid(), hosts);
        one_life(&l, &slowest);
    }
}

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(s >= 0 && !bind(s, (struct sockaddr *)&a, sizeof a) && !getsockname(s, (struct sockaddr *)&a, &n));
    close(s);
    return ntohs(a.sin_port);
}

/* Rank 0, which serves the store that they met by, is the one that ends: the lowest survivor serves it again. */
static void lowest_survivor_serves_the_store_again(void **state)
{
    (void)state;
    hosts_need_wire();
    int64_t slowest = 0;
    setenv("WEFT_TOKEN", "a token of these tests, and of nothing else", 1);
    for (int i = 0; i < 4; i++) {
        struct life l = {.ranks = 4, .hosts = i % 2 ? 4 : 2, .deadline_ns = 10 * SECOND};
        snprintf(l.at, sizeof l.at, "tcp:127.0.0.1:%d", free_port());
        l.turn = 20 * i;
        snprintf(l.url, sizeof l.url, "%s:served-%ld-%d", i % 2 ? hosts_wire() : "auto", (long)getpid(), i);
        one_life(&l, &slowest);
    }
    unsetenv("WEFT_TOKEN");
    soon_judge();
}

static void survivors_of_a_random_kill_agree_and_open_again(void **state)
{
    (void)state;
    hosts_need_wire();
    int64_t slowest = 0, lives = test_share(20, 200);
    for (int64_t i = 0; suite_seed(&i, 0, lives); i++) {
        struct random r = random_of(20261115, i);
        struct life l = {.ranks = (int)random_in(&r, 2, MOST), .deadline_ns = 10 * SECOND};
        l.hosts = i % 3 == 0 ? l.ranks : (int)random_in(&r, 2, l.ranks < 3 ? l.ranks : 3);
        l.victim = (int)random_in(&r, 0, l.ranks - 1);
        l.turn = (int)random_in(&r, 0, 200);
        snprintf(l.url, sizeof l.url, "%s:life-%ld-%lld", i % 3 ? "auto" : hosts_wire(), (long)getpid(), (long long)i);
        one_life(&l, &slowest);
    }
    print_message("%lld lives, the slowest knew after %lld ms\n", (long long)lives, (long long)(slowest / MS));
    soon_judge();
}

int main(int argc, char **argv)
{
    /* A rank that is stopped is still there when the others end, and so its place in the folder is: that test comes
     * last. */
    const struct CMUnitTest tests[] = {cmocka_unit_test(lowest_survivor_serves_the_store_again),
                                       cmocka_unit_test(survivors_of_a_random_kill_agree_and_open_again),
                                       cmocka_unit_test(no_files_memory_or_sockets_are_left),
                                       cmocka_unit_test(survivors_agree_when_the_lowest_rank_is_silent)};
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, hosts_setup, hosts_teardown));
}
