/* Integer arithmetic that C leaves out. */
#ifndef WEFT_BASE_MATH_H
#define WEFT_BASE_MATH_H
#include <stdint.h>

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 wide_bits;

/* The product must fit. It is computed unsigned, since clang's overflow check of a signed one needs a
 * library that is not linked by default. */
static inline wide wide_mul(wide a, wide b)
{
    return (wide)((wide_bits)a * (wide_bits)b);
}

/* a / b for b > 0. A division of 128 bits is a call of a library, and most numbers fit into 64 bits. */
static inline wide wide_div(wide a, wide b)
{
    return (int64_t)a == a && (int64_t)b == b ? (int64_t)a / (int64_t)b : a / b;
}

static inline int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t floor_div(int64_t a, int64_t b) /* b > 0 */
{
    int64_t q = a / b;
    return a % b < 0 ? q - 1 : q;
}
static inline int64_t ceil_div(int64_t a, int64_t b) /* b > 0 */
{
    return a / b + (a % b > 0);
}
/* a * b / c for c > 0, without overflow on the way. */
static inline int64_t mul_div(int64_t a, int64_t b, int64_t c)
{
    return (int64_t)wide_div((wide)a * b, c);
}
static inline int64_t gcd64(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}
#endif
