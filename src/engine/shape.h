/* The geometry of parts: which loops walk through a part in memory, how long its spans are (elements that follow each
 * other), and how far apart the spans are. Whether a message is dense, scattered, a list of lines or a transpose is
 * decided here.
 *
 * A shape has one side, or two that are walked together. Side 0 is the one that is written. */
#ifndef WEFT_ENGINE_SHAPE_H
#define WEFT_ENGINE_SHAPE_H
#include "engine/block.h"

struct shape {
    int loops; /* after merging, outermost first */
    int outer; /* loops around a span: all of them, or all but the last */
    bool span; /* the last loop walks elements that follow each other on every side */
    int64_t n[MEMORY_LOOPS], stride[2][MEMORY_LOOPS]; /* strides in bytes */
    int64_t length;                                   /* elements of a span; 1 if the last loop is not a span */
};

/* ---- loops ---- */

/* A part's loops, outermost first: two for each dim. Returns how many. Sets *at to the offset of the first element, in
 * bytes. */
int shape_loops(const weft_plan *p, const struct plan_part *part, const int64_t *dim_stride, int64_t *n,
                int64_t *stride, int64_t *at);
/* The strides of the same loops over a dense message. */
void shape_dense(int loops, const int64_t *n, int64_t size, int64_t *stride);
/* Lets k operands be walked together in the fewest and longest loops: drops loops of one turn, sorts the others by
 * operand 0's strides, joins neighbours. Returns how many loops are left. */
int shape_merge(int loops, int64_t *n, int64_t (*stride)[MEMORY_LOOPS], size_t k);

/* ---- shapes ---- */

/* One side: a part that a block describes. */
struct shape shape_side(const struct block *b, const struct block_part *part);
/* Two sides: a part that is read at src and written at dst. Both have the same loops. */
struct shape shape_pair(const struct block *from, const struct block_part *src, const struct block *to,
                        const struct block_part *dst);
static inline bool shape_is_dense(const struct shape *s) /* one span is all of it */
{
    return !s->outer;
}

/* Does the last loop of a merged tile walk elements that follow each other on both sides? */
static inline bool shape_tile_span(const struct memory_tile *t, int to, int from)
{
    int last = t->loops - 1;
    return last >= 0 && t->stride[0][last] == (int64_t)weft_dtype_size(to) &&
           t->stride[1][last] == (int64_t)weft_dtype_size(from);
}

/* ---- messages ---- */

/* Are more than half of the bytes of these SENDs or RECVs in short spans that lie far apart in this rank's memory? */
bool shape_scattered(const weft_exec *x, const struct program *p, const uint32_t *steps, uint32_t n);
/* The number of spans of a SEND or RECV in this rank's memory. */
int64_t shape_spans(const weft_exec *x, const struct program *p, uint32_t step);
#endif
