/* Allgather on a window alone: each of four threads puts its piece into every rank's buffer and adds one to a signal
 * there; who has counted four pieces a step has all of them. Nothing is cleared between the steps: the signal counts
 * on, and the barrier at the end of a step keeps a fast rank from overwriting what a slow one still reads. */
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
    float mine[PIECE];
    weft_comm *comm;
    weft_window *window;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank};
    weft_buffer buffer = {.name = "all", .dtype = WEFT_F32, .count = RANKS * PIECE};
    must(weft_comm_open("threads:4/allgather", &opts, &comm));
    must(weft_window_create(comm, &buffer, 1, 1, &window)); /* one buffer, one signal; all ranks together */
    int all = weft_window_find(window, "all");
    const float *got = weft_window_pointer(window, all, rank);

    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < PIECE; i++)
            mine[i] = (float)(100000 * rank + i + step);
        for (int k = 0; k < RANKS; k++) {
            int to = (rank + k) % RANKS; /* not all to the same one first */
            must(weft_window_put(window, all, to, rank * PIECE, mine, PIECE));
            must(weft_window_notify(window, to, 0, WEFT_NOTIFY_ADD, 1)); /* seen after the put */
        }
        must(weft_window_wait(window, 0, WEFT_GE, (uint64_t)step * RANKS, -1));
        for (int i = 0; i < RANKS * PIECE; i++)
            if (got[i] != (float)(100000 * (i / PIECE) + i % PIECE + step)) {
                fprintf(stderr, "rank %d, step %d, element %d: %g\n", rank, step, i, (double)got[i]);
                exit(1);
            }
        must(weft_window_barrier(window, -1));
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
    printf("allgather of %d floats on %d ranks by puts and signals, %d times: right\n", RANKS * PIECE, RANKS, STEPS);
    return 0;
}
