/* Ranks that are killed at any moment or stopped: every other one gets an error that names them, soon; nothing hangs
 * and nothing is left. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
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

#include "comm/again.h"
#include "comm/comm.h"
#include "support/clock.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/soon.h"
#include "support/suite.h"

#define MOST 8
#define HANGS 30 /* seconds after which a rank that has not ended is ended by its alarm */

/* Does the text name the rank, in "rank 2" or "ranks 0, 2"? */
static bool names(const char *text, int rank)
{
    for (const char *at = strstr(text, "rank"); at; at = strstr(at + 4, "rank")) {
        const char *p = at + 4 + (at[4] == 's');
        for (char *end; *p == ' ' || *p == ','; p = end) {
            p += *p == ',';
            if (strtol(p, &end, 10) == rank && end != p)
                return true;
            if (end == p)
                break;
        }
    }
    return false;
}

/* ---- ranks that are killed while they work ---- */

struct killing {
    char url[64];
    int ranks;
    uint64_t seed;
    int64_t deadline_ns;
    atomic_int joined; /* or have tried */
    struct {
        int code;
        int64_t from, at, closed; /* when it began, had the error, had let go of everything */
        int files;                /* more than at its start */
        char text[512];
    } end[MOST];
};

static int use_exec(weft_comm *c, struct random *rng)
{
    static const char *const moves[][2] = {{"f32[64/x,64] @x%d", "f32[64,64/x] @x%d"},
                                           {"f32[5000] @x%d +sum(x)", "f32[5000] @x%d"},
                                           {"f32[70000/x] @x%d", "f32[70000] @x%d"},
                                           {"f32[64/x] @x%d", "f32[64/x~1o] @x%d"},
                                           {"f32[1024/x,96] @x%d", "f32[1024,96/x] @x%d"}};
    struct pair p;
    char src[64], dst[64];
    size_t m = (size_t)process_below(rng, sizeof moves / sizeof *moves);
    int runs = (int)process_below(rng, 30), window = (int)process_below(rng, 2), size = weft_comm_size(c);
    snprintf(src, sizeof src, moves[m][0], size);
    snprintf(dst, sizeof dst, moves[m][1], size);
    int err = pair_bind(&p, src, dst, window, c);
    for (int i = 0; i < runs && !err; i++)
        err = weft_exec_run(p.x);
    pair_release(&p);
    return err ? err : process_below(rng, 2) ? weft_comm_barrier(c, WEFT_DEADLINE) : 0;
}

/* Barriers of the group and of neighbours, and a token that goes round. */
static int use_window(weft_comm *c, struct random *rng)
{
    int rank = weft_comm_rank(c), size = weft_comm_size(c), turns = (int)process_below(rng, 20);
    int right = (rank + 1) % size, beside[2] = {right, (rank + size - 1) % size};
    float data[100] = {0};
    weft_buffer b = WEFT_BUFFER("b", WEFT_F32, 100);
    weft_window *w = NULL;
    int err = weft_window_open(c, &b, 1, 1, &w);
    for (uint64_t turn = 1; turn <= (uint64_t)turns && !err; turn++) {
        err = weft_window_put(w, 0, right, 0, data, 100);
        if (!err)
            err = weft_window_notify(w, right, 0, WEFT_NOTIFY_ADD, 1);
        if (!err)
            err = weft_window_wait(w, 0, WEFT_GE, turn, WEFT_FOREVER);
        if (!err)
            err = turn % 2 ? weft_window_barrier(w, WEFT_DEADLINE)
                           : weft_window_barrier_with(w, beside, size > 2 ? 2 : 1, WEFT_DEADLINE);
    }
    weft_window_close(w);
    return err;
}

/* Opens, and does one thing after another until something fails. All ranks do the same things. */
static int work_until_failure(struct killing *k, int rank)
{
    struct random rng = {k->seed};
    weft_comm *c;
    int err = process_open(k->url, rank, k->ranks, k->deadline_ns, &c);
    bool open = !err;
    if (open)
        c->cma_least = k->seed >> 32 & 1 ? 1 : INT64_MAX; /* private memory is read by the system, or staged */
    atomic_fetch_add(&k->joined, 1);
    while (!err)
        err = process_below(&rng, 3) ? use_exec(c, &rng) : use_window(c, &rng);
    k->end[rank].at = clock_now();
    snprintf(k->end[rank].text, sizeof k->end[rank].text, "%s", weft_errmsg());
    if (open)
        weft_comm_close(c);
    return err;
}

