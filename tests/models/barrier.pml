/* The barriers of src/window/window_sync.c and the meetings of src/comm/meeting.c, of N ranks over ROUNDS rounds: nobody
 * leaves before all have come, nobody is left behind, and nothing is cleared between rounds. Each rank writes the
 * number of the round into its stamp, enters, and looks at the stamps of the others when it has left.
 *
 *   (default)  the barrier of a window's group: one chain of arrivals, the last says that all have met
 *   -DPAIRS    barriers of neighbours: groups {0,1}, {1,2}, {0,2} and (not with -DAPART) all three at the same time, a
 *              count for each two
 *   -DVOTES    a comm's meeting: each rank has two votes, which meetings use in turn, with the number of the meeting in
 *              them; who waits is woken by the last of those that are missing. In the end the votes are looked at.
 *
 * Broken on purpose, besides what bell.pml has:
 *   NO_GENERATION  the group's barrier waits until the arrivals come out even, and not for a generation
 *   ONE_COUNT      neighbours count on one word a rank, and not one for each two
 *   ONE_VOTE       a rank has one vote
 *   EARLY_ENTER    a rank says that it has entered before its vote is there */
#ifndef N
#define N 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#include "bell.pml"

byte stamp[N * 4]; /* of each rank in each group */
byte arrivals, met;
byte turns[N * N]; /* [at * N + from] */
byte vote[N * 2], entered[N * 2]; /* [of * 2 + meeting % 2] */
byte ended;

#define EMPTY 255
#define IN(q) ((set >> (q)) & 1)

#ifdef VOTES

#ifdef ONE_VOTE
#define VOTE(of) ((of) * 2)
#else
#define VOTE(of) ((of) * 2 + round % 2)
#endif

/* met, and absent: each look is a step of its own. */
inline look()
{
    lacks = 0;
    q = 0;
    do
    :: atomic { q < N ->
        if
        :: entered[VOTE(q)] < round -> lacks++
        :: else
        fi;
        q++ }
    :: else -> q = 0; break
    od;
    ok = lacks == 0
}

inline call_all()
{
    q = (me + 1) % N;
    do
    :: q != me -> call(q); q = (q + 1) % N
    :: else -> q = 0; break
    od
}

/* core_enter */
inline enter()
{
#ifdef EARLY_ENTER
    entered[VOTE(me)] = round;
#endif
    vote[VOTE(me)] = EMPTY; /* half written */
    vote[VOTE(me)] = round;
#ifdef EARLY_LOOK
    call_all();
    entered[VOTE(me)] = round
#else
    entered[VOTE(me)] = round;
    call_all()
#endif
}

/* decide: reads all votes, and comes to the same end as all others. */
inline turn(group, members)
{
    enter();
    await();
    q = 0;
    do
    :: q < N -> assert(vote[VOTE(q)] == round); q++
    :: else -> q = 0; break
    od
}

#else

#ifdef PAIRS

#ifdef ONE_COUNT
#define WORD(at, from) turns[(at) * N]
#else
#define WORD(at, from) turns[(at) * N + (from)]
#endif

/* all_came: true in ok if no rank of set is missing. */
inline look()
{
    ok = 1;
    q = 0;
    do
    :: atomic { q < N && ok ->
        if
        :: IN(q) && q != me ->
#ifdef ONE_COUNT
            ok = WORD(me, q) >= mine[0]
#else
            ok = WORD(me, q) >= mine[q]
#endif
        :: else
        fi;
        q++ }
    :: else -> q = 0; break
    od
}

inline enter()
{
    q = 0;
    do
    :: q < N ->
        if
        :: IN(q) && q != me ->
#ifdef ONE_COUNT
            mine[0]++;
            d_step { WORD(q, me) = WORD(q, me) + 1 };
            call(q)
#else
            mine[q]++;
            signal(q, WORD(q, me), mine[q])
#endif
        :: else
        fi;
        q++
    :: else -> q = 0; break
    od
}

#else

inline look()
{
#ifdef NO_GENERATION
    ok = arrivals % N == 0
#else
    ok = met >= generation
#endif
}

inline ring_all()
{
    q = 0;
    do
    :: q < N -> ring(q); q++
    :: else -> q = 0; break
    od
}

inline enter()
{
    generation++;
    d_step { arrivals++; last = arrivals == generation * N };
    if
    :: last ->
        last = 0;
#ifdef EARLY_LOOK
        ring_all();
        met = generation
#else
        met = generation;
        ring_all()
#endif
    :: else
    fi
}

#endif

/* One round of a group. A rank may be in the next one already, no further. */
inline turn(group, members)
{
    set = members;
    stamp[me * 4 + group] = round;
    enter();
    await();
    atomic {
        q = 0;
        do
        :: q < N ->
            assert(!IN(q) || stamp[q * 4 + group] == round || stamp[q * 4 + group] == round + 1);
            q++
        :: else -> q = 0; break
        od
    }
}

#endif

proctype rank(byte me)
{
    byte q, set, round = 1, lacks = 1;
    bit ok;
#ifdef PAIRS
    byte mine[N];
#else
    byte generation;
    bit last;
#endif
    do
    :: round <= ROUNDS ->
#ifdef PAIRS
        /* In this order no three wait in a circle, whoever comes first. */
        if
        :: me == 0 -> turn(0, 3); turn(1, 5)
        :: me == 1 -> turn(0, 3); turn(2, 6)
        :: me == 2 -> turn(2, 6); turn(1, 5)
        fi;
#endif
#ifndef APART
        turn(3, (1 << N) - 1);
#endif
        round++
    :: else -> break
    od;
    ended++
}

init {
    byte r = 0;
    atomic {
        do
        :: r < N -> run rank(r); r++
        :: else -> break
        od
    }
    ended == N
}
