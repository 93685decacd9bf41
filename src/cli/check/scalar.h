/* One value of any dtype, and the arithmetic that weft defines for it, in plain C: decoding and encoding every format,
 * one correct rounding, folds, identities. It shares nothing with the library's kernels, so that the oracle can judge
 * them.
 */
#ifndef WEFT_CLI_CHECK_SCALAR_H
#define WEFT_CLI_CHECK_SCALAR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft.h"

/* Floats of every format are held as the double that they equal; integers and bool as 64 bits, sign-extended if signed;
 * complex numbers as two doubles. */
struct scalar {
    union {
        double f;
        uint64_t u;
    };
    double im; /* of a complex number */
};

int scalar_part(int dtype); /* f32 of c64, f64 of c128, otherwise the dtype itself */

bool scalar_is_float(int dtype);
int scalar_acc(int dtype); /* the dtype in which values of dtype are folded */
/* The dtype in which a finished fold is sent from a side of dtype src to one of dtype dst: the narrower one, or src if
 * both have the same size. */
int scalar_finished(int src, int dst);

struct scalar scalar_load(int dtype, const void *p);
void scalar_store(int dtype, void *p, struct scalar v); /* v must be a value of dtype */
struct scalar scalar_cast(int from, int to, struct scalar v);

struct scalar scalar_fold(int op, int dtype, struct scalar a, struct scalar b); /* avg adds: scalar_divide ends it */
struct scalar scalar_divide(int dtype, struct scalar a, int64_t n);
struct scalar scalar_identity(int op, int dtype);

/* The code (the bits in memory) of special floats of dtype, from 0 on; false after the last. */
bool scalar_special(int dtype, int i, uint64_t *code);
/* The same code, or that of the largest value instead of an infinity if dtype holds none (f8e5m2sat). */
uint64_t scalar_held(int dtype, uint64_t code);
/* The code of (-1)^sign * 1.m * 2^e for the mantissa bits m as far as dtype has them; e within the normal range. */
uint64_t scalar_code(int dtype, bool sign, int e, uint64_t m);

bool scalar_same(int dtype, const void *a, const void *b); /* the same bits, or both NaN */
void scalar_print(int dtype, const void *p, char *buf, size_t cap);
#endif
