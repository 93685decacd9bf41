/* Slices: what the algorithms of the table move. In a group of ranks (those that differ on the axes that change their
 * role) slice (i, k) is what member i's source piece and member k's destination piece have in common. */
#ifndef WEFT_LOWER_ROWS_SLICE_H
#define WEFT_LOWER_ROWS_SLICE_H
#include "lower/recognise.h"

struct group {
    const struct job *j;
    uint32_t axes;
    int64_t size, me; /* number of members, and which of them this rank is */
};
void slice_group_open(const struct job *j, const struct recognised *r, struct group *g);
int slice_group_rank(const struct group *g, int64_t member);

/* Where a slice is on this rank: the parts of its boxes, and the nodes that write them. */
struct slice {
    const struct job *j;
    size_t n, cap;            /* boxes */
    struct span *box;         /* n * ndim */
    int space;                /* enum plan_space, 0: not here */
    uint32_t *buf;            /* TEMP: one for each box */
    uint32_t *node;           /* one for each box; DRAFT_NONE if the slice is in the source buffer */
    const struct span *whole; /* TEMP: the box that the buffer holds, of which the slice is a part; NULL: all of it */
};

/* Makes slice (i, k). It is in the source buffer if i is this rank. With pieces > 1 it is only number `part` of
 * `pieces` even cuts. */
int slice_open(const struct group *g, int64_t i, int64_t k, int64_t part, int64_t pieces, struct slice *out);
/* Makes the slice of `n` such cuts of slice (me, me), from number `part` on. */
int slice_open_cuts(const struct group *g, int64_t part, int64_t n, int64_t pieces, struct slice *out);
bool slice_is_plain(const struct slice *b); /* one box, and one run in each dim */
/* Says that `b` is where `of` is, which is plain and has all of b's elements. */
void slice_within(struct slice *b, const struct slice *of);
/* Makes a slice of the whole tensor, for pairs in which neither side is split. It is in the source buffer if `here`. */
int slice_whole(const struct job *j, bool here, int64_t part, int64_t pieces, struct slice *out);
/* slice_boxes makes the boxes of a product of runs, cut to the most elements of a part of a message, without places.
 * slice_places makes room for their places. */
int slice_boxes(struct slice *b, const struct pair_runs *runs);
int slice_places(struct slice *b);
int64_t slice_count(const struct slice *b); /* elements */
int slice_send(const struct slice *b, int32_t stage, int peer, int wire);
/* Sends the slice when all these nodes are done. */
int slice_send_after(const struct slice *b, int32_t stage, int peer, int wire, const uint32_t *nodes, size_t n);
/* Receive into scratch of the wire's dtype, or straight into the destination. */
int slice_recv_temp(struct slice *b, int32_t stage, int peer, int wire);
int slice_recv_dst(struct slice *b, int32_t stage, int peer, int wire);
/* Receives a finished value that this rank sends on: into the destination and, if the wire's dtype is another, also
 * into scratch as it came. */
int slice_recv_on(struct slice *b, int32_t stage, int peer, int wire);
/* Copies the slice into the destination; the slice itself stays where it is. */
int slice_copy_dst(const struct slice *b, int32_t stage);
/* Folds terms[0..n), which are the same slice, in this order, into *out. With `last`, *out is the finished value,
 * divided by div, in the destination. With `keep`, and if the wire's dtype is another, it is also in scratch, from
 * which it can be sent on. Without `last`, *out is a partial value in scratch of the accumulation dtype. */
int slice_fold(const struct slice *terms, size_t n, int32_t stage, bool last, bool keep, int64_t div,
               struct slice *out);
#endif
