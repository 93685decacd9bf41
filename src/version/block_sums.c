#include "version/block_sums.h"

#include "base/math.h"
#include "memory/line.h"
#include "memory/sum.h"

#define CHUNK 65536 /* bytes that are copied before they are summed, so that they are in the cache still */
/* Bytes that are summed before some of them are copied. The hardware prefetches while they are summed: on a Neoverse-N1
 * fewer cost up to a third of the rate, and more than twice as many do not stay in the cache of every core. */
#define ROWS 65536
#define PAGES 8        /* that are worth it */
#define PAGE 4096      /* bytes of an array that are a row, where rows are copied side by side */
#define LONG 64        /* elements of a row that are worth a call */
#define GATHERED 16384 /* bytes of rows that are gathered before they are cast */
#define BLOCK_SHIFT 16
_Static_assert(SCHEMA_BLOCK == 1 << BLOCK_SHIFT, "a block's bytes, as a power of two");

void block_sums_add(const void *bytes, int64_t at, int64_t n, uint64_t *sums)
{
    const unsigned char *p = bytes;
    while (n > 0) {
        int64_t inside = at % SCHEMA_BLOCK, take = min64(n, SCHEMA_BLOCK - inside);
        sums[at / SCHEMA_BLOCK] += sum_bytes((uint64_t)inside, p, (size_t)take);
        p += take;
        at += take;
        n -= take;
    }
}

/* Pages are copied and summed at once, several side by side. Returns the elements that are done. Only where stores are
 * streamed: elsewhere it was not measured. at: of the side that is summed. */
static int64_t copy_pages(unsigned char *dst, int to, const unsigned char *src, int from, int64_t n, int64_t at,
                          bool made, uint64_t *sums)
{
    int64_t out = (int64_t)weft_dtype_size(to), in = (int64_t)weft_dtype_size(from), each = PAGE / (made ? out : in);
    const struct sum_rows r = {dst, src, each * out, each * in, n / each, PAGE, (uint64_t)at, BLOCK_SHIFT, sums};
    if (!MEMORY_STREAMS || !sums || r.n < PAGES || at % SUM_BLOCK || !sum_rows_copy(&r, to, from, made))
        return 0;
    return r.n * each;
}

void block_sums_store(void *dst, int64_t at, int to, const void *src, int from, int64_t n, uint64_t *sums)
{
    int64_t out = (int64_t)weft_dtype_size(to), in = (int64_t)weft_dtype_size(from);
    int64_t step = sums ? CHUNK / out : n;
    for (int64_t i = copy_pages(dst, to, src, from, n, at, true, sums); i < n; i += step) {
        int64_t take = min64(step, n - i);
        unsigned char *to_at = (unsigned char *)dst + i * out;
        memory_cast(to_at, to, (const unsigned char *)src + i * in, from, (size_t)take);
        if (sums)
            block_sums_add(to_at, at + i * out, take * out, sums);
    }
}

void block_sums_load(void *dst, int to, const void *src, int64_t at, int from, int64_t n, uint64_t *sums)
{
    int64_t out = (int64_t)weft_dtype_size(to), in = (int64_t)weft_dtype_size(from);
    int64_t step = sums ? CHUNK / in : n;
    for (int64_t i = copy_pages(dst, to, src, from, n, at, false, sums); i < n; i += step) {
        int64_t take = min64(step, n - i);
        const unsigned char *from_at = (const unsigned char *)src + i * in;
        if (sums)
            block_sums_add(from_at, at + i * in, take * in, sums);
        memory_cast((unsigned char *)dst + i * out, to, from_at, from, (size_t)take);
    }
}

void block_sums_upto(struct block_sums_walk *w, int64_t end)
{
    end = min64(end, w->end);
    if (!w->sums || w->copied || end <= w->at)
        return;
    block_sums_add(w->array + w->at, w->at, end - w->at, w->sums);
    w->at = end;
}

/* From the first byte of operand 1 to behind the last one of what the loops from `loop` on touch. */
static int64_t reach(const struct memory_tile *t, int loop, int64_t size)
{
    for (; loop < t->loops; loop++)
        size += (t->n[loop] - 1) * t->stride[1][loop];
    return size;
}

/* near: the rows of the tile are in the cache, and need no prefetching. memory_copy does not know whether they are. */
static void copy_tile(const struct memory_tile *t, unsigned char *dst, int to, const unsigned char *src, int from,
                      bool near)
{
    bool rows = t->loops == 2 && t->n[1] >= LONG && t->stride[0][1] == (int64_t)weft_dtype_size(to) &&
                t->stride[1][1] == (int64_t)weft_dtype_size(from);
    if (rows && to == from)
        memory_copy_out(dst, t->stride[0][0], src, t->stride[1][0], t->n[0], (size_t)(t->n[1] * t->stride[0][1]), near);
    else if (!rows || !near)
        memory_copy(t, dst, to, src, from);
    else
        for (int64_t i = 0; i < t->n[0]; i++)
            memory_cast(dst + i * t->stride[0][0], to, src + i * t->stride[1][0], from, (size_t)t->n[1]);
}

/* ---- only what is copied ---- */

