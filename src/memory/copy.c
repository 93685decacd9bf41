/* Copies without a cast. Bytes that are contiguous on both sides move as one unit. The loops of a nest that have the
 * smallest steps on either side make a grid. If one loop has the smallest step on both sides, units are copied in
 * order. Otherwise some units that follow each other in src are read at once and go to as many places of dst, which are
 * filled side by side: both sides are walked in runs. If the units are contiguous along one loop in src and along the
 * other in dst, and have 16 bytes or less, the grid is transposed. */
#include "memory/copy.h"

#include <stdbool.h>
#include <string.h>

#include "memory/line.h"
#include "memory/memory.h"
#include "memory/past.h"
#include "memory/pick.h"
#include "memory/raw.h"
#include "memory/transpose.h"

/* Two loops over units of `unit` bytes: `rows` turns, and in each `turns` turns. */
struct grid {
    int64_t rows, turns;
    int64_t drow, srow, dturn, sturn;
    size_t unit;
};

#define LINE 64            /* bytes of a cache line */
#define SHORT 256          /* bytes of a unit that has few whole lines */
#define LONG (32 << 10)    /* bytes of a unit for which memcpy is as fast */
#define CACHED (256 << 10) /* bytes that the caches of a core keep */
#define ROW 512            /* bytes of a row of units in src that ends before the hardware prefetches it */
#define PAIR 128           /* bytes of a unit that is worth copying side by side with others */
#define PICKED 256         /* bytes in short units for which tables may pay */
#define PICKED_UNIT 8      /* bytes of a unit that is not short any more */

/* Walks the grid, `together` turns at a time. Returns the turns that are done. Across: all rows get their part before
 * any row gets its next one. */
#define STRIPS(bytes, together)                                                                                      \
    static int64_t strips_##bytes(const struct grid *g, bool across, unsigned char *dst, const unsigned char *src)   \
    {                                                                                                                \
        const int64_t strips = g->turns / together, n[2] = {g->rows, strips};                                        \
        const int64_t d[2] = {g->drow, together * g->dturn}, s[2] = {g->srow, together * g->sturn};                  \
        const int outer = across, inner = !across;                                                                   \
        const int64_t ahead =                                                                                        \
            g->sturn == bytes ? 0 : 2 * s[inner]; /* the hardware prefetches what is near by itself */               \
        for (int64_t i = 0; i < n[outer]; i++)                                                                       \
            for (int64_t j = 0; j < n[inner]; j++) {                                                                 \
                unsigned char *to = dst + i * d[outer] + j * d[inner];                                               \
                const unsigned char *from = src + i * s[outer] + j * s[inner];                                       \
                RAW_UNROLL for (int k = 0; k < together; k++) __builtin_prefetch(from + ahead + k * g->sturn);       \
                RAW_UNROLL for (int k = 0; k < together; k++) memcpy(to + k * g->dturn, from + k * g->sturn, bytes); \
            }                                                                                                        \
        return strips * together;                                                                                    \
    }
STRIPS(32, 16)
STRIPS(64, 8)

static int64_t copy_strips(const struct grid *g, bool across, unsigned char *dst, const unsigned char *src)
{
    switch (g->unit) {
    case 32: return strips_32(g, across, dst, src);
    case 64: return strips_64(g, across, dst, src);
    default: return 0;
    }
}

/* Each of these functions walks a grid in its own way. None is inlined: then no register is spilled to the stack, and
 * stores elsewhere end the write streaming of some cores. The grid is passed by value: no copied byte can be a part of
 * it. What is prefetched may lie where there is no memory. */

/* Units with gaps between them in src, in which the hardware finds no pattern: each line is prefetched some units
 * before it is copied. */
