/* What a rank that opens a comm again knows of the others, from the old comm. */
#ifndef WEFT_COMM_AGAIN_H
#define WEFT_COMM_AGAIN_H
#include "comm/comm.h"

struct again {
    weft_comm *old;
    const int *ranks; /* of the old comm, which are numbered in this order in the new one */
    int n;
    uint64_t id;         /* of this attempt, the same on all ranks */
    int64_t looked_at;   /* at all of them, and what was found: */
    int64_t unclear_at;  /* when a rank had given up without saying for whom; 0: none has */
    uint64_t departures; /* liveness_departures of the old comm */
    int gone;            /* a rank of the old comm that is gone; -1: none */
    bool told;           /* another rank has said so */
};

void again_begin(struct again *a, weft_comm *old, const int *ranks, int n);
/* For transports and stores: is it in vain to wait for rank `rank` of the new comm (-1: for any)? WEFT_EPEER: that rank
 * is gone, or a rank has given up. The text names ranks as the old comm does. */
int again_vain(void *arg, int rank);
/* For stores: rank `rank` of the new comm has died. Returns WEFT_EPEER, and the others will be told for whom this rank
 * gives up. */
int again_died(void *arg, int rank);
/* After an error, which stays this thread's: tells the other ranks, so that none waits for this one. */
void again_give_up(struct again *a, int err);
#endif
