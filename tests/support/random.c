#define _GNU_SOURCE
#include "random.h"

#include <stdint.h>

#include "base/hash.h"

struct random random_of(uint64_t campaign, int64_t number)
{
    return (struct random){hash_u64(campaign, (uint64_t)number)};
}

uint64_t random_next(struct random *r)
{
    r->state += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(r->state);
}

int64_t random_in(struct random *r, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(random_next(r) % ((uint64_t)(hi - lo) + 1));
}

bool random_once_in(struct random *r, uint64_t n)
{
    return random_next(r) % n == 0;
}
