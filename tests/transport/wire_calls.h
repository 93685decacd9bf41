/* Ranks of a wire of sockets that come to have one connection where that is not easy: one of them is busy for long,
 * gets no answer at an address, or is about to leave. What takes seconds is made to have taken them. */
#ifndef WEFT_TESTS_WIRE_CALLS_H
#define WEFT_TESTS_WIRE_CALLS_H
#include <stdbool.h>

#include "wire_strangers.h"

/* A rank that calls is busy then: what has come meanwhile counts, not how long it was. */
void calls_busy_body(struct wire_rank *r);

struct calls_case {
    bool nobody; /* at the last address */
    bool child;  /* has the files of the rank that calls */
};

/* Who is called is busy for so long that it is called again, at all of its addresses: the last call counts. */
void calls_again_body(struct wire_rank *r);

/* Rank 1 takes the call in the very moment in which rank 0 gives it up, and calls again: what both have to say comes by
 * the next connection. */
void calls_crossed_body(struct wire_rank *r);

/* Who is called takes the call and leaves, while who called is busy: it has left, it has not died. */
void calls_taken_and_left_body(struct wire_rank *r);

/* Who calls leaves before it is welcomed, since who is called is busy: that one hears its last words, and that it has
 * left, when it calls itself. */
void calls_farewell_body(struct wire_rank *r);

/* Rank 1 has no more files for a while: rank 0, which calls it meanwhile, waits, and does not hold it for dead. */
void calls_files_body(struct wire_rank *r);

/* Somebody takes the call of rank 0 and says nothing; the call that rank 1 makes meanwhile is a way. */
void calls_reserve_body(struct wire_rank *r);

/* More strangers than could be of the group stand at the door, behind one who is of it. */
void calls_crowd_body(struct wire_rank *r);

/* Rank 1 is leaving, and waits for rank 2 to take what it was sent, when rank 0 calls it: it has left, for rank 0, too.
 */
void calls_leave_body(struct wire_rank *r);
#endif