static __attribute__((noinline)) void copy_gaps(struct grid g, unsigned char *dst, const unsigned char *src)
{
    const uintptr_t ahead = (1 + MEMORY_AHEAD / g.unit) * (uintptr_t)g.sturn;
    for (int64_t r = 0; r < g.rows; r++) {
        unsigned char *d = dst + r * g.drow;
        const unsigned char *s = src + r * g.srow;
        for (int64_t i = g.turns; i > 0; i--, d += g.dturn, s += g.sturn) {
            size_t at = 0;
            for (; at + LINE <= g.unit; at += LINE) {
                __builtin_prefetch((const void *)((uintptr_t)s + ahead + at), 0, 2);
                memory_copy_ascending(d + at, s + at, LINE);
            }
            __builtin_prefetch((const void *)((uintptr_t)s + ahead + g.unit - 1), 0, 2);
            memory_copy_ascending(d + at, s + at, g.unit % LINE);
        }
    }
}

/* Long units, with which memcpy is the faster one. */
static __attribute__((noinline)) void copy_calls(struct grid g, unsigned char *dst, const unsigned char *src)
{
    for (int64_t r = 0; r < g.rows; r++) {
        unsigned char *d = dst + r * g.drow;
        const unsigned char *s = src + r * g.srow;
        for (int64_t i = g.turns; i > 0; i--, d += g.dturn, s += g.sturn)
            memcpy(d, s, g.unit);
    }
}

/* All other units. Those that are far from each other in src are prefetched. So are the lines of short ones in dst,
 * since a line that is not written whole is fetched. */
static __attribute__((noinline)) void copy_short(struct grid g, bool far, unsigned char *dst, const unsigned char *src)
{
    const int64_t unit = (int64_t)g.unit, ahead = 1 + MEMORY_AHEAD / unit, fetched = g.turns - ahead;
    const uintptr_t sahead = far ? (uintptr_t)ahead * (uintptr_t)g.sturn : 0;
    const int64_t dahead = g.dturn == unit || unit >= SHORT ? 0 : ahead * g.dturn;
    for (int64_t r = 0; r < g.rows; r++) {
        unsigned char *d = dst + r * g.drow;
        const unsigned char *s = src + r * g.srow;
        for (int64_t i = 0; i < g.turns; i++, d += g.dturn, s += g.sturn) {
            if (sahead)
                memory_prefetch(s, sahead, g.unit);
            if (dahead && i < fetched) {
                __builtin_prefetch(d + dahead, 1);
                __builtin_prefetch(d + dahead + unit - 1, 1);
            }
            memory_copy_ascending(d, s, g.unit);
        }
    }
}

/* Units of more than 16 bytes, one after the other. */
static void copy_each(const struct grid *g, unsigned char *dst, const unsigned char *src)
{
    const int64_t unit = (int64_t)g->unit, gap = (g->sturn < 0 ? -g->sturn : g->sturn) - unit;
    const bool far = unit < SHORT ? gap >= 2 * LINE && gap + unit >= SHORT : gap != 0;
    const bool cached = g->rows * g->turns * unit < CACHED;
    if (unit >= LONG || (unit >= 2048 && (cached || !far)))
        copy_calls(*g, dst, src);
    else if (far && (unit >= SHORT || (g->dturn == unit && !cached)))
        copy_gaps(*g, dst, src);
    else
        copy_short(*g, far, dst, src);
}

/* Where the units of row r are in src. Rows of units that lie side by side, with gaps between the rows, are prefetched:
 * the hardware finds no pattern in them. */
RAW_INLINE const unsigned char *row_of(const struct grid *g, const unsigned char *src, int64_t r, uintptr_t ahead)
{
    const unsigned char *from = src + r * g->srow;
    if (ahead)
        memory_prefetch(from, ahead, (size_t)g->turns * g->unit);
    return from;
}

static uintptr_t rows_ahead(const struct grid *g)
{
    const int64_t unit = (int64_t)g->unit, row = g->turns * unit;
    const bool gaps = g->rows > 1 && g->sturn == unit && row > 0 && row < ROW && g->srow >= row + 2 * LINE;
    return gaps ? (uintptr_t)(1 + MEMORY_AHEAD / row) * (uintptr_t)g->srow : 0;
}

