/* What the votes of some ranks say together: whether they agree, and if they do not, which ranks are to blame. Ballots
 * of two sets of ranks are merged into that of both, in any order, so that hosts can count the votes of a meeting along
 * a tree, and the text at its top is the same as that of a rank which sees all votes. */
#ifndef WEFT_COMM_BALLOT_H
#define WEFT_COMM_BALLOT_H
#include "comm/comm.h"

/* What one rank has voted, without its text. */
struct ballot_vote {
    int32_t rank; /* -1: no rank */
    uint32_t call;
    uint64_t object, digest;
};

#define BALLOT_OTHER_PLAN \
    "its plan differs from rank 0's" /* what the error of a meeting says if digests of plans differ */

struct ballot {
    struct ballot_vote lowest; /* of the lowest rank, with which all others are compared */
    struct ballot_vote call;   /* of the lowest rank that is in another call, or means another object */
    struct ballot_vote digest; /* of the lowest rank that has another digest */
    uint64_t note, first;      /* as in struct core_tally */
    int32_t refuser, code;     /* the lowest rank that has voted an error, and its error; -1 and 0: none has */
    char text[CORE_TEXT];      /* of that error; the last member */
};

void ballot_begin(struct ballot *b); /* of no ranks */
void ballot_add(struct ballot *b, int rank, const struct core_vote *v);
void ballot_merge(struct ballot *b, const struct ballot *other);
/* Returns 0 if all votes agree. Otherwise it returns the error of the meeting, with this thread's error text set. */
int ballot_judge(const weft_comm *c, const struct ballot *b);
#endif
