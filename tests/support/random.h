/* Random numbers for tests: small, seeded, the same on every machine. */
#ifndef WEFT_TESTS_RANDOM_H
#define WEFT_TESTS_RANDOM_H
#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *r)
{
    r->state += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(r->state);
}

/* lo <= x <= hi */
static inline int64_t random_in(struct random *r, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(random_next(r) % ((uint64_t)(hi - lo) + 1));
}

/* True once in n. */
static inline bool random_once_in(struct random *r, uint64_t n)
{
    return random_next(r) % n == 0;
}
#endif
