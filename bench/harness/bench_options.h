/* The options that the benchmarks of moving data share. */
#ifndef WEFT_BENCH_HARNESS_BENCH_OPTIONS_H
#define WEFT_BENCH_HARNESS_BENCH_OPTIONS_H
#include "bench/harness/measure.h"
#include "tool/args.h"
#include "tool/failure.h"

enum { BENCH_RANKS_MAX = 16, BENCH_SIZES_MAX = 64, BENCH_WITHOUT_MAX = 31 };

struct bench_options {
    int ranks[BENCH_RANKS_MAX], nranks;
    int64_t sizes[BENCH_SIZES_MAX];
    int nsizes;
    bool peers, json, csv;
    const char *only;        /* what to measure: names, separated by commas; NULL: all */
    const char *plot, *save; /* files to write: SVG, JSON */
    struct weft_setup weft;
    struct weft_setup without[BENCH_WITHOUT_MAX]; /* weft with one driver or way switched off, one for each */
    int nwithout;
    struct measure measure;
};

/* Reads the arguments. ranks and sizes are the defaults, texts like "2,4,8" and "8:16M"; sizes NULL: they cannot be
 * chosen. names has all that --only may name, separated by commas, or is NULL. Returns 0, -1 after it has printed the
 * help, or CLI_BAD after it has said what is wrong. */
int bench_options(const char *name, const char *about, const char *ranks, const char *sizes, const char *names,
                  int argc, char **argv, struct bench_options *out);
bool bench_options_wants(const struct bench_options *o, const char *name);
/* Adds weft, and weft without each of the drivers and ways that --without names. */
void bench_options_add_weft(const struct bench_options *o, struct contenders *f, int ranks);

/* Check, before anything is measured, that all that --only says is among the names, and that the files (NULL: none) can
 * be written. Return 0 or CLI_BAD. */
int bench_options_check_only(const struct args_verb *verb, const char *only, const char *names);
int bench_options_check_file(const struct args_verb *verb, const char *option, const char *path);
#endif
