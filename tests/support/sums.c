#define _GNU_SOURCE
#include "sums.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "clock.h"

int sums_count = SUMS_SMALL;

int sum_make(struct sum *s, weft_comm *c, int32_t *from, int32_t *to)
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
    weft_view in = WEFT_VIEW(s->from, sizeof s->in), out = WEFT_VIEW(s->to, sizeof s->out);
    return err ? err : weft_bind(s->plan, c, &in, &out, NULL, &s->x);
}

int sum_start(struct sum *s, int seed)
{
    s->seed = seed;
    tensors_fill(s->src, weft_comm_rank(s->comm), s->from, seed);
    return weft_exec_start(s->x);
}

int sum_end(struct sum *s, int64_t timeout_ns)
{
    int err = weft_exec_wait(s->x, timeout_ns);
    if (!err && tensors_wrong(s->src, s->dst, weft_comm_rank(s->comm), s->to, s->seed))
        err = WEFT_EIO;
    return err;
}

int sum_run(struct sum *s, int seed)
{
    int err = sum_start(s, seed);
    return err ? err : sum_end(s, -1);
}

void sum_free(struct sum *s)
{
    weft_exec_close(s->x);
    weft_plan_free(s->plan);
    weft_layout_free(s->src);
    weft_layout_free(s->dst);
    s->x = NULL;
    s->plan = NULL;
    s->src = s->dst = NULL;
}

int sums_place(int rank, const int *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == rank)
            return i;
    return -1;
}

int sums_split(weft_comm *c, const int *list, int n, weft_comm **out)
{
    bool in = sums_place(weft_comm_rank(c), list, n) >= 0;
    return weft_comm_split(c, in ? list : NULL, in ? (size_t)n : 0, out);
}
