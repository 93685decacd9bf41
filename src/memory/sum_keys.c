#include "memory/sum_keys.h"

#include "memory/sum.h"

const uint32_t sum_keys[SUM_WORDS] = SUM_KEYS;
