/* What each rank holds, straight from the definitions and element by element: lists of positions
 * that splits deal out, one after the other. It reads the sample's struct form and calls nothing
 * of the library. */
#ifndef WEFT_TESTS_LAYOUT_ORACLE_H
#define WEFT_TESTS_LAYOUT_ORACLE_H
#include <stdint.h>

#include "layout_random.h"

enum { ORACLE_MOST = 4096 }; /* slots along a dim */

/* One rank's share of one dim. */
struct oracle {
    int64_t n, at[ORACLE_MOST];      /* the interior: positions in ascending order */
    int64_t room, slot[ORACLE_MOST]; /* the local buffer: the position that each place stands for, or -1 */
    int64_t first;                   /* place of the interior */
};
int oracle_axis(const struct sample *s, const char *name);

/* The position of a rank in the mesh, or -1. */
int64_t oracle_index(const struct sample *s, int rank);

/* Row-major: the last axis turns fastest. */
int64_t oracle_coord(const struct sample *s, int64_t index, int axis);
void oracle_dim(const struct sample *s, int dim, int64_t index, struct oracle *o);
#endif
