/* The tree of counters by which more than CORE_FLAT ranks of a host meet (src/transport/core/core.c), of N ranks over
 * ROUNDS meetings. A node has FLAT ranks or nodes below it: 2 here, 16 there. In one meeting one rank may vote against.
 * No rank leaves before all have come, no rank is left behind, each rank gets what all have voted in that meeting, and a
 * rank that has the result also finds all votes.
 *
 *   (default)  ranks sleep on bells, and wake each other by the tree of core_met_wake
 *   -DAWAKE    ranks do not sleep
 *   -DSTRONG   stores come out at once
 *   -DHOSTS    a group on several hosts: the last rank says that all are here (`home`), and rank 0 ends the meeting
 *              (core_conclude) when it sees that. What other hosts do about it is in relay.pml.
 *
 * Votes, tallies and the result are plain stores: they wait in the writer's core and come out one by one, in any order.
 * An addition to a node's counter is release, so it waits until they are out, and acquire, so what stands below is read
 * after it. The store of `met`, and that of `home`, is seq_cst: it waits for them, too, and the looks for sleepers come
 * after it.
 *
 * Broken on purpose, besides what bell.pml has:
 *   NO_RELEASE    an addition does not wait for the votes and tallies before it
 *   NO_ACQUIRE    what stands below a node is read before the addition
 *   NO_RELEASE_MET  `met` can be seen before the result
 *   NO_ACQUIRE_MET  the result is read before `met` was seen
 *   LATE_READ     the votes of a meeting are read after the rank has entered the next one, for want of release
 *   LATE_TALLY    a tally is written after the arrival at the node above
 *   ONE_VOTE      a rank has one vote
 *   NOT_LAST      the first of a node's ranks sums up, and not the last
 *   RESETS        the last rank of a node sets its counter to 0 when it has arrived above
 *   TWO_STEPS     an arrival is a load and a store
 *   FIRSTS_ONLY   above the lowest nodes only the votes of first ranks are summed up, not the tallies
 *   TOP_ONLY      a rank that has met wakes none of those below it */
#ifndef N
#define N 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define FLAT 2
#include "bell.pml"

#if N <= 4
#define NODES 3 /* 2 and 1 */
#define LEVELS 2
#else
#define NODES 6 /* 3, 2 and 1 */
#define LEVELS 3
#endif

#define WRONG 255 /* a tally of votes of another meeting */
#define SAYS(m, no) (2 * (m) + (no))
#define MEETING(says) ((says) / 2)
#define AGAINST(says) ((says) % 2)

byte vote[N * 2];        /* [of * 2 + meeting % 2]: SAYS(meeting, is it against) */
byte arrived[NODES];
byte tally[NODES * 2];
byte result[2];
byte met, home;
byte against, against_in; /* the rank that votes against, and the meeting; 0: none does */
byte ended;
byte entered[N];

/* Stores of a rank that are not out yet: of its vote, of a tally of each level, and of the result. */
#define STORES (2 + LEVELS)
#define RESULT_STORE (1 + LEVELS)
byte waits[N * STORES]; /* the value; 0: none */
byte place[N * STORES];

#ifdef ONE_VOTE
#define VOTE(of, m) ((of) * 2)
#else
#define VOTE(of, m) ((of) * 2 + (m) % 2)
#endif

#define WAITS(r, i) waits[(r) * STORES + (i)]
#if LEVELS == 2
#define ALL_OUT(r) (!WAITS(r, 0) && !WAITS(r, 1) && !WAITS(r, 2) && !WAITS(r, 3))
#else
#define ALL_OUT(r) (!WAITS(r, 0) && !WAITS(r, 1) && !WAITS(r, 2) && !WAITS(r, 3) && !WAITS(r, 4))
#endif

inline comes_out(i, at, value)
{
    if
    :: (i) == 0 -> vote[at] = value
    :: (i) > 0 && (i) <= LEVELS -> tally[at] = value
    :: (i) == RESULT_STORE -> result[at] = value
    fi
}

