/* The nodes of one box: parts in each buffer, local copies, further slots, identities. */
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "lower/job.h"

void emit_span_of(const struct pair_run *r, struct span *o)
{
    *o = (struct span){r->at, r->len, r->n, r->step, r->a, r->astep, r->b, r->bstep};
}

int emit_part_in(const struct job *j, uint32_t buf, const struct span *box)
{
    struct draft_dim x[WEFT_MAX_DIMS];
    for (int i = 0; i < j->ndim; i++)
        x[i] = (struct draft_dim){box[i].at, box[i].len, box[i].n, box[i].step, box[i].a, box[i].astep};
    return draft_part(j->d, buf, x);
}

int emit_part_src(const struct job *j, const struct span *box)
{
    const uint32_t buf = j->d->tensors.v[j->d->tensor].src_buf + j->s_box;
    if (!j->slab_start)
        return emit_part_in(j, buf, box);
    struct span in[WEFT_MAX_DIMS];
    memcpy(in, box, (size_t)j->ndim * sizeof *in);
    in[j->slab_dim].a += j->slab_start;
    return emit_part_in(j, buf, in);
}

int emit_part_dst(const struct job *j, const struct span *box)
{
    struct draft_dim x[WEFT_MAX_DIMS];
    for (int i = 0; i < j->ndim; i++)
        x[i] = (struct draft_dim){box[i].at, box[i].len, box[i].n, box[i].step, box[i].b, box[i].bstep};
    return draft_part(j->d, j->d->tensors.v[j->d->tensor].dst_buf + j->d_box, x);
}

int emit_part_temp(const struct job *j, uint32_t buf, const struct span *box)
{
    struct draft_dim x[WEFT_MAX_DIMS];
    for (int i = 0; i < j->ndim; i++)
        x[i] = (struct draft_dim){box[i].at, box[i].len, box[i].n, box[i].step, 0, box[i].len};
    return draft_part(j->d, buf, x);
}

int emit_part_temp_in(const struct job *j, uint32_t buf, const struct span *whole, const struct span *box)
{
    struct draft_dim x[WEFT_MAX_DIMS];
    for (int i = 0; i < j->ndim; i++)
        x[i] = (struct draft_dim){box[i].at, box[i].len, 1, 0, box[i].at - whole[i].at, 0};
    return draft_part(j->d, buf, x);
}

int emit_temp(const struct job *j, int dtype, const struct span *box, uint32_t *buf)
{
    int64_t extents[WEFT_MAX_DIMS];
    for (int i = 0; i < j->ndim; i++)
        extents[i] = box[i].len * box[i].n;
    return draft_temp(j->d, dtype, extents, buf);
}

struct span emit_span_from(const struct span *s, int64_t p, int64_t hi)
{
    int64_t i = p / s->len, o = p % s->len, len = min64(s->len - o, hi - p), n = 1;
    if (o == 0 && len == s->len)
        n = (hi - p) / len;
    return (struct span){s->at + i * s->step + o, len,     n, s->step, s->a + i * s->astep + o, s->astep,
                         s->b + i * s->bstep + o, s->bstep};
}

/* Most pieces of one box, so that a plan does not grow further with the size of its tensors. */
#define MOST_PIECES 256

static int cut_from(const struct job *j, struct span *box, int dim, int64_t most,
                    int (*put)(void *, const struct span *), void *arg)
{
    int64_t rest = 1;
    while (dim < j->ndim && box[dim].len * box[dim].n == 1)
        dim++;
    for (int d = dim + 1; d < j->ndim; d++)
        rest *= box[d].len * box[d].n;
    if (dim == j->ndim || (box[dim].len * box[dim].n <= most / rest))
        return put(arg, box);
    struct span whole = box[dim];
    int64_t extent = whole.len * whole.n, rows = max64(1, most / rest), pieces = ceil_div(extent, rows);
    int rc = 0;
    for (int64_t k = 0; k < pieces; k++)
        for (int64_t p = mul_div(k, extent, pieces), hi = mul_div(k + 1, extent, pieces); p < hi && !rc;) {
            box[dim] = emit_span_from(&whole, p, hi);
            p += box[dim].len * box[dim].n;
            rc = rest > most ? cut_from(j, box, dim + 1, most, put, arg) : put(arg, box);
        }
    box[dim] = whole;
    return rc;
}

