/* Checks of values, element by element: how many are wrong, and which one first. A test says it where it fails:
 * ranks_note and the end of a test that failed print the text of the last check of their thread if that found anything.
 */
#ifndef WEFT_TESTS_VALUES_H
#define WEFT_TESTS_VALUES_H
#include <stddef.h>
#include <stdint.h>

/* A check begins: nothing is wrong yet. */
void values_begin(void);

/* What follows is the tensor of that number. */
void values_tensor(int number);

/* One element of it, by its index. */
#define VALUES_CHECK(index, found, expected)                                                         \
    do {                                                                                             \
        if ((found) != (expected))                                                                   \
            values_differ((int64_t)(index), 0, NULL, (long double)(expected), (long double)(found)); \
    } while (0)

/* An element is wrong. Its index is in row-major order; extents of ndim dims (0: it has one) give its coordinates. */
void values_differ(int64_t index, int ndim, const int64_t *extents, long double expected, long double found);

/* The same for an element that stands in a slot of the rank's buffer, own or ghost; index below 0: beyond the edge. */
void values_slot_differs(int64_t slot, int64_t index, int ndim, const int64_t *extents, long double expected,
                         long double found);

/* Checks of their own: n bytes that are all the same, or as others. How many are wrong. */
int64_t values_bytes(const void *found, size_t n, int expected);
int64_t values_memory(const void *found, const void *expected, size_t n);

/* How many are wrong until now. */
int64_t values_wrong(void);

/* "element 17 (3, 2): expected 4, found 5; 12 are wrong"; empty if none is. */
const char *values_text(void);
#endif
