/* Which replica of a source sends which stretch to which replica of a destination.
 *
 * For one pair of pieces (s of the source, t of the destination), the takers are the ranks that need the overlap and do
 * not have it. They are lined up, each with the length of the stretch that it needs. The givers are the replicas of s;
 * each takes an equal part of the line. All this is integer arithmetic on the two layouts, so the sender and the
 * receiver cut at the same places without communication:
 *
 *   apart   all replicas of t lack it, and the line runs over the whole of s along the cut dim, through all destination
 *           pieces that it feeds: each replica feeds few of them.
 *   same    the two meshes are one: the replicas that have it are counted digit by digit.
 *   walk    the replicas of t are looked at one by one. With several hosts, ranks are fed from their own host if it
 *           holds a replica. Into a host that holds none a stretch goes once, to one of the takers, which passes it on
 *           to the others there. The takers share that work, and it goes bucket by bucket, so that the two hops
 *           overlap. If the destination is on more hosts than the source, these form groups. A stretch goes to one
 *           host of each group, its owner, and from there to the others of the group. */
#ifndef WEFT_LOWER_FEED_H
#define WEFT_LOWER_FEED_H
#include "base/math.h"
#include "lower/job.h"

/* One line: `takers` ranks on it, fed by `givers` replicas. */
struct feed_line {
    int64_t takers, givers;
    wide base, total;     /* the first taker starts at base; the length of the whole line is total (0: one giver) */
    int64_t used, turn;   /* how many givers share the line, and which comes first if not all do */
    const int64_t *taker; /* walk: numbers of the destination's replicas, ascending; NULL: see feed_taker */
    const int64_t *giver; /* walk: numbers of the source's replicas; NULL: all */
    /* Fan-out: takers host[i] .. host[i + 1] - 1 are on one host, and the line has one stretch for each host. */
    const int64_t *host;
    int64_t hosts; /* 0: no fan-out */
    /* Groups of hosts pass stretches on to each other, and the line has one stretch for each group. 0: the givers send
     * to each host. */
    int64_t groups;
};

struct feed {
    const struct job *j;
    int64_t s, t;   /* mesh positions of replica 0 of either piece */
    int64_t length; /* length of what each taker needs, along the cut dim */
    int64_t other;  /* its elements in all other dims */
    struct feed_line *line;
    size_t nlines;
    struct feed_line one; /* the line, if ranks are not walked */
    uint32_t fixed;       /* same: free axes of the destination on which the source is split */
    bool none_has;        /* same: no replica of t has it */
};

/* A stretch [from, to) of the pair's positions along the cut dim (0-d: [0, 1)), and the other side's rank. */
struct feed_cut {
    int64_t from, to;
    int rank;
    int32_t stage;    /* 0: sent by the source; otherwise after how many ranks it is passed on */
    int origin;       /* the rank of the source that sends it first */
    const int *mates; /* for a destination: the ranks to which this rank passes the stretch on */
    size_t nmates;
};

/* For JOB_WALK, before the first feed_open: allocates room for the replicas that are walked, which is kept until the
 * move is lowered. */
int feed_walk_open(struct job *j);
/* first: the source's place of the pair's first position along the cut dim, counted from the interior; other: elements
 * of the pair in all other dims; s_piece: the source's coordinate along the cut dim. */
int feed_open(const struct job *j, int64_t s, int64_t t, int64_t length, int64_t first, int64_t other, int64_t s_piece,
              struct feed *out);
/* For this rank as the destination, which must lack the piece: calls visit for each stretch, with the rank that sends
 * it. */
int feed_receive(const struct feed *f, int (*visit)(void *arg, const struct feed_cut *c), void *arg);
/* For this rank as the source: calls visit for each stretch that it sends, with the rank that gets it. */
int feed_send(const struct feed *f, int (*visit)(void *arg, const struct feed_cut *c), void *arg);
#endif
