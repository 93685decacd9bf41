/* Casts by definition, slow: the representable values of a format are decoded from their fields and
 * a value goes to the nearest of them, of two that are as near to the one whose code is even. f8e8m0 has a rule of its
 * own. Complex dtypes are no part of it: a test compares their parts. */
#ifndef WEFT_TESTS_MEMORY_REF_H
#define WEFT_TESTS_MEMORY_REF_H
#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

struct ref {
    bool nan, neg, integer;
    long double x; /* finite, an infinity or a signed zero; exact */
    uint64_t word; /* of an integer, two's complement */
};

struct ref_format {
    int exp, mant;
    bool fn; /* the last exponent holds values, only its last code is NaN */
};
struct ref_format ref_format_of(int dtype);
uint64_t ref_load(int dtype, const void *p);

/* The same, remembered for the formats with few codes. */
long double ref_magnitude(struct ref_format f, uint64_t code);

/* The first code that is no finite value, without the sign. */
uint64_t ref_end(struct ref_format f);
struct ref ref_decode(int dtype, const void *p);
uint64_t ref_encode(int dtype, struct ref r);

/* Equal bits, or NaNs of one sign. */
bool ref_same(int dtype, uint64_t a, uint64_t b);

/* A small generator of numbers, the same everywhere. */
uint64_t ref_random(uint64_t *state);
#endif
