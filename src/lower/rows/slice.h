/* Blocks: what the algorithms of the table move about. In a group of ranks (those that differ on
 * the axes that change their role) block (i, k) is what member i's source piece and member k's
 * destination piece have in common. */
#ifndef WEFT_LOWER_ROWS_SLICE_H
#define WEFT_LOWER_ROWS_SLICE_H
#include "lower/recognise.h"

struct group {
    const struct job *j;
    uint32_t axes;
    int64_t size, me; /* members, and which one this rank is */
};
void group_open(const struct job *j, const struct recognised *r, struct group *g);
int group_rank(const struct group *g, int64_t member);

/* Where a block is on this rank: the parts of its boxes, and the nodes that put them there. */
struct block {
    const struct job *j;
    size_t n, cap;    /* boxes */
    struct span *box; /* n * ndim */
    int space;        /* enum plan_space, 0: not here */
    uint32_t *buf;    /* TEMP: one a box */
    uint32_t *node;   /* one a box, DRAFT_NONE for the source's own */
};

/* Makes block (i, k), in the source buffer if i is this rank. With pieces > 1 only cut number `part` of `pieces` even
 * cuts. */
int block_open(const struct group *g, int64_t i, int64_t k, int64_t part, int64_t pieces, struct block *out);
/* The whole tensor, where neither side is split: in the source buffer if it is here. */
int block_whole(const struct job *j, bool here, int64_t part, int64_t pieces, struct block *out);
/* The boxes of a product of runs, cut to what a message may have; and no place for them yet. */
int block_boxes(struct block *b, const struct pair_runs *runs);
int block_places(struct block *b);
int64_t block_count(const struct block *b); /* elements */
int block_send(const struct block *b, int32_t stage, int peer, int wire);
/* Into scratch of the wire's dtype, or straight into the destination. */
int block_recv_temp(struct block *b, int32_t stage, int peer, int wire);
int block_recv_dst(struct block *b, int32_t stage, int peer, int wire);
/* Finished value that goes on to others: into the destination, and kept as it travels where the dtypes differ. */
int block_recv_on(struct block *b, int32_t stage, int peer, int wire);
/* Copies what this rank holds of the block into the destination; the block stays where it is. */
int block_copy_dst(const struct block *b, int32_t stage);
/* Folds terms[0..n) of the same block, in this order, into *out. last: the finished value, divided by div, into the
 * destination (keep: and where the wire's dtype is another, into scratch from which it can travel on); else a partial
 * value into scratch of the accumulation dtype. */
/* The op of the one fold that has more than one term, avg included; 0 when there are none or several. */
int fold_op(const struct job *j);
int block_fold(const struct block *terms, size_t n, int32_t stage, bool last, bool keep, int64_t div,
               struct block *out);
#endif
