/* Sums over all ranks of a comm, checked element by element, and comms split off by lists: for tests of comms that are
 * split. */
#ifndef WEFT_TESTS_SUMS_H
#define WEFT_TESTS_SUMS_H
#include <stdint.h>

#include "tensors.h"

#define SUMS_COUNT 4500 /* large enough for messages that travel in no letter, among up to 4 ranks */
#define SUMS_SMALL 96

extern int sums_count; /* elements of the sums that are made */

struct sum {
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_comm *comm;
    int32_t in[SUMS_COUNT], out[SUMS_COUNT], *from, *to;
    weft_exec *x;
    int seed;
};

/* Of the ranks of c; from and to are the caller's, or NULL for private memory. */
int sum_make(struct sum *s, weft_comm *c, int32_t *from, int32_t *to);
int sum_start(struct sum *s, int seed);

/* WEFT_EIO for a result that is wrong. */
int sum_end(struct sum *s, int64_t timeout_ns);
int sum_run(struct sum *s, int seed);
void sum_free(struct sum *s);

/* The place of a rank in a list; -1: none. */
int sums_place(int rank, const int *list, int n);

/* Splits off the ranks of the list; those who are not in it pass none. */
int sums_split(weft_comm *c, const int *list, int n, weft_comm **out);
#endif
