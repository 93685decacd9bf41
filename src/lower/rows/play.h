/* The algorithms of the table as stages (stages.h): what the chooser prices. Each function plays one of them, from the
 * first stage to the last. */
#ifndef WEFT_LOWER_ROWS_PLAY_H
#define WEFT_LOWER_ROWS_PLAY_H
#include "lower/rows/stages.h"

struct play {
    const char *kind;
    int64_t members;          /* of a group, with a root that is not in the mesh */
    int64_t bytes;            /* of the larger of one rank's source and destination pieces */
    int64_t replicas;         /* ranks that need the same piece as one member of a group does, itself among them */
    int64_t elements;         /* of such a piece, at most */
    int64_t hosts;            /* of a group */
    int64_t run_from, run_to; /* bytes of a slice that lie side by side at either end; INT64_MAX: all */
    uint32_t copies;          /* axes on which the replicas differ */
};

/* Do all ranks of groups, which have no root, the same if all are on one host? mesh: how many ranks there are. */
bool play_alike(const struct play *x, int64_t mesh);

/* Do hosts pass on to each other what a broadcast by the general lowering brings? */
bool play_relayed(const struct play *x);
void play_direct(struct stages *s, const struct play *x);
void play_one_phase(struct stages *s, const struct play *x);
void play_two_phase(struct stages *s, const struct play *x);
void play_ring(struct stages *s, const struct play *x);
void play_ring_both(struct stages *s, const struct play *x);
void play_doubling(struct stages *s, const struct play *x);
void play_tree(struct stages *s, const struct play *x);
void play_slabs(struct stages *s, const struct play *x);
void play_bruck(struct stages *s, const struct play *x);
void play_two_level(struct stages *s, const struct play *x);
#endif
