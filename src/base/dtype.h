/* The properties of a dtype or an op, by its number or its name: one table for each. */
#ifndef WEFT_BASE_DTYPE_H
#define WEFT_BASE_DTYPE_H
#include <stdbool.h>
#include <stddef.h>

#include "weft.h"

#define DTYPE_COUNT 20 /* dtypes are 1 .. DTYPE_COUNT */
#define OP_COUNT 8     /* ops are 1 .. OP_COUNT */
#define DTYPE_MAX_SIZE 16

/* The dtype or op whose name is these len letters (no closing zero needed); 0 for none. */
int dtype_parse(const char *text, size_t len);
int dtype_parse_op(const char *text, size_t len);

/* False for numbers that are no dtype. Bool is neither a float nor signed. Floats are signed, f8e8m0 excepted. A
 * complex dtype is signed and no float. */
bool dtype_is_float(int dtype);
bool dtype_is_complex(int dtype);
bool dtype_is_signed(int dtype);
/* Can op fold this dtype? Bit ops do not fold floats; bool takes min, max and bit ops only. Complex dtypes take sum and
 * avg only. f8e8m0 takes prod, min and max only: it has no zero, so sum and avg have no identity. */
bool dtype_foldable(int op, int dtype);
const char *dtype_folds(int dtype); /* for the text of a refusal: which ops fold it */
/* Is there a cast? There is one between every two dtypes, except from a complex dtype to a real one. */
bool dtype_castable(int from, int to);
/* Can values of one dtype have block scales of the other (memory/scale.h)? Does a cast with scales begin or end with
 * this dtype? */
bool dtype_scalable(int value, int scale);
bool dtype_unscaled(int dtype);
/* The dtype in which values are folded: f32 for f16, bf16 and f8, otherwise the dtype itself. */
int dtype_acc(int dtype);
#endif
