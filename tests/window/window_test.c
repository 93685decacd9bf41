/* Windows on every transport: what they must do, the collectives of tests/cases/windows.txt written on windows alone, a
 * stress of the signals and barriers, and ranks that are killed (between hosts: hosts_puts_test.c). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/conformance.h"
#include "support/share.h"
#include "support/soon.h"
#include "support/suite.h"
#include "support/window_cases.h"
#include "support/window_ends.h"
#include "support/window_forms.h"
#include "support/window_stress.h"

static void windows_do_what_the_header_says(void **state)
{
    (void)state;
    static const struct {
        void (*body)(struct ranks_rank *);
        int least, most;
    } all[] = {
        {window_shape, 1, 4},   {window_ping_pong, 1, 5}, {window_add, 1, 4},      {window_add_ends, 2, 3},
        {window_compare, 2, 4}, {window_timeouts, 2, 4},  {window_mismatch, 2, 3}, {window_arguments, 2, 3},
        {window_lives, 1, 4},   {window_gone, 3, 4},      {window_alone, 1, 3},    {window_progress, 2, 3},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int n = all[i].least; n <= all[i].most; n++) {
            if (!conformance_takes(n))
                continue;
            ranks_run(n, NULL, all[i].body, NULL, NULL);
            if (conformance_on_hosts()) /* staging is no matter there */
                continue;
            ranks_run(n, &(weft_comm_opts){.staged = true, .channel_buckets = 1}, all[i].body, NULL, NULL);
        }
}

static void barriers_hold_over_many_turns(void **state)
{
    (void)state;
    int turns = (int)test_share(10000, 10000), fewer = turns / 4;
    ranks_run(2, NULL, window_generations, &turns, NULL);
    ranks_run(3, NULL, window_generations, &turns, NULL);
    ranks_run(8, NULL, window_generations, &fewer, NULL);
    ranks_run(2, NULL, window_neighbours, &turns, NULL);
    ranks_run(5, NULL, window_neighbours, &fewer, NULL);
    ranks_run(3, NULL, window_overlap, &fewer, NULL);
}

static void collectives_written_on_windows_are_right(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 5, 8};
    int runs = (int)test_share(1000, 1000);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        ranks_run(sizes[k], NULL, forms_body, &runs, NULL);
    runs = runs > 1000 ? runs : 1000;
    ranks_run(3, NULL, window_overlap, &runs, NULL);
}

/* Between hosts, where each step takes longer. */
static void over_sizes(void (*body)(struct ranks_rank *), int least, int most, void *arg, const weft_comm_opts *o)
{
    for (int n = least; n <= most; n++)
        if (conformance_takes(n))
            ranks_run(n, o, body, arg, NULL);
}

static void barriers_between_hosts_hold_over_many_turns(void **state)
{
    (void)state;
    int turns = (int)test_share(60, 5000);
    over_sizes(window_generations, 2, 6, &turns, NULL);
    over_sizes(window_neighbours, 2, 6, &turns, NULL);
    ranks_run(3, NULL, window_overlap, &turns, NULL);
}

static void collectives_written_on_windows_between_hosts_are_right(void **state)
{
    (void)state;
    const weft_comm_opts by_thread = {.progress = WEFT_PROGRESS_THREAD};
    int runs = (int)test_share(20, 1000), fewer = (int)test_share(5, 300);
    over_sizes(forms_body, 2, 5, &runs, NULL);
    over_sizes(forms_body, 3, 5, &fewer, &by_thread);
}

static void random_signals_and_barriers_between_hosts_are_right(void **state)
{
    (void)state;
    const weft_comm_opts by_thread = {.progress = WEFT_PROGRESS_THREAD};
    int64_t ns = test_share(200, 20000) * MS;
    over_sizes(stress_body, 2, 6, &ns, NULL);
    ranks_run(3, &by_thread, stress_body, &ns, NULL);
}

static void random_signals_and_barriers_are_right(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 6};
    int64_t ns = test_share(1700, 60000) * MS / 3; /* on each transport: 5 s in all, or a minute each */
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct ranks_rank left[RANKS_MAX];
        ranks_run(sizes[k], NULL, stress_body, &ns, left);
        printf("%d ranks: %d rounds of 16\n", sizes[k], left[0].code);
        assert_true(left[0].code > 0);
    }
}

/* ---- ranks that are killed ---- */

struct killing {
    char url[64];
    int ranks;
    atomic_int ready;
    struct {
        int code;
        int64_t at;
        char text[300];
    } end[RANKS_MAX];
};

/* Barriers of the group and of neighbours and a token that goes round, until something fails. */
static int work_until_failure(weft_window *w, int rank, int ranks)
{
    int right = (rank + 1) % ranks, beside[2] = {right, (rank + ranks - 1) % ranks};
    for (uint64_t turn = 1;; turn++) {
        int err = weft_window_barrier(w, WEFT_DEADLINE);
        if (!err)
            err = weft_window_barrier_with(w, beside, ranks > 2 ? 2 : 1, WEFT_DEADLINE);
        if (!err)
            err = weft_window_notify(w, right, 0, WEFT_NOTIFY_ADD, 1);
        if (!err)
            err = weft_window_wait(w, 0, WEFT_GE, turn, WEFT_FOREVER);
        if (err)
            return err;
    }
}

