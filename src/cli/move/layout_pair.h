/* A source and a destination from the command line, and the plans of all ranks for them. */
#ifndef WEFT_CLI_MOVE_LAYOUT_PAIR_H
#define WEFT_CLI_MOVE_LAYOUT_PAIR_H
#include "tool/failure.h"
#include "weft.h"

struct layout_pair {
    weft_layout *src, *dst;
    int world;         /* ranks: as many as the layouts use, or more if the transport has more */
    weft_plan **plans; /* one for each rank after layout_pair_lower */
};

/* Sums over all ranks. */
struct layout_pair_totals {
    const char *kind, *algorithm;
    int64_t sent, received, copied, folded, bound, stated, steps, buckets, scratch;
    int64_t chunks;                         /* each is counted at its sender and at its receiver */
    int64_t busiest_sent, busiest_received; /* bytes; below, the first rank that has this number */
    int busiest_sender, busiest_receiver;
    int holders, receivers; /* ranks of the source's and of the destination's mesh */
};

/* These return an exit code and say in *why what is wrong. */
int layout_pair_parse(struct layout_pair *p, const char *src, const char *dst, struct failure *why);
/* Refuses layouts with scales, for a command that has one buffer for each side. */
int layout_pair_unscaled(const struct layout_pair *p, const char *command, struct failure *why);
int layout_pair_lower_one(const struct layout_pair *p, int rank, const weft_lower_opts *opts, weft_plan **out,
                          struct failure *why);
int layout_pair_lower(struct layout_pair *p, const weft_lower_opts *opts, struct failure *why);
void layout_pair_free(struct layout_pair *p);

void layout_pair_totals_start(struct layout_pair_totals *t);
int layout_pair_totals_add(struct layout_pair_totals *t, const struct layout_pair *p, const weft_plan *plan,
                           struct failure *why);
#endif