/* Several units are read before they are written, so that the waits for their lines overlap. */
#define EIGHT(dstep, sstep, bytes)                                                                   \
    for (; i + 8 <= g->turns; i += 8) {                                                              \
        unsigned char unit[8 * bytes], *write = to + i * (dstep);                                    \
        const unsigned char *read = from + i * (sstep);                                              \
        RAW_UNROLL for (int k = 0; k < 8; k++) memcpy(unit + k * bytes, read + k * (sstep), bytes);  \
        RAW_UNROLL for (int k = 0; k < 8; k++) memcpy(write + k * (dstep), unit + k * bytes, bytes); \
    }

/* Units on a side that is dense, in either direction, are moved together. */
#define COPY_UNITS(bytes)                                     \
    for (int64_t r = 0; r < g->rows; r++) {                   \
        const int64_t dturn = g->dturn, sturn = g->sturn;     \
        unsigned char *to = dst + r * g->drow;                \
        const unsigned char *from = row_of(g, src, r, ahead); \
        int64_t i = 0;                                        \
        if (dturn == bytes)                                   \
            EIGHT(bytes, sturn, bytes)                        \
        else if (sturn == bytes)                              \
            EIGHT(dturn, bytes, bytes)                        \
        else if (sturn == -bytes)                             \
            EIGHT(dturn, -bytes, bytes)                       \
        else                                                  \
            EIGHT(dturn, sturn, bytes)                        \
        for (; i < g->turns; i++)                             \
            memcpy(to + i * dturn, from + i * sturn, bytes);  \
    }

/* Bytes that are read at once, at any alignment. */
typedef uint16_t RAW_ANYWHERE bytes_2;
typedef uint32_t RAW_ANYWHERE bytes_4;
typedef uint64_t RAW_ANYWHERE bytes_8;
typedef memory_vector_anywhere bytes_16;
typedef struct {
    bytes_16 half[2];
} bytes_32;