static void rank_of_killing(struct killing *k, int rank)
{
    weft_comm *c;
    weft_window *w;
    weft_comm_opts o = {.size = sizeof o, .rank = rank, .ranks = k->ranks};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (weft_comm_open(k->url, &o, &c) || weft_window_open(c, NULL, 0, 1, &w))
        _exit(1);
    atomic_fetch_add(&k->ready, 1);
    k->end[rank].code = work_until_failure(w, rank, k->ranks);
    k->end[rank].at = clock_now();
    snprintf(k->end[rank].text, sizeof k->end[rank].text, "%s", weft_errmsg());
    weft_window_close(w);
    weft_comm_close(c);
    _exit(0);
}

static void kill_one(struct random *rnd, int number)
{
    struct killing *k = ranks_shared(sizeof *k);
    pid_t pids[RANKS_MAX];
    char text[32];
    k->ranks = (int)random_in(rnd, 2, 5);
    int victim = (int)random_in(rnd, 0, k->ranks - 1), status;
    snprintf(k->url, sizeof k->url, "shm:window-kill-%ld-%d", (long)getpid(), number);
    snprintf(text, sizeof text, "rank %d has died, ", victim);
    fflush(NULL);
    for (int r = 0; r < k->ranks; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            rank_of_killing(k, r);
    }
    while (atomic_load(&k->ready) < k->ranks)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = random_in(rnd, 0, 3000000)}, NULL);
    int64_t killed = clock_now();
    kill(pids[victim], SIGKILL);
    for (int r = 0; r < k->ranks; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (r != victim && (status || k->end[r].code != WEFT_EPEER || strncmp(k->end[r].text, text, strlen(text)) ||
                            !soon_enough(k->end[r].at - killed)))
            fail_msg("kill %d: rank %d of %d was killed, rank %d ended with %d, %d after %lld ms: %s", number, victim,
                     k->ranks, r, status, k->end[r].code, (long long)((k->end[r].at - killed) / MS), k->end[r].text);
    }
    munmap(k, sizeof *k);
}

static void rank_killed_in_a_window_is_named(void **state)
{
    (void)state;
    if (!ranks_forked) /* processes alone can be killed */
        return;
    for (int64_t i = 0; suite_seed(&i, 0, test_share(15, 200)); i++) {
        struct random rnd = random_of(3, i);
        kill_one(&rnd, (int)i);
    }
    soon_judge();
}

/* ---- what a callback may do ---- */

struct from_callback {
    weft_window *w;
    int notify, wait, barrier, with, create;
};

static void callback(void *arg, int err)
{
    struct from_callback *f = arg;
    weft_window *w = f->w;
    int other = 0;
    (void)err;
    f->wait = weft_window_wait(w, 0, WEFT_EQ, 0, 0);
    f->barrier = weft_window_barrier(w, 0);
    f->with = weft_window_barrier_with(w, &other, 1, 0);
    f->notify = weft_window_notify(w, 0, 0, WEFT_NOTIFY_ADD, 1);
}

static void blocking_window_calls_are_refused_in_callbacks(void **state)
{
    (void)state;
    weft_comm *c;
    weft_layout *l;
    weft_plan *p;
    weft_exec *x;
    float in[4] = {0}, out[4];
    struct from_callback f = {0};
    assert_int_equal(weft_comm_open("self:", NULL, &c), 0);
    assert_int_equal(weft_layout_parse("f32[4] @x1", &l), 0);
    assert_int_equal(weft_lower(&(weft_move){"a", l, l}, 1, 0, NULL, &p), 0);
    assert_int_equal(weft_bind(p, c, &(weft_view){.data = in, .bytes = sizeof in},
                               &(weft_view){.data = out, .bytes = sizeof out}, NULL, &x),
                     0);
    assert_int_equal(weft_window_open(c, NULL, 0, 1, &f.w), 0);
    weft_exec_on_done(x, callback, &f);
    assert_int_equal(weft_exec_start(x), 0);
    /* The callback runs inside this wait and ends it. */
    assert_int_equal(weft_window_wait(f.w, 0, WEFT_EQ, 1, WEFT_FOREVER), 0);
    assert_int_equal(f.wait, WEFT_EBUSY);
    assert_int_equal(f.barrier, WEFT_EBUSY);
    assert_int_equal(f.with, WEFT_EBUSY);
    assert_int_equal(f.notify, 0);
    weft_exec_close(x);
    weft_window_close(f.w);
    weft_plan_free(p);
    weft_layout_free(l);
    weft_comm_close(c);
}

static const struct CMUnitTest on_hosts[] = {
    cmocka_unit_test(windows_do_what_the_header_says),
    cmocka_unit_test(barriers_between_hosts_hold_over_many_turns),
    cmocka_unit_test(collectives_written_on_windows_between_hosts_are_right),
    cmocka_unit_test(random_signals_and_barriers_between_hosts_are_right),
};

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_do_what_the_header_says),
        cmocka_unit_test(barriers_hold_over_many_turns),
        cmocka_unit_test(collectives_written_on_windows_are_right),
        cmocka_unit_test(random_signals_and_barriers_are_right),
        cmocka_unit_test(blocking_window_calls_are_refused_in_callbacks),
        cmocka_unit_test(rank_killed_in_a_window_is_named),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests), SUITE_AT(&conformance_hosts, on_hosts));
}
