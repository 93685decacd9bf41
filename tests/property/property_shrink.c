#define _GNU_SOURCE
#include "property_shrink.h"

#include <string.h>

#include "base/dtype.h"

/* ---- simplifications: each leaves the case as it was when it has nothing to do ---- */

static void drop_move(struct property_case *c, int m)
{
    if (m >= c->moves || c->moves == 1)
        return;
    c->moves--;
    memmove(&c->side[m], &c->side[m + 1], (size_t)(c->moves - m) * sizeof c->side[0]);
}

static void drop_dim(struct side_spec *s, int d)
{
    s->ndim--;
    memmove(&s->dim[d], &s->dim[d + 1], (size_t)(s->ndim - d) * sizeof s->dim[0]);
}

/* An axis becomes smaller; the ranks at its first coordinates (or at its last) stay. Size 0 takes the axis out. */
static void shrink_axis(struct side_spec *s, int axis, int size, bool last)
{
    int n = spec_mesh(s), inner = 1, kept = 0, old = s->size[axis], stay = size ? size : 1;
    for (int a = axis + 1; a < s->naxes; a++)
        inner *= s->size[a];
    for (int i = 0; i < n; i++)
        if (last ? i / inner % old >= old - stay : i / inner % old < stay)
            s->ranks[kept++] = s->ranks[i];
    s->size[axis] = size;
    if (size || s->naxes == 1) {
        s->size[axis] = size ? size : 1;
        return;
    }
    spec_free_axis(s, axis);
    s->naxes--;
    memmove(&s->size[axis], &s->size[axis + 1], (size_t)(s->naxes - axis) * sizeof s->size[0]);
    for (int d = 0; d < s->ndim; d++)
        for (int k = 0; k < s->dim[d].nsplits; k++)
            s->dim[d].split[k].axis -= s->dim[d].split[k].axis > axis;
    for (int f = 0; f < s->nfolds; f++)
        for (int k = 0; k < s->fold[f].nover; k++)
            s->fold[f].over[k] -= s->fold[f].over[k] > axis;
}

/* Numbers the ranks of all sides anew, without gaps. */
static void close_ranks(struct property_case *c)
{
    int to[CASE_RANKS] = {0}, n = 0;
    for (int m = 0; m < 2 * c->moves; m++)
        for (int i = 0; i < spec_mesh(&c->side[m / 2][m % 2]); i++)
            to[c->side[m / 2][m % 2].ranks[i]] = 1;
    for (int r = 0; r < CASE_RANKS; r++)
        to[r] = to[r] ? n++ : -1;
    for (int m = 0; m < 2 * c->moves; m++)
        for (int i = 0; i < spec_mesh(&c->side[m / 2][m % 2]); i++)
            c->side[m / 2][m % 2].ranks[i] = to[c->side[m / 2][m % 2].ranks[i]];
}

static void plain_ranks(struct side_spec *s)
{
    for (int i = 0; i < spec_mesh(s); i++)
        s->ranks[i] = i;
}

static void sort_ranks(struct side_spec *s)
{
    for (int i = 1; i < spec_mesh(s); i++)
        for (int k = i; k > 0 && s->ranks[k] < s->ranks[k - 1]; k--) {
            int t = s->ranks[k];
            s->ranks[k] = s->ranks[k - 1];
            s->ranks[k - 1] = t;
        }
}

static int plainness(int dtype)
{
    return dtype == WEFT_F32 ? 0 : dtype == WEFT_I32 ? 1 : 2;
}

static void plain_dtype(struct side_spec *s, int dtype)
{
    if (plainness(dtype) < plainness(s->dtype))
        s->dtype = dtype;
}

