/* Pairs of layouts that between them use every part of the notation, small enough to lower on all ranks many times. */
#ifndef WEFT_TESTS_PAIRS_H
#define WEFT_TESTS_PAIRS_H

enum { PAIRS = 32 };
extern const struct pair_text {
    const char *src, *dst;
} pairs[PAIRS];
#endif
