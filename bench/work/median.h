/* The median of figures that a benchmark has measured. */
#ifndef WEFT_BENCH_WORK_MEDIAN_H
#define WEFT_BENCH_WORK_MEDIAN_H
#include <stdlib.h>

static inline int median_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v. The mean of the middle two if n is even; 0 if there is none. */
static inline double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, median_order);
    return n ? n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2 : 0;
}
#endif
