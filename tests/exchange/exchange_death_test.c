/* Ranks that are killed before they open an exchange, between rounds, or inside one: all others are told who it was
 * soon, whether they wait for that rank or for one that does, and can close and free everything. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/soon.h"
#include "support/suite.h"

#define MOST 8
#define HANGS 30 /* seconds after which a rank that has not ended is ended by its alarm */

enum when { BEFORE_OPENING, BETWEEN_ROUNDS, INSIDE_A_ROUND, WHILE_OTHERS_STREAM, AT_ANY_MOMENT, WHENS };

static const char *on_hosts; /* a letter a rank; NULL: on this one, by shm: */

struct dying {
    char url[64];
    int ranks, victim;
    enum when when;
    bool vote, thread;
    _Atomic int64_t died;
    atomic_int joined;
    struct {
        int code, files;
        int64_t at;
        char text[512];
    } end[MOST];
};

static void die(struct dying *d)
{
    atomic_store(&d->died, clock_now());
    raise(SIGKILL);
}

static int a_round(struct dying *d, weft_exchange *x, int rank, int round, const unsigned char *payload)
{
    int peers[2] = {rank - 1, rank + 1}, err = 0;
    bool here = rank == d->victim && round == 3;
    size_t bytes = d->when == WHILE_OTHERS_STREAM ? 2 << 20 : 5000;
    for (int k = 0; k < 6 && !err; k++) {
        int to = peers[k % 2];
        if (to >= 0 && to < d->ranks)
            err = weft_exchange_put(x, to, &k, sizeof k, payload, bytes);
        if (here && k == 3 && d->when >= INSIDE_A_ROUND)
            die(d);
    }
    if (!err)
        err = weft_exchange_finish(x, false);
    if (!err)
        err = weft_exchange_wait(x, WEFT_FOREVER);
    for (weft_message *m = NULL; !err && !weft_exchange_take(x, -1, &m) && m;)
        weft_message_free(m);
    if (here && d->when == BETWEEN_ROUNDS)
        die(d);
    return err;
}

static int live(struct dying *d, int rank)
{
    weft_comm *c;
    weft_exchange *x = NULL;
    weft_comm_opts o = {.size = sizeof o,
                        .rank = rank,
                        .ranks = d->ranks,
                        .deadline_ns = HANGS * SECOND,
                        .progress = d->thread ? WEFT_PROGRESS_THREAD : WEFT_PROGRESS_CALLER};
    weft_exchange_opts xo = {.size = sizeof xo, .vote = d->vote};
    int list[2], n = 0, files = process_files();
    unsigned char *payload = calloc(1, 2 << 20);
    if (!payload || weft_comm_open(d->url, &o, &c))
        return 1;
    atomic_fetch_add(&d->joined, 1);
    if (rank > 0)
        list[n++] = rank - 1;
    if (rank < d->ranks - 1)
        list[n++] = rank + 1;
    if (rank == d->victim && d->when == BEFORE_OPENING)
        die(d);
    int err = weft_exchange_open(c, list, (size_t)n, list, (size_t)n, &xo, &x);
    for (int round = 0; !err && round < 1000000; round++)
        err = a_round(d, x, rank, round, payload);
    d->end[rank].code = err;
    d->end[rank].at = clock_now();
    snprintf(d->end[rank].text, sizeof d->end[rank].text, "%s", weft_errmsg());
    weft_exchange_close(x);
    weft_comm_close(c);
    free(payload);
    d->end[rank].files = process_files() - files;
    return 0;
}

static void one_death(int ranks, int victim, enum when when, int number)
{
    struct dying *d = ranks_shared(sizeof *d);
    pid_t pids[MOST];
    int status;
    d->ranks = ranks;
    d->victim = victim;
    d->when = when;
    d->vote = number % 2;
    d->thread = number % 3 == 2;
    snprintf(d->url, sizeof d->url, "%s:xdeath-%ld-%d", on_hosts ? "auto" : "shm", (long)getpid(), number);
    for (int r = 0; r < ranks; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0) {
            if (on_hosts)
                hosts_live_on(on_hosts[r]);
            _exit(live(d, r));
        }
    }
    if (when == AT_ANY_MOMENT) {
        struct timespec look = {.tv_nsec = MS}, t = {.tv_nsec = (number * 7 % 60) * MS};
        while (atomic_load(&d->joined) < ranks)
            nanosleep(&look, NULL);
        nanosleep(&t, NULL);
        atomic_store(&d->died, clock_now());
        kill(pids[victim], SIGKILL);
    }
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (r == victim)
            continue;
        char name[32];
        snprintf(name, sizeof name, "rank %d", victim);
        assert_int_equal(status, 0);
        if (d->end[r].code != WEFT_EPEER || !strstr(d->end[r].text, name) || d->end[r].files ||
            !soon_enough(d->end[r].at - d->died))
            fail_msg("death %d of rank %d of %d: rank %d was told %d '%s' after %lld ms and has %d files more",
                     (int)when, victim, ranks, r, d->end[r].code, d->end[r].text,
                     (long long)((d->end[r].at - d->died) / MS), d->end[r].files);
    }
    char left[32];
    snprintf(left, sizeof left, "xdeath-%ld-%d", (long)getpid(), number);
    process_nothing_left(left);
    munmap(d, sizeof *d);
}

static void death_at_each_moment_is_told_to_all(void **state)
{
    (void)state;
    int number = 0;
    for (int when = 0; when < AT_ANY_MOMENT; when++) {
        for (int ranks = 2; ranks <= 5; ranks++)
            for (int victim = 0; victim<ranks; victim += ranks> 3 ? 2 : 1)
                one_death(ranks, victim, (enum when)when, number++);
        soon_judge();
    }
}

static void death_at_a_random_moment_is_told_to_all(void **state)
{
    (void)state;
    for (int64_t seed = 0; suite_seed(&seed, 0, test_share(12, 300)); seed++) {
        int i = (int)seed;
        one_death(2 + i % 4, i % (2 + i % 4), AT_ANY_MOMENT, 1000 + i);
    }
    soon_judge();
}

/* Each moment once or twice, with the victim on a host of its own and on one with others. */
static void death_on_another_host_is_told_to_all(void **state)
{
    static const char *const hosts[] = {"abcdefgh", "aabbccdd", "abababab"};
    (void)state;
    hosts_need_wire();
    for (int64_t seed = 0; suite_seed(&seed, 0, test_share(10, 100)); seed++) {
        int i = (int)seed;
        on_hosts = hosts[i % 3];
        one_death(2 + i % 4, i / 2 % (2 + i % 4), (enum when)(i % WHENS), 2000 + i);
    }
    on_hosts = NULL;
    soon_judge();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death_at_each_moment_is_told_to_all),
        cmocka_unit_test(death_at_a_random_moment_is_told_to_all),
        cmocka_unit_test_setup_teardown(death_on_another_host_is_told_to_all, hosts_setup, hosts_teardown),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