/* A unit that is no power of two: its first and its last `part` bytes, which may overlap. */
#define COPY_ENDS(part)                                                                   \
    for (int64_t r = 0; r < g->rows; r++) {                                               \
        const int64_t dturn = g->dturn, sturn = g->sturn, turns = g->turns;               \
        const size_t last = g->unit - part;                                               \
        unsigned char *to = dst + r * g->drow;                                            \
        const unsigned char *from = row_of(g, src, r, ahead);                             \
        for (int64_t i = 0; i < turns; i++, to += dturn, from += sturn) {                 \
            const bytes_##part head = *(const bytes_##part *)(const void *)from;          \
            const bytes_##part tail = *(const bytes_##part *)(const void *)(from + last); \
            *(bytes_##part *)(void *)to = head;                                           \
            *(bytes_##part *)(void *)(to + last) = tail;                                  \
        }                                                                                 \
    }

static void copy_units(const struct grid *g, unsigned char *dst, const unsigned char *src)
{
    const bool near = g->sturn < 2 * LINE && g->sturn > -2 * LINE; /* most lines of src are read */
    const uintptr_t ahead = rows_ahead(g);
    switch (g->unit) {
    case 1: COPY_UNITS(1) return;
    case 2: COPY_UNITS(2) return;
    case 4: COPY_UNITS(4) return;
    case 8: COPY_UNITS(8) return;
    case 16: COPY_UNITS(16) return;
    default: break;
    }
    if (g->unit < 4)
        COPY_ENDS(2)
    else if (g->unit < 8)
        COPY_ENDS(4)
    else if (g->unit < 16)
        COPY_ENDS(8)
    else if (g->unit <= 32 && near)
        COPY_ENDS(16)
    else if (g->unit > 32 && g->unit < 64 && near)
        COPY_ENDS(32)
    else
        copy_each(g, dst, src);
}

static struct grid turned(const struct grid *g)
{
    return (struct grid){g->turns, g->rows, g->dturn, g->sturn, g->drow, g->srow, g->unit};
}

/* Picks units that are shorter than a vector out of src, if they are dense in dst along one loop. If there are few of
 * them, that loop is a turn. */
#define PIECES 128
static bool grid_pick(struct grid g, unsigned char *dst, const unsigned char *src)
{
    const int64_t unit = (int64_t)g.unit;
    struct pick_piece pieces[PIECES];
    if (g.dturn != unit)
        g = turned(&g);
    if (unit >= PICKED_UNIT || g.dturn != unit || g.sturn == unit || g.rows * g.turns * unit < PICKED)
        return false;
    if (g.turns <= PIECES && g.rows > 1) {
        for (int64_t i = 0; i < g.turns; i++)
            pieces[i] = (struct pick_piece){src + i * g.sturn, g.srow, unit};
        const int64_t done = pick_turns(dst, g.drow, pieces, (int)g.turns, g.rows);
        g.rows -= done;
        copy_units(&g, dst + done * g.drow, src + done * g.srow);
        return true;
    }
    for (int64_t r = 0; r < g.rows; r++, dst += g.drow, src += g.srow) {
        pieces[0] = (struct pick_piece){src, g.sturn, unit};
        const int64_t done = pick_turns(dst, unit, pieces, 1, g.turns);
        copy_units(&(struct grid){1, g.turns - done, 0, 0, unit, g.sturn, g.unit}, dst + done * unit,
                   src + done * g.sturn);
    }
    return true;
}

void memory_copy_units(void *dst, int64_t dstep, const void *src, int64_t sstep, int64_t n, size_t unit)
{
    const struct grid g = {1, n, 0, 0, dstep, sstep, unit};
    if (!grid_pick(g, dst, src))
        copy_units(&g, dst, src);
}

/* Whole lines of dst are written in order, which memcpy does not do. */
void memory_copy_out(void *dst, int64_t dstep, const void *src, int64_t sstep, int64_t n, size_t unit, bool near)
{
    const struct grid g = {1, n, 0, 0, dstep, sstep, unit};
    if (near || sstep == (int64_t)unit)
        copy_short(g, false, dst, src);
    else if (past_many() ? past_pays(dst, dstep, unit) : unit >= PAIR)
        past_units(dst, dstep, src, sstep, n, unit);
    else
        copy_gaps(g, dst, src);
}

static bool nearer(int64_t a, int64_t b)
{
    return (a < 0 ? -a : a) < (b < 0 ? -b : b);
}

/* Reads src in its order. */
static void copy_grid(struct grid g, unsigned char *dst, const unsigned char *src)
{
    if (g.rows > 1 && nearer(g.srow, g.sturn))
        g = turned(&g);
    int64_t done = copy_strips(&g, g.rows > 1 && nearer(g.drow, g.dturn), dst, src);
    g.turns -= done;
    copy_units(&g, dst + done * g.dturn, src + done * g.sturn);
}

/* Transposes a grid, if it is a transpose that is large enough to gain by it. */
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

/* Which of the loops before the last one makes the best grid with it: the one with the smallest step in src, or, if
 * that is the last one, in dst; otherwise the one just before the last. */
static int partner(int last, const int64_t *n, const int64_t *ds, const int64_t *ss)
{
    int s = last, d = last;
    for (int i = last - 1; i >= 0; i--) {
        s = n[i] > 1 && nearer(ss[i], ss[s]) ? i : s;
        d = n[i] > 1 && nearer(ds[i], ds[d]) ? i : d;
    }
    return s != last ? s : d != last ? d : last - 1;
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
    int last = loops - 1, row = partner(last, n, ds, ss);
    struct grid g = {1, n[last], 0, 0, ds[last], ss[last], (size_t)unit};
    if (row >= 0) {
        g.rows = n[row];
        g.drow = ds[row];
        g.srow = ss[row];
    }
    for (int i = 0; i >= 0;) {
        unsigned char *d = (unsigned char *)dst + doff;
        const unsigned char *s = (const unsigned char *)src + soff;
        if (!grid_transpose(&g, d, s) && !grid_pick(g, d, s))
            copy_grid(g, d, s);
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
