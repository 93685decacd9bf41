/* Allreduce in place, many times with one plan: eight threads sum their gradients, while each does
 * other work between start and wait. The same code does a reduce-scatter if `after` is "f32[1000/x] @x8". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <weft.h>

#define RANKS 8
#define N 1000
#define STEPS 10

static weft_layout *before, *after;

static void must(int err)
{
    if (err) {
        fprintf(stderr, "%s\n", weft_errmsg());
        exit(1);
    }
}

static void *rank_main(void *arg)
{
    int rank = *(int *)arg;
    float grad[N];
    weft_plan *plan;
    weft_comm *comm;
    weft_exec *exec;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank};
    weft_lower_opts in_place = {.size = sizeof in_place, .in_place = true}; /* a fold in place is asked for here */
    weft_view view = WEFT_VIEW(grad, sizeof grad);
    must(weft_lower(&(weft_move){"grad", before, after}, 1, rank, &in_place, &plan));
    must(weft_comm_open("threads:8/allreduce", &opts, &comm));
    must(weft_bind(plan, comm, &view, &view, NULL, &exec));

    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < N; i++)
            grad[i] = (float)((rank + 1) * (i + step));
        must(weft_exec_start(exec));
        double other = 0; /* work that does not touch grad */
        for (int i = 0; i < N; i++) {
            bool done;
            other += i;
            if (i % 100 == 0)
                must(weft_exec_test(exec, &done)); /* makes progress */
        }
        must(weft_exec_wait(exec, WEFT_FOREVER));
        for (int i = 0; i < N; i++)
            if (grad[i] != (float)(RANKS * (RANKS + 1) / 2 * (i + step)) || other != N * (N - 1) / 2) {
                fprintf(stderr, "rank %d, step %d, element %d: %g\n", rank, step, i, (double)grad[i]);
                exit(1);
            }
    }
    weft_exec_close(exec);
    weft_comm_close(comm);
    weft_plan_free(plan);
    return NULL;
}

int main(void)
{
    pthread_t threads[RANKS];
    int ranks[RANKS];
    must(weft_layout_parse("f32[1000] @x8 +sum(x)", &before)); /* the value is the sum of the copies */
    must(weft_layout_parse("f32[1000] @x8", &after));          /* every rank has the value */
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = r;
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]))
            return 1;
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    weft_layout_free(before);
    weft_layout_free(after);
    printf("allreduce of %d floats on %d ranks, %d times: right\n", N, RANKS, STEPS);
    return 0;
}
