/* The levels of kernels as places where tests run, the best one first. */
#ifndef WEFT_TESTS_MEMORY_LEVELS_H
#define WEFT_TESTS_MEMORY_LEVELS_H
#include "support/suite.h"

extern const struct suite_places memory_levels;
#endif
