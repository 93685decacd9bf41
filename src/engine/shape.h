/* The geometry of parts: which loops walk through one in memory, how long the spans are that lie in one piece, and how
 * far apart these are. Everything that asks whether a message is dense, scattered, a list of lines or a transpose asks
 * here.
 *
 * A shape has one side, or two that are walked together: side 0 is the one that is written. */
#ifndef WEFT_ENGINE_SHAPE_H
#define WEFT_ENGINE_SHAPE_H
#include "engine/block.h"

struct shape {
    int loops; /* that are left after merging, outermost first */
    int outer; /* loops around a span: all of them, or all but the last */
    bool span; /* the last loop walks elements that follow each other on every side */
    int64_t n[MEMORY_LOOPS], stride[2][MEMORY_LOOPS]; /* strides in bytes */
    int64_t length;                                   /* elements of a span, 1 where the last loop is none */
};

/* ---- loops ---- */

/* A part's loops, outermost first: two a dim. Returns their number; *at is the first element's offset in bytes. */
int shape_loops(const weft_plan *p, const struct plan_part *part, const int64_t *dim_stride, int64_t *n,
                int64_t *stride, int64_t *at);
/* The strides of the same loops over a dense message. */
void shape_dense(int loops, const int64_t *n, int64_t size, int64_t *stride);
/* Makes k operands walk together in as few and as long loops as can be: drops loops of one turn, puts the others in
 * order of operand 0's memory, joins neighbours. Returns the loops that are left. */
int shape_merge(int loops, int64_t *n, int64_t (*stride)[MEMORY_LOOPS], size_t k);

/* ---- shapes ---- */

/* Of a part that a block describes. */
struct shape shape_side(const struct block *b, const struct block_part *part);
/* Of both ends of a part, which have the same loops: to be read at src and written at dst. */
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

/* Are most bytes of these SENDs, or RECVs, far apart in this rank's memory? */
bool shape_scattered(const weft_exec *x, const struct program *p, const uint32_t *steps, uint32_t n);
/* How many spans of this rank's memory a SEND or RECV is. */
int64_t shape_spans(const weft_exec *x, const struct program *p, uint32_t step);
#endif