static void rank_of_killing(struct killing *k, int rank)
{
    int files = process_files();
    k->end[rank].from = clock_now();
    k->end[rank].code = work_until_failure(k, rank);
    k->end[rank].closed = clock_now();
    k->end[rank].files = process_files() - files;
    _exit(0);
}

/* How long survivors took to know, in microseconds. */
static struct {
    int64_t us[1 << 16];
    int n;
} delays;

static void judge(const struct killing *k, int number, int victim, bool early, int r, int64_t killed, int status)
{
    int code = k->end[r].code;
    int64_t since = k->end[r].from > killed ? k->end[r].from : killed;
    if (code == WEFT_ETIMEOUT) /* it waited for as long */
        since += k->deadline_ns;
    if (status || (code != WEFT_EPEER && (!early || code != WEFT_ETIMEOUT)) || !names(k->end[r].text, victim) ||
        !soon_enough(k->end[r].at - since) || !soon_enough(k->end[r].closed - since) || k->end[r].files)
        fail_msg("kill %d: rank %d of %d was killed, rank %d ended with status %#x, error %d after %lld ms, closed "
                 "after %lld ms, %d files left open: %s",
                 number, victim, k->ranks, r, (unsigned)status, code, (long long)((k->end[r].at - since) / MS),
                 (long long)((k->end[r].closed - since) / MS), k->end[r].files, k->end[r].text);
    if (delays.n < (int)(sizeof delays.us / sizeof *delays.us))
        delays.us[delays.n++] = (k->end[r].at - since) / 1000;
}

/* Kills one of the ranks at a random moment: as they join, or as they work. Of a rank that has not come, the others can
 * only say that it did not within the deadline. */
static void kill_one(struct random *rng, int number)
{
    struct killing *k = ranks_shared(sizeof *k);
    pid_t pids[MOST];
    int status[MOST];
    bool early = process_below(rng, 4) == 0;
    k->ranks = 2 + (int)process_below(rng, MOST - 1);
    k->seed = random_next(rng);
    k->deadline_ns = early ? 2 * SECOND : HANGS * SECOND;
    int victim = (int)process_below(rng, k->ranks);
    int64_t delay = process_below(rng, early ? 2 * MS : 20 * MS);
    snprintf(k->url, sizeof k->url, "shm:kill-%ld-%d", (long)getpid(), number);
    for (int r = 0; r < k->ranks; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0)
            rank_of_killing(k, r);
    }
    while (!early && atomic_load(&k->joined) < k->ranks)
        clock_pause(100000);
    clock_pause(delay);
    int64_t killed = clock_now();
    kill(pids[victim], SIGKILL);
    for (int r = 0; r < k->ranks; r++)
        assert_int_equal(waitpid(pids[r], &status[r], 0), pids[r]);
    for (int r = 0; r < k->ranks; r++)
        if (r != victim)
            judge(k, number, victim, early, r, killed, status[r]);
    process_nothing_left(k->url + 4);
    munmap(k, sizeof *k);
}

