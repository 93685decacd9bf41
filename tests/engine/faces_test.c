/* Faces whose elements lie far apart: which way they are copied, side by side and in strips, and that all of it
 * arrives, for odd counts, one neighbour and two, nests of loops, and peers that come late; that runs end before what
 * they have sent was read, and that this stays readable; on all transports. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "engine/way.h"
#include "faces.h"
#include "plan/plan.h"
#include "support/conformance.h"
#include "support/suite.h"

static const struct faces cases[] = {
    {.what = "one neighbour", .grid = {3, 2, {PLANE(93, 97), {10, 2, 1, 1, false}}}, .large = true, .strips = true},
    {.what = "apart",
     .grid = {3, 2, {PLANE(93, 97), {9, 2, 1, 2, false}}},
     .apart = true,
     .large = true,
     .strips = true},
    {.what = "nested loops",
     .grid = {3, 2, {{95, 1, 0, 0, false}, {97, 1, 1, 2, true}, {8, 2, 1, 1, false}}},
     .large = true,
     .strips = true},
    {.what = "both sides are one", .grid = {3, 2, {PLANE(93, 97), {6, 2, 1, 1, true}}}, .large = true},
    {.what = "below", .grid = {3, 2, {PLANE(63, 65), {10, 2, 1, 1, false}}}},
    {.what = "two neighbours", .grid = {3, 3, {PLANE(33, 31), {19, 3, 1, 3, true}}}},
    {.what = "a row", .grid = {3, 4, {PLANE(93, 97), {17, 4, 2, 1, false}}}, .large = true, .strips = true},
    {.what = "a torus",
     .grid = {3, 4, {{67, 1, 0, 0, false}, {31, 2, 1, 1, true}, {18, 2, 1, 1, true}}},
     .apart = true,
     .mixed = true},
};

/* All that are not eager are copied side by side; large ones stream where each rank has a core. */
static void check_ways(const struct mine *m, struct ranks_rank *r)
{
    const struct program *p = m->exec->program;
    bool streams = m->of->large && m->exec->comm->dedicated_cores;
    uint32_t messages = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct exec_step *step = &p->steps[s];
        if ((step->kind != PLAN_SEND && step->kind != PLAN_RECV) || step->way == &way_eager ||
            (m->of->mixed && step->way == &way_pull))
            continue;
        bool unpacks_whole = step->kind == PLAN_RECV && streams && !m->of->strips;
        const struct way *way = streams ? &way_stream : &way_staged;
        bool combed = step->order == ORDER_COMB;
        if (step->way != way || combed == unpacks_whole || !step->own_slots)
            ranks_note(r, __FILE__, __LINE__, "%s: step %u goes by %s, combed %d, own slots %d", m->of->what, s,
                       step->way->name, combed, step->own_slots);
        messages++;
    }
    RANKS_CHECK(r, messages >= 2);
}

static void run_case(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    RANKS_OK(r, faces_make(&m, r));
    check_ways(&m, r);
    for (int64_t run = 0; run < 6; run++) {
        bool late = run > 3 && r->rank == run % 2; /* than all others, which have packed by then */
        faces_fill(&m, run);
        if (run == 3)
            RANKS_OK(r, weft_exec_rebind(m.exec, &m.src, &m.view.all));
        if (late)
            ranks_meet(r);
        RANKS_OK(r, weft_exec_start(m.exec));
        if (run > 3 && !late)
            ranks_meet(r);
        RANKS_OK(r, weft_exec_wait(m.exec, WEFT_FOREVER));
        if (faces_wrong(&m, run))
            ranks_note(r, __FILE__, __LINE__, "%s, run %d", m.of->what, (int)run);
    }
    faces_drop(&m, r);
}

static void scattered_faces_arrive(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ranks_run(cases[i].grid.ranks, NULL, run_case, (void *)(uintptr_t)&cases[i], NULL);
}

/* ---- runs that end before they were read ---- */

static const struct faces pairs[] = {
    {.what = "flows", .grid = {3, 2, {PLANE(93, 97), {10, 2, 1, 1, false}}}, .large = true, .strips = true},
    {.what = "does not", .grid = {3, 2, {PLANE(63, 65), {10, 2, 1, 1, false}}}},
    {.what = "whole at the reader", .grid = {3, 2, {PLANE(93, 97), {6, 2, 1, 1, true}}}, .large = true},
};

/* Rank 1 has sent and does not look at what comes, until rank 0 has ended that run, and sent other values in the next;
 * then until it has ended one and binds its exec again, and at last until it has freed it. */
