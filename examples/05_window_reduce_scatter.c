/* Reduce-scatter on a window alone: each of four threads fills its vector in the window itself; after a barrier each
 * sums its own piece of all four where they are, without a copy. Reading the terms in order of ranks makes the same
 * bits in every run, which adding into one place (weft_window_put_add) would not promise for floats. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <weft.h>

#define RANKS 4
#define PIECE 1000
#define STEPS 100

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
    float sum[PIECE], *vector;
    const float *terms[RANKS];
    weft_comm *comm;
    weft_window *window;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank};
    weft_buffer buffer = {.name = "vector", .dtype = WEFT_F32, .count = RANKS * PIECE};
    must(weft_comm_open("threads:4/reduce_scatter", &opts, &comm));
    must(weft_window_create(comm, &buffer, 1, 0, &window)); /* no signals: barriers do */
    vector = weft_window_pointer(window, 0, rank);
    for (int r = 0; r < RANKS; r++)
        terms[r] = (const float *)weft_window_pointer(window, 0, r) + rank * PIECE;

    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < RANKS * PIECE; i++)
            vector[i] = (float)((rank + 1) * (i + step));
        must(weft_window_barrier(window, -1)); /* all vectors are there */
        for (int i = 0; i < PIECE; i++) {
            sum[i] = terms[0][i];
            for (int r = 1; r < RANKS; r++)
                sum[i] += terms[r][i];
        }
        must(weft_window_barrier(window, -1)); /* all have read them */
        for (int i = 0; i < PIECE; i++)
            if (sum[i] != (float)(RANKS * (RANKS + 1) / 2 * (rank * PIECE + i + step))) {
                fprintf(stderr, "rank %d, step %d, element %d: %g\n", rank, step, i, (double)sum[i]);
                exit(1);
            }
    }
    weft_window_free(window);
    weft_comm_close(comm);
    return NULL;
}

int main(void)
{
    pthread_t threads[RANKS];
    int ranks[RANKS];
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = r;
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]))
            return 1;
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    printf("reduce-scatter of %d floats on %d ranks through pointers, %d times: right\n", RANKS * PIECE, RANKS, STEPS);
    return 0;
}
