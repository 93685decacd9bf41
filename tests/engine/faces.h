/* Grids whose faces lie far apart, in memory that all ranks reach: made, filled, checked. For tests of the ways that
 * such faces are copied. */
#ifndef WEFT_TESTS_FACES_H
#define WEFT_TESTS_FACES_H
#include "base/hash.h"
#include "engine/way.h"
#include "support/halo_grid.h"
#include "support/ranks.h"

static inline int64_t value(int64_t global, int64_t salt)
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
#define PLANE(a, b)       \
    {a, 1, 0, 0, false},  \
    {                     \
        b, 1, 0, 0, false \
    }

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

static inline int make(struct mine *m, struct ranks_rank *r)
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

static inline void drop(struct mine *m, struct ranks_rank *r)
{
    weft_exec_close(m->exec);
    weft_plan_free(m->plan);
    weft_layout_free(m->own);
    weft_layout_free(m->all);
    weft_comm_free(r->comm, m->buffer);
    weft_comm_free(r->comm, m->dense);
}

static inline void fill(struct mine *m, int64_t salt)
{
    bool own;
    for (int64_t i = 0, k = 0; i < m->at.slots; i++) {
        int64_t global = grid_slot(&m->of->grid, &m->at, i, &own);
        m->buffer[i] = -7;
        if (own)
            *(m->of->apart ? &m->dense[k++] : &m->buffer[i]) = value(global, salt);
    }
}

static inline int64_t wrong(const struct mine *m, int64_t salt)
{
    int64_t n = 0;
    bool own;
    for (int64_t i = 0; i < m->at.slots; i++) {
        int64_t global = grid_slot(&m->of->grid, &m->at, i, &own);
        n += m->buffer[i] != (global == EDGE ? -7 : value(global, salt));
    }
    return n;
}

static inline void check_values(struct ranks_rank *r, const struct mine *m, int64_t salt)
{
    int64_t n = wrong(m, salt);
    if (n)
        ranks_note(r, __FILE__, __LINE__, "%s, salt %d: %lld slots are wrong", m->of->what, (int)salt, (long long)n);
}

/* Rank 1 dies when it has begun a run, which ends all the same; the next one does not. */
static inline void run_deserted(struct ranks_rank *r)
{
    struct mine m = {.of = r->arg};
    RANKS_OK(r, make(&m, r));
    fill(&m, 0);
    RANKS_OK(r, weft_exec_start(m.exec));
    if (r->rank == 1)
        _exit(0);
    RANKS_OK(r, weft_exec_wait(m.exec, -1));
    check_values(r, &m, 0);
    RANKS_OK(r, weft_exec_start(m.exec));
    RANKS_CHECK(r, weft_exec_wait(m.exec, -1) == WEFT_EPEER);
    RANKS_CHECK(r, strstr(weft_errmsg(), "rank 1") != NULL);
    drop(&m, r);
}
#endif
