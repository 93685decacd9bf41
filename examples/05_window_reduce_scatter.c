/* Reduce-scatter on a window alone, on any number of processes, of one machine or of several:
 *
 *   weft run -n 4 build/examples/05_window_reduce_scatter
 *   weft run -n 4 --hosts 2 --on auto: build/examples/05_window_reduce_scatter
 *
 * Each rank fills its vector in the window itself; after a barrier each sums its own piece of all of them where they
 * are, without a copy. Ranks of another machine have no pointer to a vector, so they are given their pieces by put.
 * Reading the terms in order of ranks makes the same bits in every run, which adding into one place
 * (weft_window_put_add) would not promise for floats. */
#include <stdio.h>
#include <stdlib.h>

#include <weft.h>

#define PIECE 1000
#define STEPS 100

static void must(int err)
{
    if (err) {
        fprintf(stderr, "reduce-scatter: %s\n", weft_errmsg());
        exit(1);
    }
}

int main(void)
{
    float sum[PIECE], *vector;
    weft_comm *comm;
    weft_window *window;
    must(weft_comm_open(NULL, NULL, &comm));
    int rank = weft_comm_rank(comm), ranks = weft_comm_size(comm);
    weft_buffer buffers[] = {{.name = "vector", .dtype = WEFT_F32, .count = ranks * PIECE},
                             {.name = "given", .dtype = WEFT_F32, .count = ranks * PIECE}};
    must(weft_window_open(comm, buffers, 2, 0, &window)); /* no signals: barriers do */
    vector = weft_window_pointer(window, 0, rank);
    const float **terms = malloc((size_t)ranks * sizeof *terms), *given = weft_window_pointer(window, 1, rank);
    for (int r = 0; r < ranks; r++) {
        const float *theirs = weft_window_pointer(window, 0, r);
        terms[r] = theirs ? theirs + rank * PIECE : given + r * PIECE;
    }

    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < ranks * PIECE; i++)
            vector[i] = (float)((rank + 1) * (i + step));
        for (int r = 0; r < ranks; r++)
            if (!weft_window_pointer(window, 0, r))
                must(weft_window_put(window, 1, r, rank * PIECE, vector + r * PIECE, PIECE));
        must(weft_window_barrier(window, WEFT_DEADLINE)); /* all vectors are there */
        for (int i = 0; i < PIECE; i++) {
            sum[i] = terms[0][i];
            for (int r = 1; r < ranks; r++)
                sum[i] += terms[r][i];
        }
        must(weft_window_barrier(window, WEFT_DEADLINE)); /* all have read them */
        for (int i = 0; i < PIECE; i++)
            if (sum[i] != (float)(ranks * (ranks + 1) / 2 * (rank * PIECE + i + step))) {
                fprintf(stderr, "rank %d, step %d, element %d: %g\n", rank, step, i, (double)sum[i]);
                return 1;
            }
    }
    if (rank == 0)
        printf("reduce-scatter of %d floats on %d ranks through pointers and puts, %d times: right\n", ranks * PIECE,
               ranks, STEPS);
    free(terms);
    weft_window_close(window);
    weft_comm_close(comm);
    return 0;
}
