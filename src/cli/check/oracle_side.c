/* See oracle_side.h. */
#include "cli/check/oracle_side.h"

#include <stdlib.h>
#include <string.h>

static int64_t *numbers(int64_t n)
{
    if (n < 0 || (uint64_t)n > SIZE_MAX / sizeof(int64_t) - 1)
        return NULL;
    return malloc(((size_t)n + 1) * sizeof(int64_t));
}

static int axis_number(const weft_layout_desc *l, const char *name)
{
    for (int a = 0; a < l->naxes; a++)
        if (!strcmp(l->axes[a].name, name))
            return a;
    return -1;
}

/* Deals out the positions list[0..n) over the splits from `level` on, outermost first, piece by piece. Each piece is
 * written to d->pos and its end to d->first[piece + 1]; *piece and *used count what was written. */
struct dealing {
    const weft_layout_desc *l;
    const weft_dim *dim;
    struct oracle_side_dim *d;
    int64_t piece, used;
};

static int deal(struct dealing *g, int level, const int64_t *list, int64_t n)
{
    if (level == g->dim->nsplits) {
        memcpy(g->d->pos + g->used, list, (size_t)n * sizeof *list);
        g->used += n;
        g->d->first[++g->piece] = g->used;
        return 0;
    }
    const weft_split *split = &g->dim->splits[level];
    int64_t p = g->l->axes[axis_number(g->l, split->axis)].size, err = 0;
    int64_t chunk = (n + p - 1) / p;
    int64_t *mine = numbers(n);
    if (!mine)
        return WEFT_ENOMEM;
    for (int64_t c = 0; c < p && !err; c++) {
        int64_t m = 0;
        if (split->block) {
            for (int64_t b = c * split->block; b < n; b += p * split->block)
                for (int64_t i = b; i < n && i < b + split->block; i++)
                    mine[m++] = list[i];
        } else {
            for (int64_t i = c * chunk; i < n && i < (c + 1) * chunk; i++)
                mine[m++] = list[i];
        }
        err = deal(g, level + 1, mine, m);
    }
    free(mine);
    return (int)err;
}

static void find_owners(struct oracle_side_dim *d)
{
    for (int64_t c = 0; c < d->pieces; c++)
        for (int64_t i = d->first[c]; i < d->first[c + 1]; i++) {
            d->owner_piece[d->pos[i]] = c;
            d->owner_slot[d->pos[i]] = i - d->first[c] + d->lo;
        }
}

/* Ghosts go before and after each piece that is not empty; pieces with ghosts are contiguous. */
static int add_ghosts(struct oracle_side_dim *d, bool wrap)
{
    int64_t full = 0;
    for (int64_t c = 0; c < d->pieces; c++)
        full += d->first[c + 1] > d->first[c];
    int64_t *pos = numbers(d->extent + full * (d->lo + d->hi)), *first = numbers(d->pieces), used = 0;
    if (!pos || !first) {
        free(pos);
        free(first);
        return WEFT_ENOMEM;
    }
    first[0] = 0;
    for (int64_t c = 0; c < d->pieces; c++) {
        int64_t n = d->first[c + 1] - d->first[c], n_all = n ? n + d->lo + d->hi : 0;
        int64_t start = n ? d->pos[d->first[c]] - d->lo : 0;
        for (int64_t i = start; i < start + n_all; i++) {
            bool inside = i >= 0 && i < d->extent;
            pos[used++] = inside ? i : wrap ? (i % d->extent + d->extent) % d->extent : -1;
        }
        first[c + 1] = used;
    }
    free(d->pos);
    free(d->first);
    d->pos = pos;
    d->first = first;
    return 0;
}

