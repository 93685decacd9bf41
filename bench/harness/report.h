/* How the rows of a benchmark are shown: a table like that of nccl-tests, remarks below it, CSV, JSON, a picture. */
#ifndef WEFT_BENCH_HARNESS_REPORT_H
#define WEFT_BENCH_HARNESS_REPORT_H
#include "bench/harness/bench_options.h"
#include "bench/harness/report_line.h"
#include "tool/failure.h"

/* Summaries of the figures, one line for each, with the aim. */
struct remark {
    char text[300];
    bool aims, met; /* there is an aim; it is met */
};
enum { REMARKS_MAX = 64 };
struct remarks {
    struct remark of[REMARKS_MAX];
    int n;
};

struct report {
    const char *name; /* of the benchmark */
    const struct bench_options *options;
    struct row *rows;
    int n, refused; /* refused: cells that weft could not do, with the algorithm that was forced */
    void (*print)(const struct report *r); /* a table of its own, at the end; NULL: the common one */
    void (*remark)(const struct report *r, struct remarks *out); /* NULL: none */
    bool bars;                                                   /* drawn as bars; otherwise as curves */
    char left_out[4096];                                         /* what failed, and why */
    const char *incomplete;                                      /* why not all was measured; NULL: it was */
};

/* Adds the row (label, cell, ranks, workers and aims are given), measures it on the contenders and prints it. A cell
 * that weft cannot do is an error. If an algorithm was forced, it is noted and left out instead. */
int report_measure(struct report *r, struct contenders *f, const struct row *what, struct failure *why);
void report_out(struct report *r, const struct contenders *f, int ranks); /* notes the contenders that are out */
/* Prints, saves and draws what was asked for. If the code is not 0 or a signal came, it prints and saves what was
 * measured until then, marked as incomplete with the reason, and without remarks and pictures. Frees the rows. Returns
 * the exit code: CLI_WRONG if a result of weft was wrong. Does not return if a signal came. */
int report_end(struct report *r, int code, const struct failure *why);

void report_files_csv(const struct report *r, FILE *to);
void report_files_json(const struct report *r, FILE *to);
int plot_curves(const struct report *r, const char *path,
                struct failure *why);                                         /* time by size, for each op and group */
int plot_bars(const struct report *r, const char *path, struct failure *why); /* speed of each row */

/* Remarks for benchmarks by size and ranks, for large tensors, and for halos. */
void remarks_sizes(const struct report *r, struct remarks *out);
void remarks_cases(const struct report *r, struct remarks *out);
void remarks_halos(const struct report *r, struct remarks *out);
/* Adds a remark; met: 1, 0, or -1 if there is no aim. */
void remarks_add(struct remarks *out, int met, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool remarks_have_aims(const struct report *r); /* aims are for two cores, shm: and no forced algorithm */
#endif
