/* What a reader copies: from the layouts of the publisher and its own, by arithmetic alone. Along each dim the pieces
 * of both sides are joined as lowering joins them (runs_join), and only pieces that meet the reader's own are looked
 * at.
 *
 * A piece is what one rank of the publisher holds of one tensor, as far as the reader needs it. Ranks that hold the
 * same piece are its holders; which of them is asked is decided for each fetch. */
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
struct reader_piece {
    size_t mine, theirs;   /* tensors of the two schemas */
    int64_t index;         /* the mesh position of its first holder */
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
int reader_plan_make(const struct schema *theirs, const struct schema *mine, int rank, struct reader_plan *out);
void reader_plan_free(struct reader_plan *p);

/* The ranks that hold a piece of a layout: how many, and number k of them. */
int64_t reader_plan_holders(const weft_layout *l);
int reader_plan_holder(const weft_layout *l, int64_t index, int64_t k);
/* Is every piece of every tensor that the reader's list has held by a live rank? *missing is a rank whose part is not.
 */
bool reader_plan_covered(const struct schema *theirs, const struct schema *mine, const bool *live, int *missing);
void reader_plan_tile(const struct reader_step *s, struct memory_tile *out);
#endif
