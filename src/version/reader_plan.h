/* What a reader copies: from the layouts of the publisher and its own, by arithmetic alone. Along each dim the pieces
 * of both sides are joined as lowering joins them (runs_join), and only pieces that meet the reader's own are looked
 * at.
 *
 * A piece is what one rank of the publisher holds of one tensor, as far as the reader needs it. Ranks that hold the
 * same piece are its holders; which of them is asked is decided for each fetch. In a mesh the holders have the piece at
 * the same place. If a side is boxes, each holder has a piece of its own: of `ways` pieces in a row one is read.
 *
 *     reader_plan.c    names; two meshes; holders
 *     reader_boxes.c   boxes
 *     reader_piece.c   pieces and their blocks */
#ifndef WEFT_VERSION_READER_PLAN_H
#define WEFT_VERSION_READER_PLAN_H
#include "memory/memory.h"
#include "version/schema.h"

/* One nest of loops from the publisher's array (operand 1) to the reader's (operand 0). */
struct reader_step {
    int64_t from, to; /* bytes */
    int loops;
    const int64_t *v; /* n, then the strides of operand 0 and of operand 1: `loops` each */
};
/* Consecutive blocks of the publisher's array. */
struct reader_run {
    int64_t first, end;
};
/* The byte behind a run in an array of `bytes` bytes. */
static inline int64_t reader_run_end(const struct reader_run *r, int64_t bytes)
{
    return r->end * SCHEMA_BLOCK < bytes ? r->end * SCHEMA_BLOCK : bytes;
}
struct reader_piece {
    size_t mine, theirs;   /* tensors of the two schemas */
    int rank;              /* its only holder; -1: those of a mesh */
    int64_t index;         /* rank -1: the mesh position of its first holder */
    size_t ways;           /* this piece and those behind it that have the same elements; 0: an earlier one counts it */
    int together;          /* the number of this rank among those that hold the same elements of the reader's tensor, if
                              ranks may check its digests together (fetch_share.h); -1: each checks whole blocks */
    int64_t lo, hi, bytes; /* of the publisher's array: the range that is touched, and how many bytes in it */
    const struct reader_step *steps;
    size_t nsteps;
    const struct reader_run *runs; /* the blocks with an element that is needed, in order */
    size_t nruns;
};
struct reader_plan {
    struct arena arena;
    struct reader_piece *pieces;
    size_t n, cap;
    int64_t bytes; /* to be read, in the published dtypes */
};

/* Compares names, shapes and dtypes. WEFT_EMISMATCH: the text lists what does not fit. */
int reader_plan_check(const char *set, const struct schema *theirs, const struct schema *mine, bool only);
/* packed: the reader's tensors that are boxes are staged packed (packed.h), otherwise as in its own buffers.
 * WEFT_EMISMATCH: the publisher has no element for some that the reader needs. */
int reader_plan_make(const struct schema *theirs, const struct schema *mine, int rank, bool packed,
                     struct reader_plan *out);
void reader_plan_free(struct reader_plan *p);

/* The ranks that hold a piece whose `ways` is not 0: how many, and number k of them; *read: the piece to read there. */
int64_t reader_plan_holders(const struct reader_plan *p, const struct schema *theirs, size_t piece);
int reader_plan_holder(const struct reader_plan *p, const struct schema *theirs, size_t piece, int64_t k, size_t *read);
/* Is every piece of every tensor that the reader's list has held by a live rank? *missing is a rank whose part is not.
 */
bool reader_plan_covered(const struct schema *theirs, const struct schema *mine, const bool *live, int *missing);
void reader_plan_tile(const struct reader_step *s, struct memory_tile *out);
#endif
