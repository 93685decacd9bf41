/* How rows of a benchmark are said: a table like that of nccl-tests, a summary, CSV, JSON, a picture. */
#ifndef WEFT_CLI_BENCH_REPORT_H
#define WEFT_CLI_BENCH_REPORT_H
#include "cli/bench_options.h"

struct report {
    const char *name; /* of the benchmark */
    const struct bench_options *options;
    struct row *rows;
    int n;
    bool quiet; /* no table */
    char left_out[2048]; /* contenders that failed, and why */
};

/* Room for one more row, zeroed; NULL if there is none. It may move the rows. */
struct row *report_add(struct report *r);
void report_row(const struct report *r); /* the last row is measured: prints it, if it is to be a table */
void report_out(struct report *r, const struct field *f, int ranks); /* notes who is out */
/* Prints, draws if asked for, frees the rows. Exit code: CLI_WRONG if a result of weft was wrong. */
int report_end(struct report *r);

int plot_curves(const struct report *r, const char *path, struct failure *why); /* time by size, for each op and group */
int plot_bars(const struct report *r, const char *path, struct failure *why);   /* speed of each row */
#endif
