/* Four threads hold a matrix by rows and get it by columns. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <weft.h>

#define N 256

static weft_layout *rows, *columns; /* layouts never change: all threads share them */

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
    static double src[4][N / 4][N], dst[4][N][N / 4];
    for (int i = 0; i < N / 4; i++)
        for (int j = 0; j < N; j++)
            src[rank][i][j] = (rank * N / 4 + i) * N + j;

    weft_plan *plan;
    weft_comm *comm;
    weft_exec *exec;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank};
    weft_view from = WEFT_VIEW(src[rank], sizeof src[rank]), to = WEFT_VIEW(dst[rank], sizeof dst[rank]);
    must(weft_lower(&(weft_move){"matrix", rows, columns}, 1, rank, NULL, &plan)); /* alone, without data */
    must(weft_comm_open("threads:4/reshard", &opts, &comm));
    must(weft_bind(plan, comm, &from, &to, NULL, &exec)); /* together: all ranks or none */
    must(weft_exec_run(exec));                            /* as often as there is new data */

    int wrong = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N / 4; j++)
            wrong += dst[rank][i][j] != i * N + rank * N / 4 + j;
    weft_exec_close(exec);
    weft_comm_close(comm);
    weft_plan_free(plan);
    if (wrong) {
        fprintf(stderr, "rank %d: %d elements are wrong\n", rank, wrong);
        exit(1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    int ranks[4] = {0, 1, 2, 3};
    must(weft_layout_parse("f64[256/x,256] @x4", &rows));
    must(weft_layout_parse("f64[256,256/x] @x4", &columns));
    for (int r = 0; r < 4; r++)
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]))
            return 1;
    for (int r = 0; r < 4; r++)
        pthread_join(threads[r], NULL);
    weft_layout_free(rows);
    weft_layout_free(columns);
    printf("rows to columns on 4 ranks: right\n");
    return 0;
}
