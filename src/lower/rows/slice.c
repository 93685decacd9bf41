#include "lower/rows/slice.h"

#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/math.h"

void slice_group_open(const struct job *j, const struct recognised *r, struct group *g)
{
    *g = (struct group){.j = j, .axes = r->axes, .size = axes_count(j->src, r->axes)};
    g->me = j->si < 0 ? -1 : axes_number(j->src, r->axes, j->si);
}

int slice_group_rank(const struct group *g, int64_t member)
{
    const struct job *j = g->j;
    return mesh_rank(j->src, j->si - axes_part(j->src, g->axes, j->si) + axes_offset(j->src, g->axes, member));
}

/* The joined runs of each dim: member i's source piece with member k's destination piece. */
static int join_members(const struct group *g, int64_t i, int64_t k, struct pair_runs *runs)
{
    const struct job *j = g->j;
    int64_t base = j->si - axes_part(j->src, g->axes, j->si);
    int64_t s = base + axes_offset(j->src, g->axes, i), t = base + axes_offset(j->src, g->axes, k);
    for (int d = 0; d < j->ndim; d++) {
        struct runs a = {.arena = j->arena}, b = {.arena = j->arena};
        int rc = layout_piece_interior(j->src, d, layout_piece(j->src, s, d), &a);
        if (!rc)
            rc = layout_piece_interior(j->dst, d, layout_piece(j->dst, t, d), &b);
        runs[d] = (struct pair_runs){.arena = j->arena};
        if (!rc)
            rc = runs_join(&a, &b, &runs[d]);
        if (rc)
            return rc;
    }
    return 0;
}

/* The dim to cut into `pieces`: the first that comes out even or nearly so, otherwise the longest. */
static int cut_dim(const struct job *j, const struct pair_runs *runs, int64_t pieces)
{
    int best = 0;
    for (int d = 0; d < j->ndim; d++) {
        int64_t n = runs_pair_count(&runs[d]);
        if (n % pieces == 0 || n >= 32 * pieces)
            return d;
        if (n > runs_pair_count(&runs[best]))
            best = d;
    }
    return best;
}

static int add_box(void *arg, const struct span *box)
{
    struct slice *b = arg;
    size_t nd = (size_t)b->j->ndim;
    if (b->n == b->cap) {
        size_t cap = b->cap ? 2 * b->cap : 4;
        struct span *v = arena_alloc(b->j->arena, cap * nd * sizeof *v + 1);
        if (!v)
            return error_nomem();
        if (b->n)
            memcpy(v, b->box, b->n * nd * sizeof *v);
        b->box = v;
        b->cap = cap;
    }
    for (size_t d = 0; d < nd; d++)
        b->box[b->n * nd + d] = box[d];
    b->n++;
    return 0;
}

int slice_boxes(struct slice *b, const struct pair_runs *runs)
{
    const struct job *j = b->j;
    size_t n = 1;
    int rc = 0;
    for (int d = 0; d < j->ndim; d++)
        n *= runs[d].n;
    for (size_t x = 0; x < n && !rc; x++) {
        struct span box[WEFT_MAX_DIMS];
        size_t rest = x;
        for (int d = j->ndim - 1; d >= 0; d--) {
            emit_span_of(&runs[d].v[rest % runs[d].n], &box[d]);
            rest /= runs[d].n;
        }
        rc = emit_cut(j, box, add_box, b);
    }
    return rc ? rc : slice_places(b);
}

int slice_places(struct slice *b)
{
    b->buf = arena_alloc(b->j->arena, b->n * sizeof *b->buf + 1);
    b->node = arena_alloc(b->j->arena, b->n * sizeof *b->node + 1);
    if (!b->buf || !b->node)
        return error_nomem();
    for (size_t x = 0; x < b->n; x++) {
        b->buf[x] = PLAN_NONE;
        b->node[x] = DRAFT_NONE;
    }
    return 0;
}

/* Numbers `part` to `part` + `parts` - 1 of `pieces` even cuts of the runs, as boxes. */
static int open_parts(struct slice *b, struct pair_runs *runs, int64_t part, int64_t parts, int64_t pieces)
{
    const struct job *j = b->j;
    int rc = 0;
    if (pieces > 1 && !j->ndim && part > 0) /* one element: it is the first cut's */
        return slice_places(b);
    if (pieces > 1 && j->ndim) {
        int d = cut_dim(j, runs, pieces);
        int64_t n = runs_pair_count(&runs[d]);
        struct pair_runs cut = {.arena = j->arena};
        rc = runs_pair_cut(&runs[d], mul_div(part, n, pieces), mul_div(part + parts, n, pieces), &cut);
        runs[d] = cut;
    }
    return rc ? rc : slice_boxes(b, runs);
}

int slice_open(const struct group *g, int64_t i, int64_t k, int64_t part, int64_t pieces, struct slice *b)
{
    struct pair_runs runs[WEFT_MAX_DIMS];
    *b = (struct slice){.j = g->j, .space = i == g->me ? PLAN_SRC : 0};
    int rc = join_members(g, i, k, runs);
    return rc ? rc : open_parts(b, runs, part, 1, pieces);
}

int slice_open_cuts(const struct group *g, int64_t part, int64_t n, int64_t pieces, struct slice *b)
{
    struct pair_runs runs[WEFT_MAX_DIMS];
    *b = (struct slice){.j = g->j, .space = PLAN_SRC};
    int rc = join_members(g, g->me, g->me, runs);
    return rc ? rc : open_parts(b, runs, part, n, pieces);
}

