/* Sums over all ranks of a comm, checked element by element, and comms split off by lists: for tests of comms that are
 * split. */
#ifndef WEFT_TESTS_SUMS_H
#define WEFT_TESTS_SUMS_H
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tensors.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define COUNT 4500 /* large enough for messages that travel in no letter, among up to 4 ranks */
#define SMALL 96

static int sums_count = SMALL; /* elements of those that are made */

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

struct sum {
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_comm *comm;
    int32_t in[COUNT], out[COUNT], *from, *to;
    weft_exec *x;
    int seed;
};

/* Of the ranks of c; from and to are the caller's, or NULL for private memory. */
static inline int sum_make(struct sum *s, weft_comm *c, int32_t *from, int32_t *to)
{
    char src[64], dst[64];
    int n = weft_comm_size(c);
    memset(s, 0, sizeof *s);
    s->comm = c;
    s->from = from ? from : s->in;
    s->to = to ? to : s->out;
    snprintf(src, sizeof src, "i32[%d] @x%d +sum(x)", sums_count, n);
    snprintf(dst, sizeof dst, "i32[%d] @x%d", sums_count, n);
    int err = weft_layout_parse(src, &s->src);
    if (!err)
        err = weft_layout_parse(dst, &s->dst);
    if (!err)
        err = weft_lower(&(weft_move){"w", s->src, s->dst}, 1, weft_comm_rank(c), NULL, &s->plan);
    weft_view in = {s->from, sizeof s->in, NULL}, out = {s->to, sizeof s->out, NULL};
    return err ? err : weft_bind(s->plan, c, &in, &out, NULL, &s->x);
}

static inline int sum_start(struct sum *s, int seed)
{
    s->seed = seed;
    tensors_fill(s->src, weft_comm_rank(s->comm), s->from, seed);
    return weft_exec_start(s->x);
}

/* WEFT_EIO for a result that is wrong. */
static inline int sum_end(struct sum *s, int64_t timeout_ns)
{
    int err = weft_exec_wait(s->x, timeout_ns);
    if (!err && tensors_wrong(s->src, s->dst, weft_comm_rank(s->comm), s->to, s->seed))
        err = WEFT_EIO;
    return err;
}

static inline int sum_run(struct sum *s, int seed)
{
    int err = sum_start(s, seed);
    return err ? err : sum_end(s, -1);
}

static inline void sum_free(struct sum *s)
{
    weft_exec_close(s->x);
    weft_plan_free(s->plan);
    weft_layout_free(s->src);
    weft_layout_free(s->dst);
    s->x = NULL;
    s->plan = NULL;
    s->src = s->dst = NULL;
}

/* The place of a rank in a list; -1: none. */
static inline int place_of(int rank, const int *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == rank)
            return i;
    return -1;
}

/* Splits off the ranks of the list; those who are not in it pass none. */
static inline int split(weft_comm *c, const int *list, int n, weft_comm **out)
{
    bool in = place_of(weft_comm_rank(c), list, n) >= 0;
    return weft_comm_split(c, in ? list : NULL, in ? n : 0, out);
}
#endif