/* Sums operand 1 of the loops from `loop` on, whose first byte is at `at` of the array. */
static void add_rows(const struct block_sums_walk *w, const struct memory_tile *t, int loop, int64_t at, int64_t size)
{
    bool row = loop + 1 == t->loops && t->stride[1][loop] == size;
    if (loop == t->loops || row)
        block_sums_add(w->array + at, at, row ? t->n[loop] * size : size, w->sums);
    else
        for (int64_t i = 0; i < t->n[loop]; i++)
            add_rows(w, t, loop + 1, at + i * t->stride[1][loop], size);
}

/* Rows that are whole blocks of the sum are copied and summed at once. If there is no loop for the cast, they are
 * gathered so first, some at a time, and are cast out of the cache. False: nothing was done, since the tile is of
 * another kind, or since there is no loop that gathers the dtype (bool). */
static bool copy_rows(const struct block_sums_walk *w, const struct memory_tile *t, unsigned char *dst, int to,
                      int64_t at, int from)
{
    int64_t in = (int64_t)weft_dtype_size(from), out = (int64_t)weft_dtype_size(to);
    if (t->loops != 2 || t->stride[1][1] != in || t->stride[0][1] != out)
        return false;
    int64_t unit = t->n[1] * in, stride = t->stride[1][0];
    struct sum_rows r = {dst,          w->array + at, t->stride[0][0], stride, t->n[0],
                         (size_t)unit, (uint64_t)at,  BLOCK_SHIFT,     w->sums};
    if (unit % SUM_BLOCK || at % SUM_BLOCK || stride % SUM_BLOCK)
        return false;
    if (sum_rows_copy(&r, to, from, false))
        return true;
    if (unit > GATHERED)
        return false;
    _Alignas(64) unsigned char buffer[GATHERED];
    for (int64_t i = 0, take; i < t->n[0]; i += take) {
        take = min64(GATHERED / unit, t->n[0] - i);
        r.dst = buffer;
        r.dstep = unit;
        r.n = take;
        r.src = w->array + at + i * stride;
        r.at = (uint64_t)(at + i * stride);
        if (!sum_rows_copy(&r, from, from, false)) /* the answer is the same for all rows */
            return false;
        for (int64_t k = 0; k < take; k++)
            memory_cast(dst + (i + k) * t->stride[0][0], to, buffer + k * unit, from, (size_t)t->n[1]);
    }
    return true;
}

/* The same for all tiles. Loops before the last two are walked one by one. */
static void copy_only(const struct block_sums_walk *w, const struct memory_tile *t, unsigned char *dst, int to,
                      int64_t at, int from)
{
    struct memory_tile inner = {.loops = t->loops - 1};
    if (t->loops <= 2) {
        if (copy_rows(w, t, dst, to, at, from))
            return;
        add_rows(w, t, 0, at, (int64_t)weft_dtype_size(from));
        copy_tile(t, dst, to, w->array + at, from, false);
        return;
    }
    for (int i = 1; i < t->loops; i++) {
        inner.n[i - 1] = t->n[i];
        inner.stride[0][i - 1] = t->stride[0][i];
        inner.stride[1][i - 1] = t->stride[1][i];
    }
    for (int64_t i = 0; i < t->n[0]; i++)
        copy_only(w, &inner, dst + i * t->stride[0][0], to, at + i * t->stride[1][0], from);
}

/* ---- all bytes of a range ---- */

/* A few rows at a time: loops that reach farther are taken apart, from the outermost one on. */
static void copy_loops(struct block_sums_walk *w, const struct memory_tile *t, int loop, unsigned char *dst, int to,
                       int64_t at, int from)
{
    int64_t size = (int64_t)weft_dtype_size(from), n = loop < t->loops ? t->n[loop] : 1,
            stride = loop < t->loops ? t->stride[1][loop] : 0, inner = reach(t, loop + 1, size);
    int64_t group = inner > ROWS && loop + 1 < t->loops ? 0 : stride ? max64(ROWS / stride, 1) : n;
    for (int64_t i = 0; i < n && !group; i++)
        copy_loops(w, t, loop + 1, dst + i * t->stride[0][loop], to, at + i * stride, from);
    for (int64_t i = 0; i < n && group; i += group) {
        struct memory_tile part = {.loops = t->loops - loop};
        int64_t take = min64(group, n - i);
        for (int k = loop; k < t->loops; k++) {
            part.n[k - loop] = k == loop ? take : t->n[k];
            part.stride[0][k - loop] = t->stride[0][k];
            part.stride[1][k - loop] = t->stride[1][k];
        }
        block_sums_upto(w, at + i * stride + (take - 1) * stride + inner);
        copy_tile(&part, dst + (loop < t->loops ? i * t->stride[0][loop] : 0), to, w->array + at + i * stride, from,
                  true);
    }
}

void block_sums_copy(struct block_sums_walk *w, const struct memory_tile *t, void *dst, int to, int64_t at, int from)
{
    if (w->sums && w->copied)
        copy_only(w, t, dst, to, at, from);
    else if (w->sums)
        copy_loops(w, t, 0, dst, to, at, from);
    else
        copy_tile(t, dst, to, w->array + at, from, false);
}