/* The k-th simplification of one dim of a side (of both sides where the extent changes). */
static bool simplify_dim(struct side_spec *both, int side, int d, int k)
{
    struct side_spec *s = &both[side];
    int64_t n = both[0].dim[d].extent;
    switch (k) {
    case 0:
        drop_dim(&both[0], d);
        drop_dim(&both[1], d);
        return true;
    case 1:
    case 2:
    case 3:
        both[0].dim[d].extent = both[1].dim[d].extent = k == 1 ? n > 1 : k == 2 ? n / 2 : n > 0 ? n - 1 : 0;
        return true;
    case 4: s->dim[d].lo = s->dim[d].hi = 0; return true;
    case 5:
    case 6: *(k == 5 ? &s->dim[d].lo : &s->dim[d].hi) = 0; return true;
    case 7:
    case 8: *(k == 7 ? &s->dim[d].lo : &s->dim[d].hi) /= 2; return true;
    case 9:
    case 10: *(k == 9 ? &s->dim[d].lo : &s->dim[d].hi) -= *(k == 9 ? &s->dim[d].lo : &s->dim[d].hi) > 0; return true;
    case 11: s->dim[d].wrap = false; return true;
    default: return false;
    }
}

static bool simplify_split(struct side_spec *s, int d, int at, int k)
{
    int64_t *block = &s->dim[d].split[at].block;
    if (at >= s->dim[d].nsplits)
        return false;
    switch (k) {
    case 0: spec_free_axis(s, s->dim[d].split[at].axis); return true;
    case 1: *block = 0; return true;
    case 2: *block = *block > 1 ? 1 : *block; return true;
    case 3: *block -= *block > 1; return true;
    default: return false;
    }
}

static bool simplify_axis(struct side_spec *s, int axis, int k)
{
    if (axis >= s->naxes || k > 6)
        return false;
    if (k == 6)
        spec_free_axis(s, axis);
    else if (k / 2 == 0)
        shrink_axis(s, axis, 0, k % 2);
    else if (k / 2 == 1)
        shrink_axis(s, axis, s->size[axis] > 2 ? 2 : s->size[axis], k % 2);
    else
        shrink_axis(s, axis, s->size[axis] > 1 ? s->size[axis] - 1 : 1, k % 2);
    return true;
}

static bool simplify_fold(struct side_spec *s, int f, int k)
{
    if (f >= s->nfolds || k > 2)
        return false;
    if (k == 0)
        s->fold[f].nover = 0;
    if (k == 1)
        s->fold[f].op = WEFT_SUM;
    if (k == 2 && f) { /* one fold with the one before it */
        for (int i = 0; i < s->fold[f].nover; i++)
            s->fold[f - 1].over[s->fold[f - 1].nover++] = s->fold[f].over[i];
        s->fold[f].nover = 0;
    }
    return true;
}

static bool simplify_side(struct side_spec *both, int side, int k)
{
    struct side_spec *s = &both[side], *other = &both[1 - side];
    switch (k) {
    case 0: plain_dtype(s, WEFT_F32); return true;
    case 1: plain_dtype(s, WEFT_I32); return true;
    case 2: plain_dtype(s, other->dtype); return true;
    case 3:
        if (plainness(s->dtype) == 2 && plainness(other->dtype) == 2)
            s->dtype = s->dtype > other->dtype ? other->dtype : s->dtype;
        return true;
    case 4: plain_ranks(s); return true;
    case 5: sort_ranks(s); return true;
    case 6: /* in order, behind the other side's */
        for (int i = 0, first = spec_world(other); i < spec_mesh(s); i++)
            s->ranks[i] = first + i < CASE_RANKS ? first + i : s->ranks[i];
        return true;
    case 7: s->faces = false; return true;
    default: return false;
    }
}