int slice_whole(const struct job *j, bool here, int64_t part, int64_t pieces, struct slice *b)
{
    struct pair_run run[WEFT_MAX_DIMS];
    struct pair_runs runs[WEFT_MAX_DIMS];
    *b = (struct slice){.j = j, .space = here ? PLAN_SRC : 0};
    for (int d = 0; d < j->ndim; d++) {
        int64_t n = j->src->dim[d].extent;
        run[d] = (struct pair_run){.len = n, .n = 1};
        runs[d] = (struct pair_runs){.v = &run[d], .n = n > 0};
    }
    return open_parts(b, runs, part, 1, pieces);
}

static const struct span *box_at(const struct slice *b, size_t x)
{
    return b->box + x * (size_t)b->j->ndim;
}

int64_t slice_count(const struct slice *b)
{
    int64_t total = 0;
    for (size_t x = 0; x < b->n; x++) {
        int64_t c = 1;
        for (int d = 0; d < b->j->ndim; d++)
            c *= box_at(b, x)[d].len * box_at(b, x)[d].n;
        total += c;
    }
    return total;
}

bool slice_is_plain(const struct slice *b)
{
    bool plain = b->n == 1;
    for (int d = 0; d < b->j->ndim && plain; d++)
        plain = box_at(b, 0)[d].n == 1;
    return plain;
}

void slice_within(struct slice *b, const struct slice *of)
{
    b->space = of->space;
    b->whole = of->box;
    for (size_t x = 0; x < b->n; x++) {
        b->buf[x] = of->buf[0];
        b->node[x] = of->node[0];
    }
}

static int part_at(const struct slice *b, size_t x)
{
    switch (b->space) {
    case PLAN_SRC: return emit_part_src(b->j, box_at(b, x));
    case PLAN_DST: return emit_part_dst(b->j, box_at(b, x));
    default:
        return b->whole ? emit_part_temp_in(b->j, b->buf[x], b->whole, box_at(b, x))
                        : emit_part_temp(b->j, b->buf[x], box_at(b, x));
    }
}

int slice_send(const struct slice *b, int32_t stage, int peer, int wire)
{
    int rc = 0;
    for (size_t x = 0; x < b->n && !rc; x++) {
        rc = part_at(b, x);
        if (!rc)
            rc = draft_send(b->j->d, stage, peer, wire, 0, b->node[x], NULL);
    }
    return rc;
}

int slice_send_after(const struct slice *b, int32_t stage, int peer, int wire, const uint32_t *nodes, size_t n)
{
    int rc = 0;
    for (size_t x = 0; x < b->n && !rc; x++) {
        rc = part_at(b, x);
        if (!rc)
            rc = draft_send_after(b->j->d, stage, peer, wire, nodes, n);
    }
    return rc;
}

static int receive(struct slice *b, int32_t stage, int peer, int wire, int space)
{
    int rc = 0;
    b->space = space;
    b->whole = NULL;
    for (size_t x = 0; x < b->n && !rc; x++) {
        if (space == PLAN_TEMP)
            rc = emit_temp(b->j, wire, box_at(b, x), &b->buf[x]);
        if (!rc)
            rc = part_at(b, x);
        if (!rc)
            rc = draft_recv(b->j->d, stage, peer, wire, 0, &b->node[x]);
    }
    return rc;
}

int slice_recv_temp(struct slice *b, int32_t stage, int peer, int wire)
{
    return receive(b, stage, peer, wire, PLAN_TEMP);
}

int slice_recv_dst(struct slice *b, int32_t stage, int peer, int wire)
{
    return receive(b, stage, peer, wire, PLAN_DST);
}

int slice_recv_on(struct slice *b, int32_t stage, int peer, int wire)
{
    if (wire == b->j->dst->dtype)
        return slice_recv_dst(b, stage, peer, wire);
    int rc = slice_recv_temp(b, stage, peer, wire);
    return rc ? rc : slice_copy_dst(b, stage);
}

int slice_copy_dst(const struct slice *b, int32_t stage)
{
    int rc = 0;
    for (size_t x = 0; x < b->n && !rc; x++) {
        rc = part_at(b, x);
        if (!rc)
            rc = emit_part_dst(b->j, box_at(b, x));
        if (!rc)
            rc = draft_copy(b->j->d, stage, &b->node[x], 1, NULL);
    }
    return rc;
}

int slice_fold(const struct slice *terms, size_t n, int32_t stage, bool last, bool keep, int64_t div, struct slice *out)
{
    const struct job *j = terms->j;
    struct slice b = terms[0];
    int acc = dtype_acc(j->src->dtype), op = job_fold_op(j), rc = 0;
    op = op == WEFT_AVG ? WEFT_SUM : op;
    keep = last && keep && j->wire != j->dst->dtype;
    b.space = last && !keep ? PLAN_DST : PLAN_TEMP;
    b.whole = NULL;
    uint32_t *deps = arena_alloc(j->arena, n * sizeof *deps);
    if (!deps)
        return error_nomem();
    rc = slice_places(&b);
    int to = !last ? acc : keep ? j->wire : j->dst->dtype, via = last && to != j->wire ? j->wire : 0;
    for (size_t x = 0; x < b.n && !rc; x++) {
        if (b.space == PLAN_TEMP)
            rc = emit_temp(j, to, box_at(&b, x), &b.buf[x]);
        if (!rc)
            rc = part_at(&b, x);
        for (size_t i = 0; i < n && !rc; i++) {
            rc = part_at(&terms[i], x);
            deps[i] = terms[i].node[x];
        }
        if (!rc)
            rc = draft_reduce(j->d, stage, op, div, via, deps, n, &b.node[x]);
    }
    if (!rc && keep)
        rc = slice_copy_dst(&b, stage);
    *out = b;
    return rc;
}
