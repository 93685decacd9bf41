/* Copies without a cast. What is contiguous on both sides moves as one unit; units that fill part
 * of a cache line get loops of their own; where one side is contiguous along one loop and the
 * other side along another (a transpose), these two are walked in blocks that pass through the
 * first cache, so that every line of either side is touched once. */
#include "memory/copy.h"

#include <stdbool.h>
#include <string.h>

#include "memory/memory.h"

/* Two loops over units of `unit` bytes: `rows` turns, and in each `turns` turns. */
struct grid {
    int64_t rows, turns;
    int64_t drow, srow, dturn, sturn;
    size_t unit;
};

#define LINE 64 /* bytes of a cache line */
/* A transpose's panel: rows of dst, bytes of each, and their distance in the buffer, no power of two lest they meet in
 * the same sets of the cache. */
#define PANEL_ROWS 256
#define PANEL_RUN 128
#define PANEL_ROW (PANEL_RUN + LINE)
#define PANEL_STREAMS 16 /* rows of src that are read side by side */

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

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* to[j] = column j of `lanes` rows that are 16 bytes wide. log2(lanes) rounds of interleaving the upper half of the
 * rows with the lower half turn a square of vectors. */
#define TURN_ROUND(from, into, lanes, LOW, HIGH)                                       \
    for (int i = 0; i < lanes / 2; i++) {                                              \
        into[2 * i] = __builtin_shufflevector(from[i], from[i + lanes / 2], LOW);      \
        into[2 * i + 1] = __builtin_shufflevector(from[i], from[i + lanes / 2], HIGH); \
    }
#define TURN(bytes, lanes, T, LOW, HIGH)                                                     \
    static inline void turn_##bytes(unsigned char *to, const unsigned char *src, int64_t sa) \
    {                                                                                        \
        typedef T vector __attribute__((vector_size(16)));                                   \
        vector x[lanes], y[lanes];                                                           \
        for (int i = 0; i < lanes; i++)                                                      \
            memcpy(&x[i], src + i * sa, 16);                                                 \
        TURN_ROUND(x, y, lanes, LIST(LOW), LIST(HIGH))                                       \
        if (lanes >= 4)                                                                      \
            TURN_ROUND(y, x, lanes, LIST(LOW), LIST(HIGH))                                   \
        if (lanes >= 8)                                                                      \
            TURN_ROUND(x, y, lanes, LIST(LOW), LIST(HIGH))                                   \
        if (lanes >= 16)                                                                     \
            TURN_ROUND(y, x, lanes, LIST(LOW), LIST(HIGH))                                   \
        for (int i = 0; i < lanes; i++)                                                      \
            memcpy(to + i * PANEL_ROW, lanes == 4 || lanes == 16 ? &x[i] : &y[i], 16);       \
    }
#define LIST(...) __VA_ARGS__
TURN(1, 16, uint8_t, LIST(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
     LIST(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31))
TURN(2, 8, uint16_t, LIST(0, 8, 1, 9, 2, 10, 3, 11), LIST(4, 12, 5, 13, 6, 14, 7, 15))
TURN(4, 4, uint32_t, LIST(0, 4, 1, 5), LIST(2, 6, 3, 7))
TURN(8, 2, uint64_t, LIST(0, 2), LIST(1, 3))

static inline void turn_16(unsigned char *to, const unsigned char *src, int64_t sa)
{
    (void)sa;
    memcpy(to, src, 16);
}

/* panel[b][a] = src[a * sa + b * bytes], na by nb: in blocks of few rows, which are walked along src; squares of vectors, and the edges one by one. */
#define TURN_PANEL(bytes)                                                                                         \
    static void panel_##bytes(unsigned char *panel, const unsigned char *src, int64_t sa, int64_t na, int64_t nb) \
    {                                                                                                             \
        enum { lanes = 16 / bytes, line = LINE / bytes };                                                         \
        int64_t wide = na - na % lanes, high = nb - nb % lanes;                                                   \
        for (int64_t a0 = 0; a0 < wide; a0 += PANEL_STREAMS)                                                      \
            for (int64_t b0 = 0; b0 < high; b0 += line)                                                           \
                for (int64_t a = a0; a < least(a0 + PANEL_STREAMS, wide); a += lanes)                             \
                    for (int64_t b = b0; b < least(b0 + line, high); b += lanes)                                  \
                        turn_##bytes(panel + b * PANEL_ROW + a * bytes, src + a * sa + b * bytes, sa);            \
        for (int64_t a = 0; a < na; a++)                                                                          \
            for (int64_t b = a < wide ? high : 0; b < nb; b++)                                                    \
                memcpy(panel + b * PANEL_ROW + a * bytes, src + a * sa + b * bytes, bytes);                       \
    }
TURN_PANEL(1)
TURN_PANEL(2)
TURN_PANEL(4)
TURN_PANEL(8)
TURN_PANEL(16)

typedef void turn_panel(unsigned char *panel, const unsigned char *src, int64_t sa, int64_t na, int64_t nb);

static turn_panel *panel_of(size_t unit)
{
    switch (unit) {
    case 1: return panel_1;
    case 2: return panel_2;
    case 4: return panel_4;
    case 8: return panel_8;
    case 16: return panel_16;
    default: return NULL;
    }
}

/* dst[b * db + a * unit] = src[a * sa + b * unit]. Memory likes to be read in few long runs and written in bursts of
 * several lines, and not both at once: so a panel is turned into a buffer in the cache, row by row of src, and then
 * written row by row of dst. Panels follow each other along dst's rows, so that the same pages of it are written. */
static void transpose(size_t unit, unsigned char *dst, int64_t db, const unsigned char *src, int64_t sa, int64_t na,
                      int64_t nb)
{
    _Alignas(LINE) unsigned char panel[PANEL_ROWS * PANEL_ROW];
    turn_panel *turn = panel_of(unit);
    int64_t size = (int64_t)unit, most = PANEL_RUN / size;
    for (int64_t b0 = 0; b0 < nb; b0 += PANEL_ROWS)
        for (int64_t a = 0; a < na; a += most) {
            int64_t wide = least(most, na - a), high = least(PANEL_ROWS, nb - b0);
            unsigned char *to = dst + b0 * db + a * size;
            turn(panel, src + a * sa + b0 * size, sa, wide, high);
            for (int64_t b = 0; b < high; b++)
                memcpy(to + b * db, panel + b * PANEL_ROW, (size_t)(wide * size));
        }
}

/* A grid that is a transpose and large enough to gain by it. */
static bool grid_transpose(const struct grid *g, unsigned char *dst, const unsigned char *src)
{
    int64_t unit = (int64_t)g->unit;
    if (g->rows < 4 || g->turns < 4 || !panel_of(g->unit))
        return false;
    if (g->dturn == unit && g->srow == unit)
        transpose(g->unit, dst, g->drow, src, g->sturn, g->turns, g->rows);
    else if (g->drow == unit && g->sturn == unit)
        transpose(g->unit, dst, g->dturn, src, g->srow, g->rows, g->turns);
    else
        return false;
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
