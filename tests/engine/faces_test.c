/* Faces that two ranks give each other where they lie: which programs do it, that all of it arrives, that a rank which
 * has begun holds up nobody and one which has not is not touched, that ranks who are not at it go on, and who is to
 * blame. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/block.h"
#include "engine/drivers/jobs.h"
#include "face_grid.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/exec_job.h"
#include "support/share.h"
#include "support/suite.h"

#define LONG (20 * SECOND) /* beyond it something is stuck, on a busy machine, too */

static const struct faces cases[] = {
    {.what = "two", .grid = {3, 2, {PLANE(93, 97), {120, 2, 1, 1, false}}}, .shared = true, .spans = true},
    {.what = "two in a ring", .grid = {3, 2, {PLANE(93, 97), {120, 2, 1, 1, true}}}, .shared = true, .spans = true},
    {.what = "nested loops",
     .grid = {3, 2, {{101, 1, 0, 0, false}, {97, 1, 1, 2, false}, {120, 2, 1, 1, false}}},
     .shared = true,
     .spans = true},
    {.what = "two at a time", .grid = {3, 2, {PLANE(93, 97), {120, 2, 2, 2, false}}}, .shared = true, .spans = true},
    {.what = "near", .grid = {3, 2, {PLANE(93, 97), {10, 2, 1, 1, false}}}, .shared = true},
    {.what = "more one way", .grid = {3, 3, {PLANE(93, 97), {15, 3, 1, 2, false}}}},
    {.what = "few", .grid = {3, 3, {PLANE(63, 65), {15, 3, 1, 1, false}}}},
    {.what = "apart", .grid = {3, 3, {PLANE(93, 97), {15, 3, 1, 1, false}}}, .apart = true},
    {.what = "a row of three", .grid = {3, 3, {PLANE(93, 97), {15, 3, 1, 1, false}}}, .shared = true},
    {.what = "a ring of three", .grid = {3, 3, {PLANE(97, 93), {15, 3, 1, 1, true}}}, .shared = true},
    {.what = "a row of four", .grid = {3, 4, {PLANE(83, 101), {20, 4, 1, 1, false}}}, .shared = true},
    {.what = "a ring of five", .grid = {3, 5, {PLANE(8, 1027), {24, 5, 3, 3, true}}}, .shared = true},
};
static const struct faces row = {
    .what = "a row", .grid = {3, 4, {PLANE(93, 89), {12, 4, 1, 1, false}}}, .shared = true};

static bool shared(const struct mine *m)
{
    return m->exec->comm->dedicated_cores ? m->of->spans : m->of->shared;
}

static void run_case(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    RANKS_OK(r, faces_make(&m, r));
    for (int64_t run = 0; run < 6; run++) {
        if ((m.exec->program->driver == &driver_faces) != shared(&m))
            ranks_note(r, __FILE__, __LINE__, "%s: driver %s", m.of->what, m.exec->program->driver->name);
        faces_run(r, &m, run);
    }
    faces_drop(&m, r);
}

static void shared_faces_arrive(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += CONFORMANCE_ON < 3 ? 3 : 1) /* sanitizers are slow */
        ranks_run(cases[i].grid.ranks, NULL, run_case, (void *)(uintptr_t)&cases[i], NULL);
}

/* ---- one that does nothing, one that is late ---- */

struct odd {
    const struct faces *of;
    int rank;
};

static void run_idle(struct ranks_rank *r)
{
    const struct odd *odd = r->arg;
    struct mine m = {.of = odd->of};
    RANKS_OK(r, faces_make(&m, r));
    for (int64_t run = 0; run < 3; run++) {
        faces_fill(&m, run);
        RANKS_OK(r, weft_exec_start(m.exec));
        if (r->rank != odd->rank)
            RANKS_OK(r, weft_exec_wait(m.exec, LONG));
        ranks_meet(r);
        if (r->rank == odd->rank)
            faces_check(r, &m, run); /* before it looks */
        RANKS_OK(r, weft_exec_wait(m.exec, LONG));
        faces_check(r, &m, run);
    }
    faces_drop(&m, r);
}

static void idle_rank_gets_its_faces_without_a_call(void **state)
{
    (void)state;
    for (int idle = 0; idle < 4; idle++)
        ranks_run(4, NULL, run_idle, &(struct odd){&row, idle}, NULL);
    for (int idle = 0; idle < 2; idle++)
        ranks_run(2, NULL, run_idle, &(struct odd){&cases[0], idle}, NULL);
}

static bool untouched(const struct mine *m)
{
    bool own;
    values_begin();
    for (int64_t i = 0; i < m->at.slots; i++) {
        int64_t global = grid_slot(&m->of->grid, &m->at, i, &own);
        if (!own)
            grid_check(&m->of->grid, i, global, -7, m->buffer[i]);
    }
    return !values_wrong();
}

