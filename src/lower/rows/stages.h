/* What an algorithm takes of a machine, in integers: the model by which the chooser prices it. The algorithm is played
 * stage by stage, over some of the ranks (STAGES_RANKS at most, the first ones): who sends how many bytes to whom, who
 * folds. A stage takes as long as the busiest of what it uses: a core, a device's memory, a port, a host's memory, a
 * link between hosts. Stages follow each other, but large messages go bucket by bucket, so that stages which use
 * different things overlap.
 *
 * src/foresee simulates the same machine in full; tests/foresee/chooser_test.c compares the two. */
#ifndef WEFT_LOWER_ROWS_STAGES_H
#define WEFT_LOWER_ROWS_STAGES_H
#include "lower/job.h"

#define STAGES_RANKS 64
#define STAGES_KINDS 8 /* of what a stage can use, see stages.c */

/* What one rank does in a stage. Bytes and messages; far: to and from other hosts. */
struct stages_load {
    int64_t far_out, far_in, near_out, near_in, copied, far_messages, near_messages, launches;
};

struct stages_rank {
    int host, way;       /* way: which of its host's links it uses */
    int first, link;     /* places of the first rank on its host, and of the first that uses the same link */
    int64_t group;       /* place of its group's member 0 */
    int64_t number;      /* in its group */
    int64_t mates, here; /* members of its group on its host, and all ranks on it, with itself */
    struct stages_load load;
    int64_t total[STAGES_KINDS]; /* nanoseconds of all stages so far */
};

struct stages {
    const weft_machine *m;
    const weft_layout *mesh;
    uint32_t axes;            /* of the groups; 0: all ranks are one group, with a root */
    int64_t bucket;           /* bytes of a message at most */
    int n;                    /* ranks that are looked at */
    bool alike;               /* all ranks are on one host and do the same: one is looked at, and stands for all */
    int64_t ns, latency;      /* of all stages so far, one after the other */
    int64_t run_from, run_to; /* bytes of a slice that lie side by side at either end; INT64_MAX: all */
    struct stages_rank rank[STAGES_RANKS];
};

/* Places the ranks: those of the mesh, in groups along the axes; or, if axes is 0, `root` (a rank) and then all others
 * of the mesh. */
void stages_open(struct stages *s, const weft_machine *m, int64_t bucket, const weft_layout *mesh, uint32_t axes,
                 int root);
/* The same for groups of `members` ranks, all on one host, that do the same. */
void stages_open_alike(struct stages *s, const weft_machine *m, int64_t bucket, const weft_layout *mesh, uint32_t axes,
                       int64_t members);
/* Forgets the stages so far. */
void stages_again(struct stages *s);
/* The place of the member of i's group with this number. It may be one that is not looked at. */
int64_t stages_member(const struct stages *s, int i, int64_t number);
int stages_host(const struct stages *s, int64_t place);

int64_t stages_messages(const struct stages *s, int64_t bytes); /* in how many they go */

/* ---- one stage ---- */

/* A message; folds: the receiver reads it where it is. */
void stages_send(struct stages *s, int64_t from, int64_t to, int64_t bytes, bool folds);
/* One end of such messages, if the other is not told apart. far: on another host. */
void stages_out(struct stages *s, int i, bool far, int64_t messages, int64_t bytes, bool folds);
void stages_in(struct stages *s, int i, bool far, int64_t messages, int64_t bytes, bool folds);
void stages_both(struct stages *s, int i, bool far, int64_t messages, int64_t bytes, bool folds);
/* Local work: `bytes` that are copied, or that folds read, by `kernels` kernels. */
void stages_work(struct stages *s, int i, int64_t bytes, int64_t kernels);
/* Ends the stage, which happens `times` times, one after the other. sends: it has messages. */
void stages_end(struct stages *s, int64_t times, bool sends);
/* The same for a stage whose messages pass round the group, each over all hops but one. */
void stages_end_ring(struct stages *s, int64_t members);

/* Nanoseconds of all stages. unit: bytes of what one stage hands to the next, at a time. */
int64_t stages_price(const struct stages *s, int64_t unit);
#endif
