/* Comms: opening them and what is refused, barriers, and what becomes of a rank that does not come, goes
 * away, stalls or is merely late. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "support/clock.h"
#include "support/conformance.h"
#include "support/ranks.h"
#include "support/suite.h"
#include "support/tensors.h"

/* Where one rank is late: the others open and bind within it, and must not be late though they may have to wait for a
 * core. Longer where they have to connect, too. */
static int64_t deadline_ms(void)
{
    return conformance_on_hosts() ? 3000 : 1500;
}

/* ---- opening ---- */

static int open_one(const char *url, int rank, int64_t deadline_ns)
{
    weft_comm *c = NULL;
    int err = weft_comm_open(
        url, &(weft_comm_opts){.size = sizeof(weft_comm_opts), .rank = rank, .deadline_ns = deadline_ns}, &c);
    weft_comm_close(c);
    return err;
}

static void bad_urls_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        int rank, code;
        const char *text;
    } bad[] = {
        {"", 0, WEFT_EINVAL,
         ": no such transport; there are self:, threads:N/NAME, shm:NAME, tcp:NAME, ucx:NAME, mpi: and auto:NAME"},
        {"thread:2/a", 0, WEFT_EINVAL,
         "thread:2/a: no such transport; there are self:, threads:N/NAME, shm:NAME, tcp:NAME, ucx:NAME, mpi: and "
         "auto:NAME"},
        {"threads", 0, WEFT_EINVAL,
         "threads: no such transport; there are self:, threads:N/NAME, shm:NAME, tcp:NAME, ucx:NAME, mpi: and "
         "auto:NAME"},
        {"threads:", 0, WEFT_EINVAL, "threads:: expected threads:N/NAME, N ranks"},
        {"threads:0/a", 0, WEFT_EINVAL, "threads:0/a: expected threads:N/NAME, N ranks"},
        {"threads:-1/a", 0, WEFT_EINVAL, "threads:-1/a: expected threads:N/NAME, N ranks"},
        {"threads:2x/a", 0, WEFT_EINVAL, "threads:2x/a: expected threads:N/NAME, N ranks"},
        {"threads:99999999999999999999/a", 0, WEFT_EINVAL,
         "threads:99999999999999999999/a: expected threads:N/NAME, N ranks"},
        {"threads:100000/a", 0, WEFT_EUNSUPPORTED, "threads:100000/a: at most 65536 ranks"},
        {"threads:2/a", 2, WEFT_EINVAL, "threads:2/a: there is no rank 2 in it"},
        {"threads:2/a", -1, WEFT_EINVAL, "threads:2/a: there is no rank -1 in it"},
        {"self:x", 0, WEFT_EINVAL, "self:x: nothing may follow self:"},
        {"self:", 1, WEFT_EINVAL, "self: has only rank 0, not 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(open_one(bad[i].url, bad[i].rank, 0), bad[i].code);
        assert_string_equal(weft_errmsg(), bad[i].text);
    }
    weft_comm *c;
    assert_int_equal(weft_comm_open(NULL, NULL, &c), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "not started as a rank"));
    assert_int_equal(weft_comm_open("self:", &(weft_comm_opts){0}, &c), WEFT_EINVAL);
    assert_int_equal(open_one("self:", 0, -5), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "deadline_ns is -5: it must not be negative");
}

static void environment_variables_are_obeyed_and_options_win(void **state)
{
    (void)state;
    weft_comm *c;
    setenv("WEFT_DEADLINE_MS", "7", 1);
    assert_int_equal(open_one("threads:2/env", 1, 0), WEFT_ETIMEOUT);
    assert_string_equal(weft_errmsg(), "threads:2/env: rank 0 did not come within 7 ms");
    assert_int_equal(open_one("threads:4/env", 1, 9 * MS), WEFT_ETIMEOUT); /* the option wins */
    assert_string_equal(weft_errmsg(), "threads:4/env: ranks 0, 2, 3 did not come within 9 ms");
    setenv("WEFT_DEADLINE_MS", "soon", 1);
    assert_int_equal(weft_comm_open("self:", NULL, &c), WEFT_EINVAL);
    assert_non_null(strstr(weft_errmsg(), "WEFT_DEADLINE_MS=soon: expected a number"));
    unsetenv("WEFT_DEADLINE_MS");
    setenv("WEFT_STAGED", "maybe", 1);
    assert_int_equal(weft_comm_open("self:", NULL, &c), WEFT_EINVAL);
    assert_string_equal(weft_errmsg(), "WEFT_STAGED=maybe: expected 0 or 1");
    unsetenv("WEFT_STAGED");
}

