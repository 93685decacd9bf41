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

#define LINE 64    /* bytes of a cache line */
#define STRIPE 256 /* rows of dst that a transpose writes side by side: as many pages as the TLB is glad to hold */

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

/* turned[j] = column j of `lanes` rows that are 16 bytes wide and sa apart. log2(lanes) rounds of
 * interleaving the upper half of the rows with the lower half turn a square of vectors. */
#if defined(__clang__) || __GNUC__ >= 12
#define TURN(bytes, lanes, T, LOW, HIGH)                                                         \
    static void turn_##bytes(unsigned char(*turned)[LINE], const unsigned char *src, int64_t sa) \
    {                                                                                            \
        typedef T vector __attribute__((vector_size(16)));                                       \
        vector x[lanes], y[lanes];                                                               \
        for (int i = 0; i < lanes; i++)                                                          \
            memcpy(&x[i], src + i * sa, 16);                                                     \
        for (int round = 1; round < lanes; round *= 2) {                                         \
            for (int i = 0; i < lanes / 2; i++) {                                                \
                y[2 * i] = __builtin_shufflevector(x[i], x[i + lanes / 2], LOW);                 \
                y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + lanes / 2], HIGH);            \
            }                                                                                    \
            memcpy(x, y, sizeof x);                                                              \
        }                                                                                        \
        for (int i = 0; i < lanes; i++)                                                          \
            memcpy(turned[i], &x[i], 16);                                                        \
    }
#else
#define TURN(bytes, lanes, T, LOW, HIGH)                                                         \
    static void turn_##bytes(unsigned char(*turned)[LINE], const unsigned char *src, int64_t sa) \
    {                                                                                            \
        for (int j = 0; j < lanes; j++)                                                          \
            for (int i = 0; i < lanes; i++)                                                      \
                memcpy(turned[j] + i * bytes, src + i * sa + j * bytes, bytes);                  \
    }
#endif
#define LIST(...) __VA_ARGS__
TURN(1, 16, uint8_t, LIST(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
     LIST(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31))
TURN(2, 8, uint16_t, LIST(0, 8, 1, 9, 2, 10, 3, 11), LIST(4, 12, 5, 13, 6, 14, 7, 15))
TURN(4, 4, uint32_t, LIST(0, 4, 1, 5), LIST(2, 6, 3, 7))
TURN(8, 2, uint64_t, LIST(0, 2), LIST(1, 3))

static void turn_16(unsigned char (*turned)[LINE], const unsigned char *src, int64_t sa)
{
    (void)sa;
    memcpy(turned[0], src, 16);
}

/* One block of a transpose: src is contiguous along b, dst along a. A whole block has as many units
 * on a side as a line holds; it is read line by line, turned, and written line by line, so that
 * rows whose lines fall on one set of the cache do not drive each other out. */
#define TRANSPOSE_BLOCK(bytes)                                                                                      \
    static void transpose_##bytes(unsigned char *dst, int64_t db, const unsigned char *src, int64_t sa, int64_t na, \
                                  int64_t nb)                                                                       \
    {                                                                                                               \
        enum { side = LINE / bytes, lanes = 16 / bytes };                                                           \
        unsigned char turned[side][LINE];                                                                           \
        if (na == side && nb == side) {                                                                             \
            for (int a = 0; a < side; a += lanes)                                                                   \
                for (int b = 0; b < side; b += lanes)                                                               \
                    turn_##bytes((unsigned char(*)[LINE])(turned[b] + a * bytes), src + a * sa + b * bytes, sa);    \
            for (int b = 0; b < side; b++)                                                                          \
                memcpy(dst + b * db, turned[b], LINE);                                                              \
        } else {                                                                                                    \
            for (int64_t b = 0; b < nb; b++)                                                                        \
                for (int64_t a = 0; a < na; a++)                                                                    \
                    memcpy(dst + b * db + a * bytes, src + a * sa + b * bytes, bytes);                              \
        }                                                                                                           \
    }
TRANSPOSE_BLOCK(1)
TRANSPOSE_BLOCK(2)
TRANSPOSE_BLOCK(4)
TRANSPOSE_BLOCK(8)
TRANSPOSE_BLOCK(16)

typedef void transpose_block(unsigned char *dst, int64_t db, const unsigned char *src, int64_t sa, int64_t na,
                             int64_t nb);

static transpose_block *transpose_of(size_t unit)
{
    switch (unit) {
    case 1: return transpose_1;
    case 2: return transpose_2;
    case 4: return transpose_4;
    case 8: return transpose_8;
    case 16: return transpose_16;
    default: return NULL;
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* dst[b * db + a * unit] = src[a * sa + b * unit] */
static void transpose(size_t unit, unsigned char *dst, int64_t db, const unsigned char *src, int64_t sa, int64_t na,
                      int64_t nb)
{
    transpose_block *block = transpose_of(unit);
    int64_t size = (int64_t)unit, side = LINE / size;
    for (int64_t b0 = 0; b0 < nb; b0 += STRIPE)
        for (int64_t a = 0; a < na; a += side)
            for (int64_t b = b0; b < least(b0 + STRIPE, nb); b += side)
                block(dst + b * db + a * size, db, src + a * sa + b * size, sa, least(side, na - a),
                      least(side, nb - b));
}

/* A grid that is a transpose and large enough to gain by it. */
static bool grid_transpose(const struct grid *g, unsigned char *dst, const unsigned char *src)
{
    int64_t unit = (int64_t)g->unit;
    if (g->rows < 4 || g->turns < 4 || !transpose_of(g->unit))
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