static int open_dim(struct oracle_side *s, int k)
{
    struct oracle_side_dim *d = &s->dim[k];
    const weft_dim *w = &s->desc.dims[k];
    *d = (struct oracle_side_dim){.extent = w->extent, .lo = w->lo, .hi = w->hi, .pieces = 1};
    for (int i = 0; i < w->nsplits; i++)
        d->pieces *= s->desc.axes[axis_number(&s->desc, w->splits[i].axis)].size;
    d->first = numbers(d->pieces);
    d->pos = numbers(d->extent);
    d->offset = numbers(d->pieces);
    d->owner_piece = numbers(d->extent);
    d->owner_slot = numbers(d->extent);
    int64_t *all = numbers(d->extent);
    if (!d->first || !d->pos || !d->offset || !d->owner_piece || !d->owner_slot || !all) {
        free(all);
        return WEFT_ENOMEM;
    }
    for (int64_t i = 0; i < d->extent; i++)
        all[i] = i;
    d->first[0] = 0;
    int err = deal(&(struct dealing){.l = &s->desc, .dim = w, .d = d}, 0, all, d->extent);
    free(all);
    if (err)
        return err;
    find_owners(d);
    for (int64_t c = 0; c < d->pieces; c++) {
        int64_t rest = c;
        d->offset[c] = 0;
        for (int i = w->nsplits - 1; i >= 0; i--) {
            int a = axis_number(&s->desc, w->splits[i].axis);
            d->offset[c] += rest % s->desc.axes[a].size * s->stride[a];
            rest /= s->desc.axes[a].size;
        }
    }
    return d->lo || d->hi ? add_ghosts(d, w->wrap) : 0;
}

/* All combinations of coordinates of the n axes in list: what each adds to the mesh position, the last axis fastest. */
static int64_t *combinations(const struct oracle_side *s, const int *list, int n, int64_t *count)
{
    *count = 1;
    for (int i = 0; i < n; i++)
        *count *= s->desc.axes[list[i]].size;
    int64_t *out = numbers(*count);
    for (int64_t c = 0; out && c < *count; c++) {
        int64_t rest = c;
        out[c] = 0;
        for (int i = n - 1; i >= 0; i--) {
            out[c] += rest % s->desc.axes[list[i]].size * s->stride[list[i]];
            rest /= s->desc.axes[list[i]].size;
        }
    }
    return out;
}

/* What each axis that splits no dim does. */
static int open_folds(struct oracle_side *s)
{
    int free_axes[WEFT_MAX_AXES], nfree = 0;
    bool used[WEFT_MAX_AXES] = {false};
    for (int k = 0; k < s->desc.ndim; k++)
        for (int i = 0; i < s->desc.dims[k].nsplits; i++)
            used[axis_number(&s->desc, s->desc.dims[k].splits[i].axis)] = true;
    s->nlevels = s->desc.nfolds;
    for (int i = 0; i < s->nlevels; i++) {
        const weft_fold *f = &s->desc.folds[i];
        s->level[i] = (struct oracle_side_level){.op = (int)f->op, .terms = 1};
        for (int j = 0; j < f->nover; j++) {
            if (!strcmp(f->over[j], "~")) {
                s->level[i].ghosts = s->ghost_terms = true;
                continue;
            }
            int a = axis_number(&s->desc, f->over[j]);
            used[a] = true;
            s->fold_axis[s->nfold_axes++] = a;
            s->level[i].terms *= s->desc.axes[a].size;
        }
    }
    for (int a = 0; a < s->desc.naxes; a++)
        if (!used[a])
            free_axes[nfree++] = a;
    s->fold = combinations(s, s->fold_axis, s->nfold_axes, &s->folds);
    s->replica = combinations(s, free_axes, nfree, &s->replicas);
    s->coord = numbers(s->folds * s->nlevels);
    if (!s->fold || !s->replica || !s->coord)
        return WEFT_ENOMEM;
    for (int64_t c = 0; c < s->folds; c++) {
        int64_t rest = c;
        for (int i = s->nlevels - 1; i >= 0; i--) {
            s->coord[c * s->nlevels + i] = rest % s->level[i].terms;
            rest /= s->level[i].terms;
        }
    }
    return 0;
}

