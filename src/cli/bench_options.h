/* The options that the benchmarks of moving data share. */
#ifndef WEFT_CLI_BENCH_OPTIONS_H
#define WEFT_CLI_BENCH_OPTIONS_H
#include "cli/bench_measure.h"

enum { BENCH_RANKS_MAX = 16, BENCH_SIZES_MAX = 64 };

struct bench_options {
    int ranks[BENCH_RANKS_MAX], nranks;
    int64_t sizes[BENCH_SIZES_MAX];
    int nsizes;
    bool peers, json, csv;
    const char *only;        /* what to measure, by names with commas between; NULL: all */
    const char *plot, *save; /* files to write: SVG, JSON */
    struct field_weft weft;
    struct measure measure;
};

/* Reads the arguments; ranks and sizes are given as texts such as "2,4,8" and "8:16M", sizes as NULL where they are not
 * to be chosen. 0; -1 after the help; or CLI_BAD
 * after saying what is wrong. */
int bench_options(const char *name, const char *about, const char *ranks, const char *sizes, int argc, char **argv,
                  struct bench_options *out);
bool bench_wants(const struct bench_options *o, const char *name);
#endif