static void run_twice(struct ranks_rank *r)
{
    weft_comm *again;
    weft_comm_opts o = r->opts;
    if (conformance_on_hosts()) { /* where a name is free as soon as all have come */
        RANKS_OK(r, weft_comm_open(r->url, &o, &again));
        RANKS_OK(r, weft_comm_barrier(again, WEFT_DEADLINE));
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
        weft_comm_close(again);
    } else {
        RANKS_CHECK(r, weft_comm_open(r->url, &o, &again) == WEFT_EBUSY);
        RANKS_CHECK(r, strstr(weft_errmsg(), "is open already, in this process: use that comm, or a split of it"));
    }
    weft_machine m = WEFT_MACHINE_INIT;
    RANKS_OK(r, weft_comm_machine(r->comm, &m));
    RANKS_CHECK(r, conformance_on_hosts() || m.ranks_per_host == 0);
    /* Closed and opened again under the same name, by some before others have closed. */
    for (int i = 0; i < (conformance_on_hosts() ? 3 : 50); i++) {
        weft_comm_close(r->comm);
        r->comm = NULL;
        r->keep = true;
        RANKS_OK(r, weft_comm_open(r->url, &o, &r->comm));
        r->keep = false;
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    }
}

static void name_in_use_is_busy_and_free_after_close(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_twice, NULL, NULL);
}

static void *open_later(void *arg)
{
    int err;
    do
        err = open_one("threads:2/differ", 1, 20000 * MS);
    while (err == WEFT_EMISMATCH); /* while the other one tries with 3 */
    *(int *)arg = err;
    return NULL;
}

/* Ranks that do not agree on how many they are. */
static void ranks_with_different_sizes_are_refused(void **state)
{
    (void)state;
    pthread_t t;
    int other = 0, err;
    assert_int_equal(pthread_create(&t, NULL, open_later, &other), 0);
    do {
        for (int i = 0; i < 100; i++)
            sched_yield(); /* leaves the other one room to come */
        err = open_one("threads:3/differ", 0, 1 * MS);
    } while (err == WEFT_ETIMEOUT);
    assert_int_equal(err, WEFT_EMISMATCH);
    assert_string_equal(weft_errmsg(), "threads:3/differ: others have opened it with 2 ranks");
    assert_int_equal(open_one("threads:2/differ", 0, 20000 * MS), 0);
    pthread_join(t, NULL);
    assert_int_equal(other, 0);
}

/* ---- barriers ---- */

static void run_barriers(struct ranks_rank *r)
{
    atomic_int *count = r->arg;
    for (int i = 0; i < (conformance_on_hosts() ? 100 : 2000); i++) {
        atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
        RANKS_CHECK(r, atomic_load_explicit(count, memory_order_relaxed) >= (i + 1) * r->size);
        RANKS_CHECK(r, atomic_load_explicit(count, memory_order_relaxed) <= (i + 2) * r->size);
    }
}

static void no_rank_leaves_a_barrier_before_all_have_come(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n += n > 1 ? 3 : 1) {
        atomic_int *count = ranks_shared(sizeof *count);
        ranks_run(n, NULL, run_barriers, count, NULL);
        munmap(count, sizeof *count);
    }
}

