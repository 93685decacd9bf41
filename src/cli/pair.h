/* A source and a destination from the command line, and the plans of all ranks for them. */
#ifndef WEFT_CLI_PAIR_H
#define WEFT_CLI_PAIR_H
#include "cli/cli.h"
#include "weft.h"

struct pair {
    weft_layout *src, *dst;
    int world;         /* ranks: as many as the layouts use, or more if the transport has more */
    weft_plan **plans; /* one a rank after pair_lower */
};

/* Sums over all ranks. */
struct pair_totals {
    const char *kind, *algorithm;
    int64_t sent, received, copied, folded, bound, stated, steps, buckets, scratch;
    int64_t chunks;                         /* each counts at its sender and at its receiver */
    int64_t busiest_sent, busiest_received; /* bytes, and the first rank that has so many */
    int busiest_sender, busiest_receiver;
    int holders, receivers; /* ranks of the source's and of the destination's mesh */
};

/* These return an exit code and say in *why what is wrong. */
int pair_parse(struct pair *p, const char *src, const char *dst, struct failure *why);
int pair_lower_one(const struct pair *p, int rank, const weft_lower_opts *opts, weft_plan **out, struct failure *why);
int pair_lower(struct pair *p, const weft_lower_opts *opts, struct failure *why);
void pair_free(struct pair *p);

void pair_totals_start(struct pair_totals *t);
int pair_totals_add(struct pair_totals *t, const struct pair *p, const weft_plan *plan, struct failure *why);
#endif