inline store(i, at, value)
{
#ifdef STRONG
    d_step { comes_out(i, at, value) }
#else
    d_step { !WAITS(me, i) -> WAITS(me, i) = value; place[me * STORES + (i)] = at }
#endif
}

/* What lets the stores of a rank out. */
inline let_out(i)
{
    d_step {
        WAITS(me, i) ->
        comes_out(i, place[me * STORES + (i)], WAITS(me, i));
        WAITS(me, i) = 0;
        place[me * STORES + (i)] = 0
    }
}

proctype core(byte me)
{
end:
    do
    :: let_out(0)
    :: let_out(1)
    :: let_out(2)
    :: let_out(3)
#if LEVELS == 3
    :: let_out(4)
#endif
    od
}

/* A rank sees its own stores at once. */
#define MINE(i, at) (WAITS(me, i) && place[me * STORES + (i)] == (at))
#define READ_VOTE(at) (MINE(0, at) -> WAITS(me, 0) : vote[at])
#define READ_TALLY(at) (MINE(level, at) -> WAITS(me, level) : tally[at])
#define READ_RESULT(at) (MINE(RESULT_STORE, at) -> WAITS(me, RESULT_STORE) : result[at])

#define SUM(a, b) ((a) == WRONG || (b) == WRONG || MEETING(a) != MEETING(b) -> WRONG : (a) | (b))

/* A look at one vote or tally is a step of its own, except where stores come out at once. */
#ifdef STRONG
#define LOOKS d_step
#else
#define LOOKS
#endif

/* sum_up */
inline sum_up()
{
    LOOKS {
    sum = SAYS(round, 0);
    k = from;
    do
    :: k < from + n && !level -> sum = SUM(sum, READ_VOTE(VOTE(k, round))); k++
#ifdef FIRSTS_ONLY
    :: k < from + n && level -> sum = SUM(sum, READ_VOTE(VOTE(k * FLAT, round))); k++
#else
    :: k < from + n && level -> sum = SUM(sum, READ_TALLY((below + k) * 2 + round % 2)); k++
#endif
    :: else -> break
    od;
    k = 0 }
}

inline add_one(counter)
{
#ifndef NO_RELEASE
    ALL_OUT(me);
#endif
#ifdef TWO_STEPS
    before = counter;
    counter = before + 1
#else
    d_step { before = counter; counter++ }
#endif
}

#ifdef NOT_LAST
#define CLIMBS (before == (round - 1) * n)
#else
#ifdef RESETS
#define CLIMBS (before + 1 == n)
#else
#define CLIMBS (before + 1 == round * n)
#endif
#endif

inline wake_top()
{
    q = 0;
    do
    :: q < N && q < FLAT ->
        if
        :: q != me -> call(q)
        :: else
        fi;
        q++
    :: else -> q = 0; break
    od
}

inline say_met()
{
#ifdef NO_RELEASE_MET
    met = round;
#else
#ifdef EARLY_LOOK
    wake_top();
#endif
    ALL_OUT(me);
    met = round;
#endif
#ifndef EARLY_LOOK
    wake_top()
#endif
}

/* arrive */
inline arrive()
{
    d_step { level = 0; at = me; all = N; below = 0; nodes = 0; climbs = 1 };
    do
    :: climbs && all > 1 ->
        d_step { from = at / FLAT * FLAT; n = (all - from < FLAT -> all - from : FLAT) };
#ifdef NO_ACQUIRE
        sum_up();
#endif
        add_one(arrived[nodes + at / FLAT]);
        climbs = CLIMBS;
#ifdef LATE_TALLY
        if
        :: late -> store(level, late_at, late); late = 0
        :: else
        fi;
#endif
        if
        :: climbs ->
#ifdef RESETS
            last = nodes + at / FLAT;
#endif
#ifndef NO_ACQUIRE
            sum_up();
#endif
#ifdef LATE_TALLY
            late = sum;
            late_at = (nodes + at / FLAT) * 2 + round % 2;
#else
            store(1 + level, (nodes + at / FLAT) * 2 + round % 2, sum);
#endif
            d_step {
                level++;
                at = at / FLAT;
                all = (all + FLAT - 1) / FLAT;
                below = nodes;
                nodes = nodes + all
            }
        :: else
        fi
    :: else -> break
    od;
    if
    :: climbs ->
#ifdef HOSTS
        ALL_OUT(me);
        signal(0, home, round)
#else
        store(RESULT_STORE, round % 2, sum);
        say_met()
#endif
    :: else
    fi
#ifdef RESETS
    ;
    if
    :: last != 255 -> arrived[last] = 0; last = 255
    :: else
    fi
#endif
    ;
    skip;
    d_step { level = 0; at = 0; all = 0; below = 0; nodes = 0; climbs = 0; from = 0; n = 0; before = 0; sum = 0 }
}

