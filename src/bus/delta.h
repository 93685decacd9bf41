/* The difference between two versions of an array: which elements have changed, and what they are now. A reader that
 * has the base gets the new version by overwriting these elements in place, so that applying a delta twice does no
 * harm. In weights of bf16 1 to 3 % of the elements change in a step.
 *
 * An array is cut into blocks of DELTA_BLOCK elements, the last of which may be shorter. Each block has the smallest of
 * four forms, which a byte names:
 *
 *   DELTA_SAME    nothing has changed, and nothing follows
 *   DELTA_INDEX   changed[2], bytes of gaps[2], gaps, values: a gap is the number of elements between a changed element
 * and the one before it, or the block's begin; 255 stands for 255 elements without a changed one DELTA_BITMAP  a bit
 * for each element, the lowest first; values DELTA_WHOLE   all values
 *
 * Values are those of the changed elements, in order. Numbers are in little-endian order. A delta has no head: its user
 * knows how many elements the array has, their size, and which version it is based on, and checks both versions'
 * digests.
 *
 * It is data alone: no memory is taken, and nothing is kept. */
#ifndef WEFT_BUS_DELTA_H
#define WEFT_BUS_DELTA_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DELTA_BLOCK 4096 /* elements */

enum delta_form { DELTA_SAME, DELTA_INDEX, DELTA_BITMAP, DELTA_WHOLE };

bool delta_takes(size_t size); /* is this a size of elements that deltas have? 1, 2, 4, 8 or 16 */
/* The bytes that must be there for the delta of an array, also where the delta becomes shorter. */
size_t delta_most(size_t count, size_t size);
/* Writes the delta from base to now and returns its length. `count` may be a part of an array: the deltas of
 * consecutive parts stand behind each other if each part but the last has a multiple of DELTA_BLOCK elements. */
size_t delta_find(const void *now, const void *base, size_t count, size_t size, unsigned char *out);
/* Are these bytes a delta of an array of `count` elements? *changed (may be NULL): how many elements it has. */
bool delta_check(const unsigned char *in, size_t n, size_t count, size_t size, size_t *changed);
/* Overwrites the changed elements of an array. *added: what that adds to the sum of its bytes (memory/sum.h), so that
 * the new digest can be checked without a look at the elements that have not changed. False: the bytes are not a delta
 * of it, and nothing was written. */
bool delta_apply(void *array, const unsigned char *in, size_t n, size_t count, size_t size, uint64_t *added);
#endif
