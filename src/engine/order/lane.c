#include "engine/order/lane.h"

#include "base/dtype.h"
#include "base/math.h"
#include "memory/cast_rows.h"
#include "memory/past.h"
#include "memory/pick.h"
#include "memory/raw.h"

#define LINE 64      /* bytes of a cache line */
#define FAR 512      /* bytes between two rows in src beyond which they are prefetched */
#define CALL 2048    /* bytes of rows for which a call of the kernel pays */
#define CALL_RUN 128 /* bytes of a row in one piece for which a call of its own pays, if it is cast */
#define LANES 64     /* whose rows are picked or cast together */
#define SIDE 16      /* rows that past_units copies side by side */

int64_t lane_across(const struct lane *lanes, uint32_t n)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += lanes[i].bytes;
    return bytes;
}

/* A row of whole vectors and `tail` bytes, written in the order of addresses. */
RAW_INLINE void one_row(char *to, const char *from, int64_t bytes, const size_t tail)
{
    int64_t at = 0;
    for (; at + 16 <= bytes; at += 16)
        memory_copy_ascending(to + at, from + at, 16);
    memory_copy_ascending(to + at, from + at, tail);
}

/* Rows of all lanes, which have one length and the same steps, `turns` rows of a lane at a time. If these are more than
 * one, they are whole cache lines of dst: a core that writes to several places in turn must otherwise fetch each line
 * first. Each lane then begins with rows up to the beginning of a line. */
RAW_INLINE void rows_of(struct lane *lanes, uint32_t n, int64_t rows, int64_t bytes, const size_t tail, int64_t turns)
{
    const int64_t dstep = lanes[0].dstep, sstep = lanes[0].sstep;
    int64_t r = 0;
    for (uint32_t i = 0; i < n && turns > 1; i++)
        for (lanes[i].left = rows; lanes[i].left > 0 && lanes[i].left > rows - turns && (uintptr_t)lanes[i].dst % LINE;
             lanes[i].left--) {
            one_row(lanes[i].dst, lanes[i].src, bytes, tail);
            lanes[i].dst += dstep;
            lanes[i].src += sstep;
        }
    for (; r + (turns > 1 ? 2 * turns : 1) <= rows; r += turns)
        for (uint32_t i = 0; i < n; i++) {
            char *to = lanes[i].dst + r * dstep;
            const char *from = lanes[i].src + r * sstep;
            RAW_UNROLL for (int64_t k = 0; k < turns; k++) one_row(to + k * dstep, from + k * sstep, bytes, tail);
        }
    for (uint32_t i = 0; i < n && turns > 1; i++)
        for (int64_t k = r; k < lanes[i].left; k++)
            one_row(lanes[i].dst + k * dstep, lanes[i].src + k * sstep, bytes, tail);
}

/* A loop for each length that is a multiple of 4, and one for all other lengths that have the same tail. */
#define TURNS(bytes) ((bytes) < LINE ? LINE / ((bytes) & -(bytes)) : 1)
#define ROWS_OF(bytes)                                                          \
    case bytes:                                                                 \
        if (dstep == (bytes))                                                   \
            rows_of(lanes, n, rows, bytes, (size_t)(bytes) % 16, TURNS(bytes)); \
        else                                                                    \
            rows_of(lanes, n, rows, bytes, (size_t)(bytes) % 16, 1);            \
        return true;
#define ROWS_TAIL(tail)                                                          \
    case tail:                                                                   \
        rows_of(lanes, n, rows, bytes, tail, dstep == bytes ? TURNS(bytes) : 1); \
        break;
#define FOUR(X, from, step) X((from)) X((from) + (step)) X((from) + 2 * (step)) X((from) + 3 * (step))

/* Rows that follow each other in dst without gaps, lane by lane, are picked. Returns how many rows these were. */
static int64_t pick_rows(const struct lane *lanes, uint32_t n, int64_t rows)
{
    struct pick_piece pieces[LANES];
    int64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++, bytes += pieces[i - 1].bytes) {
        if (n > LANES || lanes[i].dstep != lanes[0].dstep || lanes[i].dst != lanes[0].dst + bytes)
            return 0;
        pieces[i] = (struct pick_piece){(const unsigned char *)lanes[i].src, lanes[i].sstep, lanes[i].bytes};
    }
    return bytes == lanes[0].dstep ? pick_turns((unsigned char *)lanes[0].dst, bytes, pieces, (int)n, rows) : 0;
}