#ifdef HOSTS
/* report, and core_conclude: rank 0 reads all votes, and writes the result. */
inline conclude()
{
    sum = SAYS(round, 0);
    k = 0;
    do
    :: k < N -> sum = SUM(sum, READ_VOTE(VOTE(k, round))); k++
    :: else -> k = 0; break
    od;
    store(RESULT_STORE, round % 2, sum);
    sum = 0;
    say_met()
}
#endif

inline look()
{
    lacks = 1;
#ifdef HOSTS
    if
    :: me == 0 && home >= round && met < round -> conclude()
    :: else
    fi;
#endif
    ok = met >= round
}

inline wait()
{
#ifdef AWAKE
#ifdef HOSTS
    if
    :: me == 0 -> home >= round; conclude()
    :: else
    fi;
#endif
    met >= round
#else
    await()
#endif
}

/* core_met_wake */
inline wake_below()
{
#ifndef TOP_ONLY
    q = (me + 1) * FLAT;
    do
    :: q < N && q < (me + 2) * FLAT -> call(q); q++
    :: else -> q = 0; break
    od
#else
    skip
#endif
}

/* decide: a rank that finds that votes differ looks at all of them. */
inline read_votes(m)
{
    LOOKS {
    k = 0;
    do
    :: k < N -> assert(READ_VOTE(VOTE(k, m)) == SAYS(m, against_in == (m) && against == k)); k++
    :: else -> break
    od;
    k = 0 }
}

inline all_entered()
{
    k = 0;
    do
    :: k < N -> assert(entered[k] >= round); k++
    :: else -> k = 0; break
    od
}

proctype rank(byte me)
{
    byte round = 1, q, k, lacks, level, at, all, below, nodes, from, n, before, sum;
    bit ok, climbs;
#ifdef NO_ACQUIRE_MET
    byte early;
#endif
#ifdef RESETS
    byte last = 255;
#endif
#ifdef LATE_TALLY
    byte late, late_at; /* a tally that is not stored yet */
#endif
    do
    :: round <= ROUNDS ->
        store(0, VOTE(me, round), SAYS(round, against_in == round && against == me));
        entered[me] = round;
        arrive();
#ifdef LATE_READ
        if
        :: round > 1 -> read_votes(round - 1)
        :: else
        fi;
#endif
#ifdef NO_ACQUIRE_MET
        early = READ_RESULT(round % 2);
#endif
        wait();
        skip;
        d_step { all_entered() };
#ifdef NO_ACQUIRE_MET
        assert(early == SAYS(round, against_in == round));
#else
        assert(READ_RESULT(round % 2) == SAYS(round, against_in == round));
#endif
        wake_below();
#ifndef LATE_READ
        read_votes(round);
#endif
        round++
    :: else -> break
    od;
    ended++
}

init {
    byte r = 0;
    atomic {
#ifdef STRONG
        against_in = 1;
        against = N - 1;
#else
        if
        :: skip
        :: against_in = 1
        :: against_in = ROUNDS
        fi;
        if
        :: against_in -> select(against : 0 .. N - 1)
        :: else
        fi;
#endif
        do
        :: r < N -> run rank(r);
#ifndef STRONG
            run core(r);
#endif
            r++
        :: else -> break
        od
    }
    ended == N
}
