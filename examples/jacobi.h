/* What both programs of Jacobi's iteration compute, without a word of how data moves. A grid has inner[0] rows of
 * inner[1] points with one ghost around them. */
#ifndef JACOBI_H
#define JACOBI_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static inline double jacobi_seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All zero, except for the ghosts above the first row of the square. */
static inline void jacobi_begin(double *grid, const int64_t *inner, int first_row)
{
    memset(grid, 0, (size_t)((inner[0] + 2) * (inner[1] + 2)) * sizeof *grid);
    for (int64_t x = 0; first_row && x < inner[1] + 2; x++)
        grid[x] = 1;
}

/* Each point becomes the mean of the four around it. Returns the largest change. */
static inline double jacobi_step(double *restrict new, const double *restrict old, const int64_t *inner)
{
    int64_t pitch = inner[1] + 2;
    double change = 0;
    for (int64_t y = 1; y <= inner[0]; y++)
        for (int64_t i = y * pitch + 1; i <= y * pitch + inner[1]; i++) {
            new[i] = 0.25 * ((old[i - pitch] + old[i + pitch]) + (old[i - 1] + old[i + 1]));
            double by = fabs(new[i] - old[i]);
            change = by > change ? by : change;
        }
    return change;
}

static inline double jacobi_sum(const double *grid, const int64_t *inner)
{
    double sum = 0;
    for (int64_t y = 1; y <= inner[0]; y++)
        for (int64_t x = 1; x <= inner[1]; x++)
            sum += grid[y * (inner[1] + 2) + x];
    return sum;
}

static inline void jacobi_print(const char *by, int n, int size, int steps, double change, double sum, double seconds)
{
    printf("jacobi %d x %d on %d ranks by %s: %d steps, change %.6e, sum %.9e, %.2f us a step\n", n, n, size, by, steps,
           change, sum, 1e6 * seconds / steps);
}
#endif