static void run_ahead(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    bool first = r->rank == 0;
    RANKS_OK(r, faces_make(&m, r));
    check_ways(&m, r);
    for (int64_t salt = 0; salt < 6; salt += 2) {
        faces_fill(&m, salt);
        RANKS_OK(r, weft_exec_start(m.exec));
        if (!first) /* 0 has started its next run */
            ranks_meet(r);
        RANKS_OK(r, weft_exec_wait(m.exec, WEFT_FOREVER));
        faces_check(r, &m, salt);
        faces_fill(&m, salt + 1);
        RANKS_OK(r, weft_exec_start(m.exec));
        if (first)
            ranks_meet(r);
        RANKS_OK(r, weft_exec_wait(m.exec, WEFT_FOREVER));
        faces_check(r, &m, salt + 1);
    }
    for (int64_t salt = 6; salt < 9; salt++) {
        faces_fill(&m, salt);
        RANKS_OK(r, weft_exec_start(m.exec));
        if (!first) /* 0 has ended the run */
            ranks_meet(r);
        RANKS_OK(r, weft_exec_wait(m.exec, WEFT_FOREVER));
        if (first)
            ranks_meet(r);
        faces_check(r, &m, salt);
        if (salt < 8) {
            faces_fill(&m, salt);
            RANKS_OK(r, weft_exec_rebind(m.exec, &m.src, &m.view.all));
        }
    }
    faces_fill(&m, 9);
    RANKS_OK(r, weft_exec_start(m.exec));
    if (first) {
        RANKS_OK(r, weft_exec_wait(m.exec, WEFT_FOREVER));
        weft_exec_close(m.exec);
        m.exec = NULL;
        ranks_meet(r);
    } else {
        ranks_meet(r); /* 0 has freed its exec */
        RANKS_OK(r, weft_exec_wait(m.exec, WEFT_FOREVER));
    }
    faces_check(r, &m, 9);
    faces_drop(&m, r);
}

static void run_ends_before_its_data_is_read_and_stays_readable(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        ranks_run(2, NULL, run_ahead, (void *)(uintptr_t)&pairs[i], NULL);
}

/* A reader that dies has let a run end, and no other. */
static void reader_that_dies_fails_the_next_run(void **state)
{
    (void)state;
    if (!ranks_forked) {
        print_message("skip: only processes can be killed\n");
        skip();
    }
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        ranks_run_but(2, NULL, faces_deserted, (void *)(uintptr_t)&pairs[i], 1);
}

/* Slots of their own are charged, and within the limits of the comm; where they would not be, there are none. */
static void run_limited(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    weft_exec_info info = {.size = sizeof info};
    RANKS_OK(r, faces_make(&m, r));
    const struct program *p = m.exec->program;
    int64_t bytes = 0;
    bool room = r->opts.channel_buckets != 1 && !r->opts.inflight_bytes;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        RANKS_CHECK(r, p->steps[s].own_slots <= room);
        bytes += p->steps[s].own_slots && p->steps[s].kind == PLAN_SEND ? 2 * m.plan->steps[s].bytes : 0;
    }
    RANKS_CHECK(r, (bytes > 0) == room && p->room >= bytes);
    for (int64_t salt = 0; salt < 3; salt++) {
        faces_fill(&m, salt);
        RANKS_OK(r, weft_exec_run(m.exec));
        faces_check(r, &m, salt);
    }
    RANKS_OK(r, weft_exec_stats(m.exec, &info));
    RANKS_CHECK(r, info.staging_peak >= bytes && info.staging_peak <= info.staging_limit);
    RANKS_CHECK(r, r->comm->staging.taken >= p->room);
    RANKS_OK(r, weft_exec_rebind(m.exec, &m.src, &m.view.all));
    weft_exec_close(m.exec);
    m.exec = NULL;
    RANKS_CHECK(r, !r->comm->staging.taken);
    faces_drop(&m, r);
}

static void kept_slots_stay_within_the_limits(void **state)
{
    (void)state;
    static const weft_comm_opts opts[] = {{.staged = false},           {.staged = true},
                                          {.channel_buckets = 1},      {.staged = true, .channel_buckets = 1},
                                          {.inflight_bytes = 1 << 20}, {.staged = true, .inflight_bytes = 100000}};
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++)
        ranks_run(2, &opts[i], run_limited, (void *)(uintptr_t)&pairs[1], NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scattered_faces_arrive), cmocka_unit_test(run_ends_before_its_data_is_read_and_stays_readable),
        cmocka_unit_test(reader_that_dies_fails_the_next_run), cmocka_unit_test(kept_slots_stay_within_the_limits)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
