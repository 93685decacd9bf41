/* Rows to columns; see matrix.h. */
#include "bench/work/matrix.h"

#include <string.h>

enum { TALL = 16, WIDE = 64, SHORT = 128 }; /* of a tile: rows, columns; bytes of a short run */

struct matrix matrix_of(const struct work_cell *cell, int ranks)
{
    size_t k = (size_t)(cell->apart ? ranks / 2 : ranks);
    struct matrix m = {.k = k,
                       .first = (size_t)ranks - k,
                       .rows = (size_t)cell->rows,
                       .columns = (size_t)cell->columns,
                       .height = (size_t)cell->rows / k,
                       .width = (size_t)cell->columns / k,
                       .size = cell->casts ? 2 : 4,
                       .turned = cell->turned};
    m.row_block = cell->block ? (size_t)cell->block : m.height;
    m.column_block = cell->block ? (size_t)cell->block : m.width;
    return m;
}

struct matrix matrix_of_tensor(int i, int ranks)
{
    struct work_tensor t = work_tensor(i);
    return matrix_of(&(struct work_cell){.rows = t.rows, .columns = t.columns}, ranks);
}

size_t matrix_row(const struct matrix *m, size_t source, size_t local)
{
    return (local / m->row_block * m->k + source) * m->row_block + local % m->row_block;
}

size_t matrix_column(const struct matrix *m, size_t target, size_t local)
{
    return (local / m->column_block * m->k + target) * m->column_block + local % m->column_block;
}

/* ---- runs and tiles ---- */

void matrix_round(uint16_t *restrict out, const float *restrict in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &in[i], sizeof u);
        uint32_t even = u + 0x7fff + (u >> 16 & 1), quiet = u | 0x400000;
        out[i] = (uint16_t)(((u & 0x7fffffff) > 0x7f800000 ? quiet : even) >> 16);
    }
}

static void run(const struct matrix *m, char *to, const float *from, size_t n)
{
    const char *s = (const char *)from;
    size_t bytes = n * sizeof *from;
    if (m->size == 2) {
        matrix_round((uint16_t *)(void *)to, from, n);
    } else if (bytes > SHORT || bytes % 16) {
        memcpy(to, s, bytes);
    } else { /* too short for a call each */
        for (size_t x = 0; x < bytes; x += 16)
            memcpy(to + x, s + x, 16);
    }
}

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
#ifdef __clang__
#define MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t four_places __attribute__((vector_size(16)));
#define MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (four_places){i, j, k, l})
#endif

/* Four rows of four to four columns. */
static void turn_four(float *to, size_t step, const float *from, size_t row)
{
    four a = *(const four *)from, b = *(const four *)(from + row);
    four c = *(const four *)(from + 2 * row), d = *(const four *)(from + 3 * row);
    four e = MIX(a, b, 0, 4, 1, 5), f = MIX(a, b, 2, 6, 3, 7);
    four g = MIX(c, d, 0, 4, 1, 5), h = MIX(c, d, 2, 6, 3, 7);
    *(four *)to = MIX(e, g, 0, 1, 4, 5);
    *(four *)(to + step) = MIX(e, g, 2, 3, 6, 7);
    *(four *)(to + 2 * step) = MIX(f, h, 0, 1, 4, 5);
    *(four *)(to + 3 * step) = MIX(f, h, 2, 3, 6, 7);
}

/* Turns a tile in the first-level cache and writes it in whole lines, since rows are far apart on both sides. */
static void turn_tile(float *to, size_t step, const float *from, size_t row, size_t height, size_t width)
{
    float tile[WIDE][TALL + 4];
    for (size_t r = 0; r + 4 <= height; r += 4)
        for (size_t c = 0; c + 4 <= width; c += 4)
            turn_four(&tile[c][r], TALL + 4, from + r * row + c, row);
    for (size_t c = 0; c < width; c++) {
        for (size_t r = c < width / 4 * 4 ? height / 4 * 4 : 0; r < height; r++)
            tile[c][r] = from[r * row + c];
        memcpy(to + c * step, tile[c], height * sizeof **tile);
    }
}

/* A block of height by width; the destination's columns are `step` apart. */
static void turn(float *to, size_t step, const float *from, size_t row, size_t height, size_t width)
{
    for (size_t c = 0; c < width; c += WIDE)
        for (size_t r = 0; r < height; r += TALL)
            turn_tile(to + c * step + r, step, from + r * row + c, row, height - r < TALL ? height - r : TALL,
                      width - c < WIDE ? width - c : WIDE);
}

/* ---- moves ---- */

static void turn_blocks(const struct matrix *m, size_t source, size_t target, const float *in, float *out)
{
    for (size_t r = 0; r < m->height; r += m->row_block)
        for (size_t c = 0; c < m->width; c += m->column_block)
            turn(out + c * m->rows + matrix_row(m, source, r), m->rows,
                 in + r * m->columns + matrix_column(m, target, c), m->columns, m->row_block, m->column_block);
}

void matrix_move(const struct matrix *m, size_t source, size_t target, const float *in, void *out)
{
    char *to = out;
    if (m->turned) {
        turn_blocks(m, source, target, in, out);
        return;
    }
    for (size_t r = 0; r < m->height; r++) {
        char *d = to + matrix_row(m, source, r) * m->width * m->size;
        const float *s = in + r * m->columns + target * m->column_block;
        for (size_t c = 0; c < m->width; c += m->column_block, s += m->k * m->column_block)
            run(m, d + c * m->size, s, m->column_block);
    }
}

void matrix_spread(const struct matrix *m, size_t source, const float *in, char *const *out)
{
    if (m->turned) {
        for (size_t j = 0; j < m->k; j++)
            turn_blocks(m, source, j, in, (float *)(void *)out[j]);
        return;
    }
    for (size_t r = 0; r < m->height; r++) {
        size_t at = matrix_row(m, source, r) * m->width * m->size;
        for (size_t c = 0; c < m->width; c += m->column_block, at += m->column_block * m->size)
            for (size_t j = 0; j < m->k; j++, in += m->column_block)
                run(m, out[j] + at, in, m->column_block);
    }
}

void matrix_cut(const struct matrix *m, size_t target, const float *in, void *packed)
{
    char *to = packed;
    for (size_t r = 0; r < m->height; r++) {
        const float *s = in + r * m->columns + target * m->column_block;
        for (size_t c = 0; c < m->width; c += m->column_block, s += m->k * m->column_block)
            run(m, to + (r * m->width + c) * m->size, s, m->column_block);
    }
}

void matrix_pack(const struct matrix *m, const float *in, void *packed)
{
    for (size_t j = 0; j < m->k; j++)
        matrix_cut(m, j, in, (char *)packed + j * m->height * m->width * m->size);
}

bool matrix_lands_packed(const struct matrix *m)
{
    return !m->turned && m->row_block == m->height;
}

void matrix_unpack(const struct matrix *m, const void *packed, void *out)
{
    size_t piece = m->height * m->width, block = m->row_block * m->width;
    for (size_t i = 0; i < m->k; i++)
        for (size_t b = 0; b < m->height / m->row_block; b++) {
            const char *from = (const char *)packed + (i * piece + b * block) * m->size;
            size_t row = matrix_row(m, i, b * m->row_block);
            if (m->turned)
                turn((float *)out + row, m->rows, (const float *)(const void *)from, m->width, m->row_block, m->width);
            else
                memcpy((char *)out + row * m->width * m->size, from, block * m->size);
        }
}
