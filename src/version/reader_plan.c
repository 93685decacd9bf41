#include "version/reader_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/math.h"
#include "base/text.h"
#include "layout/layout.h"
#include "memory/sum.h"
#include "version/reader_piece.h"

/* ---- names ---- */

static bool same_shape(const weft_layout *a, const weft_layout *b)
{
    bool same = a->ndim == b->ndim;
    for (int d = 0; d < a->ndim && same; d++)
        same = a->dim[d].extent == b->dim[d].extent;
    return same;
}

static void put_shape(struct text *t, const weft_layout *l)
{
    text_printf(t, "%s[", weft_dtype_name(l->dtype));
    for (int d = 0; d < l->ndim; d++)
        text_printf(t, "%s%lld", d ? "," : "", (long long)l->dim[d].extent);
    text_put(t, "]");
}

int reader_plan_check(const char *set, const struct schema *theirs, const struct schema *mine, bool only)
{
    char list[ERROR_TEXT];
    struct text t = text_start(list, sizeof list - 128);
    size_t wrong = 0, used = 0;
    bool *taken = calloc(theirs->n, sizeof *taken);
    if (!taken)
        return error_nomem();
    for (size_t i = 0; i < mine->n; i++) {
        const struct schema_tensor *m = &mine->v[i], *o = schema_find(theirs, m->from);
        if (o) {
            used += !taken[o - theirs->v];
            taken[o - theirs->v] = true;
        }
        if (o && same_shape(m->layout, o->layout) && dtype_castable(o->layout->dtype, m->layout->dtype))
            continue;
        text_printf(&t, "%s'%s' ", wrong++ ? "; " : "", m->from);
        if (!o)
            text_put(&t, "is not in the set");
        else {
            text_put(&t, "is ");
            put_shape(&t, o->layout);
            text_put(&t, " in the set and ");
            put_shape(&t, m->layout);
            text_put(&t, " here");
        }
    }
    for (size_t i = 0; i < theirs->n && !only && used < theirs->n; i++)
        if (!taken[i])
            text_printf(&t, "%s'%s' is in the set and not in the list", wrong++ ? "; " : "", theirs->v[i].name);
    free(taken);
    return wrong ? error_set(WEFT_EMISMATCH, "set '%s': %zu tensors do not fit: %s%s", set, wrong, list,
                             t.len >= t.cap ? " ..." : "")
                 : 0;
}

/* ---- pieces ---- */

/* Ranks that hold the same piece of a mesh: how many, and number k of them. */
static int64_t count_holders(const weft_layout *l)
{
    int64_t n = 1;
    for (int a = 0; a < l->naxes; a++)
        n *= l->axis[a].role == LAYOUT_FREE ? l->axis[a].size : 1;
    return n;
}

static int holder(const weft_layout *l, int64_t index, int64_t k)
{
    for (int a = l->naxes - 1; a >= 0; a--)
        if (l->axis[a].role == LAYOUT_FREE) {
            index += k % l->axis[a].size * l->axis[a].stride;
            k /= l->axis[a].size;
        }
    return mesh_rank(l, index);
}

int64_t reader_plan_holders(const struct reader_plan *p, const struct schema *theirs, size_t piece)
{
    const struct reader_piece *x = &p->pieces[piece];
    return x->rank < 0 ? count_holders(theirs->v[x->theirs].layout) : (int64_t)x->ways;
}

int reader_plan_holder(const struct reader_plan *p, const struct schema *theirs, size_t piece, int64_t k, size_t *read)
{
    const struct reader_piece *x = &p->pieces[piece];
    *read = x->rank < 0 ? piece : piece + (size_t)k;
    return x->rank < 0 ? holder(theirs->v[x->theirs].layout, x->index, k) : x[k].rank;
}

/* Is this mesh position the first of the holders of its piece? */
static bool is_first(const weft_layout *l, int64_t index)
{
    for (int a = 0; a < l->naxes; a++)
        if (l->axis[a].role == LAYOUT_FREE && layout_coord(l, index, a))
            return false;
    return true;
}

static bool mesh_covered(const weft_layout *l, const bool *live, int *missing)
{
    for (int64_t x = 0; x < l->mesh; x++) {
        weft_local local;
        bool held = false;
        *missing = mesh_rank(l, x);
        if (!is_first(l, x) || weft_layout_local(l, *missing, &local) || !local.bytes)
            continue;
        for (int64_t k = 0; k < count_holders(l) && !held; k++)
            held = live[holder(l, x, k)];
        if (!held)
            return false;
    }
    return true;
}

