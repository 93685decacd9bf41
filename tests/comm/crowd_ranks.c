/* A rank of crowd_test.sh, started by weft run: crowd_ranks SECONDS. All ranks meet, rank 0 computes for that long
 * while the others wait for it, and all meet again. An error is said in one line: "rank R: code C: TEXT". */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "weft.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    weft_comm *c = NULL;
    const char *rank = getenv("WEFT_RANK");
    double end, length = argc > 1 ? atof(argv[1]) : 0;
    int err = weft_comm_open(NULL, NULL, &c);
    if (!err)
        err = weft_comm_barrier(c, WEFT_DEADLINE);
    for (end = seconds() + length; !err && weft_comm_rank(c) == 0 && seconds() < end;)
        ;
    if (!err)
        err = weft_comm_barrier(c, WEFT_FOREVER);
    if (err) {
        printf("rank %s: code %d: %s\n", rank ? rank : "?", err, weft_errmsg());
        fflush(stdout);
    }
    weft_comm_close(c);
    return err != 0;
}