int oracle_side_open(struct oracle_side *s, const weft_layout *l)
{
    *s = (struct oracle_side){.desc = {.size = sizeof s->desc}};
    int err = weft_layout_describe(l, &s->desc);
    if (err)
        return err;
    s->dtype = (int)s->desc.dtype;
    s->width = weft_dtype_size(s->dtype);
    s->mesh = 1;
    for (int a = s->desc.naxes - 1; a >= 0; a--) {
        s->stride[a] = s->mesh;
        s->mesh *= s->desc.axes[a].size;
    }
    for (int64_t i = 0; i < s->mesh; i++)
        s->world = s->desc.ranks[i] >= s->world ? s->desc.ranks[i] + 1 : s->world;
    err = WEFT_ENOMEM;
    s->index = numbers(s->world);
    if (!s->index)
        goto fail;
    for (int r = 0; r < s->world; r++)
        s->index[r] = -1;
    for (int64_t i = 0; i < s->mesh; i++)
        s->index[s->desc.ranks[i]] = i;
    for (int k = 0; k < s->desc.ndim; k++)
        if ((err = open_dim(s, k)))
            goto fail;
    if ((err = open_folds(s)))
        goto fail;
    return 0;
fail:
    oracle_side_close(s);
    return err;
}

void oracle_side_close(struct oracle_side *s)
{
    for (int k = 0; k < WEFT_MAX_DIMS; k++) {
        struct oracle_side_dim *d = &s->dim[k];
        free(d->first);
        free(d->pos);
        free(d->offset);
        free(d->owner_piece);
        free(d->owner_slot);
        free(d->at);
        free(d->where);
    }
    free(s->index);
    free(s->fold);
    free(s->coord);
    free(s->replica);
    *s = (struct oracle_side){.mesh = 0};
}

static int index_dim(struct oracle_side_dim *d)
{
    int64_t slots = d->first[d->pieces];
    d->at = numbers(d->extent + 1);
    d->where = malloc(((size_t)slots + 1) * sizeof *d->where);
    if (!d->at || !d->where)
        return WEFT_ENOMEM;
    memset(d->at, 0, ((size_t)d->extent + 2) * sizeof *d->at);
    for (int64_t i = 0; i < slots; i++)
        if (d->pos[i] >= 0)
            d->at[d->pos[i] + 2]++; /* shifted by two: the filling below moves each start to its end */
    for (int64_t p = 2; p < d->extent + 2; p++)
        d->at[p] += d->at[p - 1];
    for (int ghosts = 0; ghosts < 2; ghosts++)
        for (int64_t c = 0; c < d->pieces; c++)
            for (int64_t i = 0; i < oracle_side_extent(d, c); i++) {
                int64_t p = d->pos[d->first[c] + i];
                if (p >= 0 && oracle_side_ghost(d, c, i) == (ghosts == 1))
                    d->where[d->at[p + 1]++] = (struct oracle_side_slot){c, i, ghosts == 1};
            }
    return 0;
}

int oracle_side_index(struct oracle_side *s)
{
    for (int k = 0; k < s->desc.ndim; k++)
        if (!s->dim[k].at && index_dim(&s->dim[k]))
            return WEFT_ENOMEM;
    return 0;
}

int64_t oracle_side_piece(const struct oracle_side *s, int64_t index, int dim)
{
    const weft_dim *w = &s->desc.dims[dim];
    int64_t piece = 0;
    for (int i = 0; i < w->nsplits; i++) {
        int a = axis_number(&s->desc, w->splits[i].axis);
        piece = piece * s->desc.axes[a].size + index / s->stride[a] % s->desc.axes[a].size;
    }
    return piece;
}

int64_t oracle_side_combo(const struct oracle_side *s, int64_t index)
{
    int64_t combo = 0;
    for (int i = 0; i < s->nfold_axes; i++) {
        int a = s->fold_axis[i];
        combo = combo * s->desc.axes[a].size + index / s->stride[a] % s->desc.axes[a].size;
    }
    return combo;
}

int64_t oracle_side_count(const struct oracle_side *s, int rank)
{
    if (rank < 0 || rank >= s->world || s->index[rank] < 0)
        return 0;
    int64_t n = 1;
    for (int k = 0; k < s->desc.ndim; k++)
        n *= oracle_side_extent(&s->dim[k], oracle_side_piece(s, s->index[rank], k));
    return n;
}
