/* Layouts: which rank holds which elements of a global tensor, and how copies combine. A layout is immutable once it is
 * made, and has a reference count, so that plans share it.
 *
 * Prefix of pieces.c: layout_piece_. */
#ifndef WEFT_LAYOUT_LAYOUT_H
#define WEFT_LAYOUT_LAYOUT_H
#include <stdatomic.h>
#include <stdbool.h>

#include "layout/box_list.h"
#include "layout/runs.h"
#include "weft.h"

/* What an axis does: >= 0 splits that dim; LAYOUT_FREE replicates; <= LAYOUT_FOLD folds in term LAYOUT_FOLD - role. */
enum { LAYOUT_FREE = -1, LAYOUT_FOLD = -2 };

struct layout_split {
    int axis;
    int64_t block;
};
struct layout_dim {
    int64_t extent, lo, hi;
    bool wrap;
    int nsplits;
    struct layout_split split[WEFT_MAX_AXES];
    int64_t pieces; /* product of the sizes of its axes: coordinates along this dim */
};
struct layout_axis {
    char name[WEFT_MAX_NAME + 1];
    int64_t size;
    int64_t stride; /* in the mesh's row-major numbering */
    int role;
};
struct layout_fold {
    int op;
    uint32_t axes; /* bit a: axis a */
    bool ghosts;
};
/* Scales: weft_scale. */
struct layout_scale {
    int dtype; /* 0: there are none */
    int64_t block[WEFT_MAX_DIMS];
};
/* Mesh positions index .. index+n-1 are ranks rank .. rank+n-1. */
struct layout_seg {
    int64_t index, n;
    int rank;
};

struct weft_layout {
    atomic_uint refs;
    int dtype, ndim, naxes, nfolds;
    int64_t mesh; /* ranks in the mesh */
    int nranks;   /* one more than the largest rank */
    int minrank;
    struct layout_dim dim[WEFT_MAX_DIMS];
    struct layout_axis axis[WEFT_MAX_AXES];
    struct layout_fold fold[WEFT_MAX_AXES + 1];
    bool ghost_terms; /* some fold is over the ghosts */
    struct box_list
        *boxes;      /* NULL: a mesh. Otherwise naxes is 0, and mesh positions number the ranks that have boxes */
    uint64_t allows; /* of boxes: the flags of the description */
    bool faces;      /* slots that are ghosts in two or more dims do not count; such dims exist */
    struct layout_scale scale;
    size_t nsegs;
    struct layout_seg *by_index, *by_rank; /* the same segments in two orders */
    uint64_t hash;                         /* of all that the layout means, with the names of axes */
    weft_layout_desc desc;                 /* the struct form, for weft_layout_describe */
    weft_dim desc_dim[WEFT_MAX_DIMS];
    weft_axis desc_axis[WEFT_MAX_AXES];
    weft_fold desc_fold[WEFT_MAX_AXES + 1];
    weft_boxes desc_boxes;
    weft_scale desc_scale;
    _Atomic(int *) desc_ranks; /* made when first asked for */
};

bool layout_same_mesh(const weft_layout *a, const weft_layout *b);  /* the same ranks in the same order */
bool layout_same_sizes(const weft_layout *a, const weft_layout *b); /* the same number of axes, of the same sizes */
bool layout_same_scale(const weft_layout *a, const weft_layout *b); /* both have the same, or none */
const weft_layout *layout_hold(const weft_layout *l); /* takes one more reference, which weft_layout_free drops */

/* The coordinate of a mesh position along an axis. */
static inline int64_t layout_coord(const weft_layout *l, int64_t index, int axis)
{
    return index / l->axis[axis].stride % l->axis[axis].size;
}

/* ---- mesh.c ---- */
int64_t mesh_index(const weft_layout *l, int rank); /* mesh position of a rank, or -1 */
int mesh_rank(const weft_layout *l, int64_t index);

/* ---- pieces.c ---- */
/* The coordinate along a dim: its axes' coordinates in order of its splits, row-major, below dim.pieces. */
int64_t layout_piece(const weft_layout *l, int64_t index, int dim);
/* What a coordinate along a dim adds to the mesh position. */
int64_t layout_piece_offset(const weft_layout *l, int dim, int64_t piece);

/* How many of n positions coordinate c of p gets by one split, whose blocks have this size (0: chunks). */
int64_t layout_piece_share(int64_t n, int64_t p, int64_t block, int64_t c);

/* The interior of a piece: global positions to places in the local buffer (ghosts before it count). */
int layout_piece_interior(const weft_layout *l, int dim, int64_t piece, struct runs *out);
/* All slots of a piece that have an element, ghosts included, in order of place. Runs out->v[*first .. *first +
 * *ninner) are the interior. Periodic ghosts may repeat a position. */
int layout_piece_slots(const weft_layout *l, int dim, int64_t piece, struct runs *out, size_t *first, size_t *ninner);
/* Is a place in a piece a ghost? `inner` is the extent of the piece's interior. */
static inline bool layout_piece_ghost(const weft_layout *l, int dim, int64_t inner, int64_t place)
{
    return place < l->dim[dim].lo || place >= l->dim[dim].lo + inner;
}
/* Extent of the local buffer along a dim (0 for an empty piece: it has no ghosts), and of the interior. */
int64_t layout_piece_extent(const weft_layout *l, int dim, int64_t piece, int64_t *inner);

/* Calls visit for each piece along a dim that holds some position of q, until visit returns non-zero. With `ghosts` any
 * slot counts, otherwise only the interior. The pieces come in ascending order, each once, and other pieces are not
 * walked. If q is strided, a few pieces between its repeats that hold no position of q may be among them. */
int layout_pieces_at(const weft_layout *l, int dim, const struct runs *q, bool ghosts, struct arena *arena,
                     int (*visit)(void *arg, int64_t piece), void *arg);
#endif
