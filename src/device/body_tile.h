/* DEVICE_TRANSPOSE and DEVICE_TRANSPOSE_ANY: one tile, in two steps with a barrier between them.
 *
 * The tile's rows are along the loop in which dst is contiguous, its columns along that of src. These loops are the
 * last two of the item: first that of src, then that of dst; a turn is a tile's side. */
#ifndef WEFT_DEVICE_BODY_TILE_H
#define WEFT_DEVICE_BODY_TILE_H
#include "device/body_lanes.h"

struct body_tile {
    uint64_t dst, src;
    int64_t dstep, sstep; /* from one column of dst, and one row of src, to the next */
    uint32_t rows, columns;
};

DEVICE_FN struct body_tile body_tile_find(const void *image, const struct device_item *it, uint32_t block,
                                          uint32_t side)
{
    const struct device_loop *l = body_loops(it) + it->loops - 2;
    const uint32_t u = block - it->block, q = body_divide_turn(&l[1], u), row = (u - q * l[1].n) * side;
    const uint32_t p = body_divide_turn(&l[0], q), column = (q - p * l[0].n) * side;
    struct body_tile t;
    body_find(image, it, it->loops, u, &t.dst, &t.src);
    t.dstep = l[0].stride[0] / (int64_t)side;
    t.sstep = l[1].stride[1] / (int64_t)side;
    t.rows = it->turned[0] - row < side ? it->turned[0] - row : side;
    t.columns = it->turned[1] - column < side ? it->turned[1] - column : side;
    return t;
}

#define BODY_AT_ONCE 16 /* loads of a thread before it stores them */

/* Beyond the edges of the tensor the values at the edge are loaded, so that no load waits for a branch. */
#define BODY_TILE(suffix, T)                                                                                     \
    DEVICE_FN void body_tile_load_##suffix(const void *image, const struct device_item *it, uint32_t block,      \
                                           uint32_t thread, void *tile)                                          \
    {                                                                                                            \
        const uint32_t side = TILE_SIDE(sizeof(T)), at_once = side * side / DEVICE_THREADS < BODY_AT_ONCE        \
                                                                  ? side * side / DEVICE_THREADS                 \
                                                                  : BODY_AT_ONCE;                                \
        const struct body_tile t = body_tile_find(image, it, block, side);                                       \
        const uint32_t x = thread % side, row = thread / side, down = DEVICE_THREADS / side;                     \
        const uint64_t from = t.src + (x < t.columns ? x : t.columns - 1) * sizeof(T);                           \
        T *to = (T *)tile;                                                                                       \
        T v[BODY_AT_ONCE] BODY_ZERO;                                                                             \
        DEVICE_ROLLED for (uint32_t first = row; first < t.rows; first += at_once * down)                        \
        {                                                                                                        \
            DEVICE_UNROLL for (uint32_t k = 0; k < at_once; k++)                                                 \
            {                                                                                                    \
                const uint32_t y = first + k * down < t.rows ? first + k * down : t.rows - 1;                    \
                BODY_LOAD(T, v[k], from + (uint64_t)y * (uint64_t)t.sstep);                                      \
            }                                                                                                    \
            DEVICE_UNROLL for (uint32_t k = 0; k < at_once; k++) to[(first + k * down) * (side + 1) + x] = v[k]; \
        }                                                                                                        \
    }                                                                                                            \
    DEVICE_FN void body_tile_store_##suffix(const void *image, const struct device_item *it, uint32_t block,     \
                                            uint32_t thread, const void *tile)                                   \
    {                                                                                                            \
        const uint32_t side = TILE_SIDE(sizeof(T));                                                              \
        const struct body_tile t = body_tile_find(image, it, block, side);                                       \
        const uint32_t row = thread % side, down = DEVICE_THREADS / side;                                        \
        const T *from = (const T *)tile;                                                                         \
        DEVICE_UNROLL for (uint32_t k = 0; k < side / down; k++)                                                 \
        {                                                                                                        \
            const uint32_t column = thread / side + k * down;                                                    \
            if (row < t.rows && column < t.columns)                                                              \
                BODY_STORE(T, t.dst + row * sizeof(T) + (uint64_t)column * (uint64_t)t.dstep,                    \
                           from[row * (side + 1) + column]);                                                     \
        }                                                                                                        \
    }
BODY_TILE(16, body_v16)
BODY_TILE(8, uint64_t)
BODY_TILE(4, uint32_t)
BODY_TILE(2, uint16_t)
BODY_TILE(1, uint8_t)

