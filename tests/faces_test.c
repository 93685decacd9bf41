/* Faces whose elements lie far apart: which way they are copied, side by side and in strips, and that all of it arrives,
 * for odd counts, one neighbour and two, nests of loops, and peers that come late; on all transports. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "conformance.h"
#include "exec/exec.h"
#include "halo_grid.h"

static int64_t value(int64_t global, int64_t salt)
{
    return (int64_t)(hash_mix((uint64_t)global * 31 + (uint64_t)salt) % 1000) + 1;
}

struct faces {
    const char *what;
    struct grid grid;
    bool apart;  /* the source is memory of its own, without ghosts */
    bool large;  /* messages flow where ranks have cores */
    bool strips; /* and are unpacked in strips: one piece of the box to each peer */
    bool mixed;  /* faces along other dims are not far apart */
};

/* The first two dims are not cut: their extents make the runs of a face. */
#define PLANE(a, b) {a, 1, 0, 0, false}, {b, 1, 0, 0, false}

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

struct mine {
    const struct faces *of;
    struct grid_rank at;
    struct grid_view view;
    weft_view src;
    weft_layout *own, *all;
    weft_plan *plan;
    weft_exec *exec;
    int64_t *buffer, *dense;
};

static int make(struct mine *m, struct ranks_rank *r)
{
    m->at = grid_rank(&m->of->grid, r->rank);
    size_t bytes = (size_t)m->at.slots * sizeof *m->buffer;
    weft_lower_opts opts = {.size = sizeof opts, .world = r->size, .in_place = !m->of->apart};
    void *memory[2] = {NULL, NULL};
    int err = weft_comm_alloc(r->comm, bytes, &memory[0]);
    if (!err)
        err = weft_comm_alloc(r->comm, bytes, &memory[1]);
    m->buffer = memory[0];
    m->dense = memory[1];
    if (!err)
        err = grid_layouts(&m->of->grid, "i64", &m->own, &m->all);
    if (!err)
        err = weft_lower(&(weft_move){"h", m->own, m->all}, 1, r->rank, &opts, &m->plan);
    if (err)
        return err;
    grid_view(&m->of->grid, &m->at, m->buffer, sizeof *m->buffer, &m->view);
    m->src = m->of->apart ? (weft_view){m->dense, bytes, NULL} : m->view.own;
    return weft_bind(m->plan, r->comm, &m->src, &m->view.all, NULL, &m->exec);
}

static void drop(struct mine *m, struct ranks_rank *r)
{
    weft_exec_free(m->exec);
    weft_plan_free(m->plan);
    weft_layout_free(m->own);
    weft_layout_free(m->all);
    weft_comm_dealloc(r->comm, m->buffer);
    weft_comm_dealloc(r->comm, m->dense);
}

static void fill(struct mine *m, int64_t salt)
{
    bool own;
    for (int64_t i = 0, k = 0; i < m->at.slots; i++) {
        int64_t global = grid_slot(&m->of->grid, &m->at, i, &own);
        m->buffer[i] = -7;
        if (own)
            *(m->of->apart ? &m->dense[k++] : &m->buffer[i]) = value(global, salt);
    }
}

static int64_t wrong(const struct mine *m, int64_t salt)
{
    int64_t n = 0;
    bool own;
    for (int64_t i = 0; i < m->at.slots; i++) {
        int64_t global = grid_slot(&m->of->grid, &m->at, i, &own);
        n += m->buffer[i] != (global == EDGE ? -7 : value(global, salt));
    }
    return n;
}

/* All that are no letters are copied side by side; large ones flow where each rank has a core. */
static void check_ways(const struct mine *m, struct ranks_rank *r)
{
    const struct program *p = m->exec->program;
    bool flows = m->of->large && m->exec->comm->spins;
    uint32_t messages = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct exec_step *step = &p->steps[s];
        if ((step->kind != PLAN_SEND && step->kind != PLAN_RECV) || step->way == WAY_LETTER ||
            (m->of->mixed && step->way == WAY_PULL))
            continue;
        bool unpacks_whole = step->kind == PLAN_RECV && flows && !m->of->strips;
        if (step->way != WAY_STAGED || step->flows != flows || step->combed == unpacks_whole)
            ranks_note(r, __FILE__, __LINE__, "%s: step %u goes way %d, flows %d, combed %d", m->of->what, s, step->way,
                       step->flows, step->combed);
        messages++;
    }
    RANKS_CHECK(r, messages >= 2);
}

static void run_case(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    RANKS_OK(r, make(&m, r));
    check_ways(&m, r);
    for (int64_t run = 0; run < 6; run++) {
        bool late = run > 3 && r->rank == run % 2; /* than all others, which have packed by then */
        fill(&m, run);
        if (run == 3)
            RANKS_OK(r, weft_exec_rebind(m.exec, &m.src, &m.view.all));
        if (late)
            ranks_meet(r);
        RANKS_OK(r, weft_exec_start(m.exec));
        if (run > 3 && !late)
            ranks_meet(r);
        RANKS_OK(r, weft_exec_wait(m.exec, -1));
        int64_t n = wrong(&m, run);
        if (n)
            ranks_note(r, __FILE__, __LINE__, "%s, run %d: %lld slots are wrong", m.of->what, (int)run, (long long)n);
    }
    drop(&m, r);
}

static void faces_arrive(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ranks_run(cases[i].grid.ranks, NULL, run_case, (void *)(uintptr_t)&cases[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(faces_arrive)};
    return CONFORMANCE_RUN(tests);
}
