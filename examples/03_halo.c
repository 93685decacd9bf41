/* Halo exchange: a periodic row of cells on three threads, each cell becoming the mean of itself
 * and its neighbours. The ghosts are part of the destination's layout; source and destination are
 * one buffer, since every shared address stands for the same cell on both sides. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft.h>

#define RANKS 3
#define N 100 /* does not divide by 3: the pieces have 34, 34 and 32 cells */
#define STEPS 50

static weft_layout *cells, *with_ghosts;

static void must(int err)
{
    if (err) {
        fprintf(stderr, "%s\n", weft_errmsg());
        exit(1);
    }
}

/* The same on one rank, without weft. */
static void reference(double *v)
{
    for (int i = 0; i < N; i++)
        v[i] = i % 7;
    for (int step = 0; step < STEPS; step++) {
        double old[N];
        memcpy(old, v, sizeof old);
        for (int i = 0; i < N; i++)
            v[i] = (old[(i + N - 1) % N] + old[i] + old[(i + 1) % N]) / 3;
    }
}

static void *rank_main(void *arg)
{
    int rank = *(int *)arg;
    weft_local local;
    weft_box box; /* where this rank's cells stand, globally and in its buffer */
    size_t boxes;
    must(weft_layout_local(with_ghosts, rank, &local));
    must(weft_layout_boxes(with_ghosts, rank, &box, 1, &boxes));
    int n = (int)box.len[0], first = (int)box.at[0];
    double buffer[N + 2], next[N + 2], whole[N];
    for (int i = 0; i < n; i++)
        buffer[1 + i] = (first + i) % 7;

    weft_plan *plan;
    weft_comm *comm;
    weft_exec *exec;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank};
    weft_view inside = {buffer + 1, (size_t)n * sizeof *buffer, NULL}, all = {buffer, (size_t)local.bytes, NULL};
    must(weft_lower(&(weft_move){"cells", cells, with_ghosts}, 1, rank, NULL, &plan));
    must(weft_comm_open("threads:3/halo", &opts, &comm));
    must(weft_bind(plan, comm, &inside, &all, NULL, &exec));
    for (int step = 0; step < STEPS; step++) {
        must(weft_exec_run(exec)); /* fills buffer[0] and buffer[n + 1] */
        for (int i = 1; i <= n; i++)
            next[i] = (buffer[i - 1] + buffer[i] + buffer[i + 1]) / 3;
        memcpy(buffer + 1, next + 1, (size_t)n * sizeof *buffer);
    }
    reference(whole);
    if (memcmp(buffer + 1, whole + first, (size_t)n * sizeof *buffer)) {
        fprintf(stderr, "rank %d differs from the reference\n", rank);
        exit(1);
    }
    weft_exec_free(exec);
    weft_comm_close(comm);
    weft_plan_free(plan);
    return NULL;
}

int main(void)
{
    pthread_t threads[RANKS];
    int ranks[RANKS];
    must(weft_layout_parse("f64[100/x] @x3", &cells));
    must(weft_layout_parse("f64[100/x~1o] @x3", &with_ghosts)); /* one ghost on either side, round the end */
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = r;
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]))
            return 1;
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    weft_layout_free(cells);
    weft_layout_free(with_ghosts);
    printf("%d steps of a periodic stencil on %d ranks: right\n", STEPS, RANKS);
    return 0;
}
