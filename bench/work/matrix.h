/* A matrix that goes from rows to columns, moved by hand: what the floor does, and how peers pack and unpack. Each of k
 * ranks has rows of it (in one piece, or in blocks dealt round-robin), and each of k ranks gets columns. Elements may
 * become bf16 on the way, and the destination may be in column order. Sizes are multiples of k and of the blocks. */
#ifndef WEFT_BENCH_WORK_MATRIX_H
#define WEFT_BENCH_WORK_MATRIX_H
#include "bench/work/work.h"

struct matrix {
    size_t k, first; /* ranks on each side; the first rank that receives */
    size_t rows, columns;
    size_t height, width; /* rows of a source, columns of a destination */
    size_t row_block, column_block;
    size_t size; /* bytes of an element that lands: 4, or 2 for bf16 */
    bool turned; /* the destination is in column order */
};

struct matrix matrix_of(const struct work_cell *cell, int ranks);
struct matrix matrix_of_tensor(int i, int ranks); /* one of many */
/* Row of the whole matrix, from a row of a source. */
size_t matrix_row(const struct matrix *m, size_t source, size_t local);
size_t matrix_column(const struct matrix *m, size_t target, size_t local); /* the same for a column of a destination */

/* Moves all that one source has for one destination, from place to place. */
void matrix_move(const struct matrix *m, size_t source, size_t target, const float *in, void *out);
/* Moves all that one source has, and reads it once, in its order; out[] has all destinations. */
void matrix_spread(const struct matrix *m, size_t source, const float *in, char *const *out);

/* Packs what one destination gets, in the order of the source's rows; and that of all destinations, one after
 * another. */
void matrix_cut(const struct matrix *m, size_t target, const float *in, void *packed);
void matrix_pack(const struct matrix *m, const float *in, void *packed);
/* Unpacks what came from every source in this form. */
void matrix_unpack(const struct matrix *m, const void *packed, void *out);
bool matrix_lands_packed(const struct matrix *m); /* is what came in its place already? */

void matrix_round(uint16_t *restrict out, const float *restrict in,
                  size_t n); /* f32 to bf16, to nearest, ties to even */
#endif
