/* Allgather on a window alone, on any number of processes, of one machine or of several:
 *
 *   weft run -n 4 build/examples/04_window_allgather
 *   weft run -n 4 --hosts 2 --on auto: build/examples/04_window_allgather
 *
 * Each rank puts its piece into every rank's buffer and adds one to a signal there; who has counted as many pieces a
 * step as there are ranks has all of them. Nothing is cleared between the steps: the signal counts on, and the barrier
 * at the end of a step keeps a fast rank from overwriting what a slow one still reads. */
#include <stdio.h>
#include <stdlib.h>

#include <weft.h>

#define PIECE 1000
#define STEPS 100

static void must(int err)
{
    if (err) {
        fprintf(stderr, "allgather: %s\n", weft_errmsg());
        exit(1);
    }
}

int main(void)
{
    float mine[PIECE];
    weft_comm *comm;
    weft_window *window;
    must(weft_comm_open(NULL, NULL, &comm));
    int rank = weft_comm_rank(comm), ranks = weft_comm_size(comm);
    weft_buffer buffer = {.name = "all", .dtype = WEFT_F32, .count = ranks * PIECE};
    must(weft_window_open(comm, &buffer, 1, 1, &window)); /* one buffer, one signal; all ranks together */
    int all;
    must(weft_window_find(window, "all", &all));
    const float *got = weft_window_pointer(window, all, rank);

    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < PIECE; i++)
            mine[i] = (float)(100000 * rank + i + step);
        for (int k = 0; k < ranks; k++) {
            int to = (rank + k) % ranks; /* not all to the same one first */
            must(weft_window_put(window, all, to, rank * PIECE, mine, PIECE));
            must(weft_window_notify(window, to, 0, WEFT_NOTIFY_ADD, 1)); /* seen after the put */
        }
        must(weft_window_wait(window, 0, WEFT_GE, (uint64_t)step * (uint64_t)ranks, WEFT_FOREVER));
        for (int i = 0; i < ranks * PIECE; i++)
            if (got[i] != (float)(100000 * (i / PIECE) + i % PIECE + step)) {
                fprintf(stderr, "rank %d, step %d, element %d: %g\n", rank, step, i, (double)got[i]);
                return 1;
            }
        must(weft_window_barrier(window, WEFT_DEADLINE));
    }
    if (rank == 0)
        printf("allgather of %d floats on %d ranks by puts and signals, %d times: right\n", ranks * PIECE, ranks,
               STEPS);
    weft_window_close(window);
    weft_comm_close(comm);
    return 0;
}
