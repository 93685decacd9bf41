/* What a bench program of one thread has cost so far. */
#ifndef WEFT_BENCH_COST_H
#define WEFT_BENCH_COST_H
#include <sys/resource.h>
#include <time.h>

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* of the processor: other jobs do not count */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double peak(void) /* MiB */
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024;
}
#endif
