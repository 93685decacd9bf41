/* One side of a pair, computed by brute force from the struct form of its layout: along each dim the position of each
 * slot of each piece, and which mesh positions hold which piece and which summand. It follows the definitions
 * (positions are dealt out split by split) and does not use the library's layout arithmetic. */
#ifndef WEFT_CLI_CHECK_ORACLE_SIDE_H
#define WEFT_CLI_CHECK_ORACLE_SIDE_H
#include <stdbool.h>
#include <stdint.h>

#include "weft.h"

/* A slot that has a position. */
struct oracle_side_slot {
    int64_t piece, slot;
    bool ghost;
};

/* One dim. Piece c has slots first[c] .. first[c + 1] - 1 of pos, ghosts included; an empty piece has none. */
struct oracle_side_dim {
    int64_t extent, lo, hi;
    int64_t pieces;
    int64_t *first;
    int64_t *pos;         /* of each slot; -1: it has none */
    int64_t *offset;      /* of each piece: what it adds to the mesh position */
    int64_t *owner_piece; /* of each position: the piece whose interior holds it, and the slot there */
    int64_t *owner_slot;
    int64_t *at;                    /* the slots of position p are where[at[p]] .. where[at[p + 1] - 1], owner first */
    struct oracle_side_slot *where; /* both NULL until oracle_side_index */
};

/* The summands of one element, apart from its ghosts: one for each combination of coordinates of the fold axes. */
struct oracle_side_level {
    int op;
    bool ghosts;
    int64_t terms; /* combinations of its own axes */
};

struct oracle_side {
    weft_layout_desc desc; /* its flag WEFT_LAYOUT_FACES says that corners are no copies; see oracle_side_corner */
    int dtype;
    size_t width; /* bytes of an element */
    struct oracle_side_dim dim[WEFT_MAX_DIMS];
    int64_t stride[WEFT_MAX_AXES]; /* of an axis in the mesh's numbering */
    int64_t mesh;
    int world;      /* one more than the largest rank */
    int64_t *index; /* of each rank: its mesh position, or -1 */
    int nlevels;    /* folds, in the order written */
    struct oracle_side_level level[WEFT_MAX_AXES + 1];
    bool ghost_terms; /* ghosts are summands */
    int64_t folds;    /* combinations of all fold axes */
    int fold_axis[WEFT_MAX_AXES], nfold_axes;
    int64_t *fold;    /* of each: what it adds to the mesh position */
    int64_t *coord;   /* of each: nlevels coordinates, one for each level */
    int64_t replicas; /* combinations of the free axes */
    int64_t *replica; /* of each: what it adds to the mesh position */
};

/* 0 or WEFT_ENOMEM. The layout must outlive the side. On an error there is nothing to close. */
int oracle_side_open(struct oracle_side *s, const weft_layout *l);
void oracle_side_close(struct oracle_side *s);
int oracle_side_index(struct oracle_side *s); /* builds at and where of all dims; 0 or WEFT_ENOMEM */

int64_t oracle_side_piece(const struct oracle_side *s, int64_t index, int dim); /* of a mesh position */
int64_t oracle_side_combo(const struct oracle_side *s, int64_t index);          /* its combination of the fold axes */
static inline int64_t oracle_side_extent(const struct oracle_side_dim *d, int64_t piece) /* slots */
{
    return d->first[piece + 1] - d->first[piece];
}
static inline bool oracle_side_ghost(const struct oracle_side_dim *d, int64_t piece, int64_t slot)
{
    return slot < d->lo || slot >= oracle_side_extent(d, piece) - d->hi;
}
/* Is a slot that is a ghost in this many dims no copy of an element? */
static inline bool oracle_side_corner(const struct oracle_side *s, int ghosts)
{
    return ghosts > 1 && s->desc.flags & WEFT_LAYOUT_FACES;
}
int64_t oracle_side_count(const struct oracle_side *s, int rank); /* slots of the rank's buffer */
#endif