/* Its neighbours wait for it and name it; those further on end their runs. */
static void run_late(struct ranks_rank *r)
{
    const struct odd *odd = r->arg;
    struct mine m = {.of = odd->of};
    bool beside = r->rank == odd->rank - 1 || r->rank == odd->rank + 1;
    char who[40];
    snprintf(who, sizeof who, "rank %d (has not started)", odd->rank);
    RANKS_OK(r, faces_make(&m, r));
    for (int64_t run = 0; run < 3; run++) {
        faces_fill(&m, run);
        if (r->rank != odd->rank)
            RANKS_OK(r, weft_exec_start(m.exec));
        ranks_meet(r);
        if (beside) {
            int64_t until = clock_now() + LONG; /* the other neighbour may be slow, and is named then, too */
            do
                RANKS_CHECK(r, weft_exec_wait(m.exec, SECOND / 100) == WEFT_ETIMEOUT);
            while (!getenv("WEFT_PROGRESS") && !strstr(weft_errmsg(), who) && clock_now() < until);
            RANKS_CHECK(r, getenv("WEFT_PROGRESS") || strstr(weft_errmsg(), who)); /* else the thread may be at work */
        } else if (r->rank != odd->rank) {
            RANKS_OK(r, weft_exec_wait(m.exec, LONG));
            faces_check(r, &m, run);
        }
        ranks_meet(r);
        if (r->rank == odd->rank) {
            RANKS_CHECK(r, untouched(&m));
            RANKS_OK(r, weft_exec_start(m.exec));
        }
        RANKS_OK(r, weft_exec_wait(m.exec, LONG));
        faces_check(r, &m, run);
    }
    faces_drop(&m, r);
}

static void late_rank_memory_is_untouched(void **state)
{
    (void)state;
    for (int late = 0; late < 4; late++)
        ranks_run(4, NULL, run_late, &(struct odd){&row, late}, NULL);
}

/* ---- several in flight ---- */

static void run_hurried(struct ranks_rank *r)
{
    struct random rng = {(uint64_t)(100 + r->rank)};
    struct mine m[2];
    const int runs = (int)test_share(6, 1000);
    for (int i = 0; i < 2; i++) {
        m[i] = (struct mine){.of = r->arg};
        RANKS_OK(r, faces_make(&m[i], r));
    }
    for (int run = 0; run < runs; run++) {
        for (int i = 0; i < 2; i++)
            faces_fill(&m[i], run + i);
        RANKS_OK(r, job_run_two(m[0].exec, m[1].exec, &rng, LONG));
        for (int i = 0; i < 2; i++)
            faces_check(r, &m[i], run + i);
    }
    for (int i = 0; i < 2; i++)
        faces_drop(&m[i], r);
}

static void two_runs_in_flight_are_right(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_hurried, (void *)(uintptr_t)&row, NULL);
    ranks_run(2, NULL, run_hurried, (void *)(uintptr_t)&cases[0], NULL);
}

/* Polls alone end a run that further ranks have not begun. */
static void run_polled(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    RANKS_OK(r, faces_make(&m, r));
    faces_fill(&m, 1);
    if (r->rank == 3) /* 0 has ended its run */
        ranks_meet(r);
    RANKS_OK(r, weft_exec_start(m.exec));
    for (bool done = false; !done && r->rank < 2;)
        RANKS_OK(r, weft_exec_test(m.exec, &done));
    if (r->rank != 3)
        ranks_meet(r);
    RANKS_OK(r, weft_exec_wait(m.exec, LONG));
    faces_check(r, &m, 1);
    faces_drop(&m, r);
}

static void run_ends_before_far_ranks_begin(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_polled, (void *)(uintptr_t)&row, NULL);
}

/* ---- bound again ---- */

/* To private memory on one rank, so that faces are packed, unless ranks are threads and reach it; refused; and back.
 * Boxes arrive either way. */
