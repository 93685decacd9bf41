/* The properties of a dtype or an op, by its number or its name: one table for each. */
#ifndef WEFT_BASE_DTYPE_H
#define WEFT_BASE_DTYPE_H
#include <stdbool.h>
#include <stddef.h>

#include "weft.h"

#define DTYPE_COUNT 15 /* dtypes are 1 .. DTYPE_COUNT */
#define OP_COUNT 8     /* ops are 1 .. OP_COUNT */
#define DTYPE_MAX_SIZE 8

/* The dtype or op whose name is these len letters (no closing zero needed); 0 for none. */
int dtype_parse(const char *text, size_t len);
int dtype_parse_op(const char *text, size_t len);

/* False for numbers that are no dtype. Bool is neither a float nor signed; floats are signed. */
bool dtype_is_float(int dtype);
bool dtype_is_signed(int dtype);
/* Can op fold this dtype? Bit ops do not fold floats; bool takes min, max and bit ops only. */
bool dtype_foldable(int op, int dtype);
/* The dtype in which values are folded: f32 for f16, bf16 and f8, otherwise the dtype itself. */
int dtype_acc(int dtype);
#endif
