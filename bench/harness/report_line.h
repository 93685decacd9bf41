/* What one line of a table says about a row. */
#ifndef WEFT_BENCH_HARNESS_REPORT_LINE_H
#define WEFT_BENCH_HARNESS_REPORT_LINE_H
#include "bench/harness/measure.h"

/* The figures of a row that are printed. weft is its first way, if it has several. */
struct line {
    const struct figure *weft, *floor, *peer;
    double time, algbw, busbw;             /* s, B/s */
    double floor_share, ratio, copy_share; /* 0: none */
};
struct line report_line(const struct row *row);
const char *report_line_size(int64_t bytes, char *buf, size_t cap); /* "64K" */
#endif
