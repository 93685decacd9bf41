/* What a collective in one call costs beside a plan that is bound once: `weft run -n 2 build/bench/one_call`. Both in
 * turns, in memory of weft_comm_alloc and in private memory; the medians of 21 turns, on rank 0. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weft.h>
#include <weft/collective.h>

#include "bench/work/median.h"

#define TURNS 21

static weft_comm *comm;

static void must(int err)
{
    if (!err)
        return;
    fprintf(stderr, "one_call: %s\n", weft_errmsg());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Microseconds of one call, and of one run. */
static void measure(float *src, float *dst, int64_t count, double *call, double *bound)
{
    weft_collective what = {
        .size = sizeof what, .kind = "allreduce", .dtype = WEFT_F32, .count = count, .n = (size_t)weft_comm_size(comm)};
    weft_view from = WEFT_VIEW(src, (size_t)count * sizeof *src), to = WEFT_VIEW(dst, (size_t)count * sizeof *dst);
    weft_plan *plan;
    weft_exec *exec;
    double calls[TURNS], runs[TURNS];
    int reps = count < 100000 ? 2000 : 20;
    must(weft_lower_collective(&what, weft_comm_rank(comm), NULL, &plan));
    must(weft_bind(plan, comm, &from, &to, NULL, &exec));
    for (int turn = 0; turn < TURNS; turn++) {
        must(weft_comm_barrier(comm, WEFT_FOREVER));
        double begin = now();
        for (int i = 0; i < reps; i++)
            must(weft_allreduce(comm, src, dst, count, WEFT_F32, WEFT_SUM));
        calls[turn] = (now() - begin) / reps;
        must(weft_comm_barrier(comm, WEFT_FOREVER));
        begin = now();
        for (int i = 0; i < reps; i++)
            must(weft_exec_run(exec));
        runs[turn] = (now() - begin) / reps;
    }
    *call = median(calls, TURNS);
    *bound = median(runs, TURNS);
    weft_exec_close(exec);
    weft_plan_free(plan);
}

int main(void)
{
    static const int64_t counts[] = {2, 256, 4096, 16384, 65536, 65537, 262144, 4194304};
    must(weft_comm_open(NULL, NULL, &comm));
    if (weft_comm_rank(comm) == 0)
        printf("allreduce of f32, %d ranks, us: one call | bound\n%10s %19s %19s\n", weft_comm_size(comm), "bytes",
               "weft_comm_alloc", "private memory");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t bytes = (size_t)counts[i] * sizeof(float);
        void *src, *dst;
        float *a = calloc(1, bytes), *b = calloc(1, bytes);
        double call[2], bound[2];
        must(weft_comm_alloc(comm, bytes, WEFT_MEMORY_HOST, 0, &src));
        must(weft_comm_alloc(comm, bytes, WEFT_MEMORY_HOST, 0, &dst));
        measure(src, dst, counts[i], &call[0], &bound[0]);
        measure(a, b, counts[i], &call[1], &bound[1]);
        if (weft_comm_rank(comm) == 0)
            printf("%10zu %8.2f | %8.2f %8.2f | %8.2f\n", bytes, call[0], bound[0], call[1], bound[1]);
        weft_comm_free(comm, src);
        weft_comm_free(comm, dst);
        free(a);
        free(b);
    }
    weft_comm_close(comm);
    return 0;
}