int emit_cut(const struct job *j, const struct span *box, int (*put)(void *arg, const struct span *box), void *arg)
{
    struct span v[WEFT_MAX_DIMS];
    int64_t count = 1;
    for (int i = 0; i < j->ndim; i++) {
        v[i] = box[i];
        count *= box[i].len * box[i].n;
    }
    return cut_from(j, v, 0, max64(j->most, count / MOST_PIECES), put, arg);
}

static int put_dup(const struct job *j, const struct span *from, const struct span *to, bool from_src, uint32_t dep,
                   int32_t stage)
{
    int rc = from_src ? emit_part_src(j, from) : emit_part_dst(j, from);
    if (!rc)
        rc = emit_part_dst(j, to);
    return rc ? rc : draft_copy(j->d, stage, &dep, 1, NULL);
}

/* Walks through all ways to take, in each dim, the first slot or one of the others. `moved`: some dim took another slot
 * than the first; `ghosts`: in how many dims the slots are ghosts. */
static int walk_dups(const struct job *j, const struct slots *slots, int dim, struct span *from, struct span *to,
                     bool moved, int ghosts, bool from_src, uint32_t dep, int32_t stage)
{
    if (j->dst->faces && ghosts > 1)
        return 0;
    if (dim == j->ndim)
        return moved ? put_dup(j, from, to, from_src, dep, stage) : 0;
    struct span whole = from[dim];
    to[dim] = whole;
    int first = layout_piece_ghost(j->dst, dim, slots[dim].inner, whole.b);
    int rc = walk_dups(j, slots, dim + 1, from, to, moved, ghosts + first, from_src, dep, stage);
    for (size_t i = 0; i < slots[dim].ndup && !rc; i++) {
        const struct dup *u = &slots[dim].dup[i];
        int64_t shift = u->from - u->at;               /* place minus position, for positions that this dup repeats */
        for (int64_t k = 0; k < whole.n && !rc; k++) { /* n is 1 unless the source deals blocks */
            int64_t at = whole.at + k * whole.step, end = at + whole.len, lo = at > u->at ? at : u->at;
            int64_t hi = end < u->at + u->len ? end : u->at + u->len;
            if (lo >= hi || whole.b + k * whole.bstep - at != shift)
                continue;
            from[dim] = (struct span){
                .at = lo, .len = hi - lo, .n = 1, .a = whole.a + k * whole.astep + (lo - at), .b = lo + shift};
            to[dim] = from[dim];
            to[dim].b = u->to + (lo - u->at);
            rc = walk_dups(j, slots, dim + 1, from, to, true, ghosts + 1, from_src, dep, stage);
        }
    }
    from[dim] = whole;
    return rc;
}

int emit_dups(const struct job *j, const struct slots *slots, const struct span *box, bool from_src, uint32_t dep,
              int32_t stage)
{
    bool any = false;
    for (int i = 0; i < j->ndim; i++)
        any = any || slots[i].ndup;
    if (!any)
        return 0;
    struct span from[WEFT_MAX_DIMS], to[WEFT_MAX_DIMS];
    for (int i = 0; i < j->ndim; i++)
        from[i] = box[i];
    return walk_dups(j, slots, 0, from, to, false, 0, from_src, dep, stage);
}

int emit_local(const struct job *j, const struct slots *slots, const struct span *box)
{
    int rc = emit_part_src(j, box);
    if (!rc)
        rc = emit_part_dst(j, box);
    if (!rc)
        rc = draft_copy(j->d, 0, NULL, 0, NULL);
    return rc ? rc : emit_dups(j, slots, box, true, DRAFT_NONE, 0);
}

