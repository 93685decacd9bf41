/* Tensors for tests of moves: buffers of a rank by a layout, filled with values that depend on the
 * global position, and checked against the fold of all sources, element by element. Layouts with
 * folds must not have free axes, so that every rank's term is its own. */
#ifndef WEFT_TESTS_TENSORS_H
#define WEFT_TESTS_TENSORS_H
#include <stdint.h>

#include "weft.h"

/* Calls visit(arg, global index, local index) for all elements of the rank's interior. */
int tensors_visit(const weft_layout *l, int rank, void (*visit)(void *arg, int64_t global, int64_t local), void *arg);
double tensors_value(int64_t global, int rank, int seed);
void tensors_fill(const weft_layout *l, int rank, void *data, int seed);

/* Adds the rank's elements to the check of values that has begun (values.h). */
void tensors_check(const weft_layout *src, const weft_layout *dst, int rank, void *data, int seed);

/* How many of the rank's elements are wrong: a check of its own. */
int64_t tensors_wrong(const weft_layout *src, const weft_layout *dst, int rank, void *data, int seed);
#endif
