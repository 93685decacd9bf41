/* Copies without a cast. What is contiguous on both sides moves as one unit; units that fill part
 * of a cache line get loops of their own; where one side is contiguous along one loop and the
 * other side along another (a transpose), these two are walked in blocks that pass through the
 * first cache, so that every line of either side is touched once. */
#include "memory/copy.h"

#include <stdbool.h>
#include <string.h>

#include "memory/memory.h"
#include "memory/transpose.h"

/* Two loops over units of `unit` bytes: `rows` turns, and in each `turns` turns. */
struct grid {
    int64_t rows, turns;
    int64_t drow, srow, dturn, sturn;
    size_t unit;
};

#define LINE 64 /* bytes of a cache line */

#define COPY_UNITS(bytes)                                          \
    for (int64_t r = 0; r < g->rows; r++) {                        \
        unsigned char *to = dst + r * g->drow;                     \
        const unsigned char *from = src + r * g->srow;             \
        for (int64_t i = 0; i < g->turns; i++)                     \
            memcpy(to + i * g->dturn, from + i * g->sturn, bytes); \
    }

/* Units of a line or more. Where gaps are between those that are read, the hardware does not see them coming. */
static void copy_lines(const struct grid *g, unsigned char *dst, const unsigned char *src)
{
    const int64_t ahead = 16;
    const bool gaps = g->sturn != (int64_t)g->unit;
    for (int64_t r = 0; r < g->rows; r++) {
        unsigned char *to = dst + r * g->drow;
        const unsigned char *from = src + r * g->srow;
        for (int64_t i = 0; i < g->turns; i++) {
            if (gaps)
                __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)((i + ahead) * g->sturn)));
            if (g->unit == LINE)
                memcpy(to + i * g->dturn, from + i * g->sturn, LINE);
            else
                memcpy(to + i * g->dturn, from + i * g->sturn, g->unit);
        }
    }
}

static void copy_grid(const struct grid *g, unsigned char *dst, const unsigned char *src)
{
    switch (g->unit) {
    case 1: COPY_UNITS(1) break;
    case 2: COPY_UNITS(2) break;
    case 4: COPY_UNITS(4) break;
    case 8: COPY_UNITS(8) break;
    case 16: COPY_UNITS(16) break;
    case 32: COPY_UNITS(32) break;
    default:
        if (g->unit < LINE)
            COPY_UNITS(g->unit)
        else
            copy_lines(g, dst, src);
    }
}

/* A grid that is a transpose and large enough to gain by it. */
static bool grid_transpose(const struct grid *g, unsigned char *dst, const unsigned char *src)
{
    int64_t unit = (int64_t)g->unit;
    if (g->rows < 4 || g->turns < 4 || !transpose_knows(g->unit))
        return false;
    struct transpose t;
    if (g->dturn == unit && g->srow == unit)
        t = (struct transpose){g->turns, g->rows, g->drow, g->sturn, unit, 0, 0};
    else if (g->drow == unit && g->sturn == unit)
        t = (struct transpose){g->rows, g->turns, g->dturn, g->srow, unit, 0, 0};
    else
        return false;
    transpose(&t, dst, src, g->unit);
    return true;
}

/* The loop, of those before the last, that goes best with the last one in a grid: one along which
 * the side that is not contiguous in the last is; else the one just before. */
static int partner(int last, const int64_t *n, const int64_t *ds, const int64_t *ss, int64_t unit)
{
    const int64_t *other = ds[last] == unit ? ss : ss[last] == unit ? ds : NULL;
    for (int i = last - 1; other && i >= 0; i--)
        if (other[i] == unit && n[i] > 1)
            return i;
    return last - 1;
}

void copy_nest(int loops, const int64_t *n, const int64_t *ds, const int64_t *ss, void *dst, const void *src,
               size_t size)
{
    for (int i = 0; i < loops; i++)
        if (n[i] == 0)
            return;
    int64_t unit = (int64_t)size, at[MEMORY_LOOPS] = {0}, doff = 0, soff = 0;
    while (loops && ds[loops - 1] == unit && ss[loops - 1] == unit)
        unit *= n[--loops];
    if (!loops) {
        memcpy(dst, src, (size_t)unit);
        return;
    }
    int last = loops - 1, row = partner(last, n, ds, ss, unit);
    struct grid g = {1, n[last], 0, 0, ds[last], ss[last], (size_t)unit};
    if (row >= 0) {
        g.rows = n[row];
        g.drow = ds[row];
        g.srow = ss[row];
    }
    for (int i = 0; i >= 0;) {
        unsigned char *d = (unsigned char *)dst + doff;
        const unsigned char *s = (const unsigned char *)src + soff;
        if (!grid_transpose(&g, d, s))
            copy_grid(&g, d, s);
        for (i = last - 1; i >= 0; i--) {
            if (i == row)
                continue;
            doff += ds[i];
            soff += ss[i];
            if (++at[i] < n[i])
                break;
            doff -= ds[i] * n[i];
            soff -= ss[i] * n[i];
            at[i] = 0;
        }
    }
}