static void run_late_barrier(struct ranks_rank *r)
{
    if (r->rank == 1) {
        RANKS_CHECK(r, weft_comm_barrier(r->comm, 0) == WEFT_ETIMEOUT);
        RANKS_CHECK(r, weft_comm_barrier(r->comm, 2 * MS) == WEFT_ETIMEOUT);
        /* Of other hosts a rank that waits so short a time knows only the one above its own. */
        const char *one = "weft_comm_barrier: time ran out, rank 0 ";
        RANKS_CHECK(r, !strcmp(ranks_said(), "weft_comm_barrier: time ran out, ranks 0, 2 not there yet") ||
                           ((ranks_wide() || conformance_on_hosts()) && !strncmp(ranks_said(), one, strlen(one))));
        weft_exec *x;
        RANKS_CHECK(r,
                    weft_bind(NULL, r->comm, NULL, NULL, NULL, &x) == WEFT_EBUSY); /* not before the barrier is over */
        ranks_meet(r);
    } else {
        ranks_meet(r);
    }
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
}

static void barrier_that_timed_out_can_be_entered_again(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_late_barrier, NULL, NULL);
}

static void run_leaver(struct ranks_rank *r)
{
    if (r->rank == 1)
        return;
    r->code = weft_comm_barrier(r->comm, WEFT_DEADLINE);
    snprintf(r->text, sizeof r->text, "%s", ranks_said());
    RANKS_CHECK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE) == WEFT_EPEER);
}

static void barrier_fails_when_a_rank_has_closed_its_comm(void **state)
{
    (void)state;
    struct ranks_rank out[3];
    ranks_run(3, &(weft_comm_opts){.deadline_ns = 5000 * MS}, run_leaver, NULL, out);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(out[i].code, WEFT_EPEER);
        assert_string_equal(out[i].text, "rank 1 closed its comm, others are in weft_comm_barrier");
    }
}

/* ---- runs that cannot end ---- */

struct pair {
    weft_layout *src, *dst;
    weft_plan *plan;
    float in[8192], out[8192];
    weft_exec *x;
};

static int pair_make_by(const char *algorithm, struct pair *p, const char *src, const char *dst, struct ranks_rank *r)
{
    weft_lower_opts o = {.size = sizeof o, .world = r->size, .algorithm = algorithm};
    memset(p, 0, sizeof *p);
    weft_view in = WEFT_VIEW(p->in, sizeof p->in), out = WEFT_VIEW(p->out, sizeof p->out);
    int err = weft_layout_parse(src, &p->src);
    if (!err)
        err = weft_layout_parse(dst, &p->dst);
    if (!err)
        err = weft_lower(&(weft_move){"w", p->src, p->dst}, 1, r->rank, &o, &p->plan);
    tensors_fill(p->src, r->rank, p->in, 5);
    return err ? err : weft_bind(p->plan, r->comm, &in, &out, NULL, &p->x);
}

static int pair_bind(struct pair *p, const char *src, const char *dst, struct ranks_rank *r)
{
    return pair_make_by(NULL, p, src, dst, r);
}

static void pair_release(struct pair *p)
{
    weft_exec_close(p->x);
    weft_plan_free(p->plan);
    weft_layout_free(p->src);
    weft_layout_free(p->dst);
}

/* A rank that has not started is waited for, beyond the deadline too, and named. */
static void run_late_start(struct ranks_rank *r)
{
    struct pair p;
    RANKS_OK(r, pair_bind(&p, "f32[32/x] @x4", "f32[32] @x4", r));
    if (r->rank == 2) {
        ranks_meet(r);
    } else {
        RANKS_OK(r, weft_exec_start(p.x));
        RANKS_CHECK(r, weft_exec_wait(p.x, 0) == WEFT_ETIMEOUT);
        if (conformance_on_mpi()) { /* nobody could tell if it had died */
            RANKS_CHECK(r, weft_exec_wait(p.x, WEFT_FOREVER) == WEFT_EPEER);
            RANKS_CHECK(r, strstr(ranks_said(), "rank 2 has not started a run for "));
            ranks_meet(r);
            pair_release(&p);
            return;
        }
        RANKS_CHECK(r, weft_exec_wait(p.x, r->opts.deadline_ns * 5 / 4) == WEFT_ETIMEOUT); /* beyond the deadline */
        RANKS_CHECK(r, !strcmp(ranks_said(), "time ran out: waiting for rank 2 (has not started)"));
        ranks_meet(r);
    }
    if (conformance_on_mpi()) {
        int err = weft_exec_run(p.x); /* what it needs may have come before word of that */
        RANKS_CHECK(r, !err || err == WEFT_EPEER);
        pair_release(&p);
        return;
    }
    RANKS_OK(r, r->rank == 2 ? weft_exec_run(p.x) : weft_exec_wait(p.x, WEFT_FOREVER));
    RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, p.out, 5));
    RANKS_OK(r, weft_exec_run(p.x));
    pair_release(&p);
}