bool reader_plan_covered(const struct schema *theirs, const struct schema *mine, const bool *live, int *missing)
{
    for (size_t i = 0; i < mine->n; i++) {
        const struct schema_tensor *t = schema_find(theirs, mine->v[i].from);
        const weft_layout *l = t ? t->layout : NULL;
        if (l && !(l->boxes ? reader_boxes_covered(l, live, missing) : mesh_covered(l, live, missing)))
            return false;
    }
    return true;
}

/* ---- one tensor ---- */

/* The pieces of the publisher's layout along one dim that meet the reader's, and how. */
struct meeting {
    int64_t *pieces;
    struct pair_runs *joined;
    size_t n, cap;
    const weft_layout *l;
    int dim;
    struct runs mine;
    struct arena *arena;
};

static int visit(void *arg, int64_t piece)
{
    struct meeting *m = arg;
    struct runs theirs = {.arena = m->arena};
    struct pair_runs joined = {.arena = m->arena};
    int err = layout_piece_interior(m->l, m->dim, piece, &theirs);
    if (!err)
        err = runs_join(&theirs, &m->mine, &joined);
    if (err || !joined.n)
        return err;
    if (m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 8;
        int64_t *pieces = arena_alloc(m->arena, cap * sizeof *pieces);
        struct pair_runs *runs = arena_alloc(m->arena, cap * sizeof *runs);
        if (!pieces || !runs)
            return error_nomem();
        if (m->n) {
            memcpy(pieces, m->pieces, m->n * sizeof *pieces);
            memcpy(runs, m->joined, m->n * sizeof *runs);
        }
        m->pieces = pieces;
        m->joined = runs;
        m->cap = cap;
    }
    m->pieces[m->n] = piece;
    m->joined[m->n++] = joined;
    return 0;
}

/* One combination of runs, one for each dim, as a step. */
static int add_step(struct reader_plan *p, struct reader_piece *piece, struct reader_step *out, const weft_layout *src,
                    const weft_layout *dst, const struct pair_run *const *run, const int64_t *theirs,
                    const int64_t *mine)
{
    struct memory_tile t = {.loops = 2 * src->ndim};
    int64_t to = (int64_t)weft_dtype_size(dst->dtype), from = (int64_t)weft_dtype_size(src->dtype), size = from;
    *out = (struct reader_step){0};
    for (int d = src->ndim - 1; d >= 0; d--) {
        const struct pair_run *r = run[d];
        t.n[2 * d] = r->n;
        t.n[2 * d + 1] = r->len;
        t.stride[0][2 * d] = r->bstep * to;
        t.stride[0][2 * d + 1] = to;
        t.stride[1][2 * d] = r->astep * from;
        t.stride[1][2 * d + 1] = from;
        out->to += r->b * to;
        out->from += r->a * from;
        to *= mine[d];
        from *= theirs[d];
    }
    return reader_piece_step(p, piece, &t, size, out);
}

/* Are the bytes that a reader needs in long rows of the publisher's array, each a multiple of `whole`? The answer is
 * the same for all readers. Pieces of uneven sizes may have other rows. */
static bool long_rows(const weft_layout *src, const weft_layout *dst, int64_t whole)
{
    int64_t row = (int64_t)weft_dtype_size(src->dtype);
    for (int d = src->ndim - 1; d >= 0; d--) {
        const struct layout_dim *from = &src->dim[d], *to = &dst->dim[d];
        int64_t all = from->extent / max64(from->pieces, 1), take = to->extent / max64(to->pieces, 1);
        for (int i = 0; i < to->nsplits; i++)
            take = to->split[i].block ? min64(take, to->split[i].block) : take;
        if (take < all)
            return row * take % whole == 0 && row * all % whole == 0;
        row *= all;
    }
    return true;
}

/* The number of a mesh position among those that hold the same elements. */
static int replica(const weft_layout *l, int64_t index)
{
    int64_t k = 0;
    for (int a = 0; a < l->naxes; a++)
        if (l->axis[a].role == LAYOUT_FREE)
            k = k * l->axis[a].size + layout_coord(l, index, a);
    return (int)k;
}

