/* What the files of the oracle share. */
#ifndef WEFT_CLI_CHECK_ORACLE_IMPL_H
#define WEFT_CLI_CHECK_ORACLE_IMPL_H
#include "cli/check/oracle.h"
#include "cli/check/oracle_side.h"

struct oracle {
    struct oracle_side src, dst;
    int ndim;
    int64_t extent[WEFT_MAX_DIMS];
    int64_t elements;
    int world;
    bool strict;          /* neither fold nor cast: NaN keep their bits */
    unsigned char *value; /* of each element, in the destination's dtype; after oracle_take */
    uint64_t small[17];   /* codes of -8 .. 8 in the source's dtype, if that is a float, or in the dtype of its parts */
};

/* One summand of an element. */
struct oracle_term {
    int64_t at; /* the mesh position that has it and whose free coordinates are 0 */
    int rank;   /* the rank at that position */
    bool ghost;
    int64_t slot;  /* in that rank's buffer */
    int64_t piece; /* mesh offset of its piece: with slot, tells ghosts apart */
    int64_t combo; /* combination of the fold axes */
    int close;     /* how many levels, innermost first, are complete before this term */
    int64_t
        key[WEFT_MAX_AXES + 1]; /* for each level: number of the first term of its group, counted by rank and slot */
};
struct oracle_terms {
    struct oracle_term *v;
    size_t n, cap;
};

/* All terms of the element at `index`, in the order in which they are folded. out is reused; the caller frees out->v.
 * Returns 0 or WEFT_ENOMEM. If ghosts are summands, oracle_side_index must have been called on the source. */
int oracle_terms_of(const struct oracle_side *s, const int64_t *index, struct oracle_terms *out);

/* The next index in row-major order; false after the last. */
static inline bool oracle_step(int ndim, const int64_t *extent, int64_t *index)
{
    for (int k = ndim - 1; k >= 0; k--) {
        if (++index[k] < extent[k])
            return true;
        index[k] = 0;
    }
    return false;
}
#endif