static void wait_for_a_late_rank_names_it_and_goes_on(void **state)
{
    (void)state;
    for (int staged = 0; staged < 2; staged++)
        if (conformance_takes(staged))
            ranks_run(4, &(weft_comm_opts){.deadline_ns = deadline_ms() * MS, .staged = staged}, run_late_start, NULL,
                      NULL);
}

/* A rank that has started and then does nothing fails the comm, for all; also for those who do not wait for it
 * themselves. Between hosts the wire can do without it what it has begun: there its part has a second phase. */
static void called(void *arg, int err)
{
    *(int *)arg = err;
}

static void run_stall(struct ranks_rank *r)
{
    struct pair p, q;
    int told = 0;
    if (conformance_on_hosts())
        RANKS_OK(r, pair_make_by("two_phase", &p, "f32[8192] @x4 +sum(x)", "f32[8192] @x4", r));
    else
        RANKS_OK(r, pair_bind(&p, "f32[8192] @x4 +sum(x)", "f32[8192/x] @x4", r));
    RANKS_OK(r, pair_bind(&q, "f32[8192/x] @x4", "f32[8192] @x4", r));
    RANKS_OK(r, weft_exec_on_done(p.x, called, &told));
    RANKS_OK(r, weft_exec_start(p.x));
    if (r->rank == 3) { /* has started, and no more */
        ranks_meet(r);
        r->code = weft_exec_wait(p.x, WEFT_FOREVER);
    } else {
        r->code = weft_exec_wait(p.x, WEFT_FOREVER);
        ranks_meet(r);
    }
    snprintf(r->text, sizeof r->text, "%s", ranks_said());
    RANKS_CHECK(r, told == r->code);
    if (r->rank == 3 && !r->code && conformance_on_hosts()) { /* what it needs had come before word of that */
        pair_release(&p);
        pair_release(&q);
        return;
    }
    bool done = false;
    RANKS_CHECK(r, weft_exec_test(p.x, &done) == WEFT_EPEER && !done); /* it stays failed */
    RANKS_CHECK(r, weft_exec_wait(p.x, WEFT_FOREVER) == WEFT_EPEER);
    RANKS_CHECK(r, weft_exec_start(q.x) == WEFT_EPEER);
    RANKS_CHECK(r, !strcmp(r->text, ranks_said()));
    pair_release(&p);
    pair_release(&q);
}

static void rank_that_started_and_stalls_is_named(void **state)
{
    (void)state;
    struct ranks_rank out[4];
    char text[80], unknown[80];
    snprintf(text, sizeof text, "rank 3 started a run and made no progress for %d ms", (int)deadline_ms());
    snprintf(unknown, sizeof unknown, "rank 3 has not started a run for %d ms", (int)deadline_ms());
    for (int staged = 0; staged < 2; staged++) {
        if (!conformance_takes(staged + 1))
            continue;
        ranks_run(4, &(weft_comm_opts){.deadline_ns = deadline_ms() * MS, .staged = staged}, run_stall, NULL, out);
        for (int i = 0; i < 4; i++) {
            if (i == 3 && conformance_on_hosts())
                continue;
            assert_int_equal(out[i].code, WEFT_EPEER);
            /* MPI may move nothing for a rank that makes no calls: its start is then not known. */
            if (!conformance_on_mpi() || !strstr(out[i].text, unknown))
                ranks_assert_text(&out[i], text);
            assert_true(conformance_on_hosts() ||
                        !strcmp(out[i].text, out[0].text)); /* hosts may see it at the same time */
        }
    }
}

