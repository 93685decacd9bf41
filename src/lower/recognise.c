#include "lower/recognise.h"

static bool same_dim_shape(const struct layout_dim *a, const struct layout_dim *b)
{
    if (a->nsplits != b->nsplits)
        return false;
    for (int s = 0; s < a->nsplits; s++)
        if (a->split[s].axis != b->split[s].axis || a->split[s].block != b->split[s].block)
            return false;
    return true;
}

static bool same_roles(const weft_layout *a, const weft_layout *b)
{
    if (!layout_same_sizes(a, b) || a->nfolds != b->nfolds)
        return false;
    for (int i = 0; i < a->naxes; i++)
        if (a->axis[i].role != b->axis[i].role)
            return false;
    for (int d = 0; d < a->ndim; d++)
        if (!same_dim_shape(&a->dim[d], &b->dim[d]))
            return false;
    for (int f = 0; f < a->nfolds; f++)
        if (a->fold[f].op != b->fold[f].op || a->fold[f].axes != b->fold[f].axes)
            return false;
    return true;
}

static bool has_ghosts(const weft_layout *l)
{
    for (int d = 0; d < l->ndim; d++)
        if (l->dim[d].lo || l->dim[d].hi)
            return true;
    return false;
}

static uint32_t axes_with(const weft_layout *l, bool split, bool replicate, bool fold)
{
    uint32_t set = 0;
    for (int a = 0; a < l->naxes; a++) {
        int role = l->axis[a].role;
        if (l->axis[a].size > 1 && (role >= 0 ? split : role == LAYOUT_FREE ? replicate : fold))
            set |= 1u << a;
    }
    return set;
}

/* Are the splits of a dim without the axes in `but` the same on both sides, and are the axes of `but` innermost? Then
 * these axes only cut the pieces of the other axes further. */
static bool same_outer(const struct layout_dim *a, const struct layout_dim *b, uint32_t but)
{
    int na = 0, nb = 0;
    while (na < a->nsplits && !(but & 1u << a->split[na].axis))
        na++;
    while (nb < b->nsplits && !(but & 1u << b->split[nb].axis))
        nb++;
    if (na != nb)
        return false;
    for (int s = 0; s < na; s++)
        if (a->split[s].axis != b->split[s].axis || a->split[s].block != b->split[s].block)
            return false;
    for (int s = na; s < a->nsplits; s++)
        if (!(but & 1u << a->split[s].axis))
            return false;
    for (int s = nb; s < b->nsplits; s++)
        if (!(but & 1u << b->split[s].axis))
            return false;
    return true;
}

/* One mesh, and one set of axes that all change from one role to another. */
static const char *role_change(const weft_layout *src, const weft_layout *dst, struct recognised *out)
{
    int from = 0, to = 0;
    uint32_t axes = 0;
    for (int a = 0; a < src->naxes; a++) {
        int x = src->axis[a].role, y = dst->axis[a].role;
        if (src->axis[a].size == 1 || x == y || (x <= LAYOUT_FOLD && y <= LAYOUT_FOLD))
            continue;
        x = x <= LAYOUT_FOLD ? LAYOUT_FOLD : x;
        y = y <= LAYOUT_FOLD ? LAYOUT_FOLD : y;
        if (axes && (x != from || y != to))
            return "reshard";
        axes |= 1u << a;
        from = x;
        to = y;
    }
    for (int d = 0; d < src->ndim; d++)
        if (!same_outer(&src->dim[d], &dst->dim[d], axes))
            return "reshard";
    if (!axes || to == LAYOUT_FOLD)
        return "reshard";
    /* A fold that stays as it is would have to be folded and spread again: this is not a named collective. */
    for (int a = 0; a < src->naxes; a++)
        if (src->axis[a].size > 1 && !(axes & 1u << a) &&
            (src->axis[a].role <= LAYOUT_FOLD || dst->axis[a].role <= LAYOUT_FOLD))
            return "reshard";
    out->axes = axes;
    out->src_dim = from >= 0 ? from : -1;
    out->dst_dim = to >= 0 ? to : -1;
    if (from == LAYOUT_FOLD)
        return to >= 0 ? "reduce_scatter" : "allreduce";
    if (from == LAYOUT_FREE)
        return "slice";
    return to >= 0 ? "all_to_all" : "allgather";
}

static const char *rooted(const weft_layout *src, const weft_layout *dst)
{
    if (src->mesh == 1 && dst->mesh == 1)
        return mesh_rank(src, 0) == mesh_rank(dst, 0) ? "copy" : "send";
    const weft_layout *many = src->mesh == 1 ? dst : src;
    uint32_t split = axes_with(many, true, false, false), replicate = axes_with(many, false, true, false);
    uint32_t fold = axes_with(many, false, false, true);
    if (src->mesh == 1)
        return !split && !fold ? "broadcast" : split && !replicate && !fold ? "scatter" : "reshard";
    return fold && !split && !replicate ? "reduce" : split && !replicate && !fold ? "gather" : "reshard";
}

void recognise(const weft_layout *src, const weft_layout *dst, struct recognised *out)
{
    *out = (struct recognised){.kind = "reshard", .src_dim = -1, .dst_dim = -1};
    bool sg = has_ghosts(src), dg = has_ghosts(dst), mesh = layout_same_mesh(src, dst);
    if (sg || dg) {
        bool halo = mesh && same_roles(src, dst) && !src->nfolds && dg && !dst->ghost_terms;
        bool back = mesh && layout_same_sizes(src, dst) && src->ghost_terms && src->nfolds == 1 && !src->fold[0].axes &&
                    !dst->nfolds && !dg;
        for (int d = 0; d < src->ndim && back; d++)
            back = same_dim_shape(&src->dim[d], &dst->dim[d]);
        out->kind = halo ? "halo" : back ? "reverse_halo" : "reshard";
    } else if (src->mesh == 1 || dst->mesh == 1) {
        out->kind = rooted(src, dst);
    } else if (same_roles(src, dst) && !src->nfolds) {
        out->kind = mesh ? src->dtype == dst->dtype ? "identity" : "copy" : "permute";
    } else if (mesh && layout_same_sizes(src, dst)) {
        out->kind = role_change(src, dst, out);
    }
}