/* The steps of one piece of the publisher: all combinations of one run for each dim. */
static int add_piece(struct reader_plan *p, size_t tensor, size_t other, const weft_layout *src, const weft_layout *dst,
                     int together, const struct meeting *m, const size_t *pick, const int64_t *mine)
{
    struct reader_piece piece = {
        .mine = tensor, .theirs = other, .rank = -1, .ways = 1, .together = together, .lo = INT64_MAX};
    int64_t theirs[WEFT_MAX_DIMS], inner;
    size_t at[WEFT_MAX_DIMS] = {0}, total = 1;
    const struct pair_run *run[WEFT_MAX_DIMS];
    for (int d = 0; d < src->ndim; d++) {
        int64_t number = m[d].pieces[pick[d]];
        piece.index += layout_piece_offset(src, d, number);
        theirs[d] = layout_piece_extent(src, d, number, &inner);
        total *= m[d].joined[pick[d]].n;
    }
    struct reader_step *steps = arena_alloc(&p->arena, total * sizeof *steps);
    if (!steps)
        return error_nomem();
    for (size_t i = 0; i < total; i++) {
        for (int d = 0; d < src->ndim; d++)
            run[d] = &m[d].joined[pick[d]].v[at[d]];
        int failed = add_step(p, &piece, &steps[i], src, dst, run, theirs, mine);
        if (failed)
            return failed;
        for (int d = src->ndim - 1; d >= 0 && ++at[d] == m[d].joined[pick[d]].n; d--)
            at[d] = 0;
    }
    piece.steps = steps;
    piece.nsteps = total;
    return reader_piece_add(p, &piece, (int64_t)weft_dtype_size(src->dtype));
}

static int add_mesh(struct reader_plan *p, size_t tensor, size_t other, const weft_layout *src, const weft_layout *dst,
                    int rank, struct arena *arena)
{
    struct meeting m[WEFT_MAX_DIMS];
    int64_t mine[WEFT_MAX_DIMS], inner, index = mesh_index(dst, rank);
    size_t pick[WEFT_MAX_DIMS] = {0};
    if (index < 0)
        return 0;
    int together = long_rows(src, dst, SUM_BLOCK) ? replica(dst, index) : -1;
    for (int d = 0; d < dst->ndim; d++) {
        int64_t piece = layout_piece(dst, index, d);
        m[d] = (struct meeting){.l = src, .dim = d, .mine = {.arena = arena}, .arena = arena};
        mine[d] = layout_piece_extent(dst, d, piece, &inner);
        int err = layout_piece_interior(dst, d, piece, &m[d].mine);
        if (!err && m[d].mine.n)
            err = layout_pieces_at(src, d, &m[d].mine, false, arena, visit, &m[d]);
        if (err || !m[d].n)
            return err;
    }
    for (;;) {
        int err = add_piece(p, tensor, other, src, dst, together, m, pick, mine);
        if (err)
            return err;
        int d = src->ndim - 1;
        while (d >= 0 && ++pick[d] == m[d].n)
            pick[d--] = 0;
        if (d < 0)
            return 0;
    }
}

int reader_plan_make(const struct schema *theirs, const struct schema *mine, int rank, bool packed,
                     struct reader_plan *out)
{
    struct arena arena = {0};
    char list[ERROR_TEXT];
    struct text text = text_start(list, sizeof list - 128);
    size_t wrong = 0;
    int err = 0;
    *out = (struct reader_plan){0};
    for (size_t i = 0; i < mine->n && !err; i++) {
        const struct schema_tensor *t = schema_find(theirs, mine->v[i].from);
        const weft_layout *src = t->layout, *dst = mine->v[i].layout;
        size_t other = (size_t)(t - theirs->v);
        int64_t missing = 0;
        if (src->boxes || dst->boxes)
            err = reader_boxes(out, i, other, src, dst, rank, packed, &arena, &missing);
        else
            err = add_mesh(out, i, other, src, dst, rank, &arena);
        if (err == WEFT_EUNSUPPORTED) {
            char why[ERROR_TEXT];
            snprintf(why, sizeof why, "%s", weft_errmsg());
            err = error_set(err, "tensor '%.60s': %s", t->name, why);
        }
        if (missing)
            text_printf(&text, "%s%lld of '%s'", wrong++ ? ", " : "", (long long)missing, t->name);
        arena_reset(&arena);
    }
    arena_free(&arena);
    if (!err && wrong)
        err = error_set(WEFT_EMISMATCH, "rank %d needs elements that no rank of the publisher holds: %s%s", rank, list,
                        text.len >= text.cap ? " ..." : "");
    if (err)
        reader_plan_free(out);
    return err;
}

void reader_plan_free(struct reader_plan *p)
{
    arena_free(&p->arena);
    free(p->pieces);
    *p = (struct reader_plan){0};
}

void reader_plan_tile(const struct reader_step *s, struct memory_tile *out)
{
    size_t n = (size_t)s->loops * sizeof(int64_t);
    out->loops = s->loops;
    memcpy(out->n, s->v, n);
    memcpy(out->stride[0], s->v + s->loops, n);
    memcpy(out->stride[1], s->v + 2 * s->loops, n);
}
