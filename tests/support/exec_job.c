#define _GNU_SOURCE
#include "exec_job.h"

#include <stdlib.h>
#include <string.h>

#include "suite.h"
#include "tensors.h"
#include "values.h"

#define COPIES 40

int job_plan(struct job *j, const struct move *m, int rank, int world)
{
    weft_local at;
    weft_lower_opts o = {.size = sizeof o, .bucket = m->bucket, .world = world};
    weft_move moves[COPIES];
    memset(j, 0, sizeof *j);
    j->tensors = m->tensors ? m->tensors : 1;
    int err = weft_layout_parse(m->src, &j->src);
    if (!err)
        err = weft_layout_parse(m->dst, &j->dst);
    for (int i = 0; i < j->tensors; i++)
        moves[i] = (weft_move){"w", j->src, j->dst};
    if (!err)
        err = weft_lower(moves, (size_t)j->tensors, rank, &o, &j->plan);
    if (!err && !(err = weft_layout_local(j->src, rank, &at)))
        j->in_bytes = (size_t)at.bytes;
    if (!err && !(err = weft_layout_local(j->dst, rank, &at)))
        j->out_bytes = (size_t)at.bytes;
    j->in = calloc((size_t)j->tensors, j->in_bytes + 1);
    j->out = calloc((size_t)j->tensors, j->out_bytes + 1);
    return err;
}

int job_bind(struct job *j, weft_comm *c)
{
    weft_view in[COPIES], out[COPIES];
    for (int i = 0; i < j->tensors; i++) {
        in[i] = (weft_view){.data = j->in + (size_t)i * j->in_bytes, .bytes = j->in_bytes};
        out[i] = (weft_view){.data = j->out + (size_t)i * j->out_bytes, .bytes = j->out_bytes};
    }
    return weft_bind(j->plan, c, in, out, NULL, &j->exec);
}

int job_make(struct job *j, const struct move *m, struct ranks_rank *r)
{
    int err = job_plan(j, m, r->rank, r->size);
    return err ? err : job_bind(j, r->comm);
}

void job_seed(struct job *j, int rank, int seed)
{
    memset(j->out, 0x5a, (size_t)j->tensors * j->out_bytes);
    for (int i = 0; i < j->tensors; i++)
        tensors_fill(j->src, rank, j->in + (size_t)i * j->in_bytes, seed + i);
}

int64_t job_wrong(struct job *j, int rank, int seed)
{
    values_begin();
    for (int i = 0; i < j->tensors; i++) {
        values_tensor(j->tensors > 1 ? i : -1);
        tensors_check(j->src, j->dst, rank, j->out + (size_t)i * j->out_bytes, seed + i);
    }
    return values_wrong();
}

int job_run_two(weft_exec *first, weft_exec *second, struct random *rng, int64_t timeout_ns)
{
    weft_exec *both[] = {first, second};
    int err = 0;
    for (int i = 0; i < 2 && !err; i++) {
        if (random_once_in(rng, 3))
            sched_yield();
        err = weft_exec_start(both[i]);
    }
    for (bool done = false; !err && !done && !random_once_in(rng, 4);)
        err = weft_exec_test(second, &done);
    for (int i = 1; i >= 0 && !err; i--)
        err = weft_exec_wait(both[i], timeout_ns);
    return err;
}

int64_t job_largest(const struct move *m, int world)
{
    int64_t largest = 0;
    for (int rank = 0; rank < world; rank++) {
        struct job j;
        weft_stats s = {.size = sizeof s};
        assert_int_equal(job_plan(&j, m, rank, world), 0);
        assert_int_equal(weft_plan_stats(j.plan, &s), 0);
        largest = s.largest_send > largest ? s.largest_send : largest;
        weft_plan_free(j.plan);
        weft_layout_free(j.src);
        weft_layout_free(j.dst);
        free(j.in);
        free(j.out);
    }
    return largest;
}

void job_free(struct job *j)
{
    weft_exec_close(j->exec);
    weft_plan_free(j->plan);
    weft_layout_free(j->src);
    weft_layout_free(j->dst);
    free(j->in);
    free(j->out);
}