static int by_size(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void survivors_of_a_random_kill_name_the_dead_rank(void **state)
{
    (void)state;
    int64_t n = test_share(40, 500);
    for (int64_t i = 0; suite_seed(&i, 0, n); i++) {
        struct random rng = random_of(7, i);
        kill_one(&rng, (int)i);
    }
    qsort(delays.us, (size_t)delays.n, sizeof *delays.us, by_size);
    print_message(
        "%lld kills, %d survivors knew it after %lld us (half of them), %lld us (nine of ten), %lld us (all)\n",
        (long long)n, delays.n, (long long)delays.us[delays.n / 2], (long long)delays.us[delays.n * 9 / 10],
        (long long)delays.us[delays.n - 1]);
    soon_judge();
}

/* ---- how soon ---- */

enum waiting { IN_EXEC, IN_BIND, IN_BARRIER, IN_WINDOW_WAIT, IN_WINDOW_BARRIER, WAITINGS };

struct sleeping {
    char url[64];
    enum waiting in;
    atomic_int ready, asleep;
    int code;
    int64_t at;
};

static int wait_for_ever(struct sleeping *s, weft_comm *c, struct pair *p, weft_window *w)
{
    struct pair other;
    switch (s->in) {
    case IN_EXEC: return weft_exec_run(p->x);
    case IN_BIND: return pair_bind(&other, "f32[8/x] @x2", "f32[8] @x2", false, c);
    case IN_BARRIER: return weft_comm_barrier(c, WEFT_DEADLINE);
    case IN_WINDOW_WAIT: return weft_window_wait(w, 0, WEFT_EQ, 1, WEFT_FOREVER);
    default: return weft_window_barrier(w, WEFT_DEADLINE);
    }
}

static void sleeping_rank(struct sleeping *s, int rank)
{
    weft_comm *c;
    weft_window *w;
    struct pair p;
    if (process_open(s->url, rank, 2, HANGS * SECOND, &c) ||
        pair_bind(&p, "f32[128/x,128] @x2", "f32[128,128/x] @x2", true, c) || weft_window_open(c, NULL, 0, 1, &w))
        _exit(1);
    atomic_fetch_add(&s->ready, 1);
    if (rank == 1)
        for (;;)
            pause();
    s->code = wait_for_ever(s, c, &p, w);
    s->at = clock_now();
    _exit(0);
}

/* The state of a process in /proc: Z when it has ended. */
static char state_of(pid_t pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *at = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    fclose(f);
    return at ? at[2] : 0;
}

/* How long a rank that has been waiting for a while takes to know of the other's death. */
static int64_t time_to_know(enum waiting in, int number)
{
    struct sleeping *s = ranks_shared(sizeof *s);
    pid_t pids[2];
    int status;
    s->in = in;
    snprintf(s->url, sizeof s->url, "shm:sleep-%ld-%d", (long)getpid(), number);
    for (int r = 0; r < 2; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0)
            sleeping_rank(s, r);
    }
    while (atomic_load(&s->ready) < 2 && state_of(pids[0]) != 'Z' && state_of(pids[1]) != 'Z')
        clock_pause(100000);
    clock_pause(30 * MS);
    int64_t killed = clock_now();
    kill(pids[1], SIGKILL);
    for (int r = 1; r >= 0; r--)
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
    assert_int_equal(status, 0);
    assert_int_equal(s->code, WEFT_EPEER);
    int64_t took = s->at - killed;
    munmap(s, sizeof *s);
    return took;
}

/* In every kind of wait. The quickest of a few counts: what a busy machine adds is not weft's. */
static void every_kind_of_wait_learns_of_a_death_within_50_ms(void **state)
{
    (void)state;
    for (int in = 0; in < WAITINGS; in++) {
        int64_t best = INT64_MAX;
        for (int i = 0; i < 5 && best > 50 * MS; i++) {
            int64_t took = time_to_know((enum waiting)in, in * 5 + i);
            best = took < best ? took : best;
        }
        if (best > 50 * MS)
            fail_msg("wait %d: a death was known after %lld ms at the earliest", in, (long long)(best / MS));
    }
}

/* ---- ranks that are stopped ---- */

#define STALLS_MS 2000 /* the deadline for one that is stopped for too long; they open and bind within it, too */

struct stopping {
    char url[64];
    bool in_time;
    int64_t deadline_ns;
    atomic_int stopped; /* rank 1 has started and stopped */
    atomic_int told;    /* the rank that waits has seen that the other one is late */
    int code, after;
    int64_t wrong;
    char text[512];
};

static void stopped_rank(struct stopping *s, int rank)
{
    weft_comm *c;
    struct pair p;
    if (process_open(s->url, rank, 2, s->deadline_ns, &c) ||
        pair_bind(&p, "f32[128/x,128] @x2", "f32[128,128/x] @x2", true, c))
        _exit(1);
    tensors_fill(p.src, rank, p.in, 3);
    if (weft_exec_start(p.x))
        _exit(2);
    if (rank == 1)
        raise(SIGSTOP);
    if (rank == 0 && s->in_time) {
        while (!atomic_load(&s->stopped)) /* before that it might not even have started, which would be told */
            clock_pause(100000);
        s->code = weft_exec_wait(p.x, 100 * MS);
        snprintf(s->text, sizeof s->text, "%s", weft_errmsg());
        atomic_store(&s->told, 1);
    }
    int err = weft_exec_wait(p.x, WEFT_FOREVER);
    if (rank == 0) {
        s->after = err;
        if (!s->in_time)
            snprintf(s->text, sizeof s->text, "%s", weft_errmsg());
        s->wrong = err ? 0 : tensors_wrong(p.src, p.dst, rank, p.out, 3);
        atomic_store(&s->told, 1);
    }
    int bad = !err && tensors_wrong(p.src, p.dst, rank, p.out, 3);
    pair_release(&p);
    weft_comm_close(c);
    _exit(bad ? 3 : 0);
}

