/* Faces whose elements lie far apart are staged, and all of them arrive, for odd counts, one neighbour and two, nests
 * of loops, and peers that come late; on all transports. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/driver.h"
#include "engine/way.h"
#include "face_grid.h"
#include "plan/plan.h"
#include "support/conformance.h"
#include "support/suite.h"

static const struct faces cases[] = {
    {.what = "one neighbour", .grid = {3, 2, {PLANE(93, 97), {10, 2, 1, 1, false}}}},
    {.what = "apart", .grid = {3, 2, {PLANE(93, 97), {9, 2, 1, 2, false}}}, .apart = true},
    {.what = "nested loops", .grid = {3, 2, {{95, 1, 0, 0, false}, {97, 1, 1, 2, true}, {8, 2, 1, 1, false}}}},
    {.what = "both sides are one", .grid = {3, 2, {PLANE(93, 97), {6, 2, 1, 1, true}}}},
    {.what = "below", .grid = {3, 2, {PLANE(63, 65), {10, 2, 1, 1, false}}}},
    {.what = "two neighbours", .grid = {3, 3, {PLANE(33, 31), {19, 3, 1, 3, true}}}},
    {.what = "a row", .grid = {3, 4, {PLANE(93, 97), {17, 4, 2, 1, false}}}},
    {.what = "a torus",
     .grid = {3, 4, {{67, 1, 0, 0, false}, {31, 2, 1, 1, true}, {18, 2, 1, 1, true}}},
     .apart = true,
     .mixed = true},
};

/* All that are not eager are staged. */
static void check_ways(const struct mine *m, struct ranks_rank *r)
{
    const struct program *p = m->exec->program;
    uint32_t messages = 0;
    RANKS_CHECK(r, !p->driver->copies);
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct exec_step *step = &p->steps[s];
        if ((step->kind != PLAN_SEND && step->kind != PLAN_RECV) || step->way == &way_eager ||
            (m->of->mixed && step->way == &way_pull))
            continue;
        if (step->way != &way_staged)
            ranks_note(r, __FILE__, __LINE__, "%s: step %u goes by %s", m->of->what, s, step->way->name);
        messages++;
    }
    RANKS_CHECK(r, messages >= 2);
}

static void run_case(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    RANKS_OK(r, faces_make(&m, r));
    check_ways(&m, r);
    for (int64_t run = 0; run < 6; run++)
        faces_run(r, &m, run);
    faces_drop(&m, r);
}

static void scattered_faces_arrive(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ranks_run(cases[i].grid.ranks, NULL, run_case, (void *)(uintptr_t)&cases[i], NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scattered_faces_arrive)};
    setenv("WEFT_WAYS", "-faces", 1); /* which would drive the larger ones */
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