/* ---- identities ---- */

struct fill {
    const struct job *j;
    int op;
    int32_t stage;
    uint32_t *deps;
    size_t ndeps;
    struct runs all[WEFT_MAX_DIMS];
    size_t first[WEFT_MAX_DIMS], ninner[WEFT_MAX_DIMS];
};

/* Fills the product of the chosen runs: the interior in dims before `edge`, the ghosts in `edge`, and all slots in
 * later dims (without corners: the interior there too). */
static int fill_boxes(const struct fill *f, int dim, int edge, struct span *box)
{
    if (dim == f->j->ndim) {
        int rc = emit_part_dst(f->j, box);
        return rc ? rc : draft_reduce(f->j->d, f->stage, f->op, 0, 0, f->deps, f->ndeps, NULL);
    }
    for (size_t i = 0; i < f->all[dim].n; i++) {
        bool inner = i >= f->first[dim] && i < f->first[dim] + f->ninner[dim];
        if (dim == edge ? inner : !inner && (dim < edge || f->j->dst->faces))
            continue;
        const struct run *r = &f->all[dim].v[i];
        box[dim] =
            (struct span){.at = r->at, .len = r->len, .n = r->n, .step = r->step, .b = r->to, .bstep = r->tostep};
        int rc = fill_boxes(f, dim + 1, edge, box);
        if (rc)
            return rc;
    }
    return 0;
}

/* In place the identity would overwrite terms, so it waits for all steps that read them. */
static int wait_for_all(struct fill *f)
{
    const struct draft *d = f->j->d;
    f->deps = arena_alloc(f->j->arena, (d->nodes.n - d->first) * sizeof *f->deps + 1);
    if (!f->deps)
        return error_nomem();
    for (uint32_t n = d->first; n < d->nodes.n; n++) {
        f->deps[f->ndeps++] = n;
        f->stage = d->nodes.v[n].stage > f->stage ? d->nodes.v[n].stage : f->stage;
    }
    return 0;
}

int emit_identity(const struct job *j)
{
    const weft_layout *l = j->dst;
    if (j->di < 0 || !l->nfolds)
        return 0;
    /* The first fold in which this rank, or a ghost of it, is not at coordinate 0. */
    int by_axes = l->nfolds, by_ghosts = l->nfolds;
    for (int k = l->nfolds - 1; k >= 0; k--) {
        if (axes_part(l, l->fold[k].axes, j->di))
            by_axes = k;
        if (l->fold[k].ghosts)
            by_ghosts = k;
    }
    if (by_axes == l->nfolds && by_ghosts == l->nfolds)
        return 0;
    struct fill f = {.j = j};
    struct span box[WEFT_MAX_DIMS];
    if (j->d->in_place) {
        int rc = wait_for_all(&f);
        if (rc)
            return rc;
    }
    for (int d = 0; d < j->ndim; d++) {
        f.all[d].arena = j->arena;
        int rc = layout_piece_slots(l, d, layout_piece(l, j->di, d), &f.all[d], &f.first[d], &f.ninner[d]);
        if (rc)
            return rc;
        if (!f.all[d].n)
            return 0;
    }
    int ghosts = by_ghosts < by_axes ? by_ghosts : by_axes, rc = 0;
    if (by_axes < l->nfolds) { /* all slots if there is one product of them, otherwise the interior first */
        bool all = by_axes <= by_ghosts && !l->faces;
        f.op = l->fold[by_axes].op;
        rc = fill_boxes(&f, 0, all ? -1 : j->ndim, box);
        if (all)
            return rc;
    }
    f.op = l->fold[ghosts].op;
    for (int edge = 0; edge < j->ndim && !rc; edge++)
        rc = fill_boxes(&f, 0, edge, box);
    return rc;
}
