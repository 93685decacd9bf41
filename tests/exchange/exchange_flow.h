/* A flow: who sends how many messages of which sizes to whom in which round, as functions of a seed; and a rank that
 * runs it and compares all that comes with what the functions say. */
#ifndef WEFT_TESTS_EXCHANGE_FLOW_H
#define WEFT_TESTS_EXCHANGE_FLOW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/ranks.h"

struct flow {
    uint64_t seed;
    int rounds;
    int threads;      /* that put; 0: the rank itself */
    bool window;      /* payloads are in window memory */
    bool hook;        /* payloads come into memory of the test's */
    bool vote, early; /* rounds with a vote; messages are taken before the round is complete */
    int64_t budget;
    bool (*edge)(const struct flow *f, int n, int from, int to);
    int (*count)(const struct flow *f, int from, int to, int round);
    size_t (*bytes)(const struct flow *f, int from, int to, int round, int k);
    size_t (*meta)(const struct flow *f, int from, int to, int round, int k);
};
uint64_t flow_hash(uint64_t seed, int a, int b, int c, int d);

/* What a message holds: words of a sequence, the first of which is its number. */
void flow_fill(unsigned char *to, size_t bytes, uint64_t key, uint64_t number);
bool flow_same(const unsigned char *is, size_t bytes, uint64_t key, uint64_t number);

/* The body of a rank; its arg is the flow. */
void flow_body(struct ranks_rank *r);
bool flow_ring(const struct flow *f, int n, int from, int to);
bool flow_line(const struct flow *f, int n, int from, int to);
bool flow_all(const struct flow *f, int n, int from, int to);
size_t flow_small(const struct flow *f, int from, int to, int round, int k);
size_t flow_none(const struct flow *f, int from, int to, int round, int k);
size_t flow_word(const struct flow *f, int from, int to, int round, int k);
#endif