/* Rank 1 does all of its run in one pass, in which rank 0 looks at it; then both do something else for longer than the
 * deadline. What rank 0 saw then says nothing of the next run. */
static void look_on(void *arg, size_t i, const weft_arrival *a)
{
    (void)i;
    (void)a;
    ranks_meet(arg);
    ranks_meet(arg);
}

static void run_pause(struct ranks_rank *r)
{
    struct pair p;
    RANKS_OK(r, pair_bind(&p, "f32[8000] @x1=0", "f32[8000] @x1=1", r));
    for (int run = 0; run < 2; run++) {
        RANKS_OK(r, weft_exec_on_arrival(p.x, run ? NULL : look_on, r));
        RANKS_OK(r, weft_exec_start(p.x));
        if (run || r->rank == 0)
            ranks_meet(r);
        if (r->rank == 0)
            RANKS_CHECK(r, weft_exec_wait(p.x, 20 * MS) == WEFT_ETIMEOUT);
        if (run || r->rank == 0)
            ranks_meet(r);
        RANKS_OK(r, weft_exec_wait(p.x, WEFT_FOREVER));
        if (!run)
            nanosleep(&(struct timespec){.tv_nsec = (long)(r->opts.deadline_ns + 50 * MS)}, NULL);
    }
    pair_release(&p);
}

static void pause_between_runs_is_no_stall(void **state)
{
    (void)state;
    if (!strcmp(ranks_on, "threads")) /* where it is pulled: what is packed has been read before boxes are told */
        ranks_run(2, &(weft_comm_opts){.deadline_ns = 800 * MS}, run_pause, NULL, NULL);
}

/* A rank that frees its exec, or closes its comm, before the others' run. */
static void run_deserter(struct ranks_rank *r)
{
    struct pair p;
    bool close = *(bool *)r->arg;
    RANKS_OK(r, pair_bind(&p, "f32[32/x] @x4", "f32[32] @x4", r));
    RANKS_OK(r, weft_exec_run(p.x));
    RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    ranks_meet(r); /* between hosts word of the desertion may be there before that of the barrier */
    if (r->rank == 1) {
        pair_release(&p);
        if (close)
            weft_comm_close(r->comm);
        r->keep = close;
        ranks_meet(r);
        return;
    }
    r->code = weft_exec_run(p.x);
    snprintf(r->text, sizeof r->text, "%s", ranks_said());
    ranks_meet(r);
    pair_release(&p);
}

static void rank_that_closes_before_the_others_run_is_named(void **state)
{
    (void)state;
    struct ranks_rank out[4];
    for (int mode = 0; mode < 4; mode++) {
        bool close = mode & 1;
        if (!conformance_takes(mode))
            continue;
        ranks_run(4, &(weft_comm_opts){.staged = mode & 2}, run_deserter, &close, out);
        for (int i = 0; i < 4; i += i ? 1 : 2) {
            assert_int_equal(out[i].code, WEFT_EPEER);
            if (conformance_on_hosts() && strstr(out[i].text, "rank 1: rank 1 has left")) /* the wire saw it first */
                continue;
            ranks_assert_text(&out[i], "rank 1 closed its comm or freed its exec, rank ");
            assert_true(conformance_on_hosts() || !strcmp(out[i].text, out[0].text));
        }
    }
}

/* But a rank that has done its part may go while others are still at it. */
static void run_early_leaver(struct ranks_rank *r)
{
    struct pair p;
    RANKS_OK(r, pair_bind(&p, "f32[32] @x1=0", "f32[32] @x1=1", r));
    if (r->rank == 2)
        ranks_meet(r);
    else
        RANKS_OK(r, weft_exec_run(p.x));
    pair_release(&p);
    if (r->rank < 2) {
        weft_comm_close(r->comm);
        r->keep = true;
        ranks_meet(r);
    }
}

