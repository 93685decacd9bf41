/* Sums of bytes in one piece, and of elements that lie apart or are cast. */
#include "memory/sum.h"

#include <stdbool.h>
#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "memory/kernels.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are loaded as they lie in memory");

#define ROW 64         /* bytes of a row from which on it is summed where it lies */
#define BUFFER 16384   /* bytes of elements that are gathered or cast before they are summed */
#define TURN 32        /* elements of a row and of a column that are turned at once */
#define TURNED_LEAST 8 /* turns of both loops from which on a transpose is worth it */

/* ---- bytes ---- */

/* Bytes of one block; R is left out. */
static uint64_t sum_partial(uint64_t at, const unsigned char *p, size_t n)
{
    uint64_t sum = 0;
    uint32_t word;
    while (n) {
        size_t j = at % SUM_BLOCK / 4, skip = at % 4, take = 4 - skip < n ? 4 - skip : n;
        word = 0;
        if (take == 4)
            memcpy(&word, p, 4);
        else
            memcpy((char *)&word + skip, p, take);
        sum += (uint64_t)word * sum_keys[j];
        at += take;
        p += take;
        n -= take;
    }
    return sum;
}

uint64_t sum_bytes(uint64_t at, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t sum = 0;
    size_t head = (SUM_BLOCK - at % SUM_BLOCK) % SUM_BLOCK, whole;
    head = head < n ? head : n;
    if (head)
        sum = sum_partial(at, p, head) * sum_factor(at / SUM_BLOCK);
    at += head;
    whole = (n - head) / SUM_BLOCK;
    if (whole)
        sum += memory_level_kernels()->sum(p + head, at / SUM_BLOCK, whole);
    at += whole * SUM_BLOCK;
    n -= head + whole * SUM_BLOCK;
    if (n)
        sum += sum_partial(at, p + head + whole * SUM_BLOCK, n) * sum_factor(at / SUM_BLOCK);
    return sum;
}

bool sum_rows_copy(const struct sum_rows *r, int to, int from, bool made)
{
    const struct kernels *k = memory_level_kernels();
    sum_rows_loop *loop = to == from && to != WEFT_BOOL         ? k->sum_rows
                          : from == WEFT_F32 && to == WEFT_BF16 ? (made ? k->sum_rows_made : k->sum_rows_bf16)
                                                                : NULL;
    if (loop)
        loop(*r);
    return loop != NULL;
}

/* ---- tiles ---- */

/* A walk through a tile in boxes: `step` turns of each loop at a time, fewer at its end. The elements of a box are
 * dense in a buffer. `rows`: they are several rows of the message, one for each turn of this loop; -1: one row. */
struct walk {
    int loops, rows;
    int64_t n[MEMORY_LOOPS], at[MEMORY_LOOPS], step[MEMORY_LOOPS];
    int64_t position[MEMORY_LOOPS]; /* bytes of the message from one turn to the next */
    const int64_t *stride;          /* bytes of memory */
    uint64_t first;                 /* position of the first byte */
    int from, via, to;
};

static int64_t turns(const struct walk *w, int i)
{
    return min64(w->step[i], w->n[i] - w->at[i]);
}

static bool advance(struct walk *w)
{
    for (int i = w->loops - 1; i >= 0; i--) {
        w->at[i] += w->step[i];
        if (w->at[i] < w->n[i])
            return true;
        w->at[i] = 0;
    }
    return false;
}

/* Are the elements contiguous along one loop in memory and along another in the message, and both long enough? Then
 * boxes of these two loops use each cache line once. */
static int turned_loop(const struct walk *w)
{
    int last = w->loops - 1;
    for (int i = 0; i < last; i++)
        if (w->stride[i] == (int64_t)weft_dtype_size(w->from) && w->n[i] >= TURNED_LEAST && w->n[last] >= TURNED_LEAST)
            return i;
    return -1;
}

/* Boxes that fill the buffer: all turns of the last loops, and some of the one before. */
static void plan_boxes(struct walk *w)
{
    int64_t room = BUFFER / DTYPE_MAX_SIZE;
    w->rows = turned_loop(w);
    for (int i = w->loops - 1; i >= 0; i--)
        w->step[i] = 1;
    if (w->rows >= 0) {
        w->step[w->rows] = w->step[w->loops - 1] = TURN;
        return;
    }
    for (int i = w->loops - 1; i >= 0 && room > 1; i--) {
        w->step[i] = min64(room, w->n[i]);
        room = w->step[i] < w->n[i] ? 0 : room / w->n[i];
    }
}

static uint64_t sum_box(const struct walk *w, const char *src)
{
    _Alignas(64) unsigned char buffer[2][BUFFER];
    struct memory_tile t = {0};
    int64_t count = 1, position = 0, size = (int64_t)weft_dtype_size(w->to);
    int first = w->via ? w->via : w->to;
    for (int i = 0; i < w->loops; i++) {
        src += w->at[i] * w->stride[i];
        position += w->at[i] * w->position[i];
        if (turns(w, i) == 1)
            continue;
        t.n[t.loops] = turns(w, i);
        t.stride[1][t.loops++] = w->stride[i];
        count *= turns(w, i);
    }
    for (int64_t i = t.loops - 1, stride = (int64_t)weft_dtype_size(first); i >= 0; stride *= t.n[i--])
        t.stride[0][i] = stride;
    memory_tile_merge(&t);
    memory_copy(&t, buffer[0], first, src, w->from);
    if (first != w->to)
        memory_cast(buffer[1], w->to, buffer[0], first, (size_t)count);
    const unsigned char *at = buffer[first != w->to];
    int64_t rows = w->rows >= 0 ? turns(w, w->rows) : 1, row = count / rows * size;
    uint64_t sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += sum_bytes(w->first + (uint64_t)(position + (rows > 1 ? i * w->position[w->rows] : 0)), at + i * row,
                         (size_t)row);
    return sum;
}

uint64_t sum_tile(uint64_t first, const struct memory_tile *t, const void *src, int from, int via, int to)
{
    struct walk w = {.loops = t->loops, .rows = -1, .stride = t->stride[1], .first = first, .from = from, .to = to};
    int64_t size = (int64_t)weft_dtype_size(to), position = size, last = t->loops - 1;
    w.via = via && via != from && via != to ? via : 0;
    if (!memory_tile_count(t))
        return 0;
    for (int i = t->loops - 1; i >= 0; position *= t->n[i--]) {
        w.n[i] = t->n[i];
        w.position[i] = position;
    }
    bool rows = from == to && !w.via && (last < 0 || t->stride[1][last] == size);
    uint64_t sum = 0;
    if (!rows || (last >= 0 && t->n[last] * size < ROW && t->loops > 1)) {
        plan_boxes(&w);
        do
            sum += sum_box(&w, src);
        while (advance(&w));
        return sum;
    }
    for (int i = 0; i < t->loops; i++)
        w.step[i] = i == last ? t->n[i] : 1;
    size_t row = (size_t)(last < 0 ? size : t->n[last] * size);
    do {
        const char *at = src;
        position = 0;
        for (int i = 0; i < last; i++) {
            at += w.at[i] * t->stride[1][i];
            position += w.at[i] * w.position[i];
        }
        sum += sum_bytes(first + (uint64_t)position, at, row);
    } while (advance(&w));
    return sum;
}
