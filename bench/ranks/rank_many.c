/* See rank_many.h. */
#include "bench/ranks/rank_many.h"

#include <stdio.h>
#include <stdlib.h>

enum { SHAPES = 7 }; /* tensors have this many sizes, in turn */

struct rank_many {
    int n;
    weft_layout *src[SHAPES], *dst[SHAPES];
    weft_plan *all, **plan;
    weft_exec *whole, **each;
};

static int make_layouts(struct rank_many *m, int ranks)
{
    int err = 0;
    for (int i = 0; i < SHAPES && !err; i++) {
        struct work_tensor t = work_tensor(i);
        char src[80], dst[80];
        snprintf(src, sizeof src, "f32[%d/x,%d] @x%d", (int)t.rows, (int)t.columns, ranks);
        snprintf(dst, sizeof dst, "f32[%d,%d/x] @x%d", (int)t.rows, (int)t.columns, ranks);
        err = weft_layout_parse(src, &m->src[i]);
        if (!err)
            err = weft_layout_parse(dst, &m->dst[i]);
    }
    return err;
}

static int bind_one(struct rank_many *m, weft_comm *comm, const weft_lower_opts *o, const weft_move *moves,
                    const weft_view *from, const weft_view *to, double *took)
{
    double start = work_now();
    int err = weft_lower(moves, (size_t)m->n, weft_comm_rank(comm), o, &m->all);
    if (!err)
        err = weft_bind(m->all, comm, from, to, NULL, &m->whole);
    *took = work_now() - start;
    return err;
}

static int bind_each(struct rank_many *m, weft_comm *comm, const weft_lower_opts *o, const weft_move *moves,
                     const weft_view *from, const weft_view *to, double *took)
{
    double start = work_now();
    int err = 0;
    for (int i = 0; i < m->n && !err; i++) {
        err = weft_lower(&moves[i], 1, weft_comm_rank(comm), o, &m->plan[i]);
        if (!err)
            err = weft_bind(m->plan[i], comm, &from[i], &to[i], NULL, &m->each[i]);
    }
    *took = work_now() - start;
    return err;
}

int rank_many_open(weft_comm *comm, const char *algorithm, const struct work_cell *cell, void *in, void *out,
                   double made[ORDERS_WAYS], struct rank_many **result)
{
    int ranks = weft_comm_size(comm), err = WEFT_ENOMEM;
    size_t n = (size_t)cell->tensors;
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts opts = {.size = sizeof opts, .world = ranks, .algorithm = algorithm, .machine = &machine};
    struct rank_many *m = calloc(1, sizeof *m);
    weft_move *moves = calloc(n, sizeof *moves);
    weft_view *from = calloc(n, sizeof *from), *to = calloc(n, sizeof *to);
    if (!m || !moves || !from || !to)
        goto done;
    m->n = cell->tensors;
    m->plan = calloc(n, sizeof(weft_plan *));
    m->each = calloc(n, sizeof(weft_exec *));
    if (!m->plan || !m->each)
        goto done;
    err = make_layouts(m, ranks);
    for (size_t i = 0; i < n && !err; i++) {
        struct work_tensor t = work_tensor((int)i);
        size_t bytes = (size_t)(t.rows * t.columns / ranks) * sizeof(float);
        moves[i] = (weft_move){"tensor", m->src[i % SHAPES], m->dst[i % SHAPES]};
        from[i] = (weft_view){.data = (float *)in + t.before / ranks, .bytes = bytes};
        to[i] = (weft_view){.data = (float *)out + t.before / ranks, .bytes = bytes};
    }
    if (!err)
        err = weft_comm_machine(comm, &machine);
    if (!err)
        err = bind_one(m, comm, &opts, moves, from, to, &made[0]);
    if (!err)
        err = bind_each(m, comm, &opts, moves, from, to, &made[1]);
    made[2] = made[1];
done:
    free(moves);
    free(from);
    free(to);
    if (err)
        rank_many_free(m);
    else
        *result = m;
    return err;
}

int rank_many_run(struct rank_many *m, int way)
{
    int err = 0;
    if (way == 0)
        return weft_exec_run(m->whole);
    for (int i = 0; i < m->n && !err; i++)
        err = way == 1 ? weft_exec_start(m->each[i]) : weft_exec_run(m->each[i]);
    for (int i = 0; i < m->n && way == 1 && !err; i++)
        err = weft_exec_wait(m->each[i], WEFT_FOREVER);
    return err;
}

void rank_many_free(struct rank_many *m)
{
    if (!m)
        return;
    weft_exec_close(m->whole);
    weft_plan_free(m->all);
    for (int i = 0; i < m->n; i++) {
        if (m->each)
            weft_exec_close(m->each[i]);
        if (m->plan)
            weft_plan_free(m->plan[i]);
    }
    for (int i = 0; i < SHAPES; i++) {
        weft_layout_free(m->src[i]);
        weft_layout_free(m->dst[i]);
    }
    free(m->plan);
    free(m->each);
    free(m);
}

const weft_exec *rank_many_exec(const struct rank_many *m)
{
    return m->whole;
}
