/* The barriers of src/exec/window_sync.c, of N ranks over ROUNDS rounds: nobody leaves before all have come, nobody is
 * left behind, and nothing is cleared between rounds. Each rank writes the number of the round into its stamp, enters,
 * and looks at the stamps of the others when it has left.
 *
 *   (default)  the barrier of the group: one chain of arrivals, the last says that all have met
 *   -DPAIRS    barriers of neighbours: groups {0,1}, {1,2}, {0,2} and all three at the same time, a count for each two
 *
 * Broken on purpose, besides what bell.pml has:
 *   NO_GENERATION  the group's barrier waits until the arrivals come out even, and not for a generation
 *   ONE_COUNT      neighbours count on one word a rank, and not one for each two */
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
byte ended;

#define IN(q) ((set >> (q)) & 1)

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
    :: q < N && ok ->
        if
        :: IN(q) && q != me ->
#ifdef ONE_COUNT
            ok = WORD(me, q) >= mine[0]
#else
            ok = WORD(me, q) >= mine[q]
#endif
        :: else
        fi;
        q++
    :: else -> break
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
            ring(q)
#else
            mine[q]++;
            signal(q, WORD(q, me), mine[q])
#endif
        :: else
        fi;
        q++
    :: else -> break
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
    :: else -> break
    od
}

inline enter()
{
    generation++;
    d_step { arrivals++; last = arrivals == generation * N };
    if
    :: last ->
#ifdef EARLY_RING
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

/* comm_wait: a look without the bell, then looks with it. */
inline await()
{
    look();
    do
    :: ok -> break
    :: else ->
        arm();
#ifndef NO_LOOK
        look();
#endif
        if
        :: ok -> disarm()
        :: else -> doze(); look()
        fi
    od
}

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
        :: else -> break
        od
    }
}

proctype rank(byte me)
{
    byte q, set, round = 1;
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
        turn(3, (1 << N) - 1);
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
