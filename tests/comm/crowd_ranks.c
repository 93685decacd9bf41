/* A rank of crowd_test.sh and open_cost_test.sh, started by weft run: crowd_ranks SECONDS [costs | RUNS]. All ranks
 * meet, rank 0 computes for that long while the others wait for it, and all meet again. With a number of runs the ranks
 * bind a sum and run it so often before rank 0 computes, and again afterwards: the others wait in bind, connected with
 * the peers of the first sum. With "costs" each rank says what it has more than before it opened the comm, and again
 * when all ranks have split off a group: "rank R: K kB, F files: open". An error is said in one line: "rank R: code C:
 * TEXT".
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/sums.h"
#include "weft.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The memory that this process has for itself, in kB. */
static long private_kb(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[200];
    long kb = -1;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

static int files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static int say_costs(weft_comm *c, const char *what, long kb, int before)
{
    printf("rank %d: %ld kB, %d files: %s\n", weft_comm_rank(c), private_kb() - kb, files() - before, what);
    return weft_comm_barrier(c, WEFT_DEADLINE);
}

/* A group of all ranks is split off. */
static int split_all(weft_comm *c, long kb, int before)
{
    int n = weft_comm_size(c), *ranks = malloc((size_t)n * sizeof *ranks);
    weft_comm *all = NULL;
    for (int i = 0; i < n && ranks; i++)
        ranks[i] = i;
    int err = ranks ? weft_comm_split(c, ranks, (size_t)n, &all) : WEFT_ENOMEM;
    free(ranks);
    if (!err)
        err = weft_comm_barrier(all, WEFT_DEADLINE);
    if (!err)
        err = say_costs(all, "split", kb, before);
    weft_comm_close(all);
    return err;
}

static int run_sums(weft_comm *c, int runs)
{
    struct sum s;
    int err = sum_make(&s, c, NULL, NULL);
    for (int i = 0; i < runs && !err; i++)
        err = sum_run(&s, i);
    sum_free(&s);
    return err;
}

int main(int argc, char **argv)
{
    long kb = private_kb();
    int before = files();
    weft_comm *c = NULL;
    const char *rank = getenv("WEFT_RANK");
    double end, length = argc > 1 ? atof(argv[1]) : 0;
    bool costs = argc > 2 && !strcmp(argv[2], "costs");
    int runs = argc > 2 && !costs ? atoi(argv[2]) : 0;
    int err = weft_comm_open(NULL, NULL, &c);
    if (!err)
        err = weft_comm_barrier(c, WEFT_DEADLINE);
    if (!err && costs)
        err = say_costs(c, "open", kb, before);
    if (!err && costs)
        err = split_all(c, kb, before);
    if (!err && runs)
        err = run_sums(c, runs);
    for (end = seconds() + length; !err && weft_comm_rank(c) == 0 && seconds() < end;)
        ;
    if (!err && runs)
        err = run_sums(c, runs);
    if (!err)
        err = weft_comm_barrier(c, WEFT_FOREVER);
    if (err) {
        printf("rank %s: code %d: %s\n", rank ? rank : "?", err, weft_errmsg());
        fflush(stdout);
    }
    weft_comm_close(c);
    return err != 0;
}