/* Rows that are shorter than a line, for which a call each would cost more than the copy. */
static void short_rows(const struct lane *lanes, uint32_t n, int64_t rows)
{
    int64_t step = max64(lanes[0].dstep, lanes[0].sstep), several = LANE_TURN / (step > 0 ? step : LANE_CHUNK) + 1;
    for (int64_t r = pick_rows(lanes, n, rows); r < rows; r += several)
        for (uint32_t i = 0; i < n; i++)
            memory_copy_units(lanes[i].dst + r * lanes[i].dstep, lanes[i].dstep, lanes[i].src + r * lanes[i].sstep,
                              lanes[i].sstep, min64(several, rows - r), (size_t)lanes[i].bytes);
}

/* Rows of one length, at the same steps in all lanes. False: they are not, or there is a better order. */
static bool equal_rows(struct lane *lanes, uint32_t n, int64_t rows)
{
    const int64_t dstep = lanes[0].dstep, sstep = lanes[0].sstep, bytes = lanes[0].bytes;
    for (uint32_t i = 1; i < n; i++)
        if (lanes[i].bytes != bytes || lanes[i].dstep != dstep || lanes[i].sstep != sstep)
            return false;
    switch (bytes) {
        FOUR(ROWS_OF, 12, 4)
        FOUR(ROWS_OF, 28, 4)
        FOUR(ROWS_OF, 44, 4)
        ROWS_OF(60)
        ROWS_OF(64)
        ROWS_OF(128)
    default: break;
    }
    if (bytes < 16 || bytes > LINE)
        return false;
    switch (bytes % 16) {
        FOUR(ROWS_TAIL, 1, 4)
        FOUR(ROWS_TAIL, 2, 4)
        FOUR(ROWS_TAIL, 3, 4)
    default: break;
    }
    return true;
}

/* Lanes of pushes read one array from end to end. Pulls read a row here and a row there, which the hardware does not
 * foresee. */
static bool reads_far(const struct lane *lanes, uint32_t n)
{
    bool far = true;
    for (uint32_t i = 0; i < n; i++)
        far &= !lanes[i].pushes && lanes[i].sstep - lanes[i].bytes >= FAR;
    return far;
}

/* Lanes that write parts of the same rows do it in the order of addresses, so that whole lines are written. */
static void in_order(struct lane *lanes, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k && (uintptr_t)lanes[k - 1].dst - (uintptr_t)lanes[k].dst < (uintptr_t)lanes[k].dstep;
             k--) {
            const struct lane lane = lanes[k];
            lanes[k] = lanes[k - 1];
            lanes[k - 1] = lane;
        }
}

/* Rows whose stores go past the caches. False: these do not pay. */
static bool past_rows(const struct lane *lanes, uint32_t n, int64_t rows)
{
    for (uint32_t i = 0; i < n; i++)
        if (!past_pays(lanes[i].dst, lanes[i].dstep, (size_t)lanes[i].bytes))
            return false;
    const int64_t several = max64(SIDE, LANE_TURN / lane_across(lanes, n));
    for (int64_t r = 0; r < rows; r += several)
        for (uint32_t i = 0; i < n; i++)
            past_units(lanes[i].dst + r * lanes[i].dstep, lanes[i].dstep, lanes[i].src + r * lanes[i].sstep,
                       lanes[i].sstep, min64(several, rows - r), (size_t)lanes[i].bytes);
    return true;
}

/* Rows that follow each other in dst share cache lines. What the end of a row has of such a line is written together
 * with the beginning of the next row. past: the run writes more than caches hold. */
void lane_copy(struct lane *lanes, uint32_t n, int64_t rows, bool past)
{
    const bool far = reads_far(lanes, n);
    in_order(lanes, n);
    if ((past && past_rows(lanes, n, rows)) || equal_rows(lanes, n, rows))
        return;
    if (lane_across(lanes, n) < LANE_RUN / 2 * n) {
        short_rows(lanes, n, rows);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < n; i++) {
            const struct lane *l = &lanes[i];
            char *to = l->dst + r * l->dstep;
            const char *from = l->src + r * l->sstep;
            bool shares = l->dstep == l->bytes && l->bytes >= LINE;
            size_t before = shares && r ? (uintptr_t)to % LINE : 0;
            size_t after = shares && r + 1 < rows ? (uintptr_t)(to + l->bytes) % LINE : 0;
            if (far)
                memory_prefetch(from, (uintptr_t)(1 + MEMORY_AHEAD / l->bytes) * (uintptr_t)l->sstep, (size_t)l->bytes);
            if (before)
                memory_copy_ascending(to - before, from - l->sstep + l->bytes - before, before);
            memory_copy_ascending(to, from, (size_t)l->bytes - after);
        }
}