/* ---- whole tiles of 1 or 2 bytes, in words of 4 bytes ----
 * A thread takes blocks of as many rows as a word has elements, turns them in its registers, and puts them down as
 * words of columns: word `row` of column c * parts + i is at [i][c][row], in lines of 33 words, which keeps the threads
 * of a warp in different banks. */

#define BODY_LINE 33
#define BODY_PLANE (32 * BODY_LINE)

/* Are all its words aligned, and is it whole? */
DEVICE_FN int body_tile_words(const struct body_tile *t, uint32_t side)
{
    return t->rows == side && t->columns == side &&
           ((t->dst | t->src | (uint64_t)t->dstep | (uint64_t)t->sstep) & 3) == 0;
}

/* Four bytes of a and b, by digits: 0 to 3 are a's, 4 to 7 are b's. */
DEVICE_FN uint32_t body_permute(uint32_t a, uint32_t b, uint32_t digits)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, digits);
#else
    const uint64_t all = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (uint32_t i = 0; i < 4; i++)
        r |= (uint32_t)(all >> (digits >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
#endif
}

/* Rows become columns. */
DEVICE_FN void body_turn(uint32_t *w, uint32_t parts)
{
    if (parts == 2) {
        const uint32_t a = w[0], b = w[1];
        w[0] = body_permute(a, b, 0x5410);
        w[1] = body_permute(a, b, 0x7632);
    } else {
        const uint32_t a = body_permute(w[0], w[1], 0x5140), b = body_permute(w[2], w[3], 0x5140);
        const uint32_t c = body_permute(w[0], w[1], 0x7362), d = body_permute(w[2], w[3], 0x7362);
        w[0] = body_permute(a, b, 0x5410);
        w[1] = body_permute(a, b, 0x7632);
        w[2] = body_permute(c, d, 0x5410);
        w[3] = body_permute(c, d, 0x7632);
    }
}

DEVICE_FN void body_words_turn(const struct body_tile *t, uint32_t parts, uint32_t thread, uint32_t *tile, int step)
{
    const uint32_t x = thread % 32, y = thread / 32, down = DEVICE_THREADS / 32;
    if (!step) {
        uint32_t w[32 / (DEVICE_THREADS / 32)][4] BODY_ZERO;
        DEVICE_UNROLL for (uint32_t k = 0; k < 32 / down; k++)
        {
            DEVICE_UNROLL for (uint32_t j = 0; j < parts; j++) BODY_LOAD(
                uint32_t, w[k][j], t->src + x * 4 + (uint64_t)((y + k * down) * parts + j) * (uint64_t)t->sstep);
        }
        DEVICE_UNROLL for (uint32_t k = 0; k < 32 / down; k++)
        {
            body_turn(w[k], parts);
            DEVICE_UNROLL for (uint32_t i = 0; i < parts; i++) tile[i * BODY_PLANE + x * BODY_LINE + y + k * down] =
                w[k][i];
        }
        return;
    }
    DEVICE_UNROLL for (uint32_t k = 0; k < 32 * parts / down; k++)
    {
        const uint32_t column = y + k * down;
        BODY_STORE(uint32_t, t->dst + x * 4 + (uint64_t)column * (uint64_t)t->dstep,
                   tile[column % parts * BODY_PLANE + column / parts * BODY_LINE + x]);
    }
}

/* Both steps; step 0 loads and step 1 stores. */
DEVICE_FN void body_transpose(const void *image, const struct device_item *it, uint32_t block, uint32_t thread,
                              void *tile, int step)
{
#define BODY_STEP(suffix)                                         \
    if (step)                                                     \
        body_tile_store_##suffix(image, it, block, thread, tile); \
    else                                                          \
        body_tile_load_##suffix(image, it, block, thread, tile);  \
    break
    if (it->size <= 2) {
        const uint32_t side = it->size == 1 ? TILE_SIDE(1) : TILE_SIDE(2);
        const struct body_tile t = body_tile_find(image, it, block, side);
        if (body_tile_words(&t, side)) {
            if (it->size == 1)
                body_words_turn(&t, 4, thread, (uint32_t *)tile, step);
            else
                body_words_turn(&t, 2, thread, (uint32_t *)tile, step);
            return;
        }
    }
    switch (it->size) {
    case 16: BODY_STEP(16);
    case 8: BODY_STEP(8);
    case 4: BODY_STEP(4);
    case 2: BODY_STEP(2);
    default: BODY_STEP(1);
    }
}

/* ---- with a cast ---- */

/* Values wait in the tile as f32. */
DEVICE_FN void body_transpose_lanes(const void *image, const struct device_item *it, uint32_t block, uint32_t thread,
                                    float *tile, int step)
{
    enum { SIDE = TILE_SIDE(4), LINE = SIDE + 1, DOWN = DEVICE_THREADS / SIDE, EACH = SIDE / DOWN };
    const struct body_tile t = body_tile_find(image, it, block, SIDE);
    const uint32_t x = thread % SIDE, y = thread / SIDE;
    float f[EACH] BODY_ZERO;
#define BODY_TURN_LOAD(dtype)                                                                                 \
    case dtype: {                                                                                             \
        uint32_t w[EACH] BODY_ZERO;                                                                           \
        DEVICE_UNROLL for (uint32_t k = 0; k < EACH; k++)                                                     \
        {                                                                                                     \
            const uint32_t row = y + k * DOWN < t.rows ? y + k * DOWN : t.rows - 1;                           \
            const uint32_t column = x < t.columns ? x : t.columns - 1;                                        \
            w[k] = (uint32_t)body_load(t.src + column * body_size(dtype) + (uint64_t)row * (uint64_t)t.sstep, \
                                       body_size(dtype), 0);                                                  \
        }                                                                                                     \
        DEVICE_UNROLL for (int k = 0; k < EACH; k += 4)                                                       \
        {                                                                                                     \
            const uint32_t size = body_size(dtype);                                                           \
            uint32_t packed[4] = {w[k], w[k + 1], w[k + 2], w[k + 3]};                                        \
            if (size == 2) {                                                                                  \
                packed[0] = w[k] | w[k + 1] << 16;                                                            \
                packed[1] = w[k + 2] | w[k + 3] << 16;                                                        \
            } else if (size == 1) {                                                                           \
                packed[0] = w[k] | w[k + 1] << 8 | w[k + 2] << 16 | w[k + 3] << 24;                           \
            }                                                                                                 \
            body_decode(dtype, packed, f + k, 4);                                                             \
        }                                                                                                     \
        break;                                                                                                \
    }
#define BODY_TURN_STORE(dtype)                                                                   \
    case dtype: {                                                                                \
        const uint32_t size = body_size(dtype);                                                  \
        DEVICE_UNROLL for (int k = 0; k < EACH; k += 4)                                          \
        {                                                                                        \
            uint32_t w[4] BODY_ZERO;                                                             \
            body_encode(dtype, f + k, w, 4);                                                     \
            DEVICE_UNROLL for (uint32_t i = 0; i < 4; i++)                                       \
            {                                                                                    \
                const uint32_t column = y + ((uint32_t)k + i) * DOWN;                            \
                if (x < t.rows && column < t.columns)                                            \
                    body_store(t.dst + x * size + (uint64_t)column * (uint64_t)t.dstep, size, 0, \
                               w[i * size / 4] >> i * size % 4 * 8);                             \
            }                                                                                    \
        }                                                                                        \
        break;                                                                                   \
    }
    if (!step) {
        switch (it->from) {
            BODY_FLOATS_THIN(BODY_TURN_LOAD)
            BODY_TURN_LOAD(WEFT_F32)
        }
        DEVICE_UNROLL for (uint32_t k = 0; k < EACH; k++) tile[(y + k * DOWN) * LINE + x] = f[k];
        return;
    }
    DEVICE_UNROLL for (uint32_t k = 0; k < EACH; k++) f[k] = tile[x * LINE + y + k * DOWN];
    switch (it->to) {
        BODY_FLOATS_THIN(BODY_TURN_STORE)
        BODY_TURN_STORE(WEFT_F32)
    }
}

/* All dtypes: values wait in the tile as they are in src, in 8 bytes each. */
DEVICE_FN void body_transpose_any(const void *image, const struct device_item *it, uint32_t block, uint32_t thread,
                                  void *tile, int step)
{
    if (it->form == FORM_TILES_LANES) {
        body_transpose_lanes(image, it, block, thread, (float *)tile, step);
        return;
    }
    const uint32_t side = TILE_SIDE(8), x = thread % side, down = DEVICE_THREADS / side;
    const uint32_t ssize = body_size(it->from), dsize = it->size;
    const struct body_tile t = body_tile_find(image, it, block, side);
    uint64_t *values = (uint64_t *)tile;
    DEVICE_UNROLL for (uint32_t k = 0; k < side / down; k++)
    {
        const uint32_t y = thread / side + k * down;
        if (!step && x < t.columns && y < t.rows)
            values[y * (side + 1) + x] = body_load(t.src + x * ssize + (uint64_t)y * (uint64_t)t.sstep, ssize, it->any);
        if (step && x < t.rows && y < t.columns)
            body_store(t.dst + x * dsize + (uint64_t)y * (uint64_t)t.dstep, dsize, it->any,
                       body_finish(it, body_cast(values[x * (side + 1) + y], it->from, it->acc)));
    }
}
#endif
