/* Slabs: a part is moved slab by slab. A slab is a box of the global tensor: one index in each dim before `dim`, a
 * range in `dim`, and all of the dims behind it. Local arrays are in ascending order of the global index. So the
 * elements of a slab that a piece has are one range of its array, in whichever way it is split, and one range of its
 * file. (If parts are fused along a dim behind `dim`, they are several ranges of the file.) Source pieces cover a slab
 * once, and so do destination pieces. So each byte is read once and written once to each file that has it, and a buffer
 * of the slab's size on either side is enough. */
#ifndef WEFT_CHECKPOINT_SLAB_H
#define WEFT_CHECKPOINT_SLAB_H
#include "checkpoint/checkpoint.h"
#include "layout/runs.h"

/* Where a piece is kept: an array of a file, in which the piece begins at `cat` along the dim of the entry's parts. */
struct slab_place {
    const struct checkpoint_file *file;
    const struct checkpoint_hold *hold;
    int64_t cat;
};
/* A piece of a part that is not empty. */
struct slab_piece {
    struct runs runs[WEFT_MAX_DIMS];
    int64_t shape[WEFT_MAX_DIMS];
    struct slab_place *places; /* equal copies */
    size_t nplaces;
};
struct slab_side {
    int dtype;
    int cat;
    bool fused;
    struct slab_piece *pieces;
    size_t npieces;
};

/* A part cut into slabs: its pieces on both sides, and how large the slabs are. It owns its memory. */
struct slab_cut {
    struct arena arena;
    const struct checkpoint_part *part;
    int ndim; /* a scalar has one dim of 1 here */
    int64_t shape[WEFT_MAX_DIMS];
    int dim;
    int64_t rows; /* rows of a slab, in dim */
    int64_t per;  /* slabs for each combination of indices in the dims before */
    int64_t slabs;
    struct slab_side src, dst;
};

/* What one thread works with. */
struct slab_buffers {
    unsigned char *read, *write;
    size_t size; /* bytes of each buffer */
    struct arena arena;
};

/* Cuts a part into slabs of at most `size` bytes on either side. slabs is 0 if the part has no elements. */
int slab_cut_make(const struct checkpoint *c, const struct checkpoint_part *p, size_t size, struct slab_cut *out);
void slab_cut_free(struct slab_cut *p);
/* Reads, copies and writes slab number i; *written counts bytes in all files, *read those of the source. */
int slab_move(const struct slab_cut *p, int64_t i, struct slab_buffers *b, int64_t *read, int64_t *written);
#endif
