/* Slabs of a source that has replicas, for a destination whose pieces are short runs in it, such as columns of a
 * matrix.
 *
 * By the general lowering a rank takes its columns from one replica, its own if it has one. With short runs every rank
 * then goes through all cache lines of a replica. Here each replica gives a slab of its piece, whole rows, to all ranks
 * that need a part of it. So each cache line is read by one rank, which writes what is in it to the others.
 *
 * For the lowering, a replica has nothing but its slab: `shares` is the layout of the source with the axes of the
 * replicas as innermost splits of one dim. The rank's buffer is that of the source. The slab begins at a row of it. */
#include "base/math.h"
#include "lower/rows/rows.h"

#define CACHE_LINE 64     /* bytes: a row of the slab is read once, however many ranks have parts of a cache line */
#define LEAST_MESSAGE 256 /* from a replica to a rank */
#define MOST_RANKS 512    /* of either mesh */

/* The dim along which pieces of the source are cut into slabs: the first one that gives all replicas about the same.
 * -1: there is none. */
static int cut_dim(const struct job *j)
{
    for (int d = 0; d < j->ndim; d++) {
        int64_t rows = layout_piece_extent(j->src, d, 0, NULL);
        if ((rows && rows % j->s_replicas == 0) || rows >= 8 * j->s_replicas)
            return d;
    }
    return -1;
}

const char *row_shares_unfit(const struct job *j)
{
    if (j->src->boxes || j->dst->boxes)
        return "one side is boxes";
    if (j->s_replicas < 2)
        return "the source has neither a fold nor replicas";
    if (cut_dim(j) < 0)
        return "no dim is long enough for a slab on each replica";
    for (int d = 0; d < j->ndim; d++) {
        if (j->src->dim[d].lo || j->src->dim[d].hi || j->dst->dim[d].lo || j->dst->dim[d].hi)
            return "there are ghosts";
        for (int s = 0; s < j->src->dim[d].nsplits; s++)
            if (j->src->dim[d].split[s].block)
                return "the source deals blocks";
    }
    if (j->src->mesh > MOST_RANKS || j->dst->mesh > MOST_RANKS)
        return "a mesh has more than 512 ranks";
    return NULL;
}

/* How many ranks have different parts of a row of the slabs. */
static int64_t parts_of_row(const struct job *j, int cut)
{
    int64_t n = 1;
    for (int s = 0; s < j->dst->dim[cut].nsplits; s++)
        if (j->dst->dim[cut].split[s].block)
            n *= j->dst->axis[j->dst->dim[cut].split[s].axis].size;
    for (int d = cut + 1; d < j->ndim; d++)
        n *= j->dst->dim[d].pieces;
    return n;
}

/* Several ranks have parts of the same cache lines. The ranks of the source are at least half as many as those that
 * would otherwise share the work. And what a replica gives to a rank is worth a message. */
bool row_shares_pays(const struct job *j, int64_t run)
{
    const int64_t bytes = rows_count(j->dst, 0) * (int64_t)weft_dtype_size(j->src->dtype);
    return run <= CACHE_LINE && parts_of_row(j, cut_dim(j)) > 1 && 2 * j->src->mesh >= j->dst->mesh &&
           bytes >= LEAST_MESSAGE * j->src->mesh;
}

int row_shares_make(const struct job *j, weft_layout **out)
{
    weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
    weft_dim dims[WEFT_MAX_DIMS];
    const int cut = cut_dim(j);
    int rc = weft_layout_describe(j->src, &desc);
    if (rc)
        return rc;
    for (int d = 0; d < j->ndim; d++)
        dims[d] = desc.dims[d];
    for (int a = 0; a < j->src->naxes; a++)
        if (j->s_free & 1u << a)
            dims[cut].splits[dims[cut].nsplits++] = (weft_split){.axis = desc.axes[a].name};
    desc.dims = dims;
    return weft_layout_create(&desc, out);
}

/* Where this rank's slab begins in its piece, along the dim that is cut. */
static int slab_start(const struct job *j, const struct job *shares, int cut, int64_t *out)
{
    struct runs piece = {.arena = j->arena}, slab = {.arena = j->arena};
    int rc = layout_piece_interior(j->src, cut, layout_piece(j->src, j->si, cut), &piece);
    if (!rc)
        rc = layout_piece_interior(shares->src, cut, layout_piece(shares->src, j->si, cut), &slab);
    *out = !rc && slab.n ? slab.v[0].at - piece.v[0].at : 0;
    return rc;
}

int row_shares(const struct job *j, const weft_layout *layout)
{
    struct job shares;
    int rc = job_open(&shares, j->d, &(weft_move){NULL, layout, j->dst}, j->machine);
    if (!rc && j->si >= 0) {
        shares.slab_dim = cut_dim(j);
        rc = slab_start(j, &shares, shares.slab_dim, &shares.slab_start);
    }
    return rc ? rc : lower_direct(&shares);
}