static void rank_that_did_its_part_may_leave(void **state)
{
    (void)state;
    for (int i = 0; i < (conformance_on_hosts() ? 1 : 50);
         i++) /* there they wait up to 5 s for the idle one to hear of it */
        if (conformance_takes(i))
            ranks_run(3, NULL, run_early_leaver, NULL, NULL);
}

/* A bind that one rank does not come to. */
static void run_absent(struct ranks_rank *r)
{
    struct pair p = {0};
    if (r->rank == 1) {
        ranks_meet(r);
        r->code = pair_bind(&p, "f32[32/x] @x3", "f32[32] @x3", r);
    } else {
        r->code = pair_bind(&p, "f32[32/x] @x3", "f32[32] @x3", r);
        ranks_meet(r);
    }
    snprintf(r->text, sizeof r->text, "%s", ranks_said());
    pair_release(&p);
}

static void rank_that_misses_a_bind_is_named(void **state)
{
    (void)state;
    struct ranks_rank out[3];
    char text[80];
    snprintf(text, sizeof text, "weft_bind: rank 1 did not take part within %d ms", (int)deadline_ms());
    if (!conformance_takes(2))
        return;
    ranks_run(3, &(weft_comm_opts){.deadline_ns = deadline_ms() * MS}, run_absent, NULL, out);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(out[i].code, WEFT_ETIMEOUT);
        assert_string_equal(out[i].text, text);
    }
}

/* Freeing an exec in flight waits for its end; closing a comm before its execs is a mistake that does no harm. */
static void run_free_in_flight(struct ranks_rank *r)
{
    struct pair p;
    RANKS_OK(r, pair_bind(&p, "f32[32/x] @x4", "f32[32] @x4", r));
    RANKS_OK(r, weft_exec_start(p.x));
    weft_exec *x = p.x;
    weft_comm_close(r->comm);
    r->keep = true;
    weft_exec_close(x);
    p.x = NULL;
    RANKS_CHECK(r, !tensors_wrong(p.src, p.dst, r->rank, p.out, 5));
    pair_release(&p);
}

static void closing_an_exec_in_flight_completes_the_run(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_free_in_flight, NULL, NULL);
    ranks_run(4, &(weft_comm_opts){.staged = true}, run_free_in_flight, NULL, NULL);
}

/* A run whose peers never start: freeing it ends at the deadline. */
static void run_never(struct ranks_rank *r)
{
    struct pair p;
    RANKS_OK(r, pair_bind(&p, "f32[32/x] @x2", "f32[32] @x2", r));
    if (r->rank == 0)
        RANKS_OK(r, weft_exec_start(p.x));
    pair_release(&p);
}

static void closing_a_run_that_cannot_end_returns_at_the_deadline(void **state)
{
    (void)state;
    ranks_run(2, &(weft_comm_opts){.deadline_ns = deadline_ms() * MS}, run_never, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest urls[] = {
        cmocka_unit_test(bad_urls_are_refused_with_the_reason),
        cmocka_unit_test(environment_variables_are_obeyed_and_options_win),
        cmocka_unit_test(ranks_with_different_sizes_are_refused),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_in_use_is_busy_and_free_after_close),
        cmocka_unit_test(no_rank_leaves_a_barrier_before_all_have_come),
        cmocka_unit_test(barrier_that_timed_out_can_be_entered_again),
        cmocka_unit_test(barrier_fails_when_a_rank_has_closed_its_comm),
        cmocka_unit_test(wait_for_a_late_rank_names_it_and_goes_on),
        cmocka_unit_test(rank_that_started_and_stalls_is_named),
        cmocka_unit_test(pause_between_runs_is_no_stall),
        cmocka_unit_test(rank_that_closes_before_the_others_run_is_named),
        cmocka_unit_test(rank_that_did_its_part_may_leave),
        cmocka_unit_test(rank_that_misses_a_bind_is_named),
        cmocka_unit_test(closing_an_exec_in_flight_completes_the_run),
        cmocka_unit_test(closing_a_run_that_cannot_end_returns_at_the_deadline),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_alone, urls), SUITE_AT(&conformance_everywhere, tests));
}