static void stop_one(struct stopping *s, bool in_time)
{
    pid_t pids[2];
    int status;
    s->in_time = in_time;
    s->deadline_ns = in_time ? 30 * SECOND : STALLS_MS * MS;
    snprintf(s->url, sizeof s->url, "shm:stop-%ld-%d", (long)getpid(), in_time);
    for (int r = 0; r < 2; r++) {
        pids[r] = process_fork(0);
        if (pids[r] == 0)
            stopped_rank(s, r);
    }
    assert_int_equal(waitpid(pids[1], &status, WUNTRACED), pids[1]);
    assert_true(WIFSTOPPED(status));
    atomic_store(&s->stopped, 1);
    while (!atomic_load(&s->told) && state_of(pids[0]) != 'Z')
        clock_pause(100000);
    kill(pids[1], SIGCONT);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
}

static void run_completes_after_a_stopped_rank_continues(void **state)
{
    (void)state;
    struct stopping *s = ranks_shared(sizeof *s);
    stop_one(s, true);
    assert_int_equal(s->code, WEFT_ETIMEOUT);
    assert_string_equal(s->text, "time ran out: waiting for rank 1");
    assert_int_equal(s->after, 0);
    assert_int_equal(s->wrong, 0);
    munmap(s, sizeof *s);
}

static void rank_stopped_beyond_the_deadline_is_named(void **state)
{
    (void)state;
    struct stopping *s = ranks_shared(sizeof *s);
    char text[80];
    snprintf(text, sizeof text, "rank 1 started a run and made no progress for %d ms", STALLS_MS);
    stop_one(s, false);
    assert_int_equal(s->after, WEFT_EPEER);
    assert_non_null(strstr(s->text, text));
    munmap(s, sizeof *s);
}

/* ---- a rank that opens a comm again ---- */

struct reopening {
    char url[64];
    atomic_int ready, dead, done;
    int one, all;
};

/* A store asks, in turn, whether it waits in vain for rank 0, which holds the values, and for any rank. */
static int ask_in_turn(struct reopening *s, weft_comm *c)
{
    static const int ranks[3] = {0, 1, 2};
    struct again a;
    again_begin(&a, c, ranks, 3);
    for (int64_t end = clock_now() + 10 * SECOND; !s->one && !s->all && clock_now() < end; clock_pause(MS)) {
        s->one = again_vain(&a, 0);
        s->all = again_vain(&a, -1);
    }
    return s->all == WEFT_EPEER && strstr(weft_errmsg(), "rank 2 has died") ? 0 : 1;
}

static void rank_of_reopening(struct reopening *s, int rank)
{
    weft_comm *c;
    int err = process_open(s->url, rank, 3, 30 * SECOND, &c) ? 2 : 0;
    atomic_fetch_add(&s->ready, 1);
    while (!err && !atomic_load(rank == 1 ? &s->dead : &s->done))
        clock_pause(MS);
    if (!err && rank == 1)
        err = ask_in_turn(s, c);
    atomic_store(&s->done, 1);
    weft_comm_close(c);
    _exit(err);
}

static void who_waits_for_one_rank_sees_others_die(void **state)
{
    (void)state;
    struct reopening *s = ranks_shared(sizeof *s);
    pid_t pids[3];
    int status;
    snprintf(s->url, sizeof s->url, "shm:again-%ld", (long)getpid());
    for (int r = 0; r < 3; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0)
            rank_of_reopening(s, r);
    }
    while (atomic_load(&s->ready) < 3)
        clock_pause(100000);
    kill(pids[2], SIGKILL);
    assert_int_equal(waitpid(pids[2], &status, 0), pids[2]);
    atomic_store(&s->dead, 1);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(s->one, 0);
    munmap(s, sizeof *s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_of_a_random_kill_name_the_dead_rank),
        cmocka_unit_test(every_kind_of_wait_learns_of_a_death_within_50_ms),
        cmocka_unit_test(run_completes_after_a_stopped_rank_continues),
        cmocka_unit_test(rank_stopped_beyond_the_deadline_is_named),
        cmocka_unit_test(who_waits_for_one_rank_sees_others_die),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
