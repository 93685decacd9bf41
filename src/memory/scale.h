/* Casts with scales: a block of values of f8 has one scale, and stands for its values times that scale. The scale is
 * made from the largest absolute value of the block, so that the largest value of the f8 format is used.
 *
 *   f32     scale = most / largest, in f32, where `largest` is 448 for f8e4m3 and 57344 for f8e5m2. A scale that would
 *           be 0 is 1.
 *   f8e8m0  scale = 2^(floor(log2 most) - e), but at least 2^-127, where e is 8 for f8e4m3 and 15 for f8e5m2 (OCP MX).
 *           If most is 0, the scale is 1.
 *
 * A block with a NaN has a scale of NaN. A block with an infinity and no NaN has an infinite scale, or NaN in f8e8m0.
 * Every NaN that is written is the positive quiet one. base/dtype.h says which dtypes there are: dtype_scalable. */
#ifndef WEFT_MEMORY_SCALE_H
#define WEFT_MEMORY_SCALE_H
#include <stddef.h>
#include <stdint.h>

/* The largest absolute value of n contiguous elements (dtype_unscaled) and of `most`, as the bits of an f32: their
 * order is that of the absolute values, with NaN above all. */
uint32_t scale_most(uint32_t most, const void *from, int dtype, size_t n);
/* The scale of a block, written to *out in its dtype. */
void scale_of(uint32_t most, int value, int scale, void *out);

/* to[i] = cast(from[i] / scale) for n contiguous elements, divided in f32, rounded to nearest even, and saturated
 * whichever of the two dtypes of its format `value` is. */
void scale_down(void *to, int value, const void *from, int dtype, const void *by, int scale, size_t n);
/* to[i] = cast(from[i] * scale), multiplied in f32. */
void scale_up(void *to, int dtype, const void *from, int value, const void *by, int scale, size_t n);
#endif
