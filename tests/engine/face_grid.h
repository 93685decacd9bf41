/* Grids whose faces lie far apart, in memory that all ranks reach: made, filled, checked. For tests of the ways that
 * such faces are copied. */
#ifndef WEFT_TESTS_FACE_GRID_H
#define WEFT_TESTS_FACE_GRID_H
#include <stdbool.h>
#include <stdint.h>

#include "support/halo_grid.h"
#include "support/ranks.h"

struct faces {
    const char *what;
    struct grid grid;
    bool apart;  /* the source is memory of its own, without ghosts */
    bool shared; /* the driver faces drives it where ranks share cores, */
    bool spans;  /* and also where each rank has a core, since the faces span enough memory */
    bool mixed;  /* faces along other dims are not far apart */
};

/* The first two dims are not cut: their extents make the runs of a face. */
#define PLANE(a, b)       \
    {a, 1, 0, 0, false},  \
    {                     \
        b, 1, 0, 0, false \
    }

struct mine {
    const struct faces *of;
    struct grid_rank at;
    struct grid_view view;
    weft_view src;
    weft_layout *own, *all;
    weft_plan *plan;
    weft_exec *exec;
    int64_t *buffer, *dense;
};
int faces_make(struct mine *m, struct ranks_rank *r);
void faces_drop(struct mine *m, struct ranks_rank *r);
void faces_fill(struct mine *m, int64_t salt);
int64_t faces_wrong(const struct mine *m, int64_t salt);
void faces_check(struct ranks_rank *r, const struct mine *m, int64_t salt);
/* One run, of six that follow each other: bound again before run 3; in runs 4 and 5 one rank starts when the others
 * have started. */
void faces_run(struct ranks_rank *r, struct mine *m, int64_t run);

/* Rank 1 dies when it has begun a run, which ends all the same; the next one does not. */
void faces_deserted(struct ranks_rank *r);
#endif