/* Simplification number n of the case, in *c; false after the last. Numbers without a meaning leave the case alone. */
static bool simplify(struct property_case *c, int n)
{
    enum { WHOLE = 12, DIM = 12, SPLIT = 4, AXIS = 7, FOLD = 3, SIDE = 8 };
    enum { DIMS = CASE_DIMS * DIM, SPLITS = CASE_DIMS * CASE_AXES * SPLIT, AXES = CASE_AXES * AXIS };
    enum { FOLDS = (CASE_AXES + 1) * FOLD, EACH = AXES + DIMS + FOLDS + SPLITS + SIDE };
    if (n < WHOLE) {
        if (n < CASE_MOVES)
            drop_move(c, n);
        else if (n == 5)
            close_ranks(c);
        else if (n == 6 && c->hosts)
            c->hosts = false;
        else if (n == 6)
            c->ranks_per_host = 0;
        else if (n == 7)
            c->bucket = 0;
        else if (n == 8)
            c->in_place = false;
        else if (n == 9)
            c->staged = false;
        else if (n == 10)
            c->wild = false;
        else
            c->seed = 1;
        return true;
    }
    n -= WHOLE;
    if (n >= 2 * c->moves * EACH)
        return false;
    struct side_spec *both = c->side[n / EACH / 2];
    int side = n / EACH % 2;
    n %= EACH;
    if (n < AXES) {
        simplify_axis(&both[side], n / AXIS, n % AXIS);
    } else if ((n -= AXES) < DIMS) {
        if (n / DIM < both->ndim)
            simplify_dim(both, side, n / DIM, n % DIM);
    } else if ((n -= DIMS) < FOLDS) {
        simplify_fold(&both[side], n / FOLD, n % FOLD);
    } else if ((n -= FOLDS) < SPLITS) {
        if (n / SPLIT / CASE_AXES < both->ndim)
            simplify_split(&both[side], n / SPLIT / CASE_AXES, n / SPLIT % CASE_AXES, n % SPLIT);
    } else {
        simplify_side(both, side, n - SPLITS);
    }
    return true;
}

/* How much there is to a case: what simplifications make smaller. Each that is kept must, so that it comes to an end.
 */
static int64_t case_weight(const struct property_case *c)
{
    int64_t w = 1000 * c->moves + 3 * (c->bucket != 0) + 5 * (c->ranks_per_host != 0) + 5 * c->hosts + c->in_place +
                c->staged + c->wild + (c->seed != 1);
    for (int m = 0; m < 2 * c->moves; m++) {
        const struct side_spec *s = &c->side[m / 2][m % 2];
        w += 100 * s->ndim + 40 * s->naxes + 10 * spec_mesh(s) + 5 * s->nfolds + 2 * plainness(s->dtype) + s->faces;
        w += s->dtype != c->side[m / 2][1 - m % 2].dtype;
        for (int d = 0; d < s->ndim; d++) {
            w += s->dim[d].extent + s->dim[d].lo + s->dim[d].hi + s->dim[d].wrap + 6 * s->dim[d].nsplits;
            for (int k = 0; k < s->dim[d].nsplits; k++)
                w += s->dim[d].split[k].block;
        }
        for (int f = 0; f < s->nfolds; f++)
            w += (s->fold[f].op != WEFT_SUM) + 3 * s->fold[f].nover;
        for (int i = 0; i < spec_mesh(s); i++)
            w += (s->ranks[i] != i) + s->ranks[i] / 4;
    }
    return w;
}

static bool legal_ranks(const struct property_case *c)
{
    for (int m = 0; m < 2 * c->moves; m++) {
        const struct side_spec *s = &c->side[m / 2][m % 2];
        bool seen[CASE_RANKS] = {false};
        for (int i = 0; i < spec_mesh(s); i++) {
            if (seen[s->ranks[i]])
                return false;
            seen[s->ranks[i]] = true;
        }
    }
    return true;
}

void shrink(property_law *law, struct property_case *c, struct why *why)
{
    for (bool again = true; again;) {
        again = false;
        for (int n = 0;; n++) {
            struct property_case next = *c;
            struct why how = {"", ""};
            if (!simplify(&next, n))
                break;
            for (int m = 0; m < next.moves; m++) {
                if (!dtype_castable(next.side[m][0].dtype, next.side[m][1].dtype))
                    next.side[m][1].dtype = next.side[m][0].dtype;
                spec_mend(&next.side[m][0], false);
                spec_mend(&next.side[m][1], true);
            }
            if (case_weight(&next) >= case_weight(c) || !legal_ranks(&next) || law(&next, &how))
                continue;
            *c = next;
            *why = how;
            again = true;
            n--; /* the same once more: it may go on */
        }
    }
}
