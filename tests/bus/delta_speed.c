/* How fast deltas are beside memcpy, and how small: arrays of 64 MiB, of whose elements a part has changed at random.
 * Three ways take turns: memcpy, the search for the delta, and its application. Medians of CPU time are compared. Not a
 * test: CTest does not run it. delta_speed [PERCENT]...      default: 0 1 2 3 10 50 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bus/delta.h"
#include "support/random.h"

#define BYTES ((size_t)64 << 20)
enum { ROUNDS = 9, WAYS = 3 };

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *memory(size_t n)
{
    void *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
    if (!p)
        exit(1);
    memset(p, 3, n);
    return p;
}

static void measure(size_t size, double percent)
{
    size_t count = BYTES / size, n = 0;
    unsigned char *base = memory(BYTES), *now = memory(BYTES), *dst = memory(BYTES),
                  *delta = memory(delta_most(count, size));
    double seconds[WAYS][ROUNDS];
    uint64_t added;
    struct random r = random_of(1, (int64_t)size);
    for (size_t i = 0; i < BYTES; i += 8) {
        uint64_t word = random_next(&r);
        memcpy(base + i, &word, 8);
    }
    memcpy(now, base, BYTES);
    for (size_t i = 0; i < count; i++)
        if ((double)random_in(&r, 0, 999999) < percent * 10000)
            now[i * size] ^= 1;
    for (int round = 0; round < ROUNDS; round++)
        for (int way = 0; way < WAYS; way++) {
            if (way == 2)
                memcpy(dst, base, BYTES);
            double begin = cpu_now();
            if (way == 0)
                memcpy(dst, now, BYTES);
            else if (way == 1)
                n = delta_find(now, base, count, size, delta);
            else if (!delta_apply(dst, delta, n, count, size, &added))
                exit(1);
            seconds[way][round] = cpu_now() - begin;
            if (way == 2 && memcmp(dst, now, BYTES))
                exit(1);
        }
    for (int way = 0; way < WAYS; way++)
        qsort(seconds[way], ROUNDS, sizeof(double), compare);
    double plain = seconds[0][ROUNDS / 2];
    printf("%5zu  %6.1f %%  %8.4f  %12.1f  %10.2f  %10.2f\n", size, percent, (double)n / (double)BYTES,
           (double)BYTES / plain * 1e-9, plain / seconds[1][ROUNDS / 2], plain / seconds[2][ROUNDS / 2]);
    free(base);
    free(now);
    free(dst);
    free(delta);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16};
    static const double usual[] = {0, 1, 2, 3, 10, 50};
    printf("rates beside memcpy's (1: as fast as a copy of the array)\n");
    printf(" size  changed   of array  memcpy GB/s        find       apply\n");
    for (int i = 0; i < (argc > 1 ? argc - 1 : 6); i++)
        for (int s = 0; s < 5; s++)
            measure(sizes[s], argc > 1 ? atof(argv[i + 1]) : usual[i]);
    return 0;
}
