/* Random numbers for tests: small, seeded, the same on every machine. */
#ifndef WEFT_TESTS_RANDOM_H
#define WEFT_TESTS_RANDOM_H
#include <stdbool.h>
#include <stdint.h>

struct random {
    uint64_t state;
};
/* Of case `number` of a campaign, so that it can be run alone. */
struct random random_of(uint64_t campaign, int64_t number);
uint64_t random_next(struct random *r);

/* lo <= x <= hi */
int64_t random_in(struct random *r, int64_t lo, int64_t hi);

/* True once in n. */
bool random_once_in(struct random *r, uint64_t n);
#endif
