/* Rings. A slice goes round the group, from member to member. A gather passes it on as it is; a fold adds each member's
 * term on its way to its owner. In both directions (ring2) half of each slice goes either way, so that both directions
 * of every link are busy. */
#include "base/dtype.h"
#include "base/error.h"
#include "lower/rows/rows.h"

/* A turn round the group: which half of the slices, and in which direction. */
struct turn {
    struct group g;
    int dir;
    int64_t part, pieces;
};

static int64_t member(const struct turn *w, int64_t steps)
{
    int64_t n = w->g.size;
    return ((w->g.me + w->dir * steps) % n + n) % n;
}

/* Slices for the allgather half: slice k of the group, finished at member k. */
static int gather_round(const struct turn *w, struct slice *have, int32_t stage, int wire)
{
    int64_t n = w->g.size;
    int next = slice_group_rank(&w->g, member(w, 1)), prev = slice_group_rank(&w->g, member(w, -1)), rc = 0;
    for (int64_t s = 0; s < n - 1 && !rc; s++) {
        rc = slice_send(&have[member(w, -s)], stage + (int32_t)s, next, wire);
        if (!rc)
            rc = slice_recv_on(&have[member(w, -s - 1)], stage + (int32_t)s, prev, wire);
    }
    return rc;
}

/* Folds slice k towards member k, its owner: it starts at the member behind the owner and comes to the owner last. */
static int reduce_round(const struct turn *w, struct slice *mine, bool keep, struct slice *out)
{
    int64_t n = w->g.size;
    const struct job *j = w->g.j;
    int next = slice_group_rank(&w->g, member(w, 1)), prev = slice_group_rank(&w->g, member(w, -1)), rc = 0;
    int raw = j->src->dtype, acc = raw;
    struct slice sum = mine[member(w, -1)];
    for (int64_t s = 0; s < n - 1 && !rc; s++) {
        struct slice in[2];
        int64_t k = member(w, -s - 2);
        bool last = s == n - 2;
        rc = slice_send(&sum, (int32_t)s, next, acc);
        in[0] = mine[k]; /* the same boxes, received into scratch of its own */
        if (!rc)
            rc = slice_places(&in[0]);
        if (!rc)
            rc = slice_recv_temp(&in[0], (int32_t)s, prev, acc);
        in[1] = mine[k];
        int64_t div = last ? row_div(j, n) : 0;
        if (!rc)
            rc = slice_fold(in, 2, (int32_t)s, last, keep, div, &sum);
        acc = dtype_acc(j->src->dtype);
    }
    *out = sum;
    return rc;
}

static int open_blocks(const struct turn *w, int how, struct slice **out)
{
    int64_t n = w->g.size;
    struct slice *b = *out = arena_alloc(w->g.j->arena, (size_t)n * sizeof *b);
    if (!b)
        return error_nomem();
    for (int64_t k = 0; k < n; k++) {
        int rc;
        if (how == PLAN_SRC) /* what this rank has of each member's destination piece */
            rc = slice_open(&w->g, w->g.me, k, w->part, w->pieces, &b[k]);
        else if (how == PLAN_DST) /* what each member's source piece has of this rank's destination */
            rc = slice_open(&w->g, k, w->g.me, w->part, w->pieces, &b[k]);
        else /* even cuts of one piece that all have */
            rc = slice_open(&w->g, w->g.me, w->g.me, k * w->pieces + w->part, n * w->pieces, &b[k]);
        if (rc)
            return rc;
    }
    return 0;
}

static int allgather(const struct job *j, const struct recognised *r, int dir, int64_t part, int64_t pieces)
{
    struct turn w = {.dir = dir, .part = part, .pieces = pieces};
    struct slice *b;
    slice_group_open(j, r, &w.g);
    int rc = open_blocks(&w, PLAN_DST, &b);
    if (!rc)
        rc = slice_copy_dst(&b[w.g.me], 0);
    return rc ? rc : gather_round(&w, b, 0, j->wire);
}

static int reduce_scatter(const struct job *j, const struct recognised *r, int dir, int64_t part, int64_t pieces)
{
    struct turn w = {.dir = dir, .part = part, .pieces = pieces};
    struct slice *b, done;
    slice_group_open(j, r, &w.g);
    int rc = open_blocks(&w, PLAN_SRC, &b);
    return rc ? rc : reduce_round(&w, b, false, &done);
}

static int allreduce(const struct job *j, const struct recognised *r, int dir, int64_t part, int64_t pieces)
{
    struct turn w = {.dir = dir, .part = part, .pieces = pieces};
    struct slice *b, done;
    slice_group_open(j, r, &w.g);
    int rc = open_blocks(&w, 0, &b);
    if (!rc)
        rc = reduce_round(&w, b, true, &done);
    if (rc)
        return rc;
    b[w.g.me] = done;
    return gather_round(&w, b, (int32_t)w.g.size - 1, j->wire);
}

typedef int one_way(const struct job *j, const struct recognised *r, int dir, int64_t part, int64_t pieces);

static int both_ways(one_way *f, const struct job *j, const struct recognised *r)
{
    int rc = f(j, r, 1, 0, 2);
    return rc ? rc : f(j, r, -1, 1, 2);
}

int row_ring_allgather(const struct job *j, const struct recognised *r)
{
    return j->si < 0 ? 0 : allgather(j, r, 1, 0, 1);
}
int row_ring_reduce_scatter(const struct job *j, const struct recognised *r)
{
    return j->si < 0 ? 0 : reduce_scatter(j, r, 1, 0, 1);
}
int row_ring_allreduce(const struct job *j, const struct recognised *r)
{
    return j->si < 0 ? 0 : allreduce(j, r, 1, 0, 1);
}
int row_ring_both_allgather(const struct job *j, const struct recognised *r)
{
    return j->si < 0 ? 0 : both_ways(allgather, j, r);
}
int row_ring_both_reduce_scatter(const struct job *j, const struct recognised *r)
{
    return j->si < 0 ? 0 : both_ways(reduce_scatter, j, r);
}
int row_ring_both_allreduce(const struct job *j, const struct recognised *r)
{
    return j->si < 0 ? 0 : both_ways(allreduce, j, r);
}