void lane_kernel(struct lane *lanes, uint32_t n, int64_t rows)
{
    int64_t several = (CALL + lanes[0].bytes - 1) / lanes[0].bytes;
    for (int64_t r = 0; r < rows; r += several) {
        int64_t turn = min64(several, rows - r);
        for (uint32_t i = 0; i < n; i++) {
            struct lane *l = &lanes[i];
            l->rows->inner.n[0] = turn;
            memory_copy(&l->rows->inner, l->dst, l->to, l->src, l->from);
            l->dst += turn * l->dstep;
            l->src += turn * l->sstep;
        }
    }
}

/* How many bytes of src become `bytes` bytes of dst. */
static int64_t source_bytes(const struct lane *l, int64_t bytes)
{
    return bytes / (int64_t)weft_dtype_size(l->to) * (int64_t)weft_dtype_size(l->from);
}

/* How many lanes from the first one on have rows that follow each other in dst. 0: none do, or rows are long enough to
 * be cast one by one. */
static uint32_t joined(const struct lane *lanes, uint32_t n)
{
    int64_t bytes = lanes[0].bytes;
    uint32_t k = 1;
    for (; k < n && k < LANES && lanes[k].dst == lanes[0].dst + bytes && lanes[k].dstep == lanes[0].dstep; k++)
        bytes += lanes[k].bytes;
    bool gaps = bytes != lanes[0].dstep, brief = bytes < k * CALL_RUN;
    return k > 1 && (!gaps || brief) && 2 * max64(bytes, source_bytes(&lanes[0], bytes)) <= CAST_ROWS_BLOCK ? k : 0;
}

/* Joined rows are cast together. */
static void cast_joined(const struct lane *lanes, uint32_t n, int64_t rows)
{
    struct pick_piece pieces[LANES];
    for (uint32_t i = 0; i < n; i++)
        pieces[i] = (struct pick_piece){(const unsigned char *)lanes[i].src, lanes[i].sstep,
                                        source_bytes(&lanes[i], lanes[i].bytes)};
    cast_rows_pieces(lanes[0].dst, lanes[0].dstep, lanes[0].to, pieces, (int)n, lanes[0].from, rows);
}

/* Rows that are one piece on both sides. */
static void cast_each(struct lane *lanes, uint32_t n, int64_t rows)
{
    const size_t size = weft_dtype_size(lanes[0].to);
    if (lanes[0].bytes < CALL_RUN) {
        lane_kernel(lanes, n, rows);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < n; i++) {
            const struct lane *l = &lanes[i];
            memory_cast(l->dst + r * l->dstep, l->to, l->src + r * l->sstep, l->from, (size_t)l->bytes / size);
        }
}

/* Casts whose stores go past the caches. False: these do not pay, and what was cast is cast again. */
static bool past_casts(const struct lane *lanes, uint32_t n, int64_t rows)
{
    const int64_t several = 1 + LANE_ROW / lanes[0].bytes;
    for (int64_t r = 0; r < rows; r += several)
        for (uint32_t i = 0; i < n; i++) {
            const struct lane *l = &lanes[i];
            l->rows->inner.n[0] = min64(several, rows - r);
            if (!memory_past_tile(&l->rows->inner, l->dst + r * l->dstep, l->to, l->src + r * l->sstep, l->from))
                return false;
        }
    return true;
}

void lane_cast(struct lane *lanes, uint32_t n, int64_t rows, bool past)
{
    if (past && past_casts(lanes, n, rows))
        return;
    for (uint32_t i = 0, k; i < n; i += k) {
        k = joined(lanes + i, n - i);
        if (k) {
            cast_joined(lanes + i, k, rows);
            continue;
        }
        for (k = 1; i + k < n && !joined(lanes + i + k, n - i - k);)
            k++;
        cast_each(lanes + i, k, rows);
    }
}