static void run_rebound(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    size_t n = 0, all = 0, came[16];
    RANKS_OK(r, faces_make(&m, r));
    int64_t *windows = m.buffer, *private = malloc((size_t)m.at.slots * sizeof *private);
    RANKS_OK(r, weft_exec_on_arrival(m.exec, NULL, NULL));
    for (int64_t run = 0; run < 8; run++) {
        bool moved = run % 3 == 1, packed = moved && strcmp(ranks_on, "threads");
        m.buffer = moved && r->rank == 1 ? private : windows;
        grid_view(&m.of->grid, &m.at, m.buffer, sizeof *m.buffer, &m.view);
        m.src = m.view.own;
        RANKS_OK(r, weft_exec_rebind(m.exec, &m.src, &m.view.all));
        RANKS_CHECK(r, (m.exec->program->driver == &driver_faces) == (!packed && shared(&m)));
        for (int again = 0; again < 2; again++) {
            faces_fill(&m, run + again);
            RANKS_OK(r, weft_exec_run(m.exec));
            faces_check(r, &m, run + again);
            RANKS_OK(r, weft_exec_arrived(m.exec, came, 16, &n));
            RANKS_CHECK(r, n && (!all || n == all));
            all = n;
            weft_view small = m.view.all;
            small.bytes = r->rank == run % r->size ? 1 : small.bytes;
            RANKS_CHECK(r, weft_exec_rebind(m.exec, &m.src, &small) == WEFT_EINVAL);
        }
    }
    m.buffer = windows;
    faces_drop(&m, r);
    free(private);
}

static void rebind_to_private_memory_and_back_is_right(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_rebound, (void *)(uintptr_t)&row, NULL);
    ranks_run(2, NULL, run_rebound, (void *)(uintptr_t)&cases[0], NULL);
}

/* ---- deaths ---- */

/* Rank 0 has ended its run, but a share of the faces of 2 and 3 is left with it, and it dies. */
static void run_left_behind(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    RANKS_OK(r, faces_make(&m, r));
    RANKS_CHECK(r, (m.exec->program->driver == &driver_faces));
    faces_fill(&m, 0);
    if (r->rank == 2) {
        const struct jobs_state *s = m.exec->program->state;
        uint32_t with3 = 0;
        while (s->groups[with3].low != 2)
            with3++;
        atomic_store(&s->groups[with3].words->word[3].taken, UINT64_C(1) << JOBS_WHO_BITS | 1);
    }
    ranks_meet(r);
    RANKS_OK(r, weft_exec_start(m.exec));
    if (r->rank < 2) {
        RANKS_OK(r, weft_exec_wait(m.exec, LONG));
        faces_check(r, &m, 0);
    }
    ranks_meet(r); /* otherwise rank 1 may find that rank 0 has died before its own run has ended */
    if (r->rank == 0)
        _exit(0);
    if (r->rank > 1) {
        RANKS_CHECK(r, weft_exec_wait(m.exec, LONG) == WEFT_EPEER);
        RANKS_CHECK(r, strstr(weft_errmsg(), "rank 0") != NULL);
    }
    faces_drop(&m, r);
}

/* Who has begun and dies has done its part, unless it has a share; in the next run it is missed. */
static void rank_that_dies_fails_the_next_run(void **state)
{
    (void)state;
    if (!ranks_forked) {
        print_message("skip: only processes can be killed\n");
        skip();
    }
    ranks_run_but(4, NULL, run_left_behind, (void *)(uintptr_t)&row, 0);
    ranks_run_but(2, NULL, faces_deserted, (void *)(uintptr_t)&cases[0], 1);
}

static void run_given_up(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    RANKS_OK(r, faces_make(&m, r));
    faces_fill(&m, 1);
    if (r->rank == 0) {
        RANKS_OK(r, weft_exec_start(m.exec));
        weft_exec_close(m.exec); /* at the deadline */
        m.exec = NULL;
        ranks_meet(r);
        ranks_meet(r);
        RANKS_CHECK(r, untouched(&m));
    } else {
        ranks_meet(r);
        int err = weft_exec_run(m.exec);
        RANKS_CHECK(r, err == WEFT_EPEER && strstr(weft_errmsg(), "rank 0"));
        ranks_meet(r);
        RANKS_CHECK(r, untouched(&m));
    }
    faces_drop(&m, r);
}

static void memory_of_a_closed_run_is_untouched(void **state)
{
    (void)state;
    ranks_run(3, &(weft_comm_opts){.deadline_ns = 3 * SECOND / 2}, run_given_up, (void *)(uintptr_t)&cases[8], NULL);
}

int main(int argc, char **argv)
{
    /* So that three ranks share cores, and two do not. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(shared_faces_arrive, ranks_on_two_cores),
        cmocka_unit_test_setup(idle_rank_gets_its_faces_without_a_call, ranks_on_two_cores),
        cmocka_unit_test_setup(late_rank_memory_is_untouched, ranks_on_two_cores),
        cmocka_unit_test_setup(two_runs_in_flight_are_right, ranks_on_two_cores),
        cmocka_unit_test_setup(run_ends_before_far_ranks_begin, ranks_on_two_cores),
        cmocka_unit_test_setup(rebind_to_private_memory_and_back_is_right, ranks_on_two_cores),
        cmocka_unit_test_setup(rank_that_dies_fails_the_next_run, ranks_on_two_cores),
        cmocka_unit_test_setup(memory_of_a_closed_run_is_untouched, ranks_on_two_cores),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
