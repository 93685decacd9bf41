/* A job that loses a rank and goes on: the ranks sum, the last one leaves without a word to the others, they learn who
 * is left, open a comm of their own, lower again and sum on. Start it by `weft run -n 4`, or on two played hosts by
 * `weft run -n 4 --hosts 2`. A rank that is killed is missed in the same way, but weft run would end the others. */
#include <stdio.h>
#include <stdlib.h>

#include <weft.h>

#define N 1000
#define MOST 64
#define STEPS 50

static void must(int err)
{
    if (err) {
        fprintf(stderr, "%s\n", weft_errmsg());
        exit(1);
    }
}

/* Sums `steps` times on all ranks of the comm: 0, or why it could not go on. */
static int sum(weft_comm *comm, int steps)
{
    char from[64], to[64];
    float grad[N];
    weft_layout *before, *after;
    weft_plan *plan;
    weft_exec *exec = NULL;
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts opts = {.size = sizeof opts, .in_place = true, .machine = &machine};
    weft_view view = WEFT_VIEW(grad, sizeof grad);
    int n = weft_comm_size(comm), rank = weft_comm_rank(comm);
    snprintf(from, sizeof from, "f32[%d] @x%d +sum(x)", N, n);
    snprintf(to, sizeof to, "f32[%d] @x%d", N, n);
    must(weft_layout_parse(from, &before));
    must(weft_layout_parse(to, &after));
    must(weft_comm_machine(comm, &machine)); /* which ranks share a host */
    must(weft_lower(&(weft_move){"grad", before, after}, 1, rank, &opts, &plan));
    int err = weft_bind(plan, comm, &view, &view, NULL, &exec);
    for (int step = 0; step < steps && !err; step++) {
        for (int i = 0; i < N; i++)
            grad[i] = (float)((rank + 1) * (i + step));
        err = weft_exec_run(exec);
        for (int i = 0; i < N && !err; i++)
            if (grad[i] != (float)(n * (n + 1) / 2 * (i + step))) {
                fprintf(stderr, "rank %d of %d, step %d, element %d: %g\n", rank, n, step, i, (double)grad[i]);
                exit(1);
            }
    }
    weft_exec_close(exec);
    weft_plan_free(plan);
    weft_layout_free(before);
    weft_layout_free(after);
    return err;
}

int main(void)
{
    weft_comm *comm, *smaller;
    int left[MOST];
    size_t n;
    must(weft_comm_open(NULL, NULL, &comm));
    int rank = weft_comm_rank(comm), last = weft_comm_size(comm) - 1;
    if (rank == last) { /* it does not take part in the second half */
        must(sum(comm, STEPS));
        weft_comm_close(comm);
        return 0;
    }
    must(sum(comm, STEPS));
    if (sum(comm, STEPS) != WEFT_EPEER) {
        fprintf(stderr, "rank %d: nobody was missed\n", rank);
        return 1;
    }
    must(weft_comm_survivors(comm, left, MOST, &n)); /* the same list on all of them */
    must(weft_comm_reopen(comm, left, n, &smaller));
    weft_comm_close(comm);
    must(sum(smaller, STEPS));
    if (rank == 0)
        printf("%d ranks were %d in the end, and the sums right\n", last + 1, weft_comm_size(smaller));
    weft_comm_close(smaller);
    return 0;
}
