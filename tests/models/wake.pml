/* One rank that waits for several signals at once: rank 0 for those of all others, in ROUNDS rounds. The others do not
 * wait, so that their signals come at any time, also those that it does not wait for yet.
 *
 *   (default)  each of the others has a counter
 *   -DCHAIN    rank 1 signals 0, which then signals 2, which then signals 0: what 0 waits for last needs what has come
 *              first, and it counts both. Without PATIENCE it sleeps for ever. */
#ifndef N
#define N 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#include "bell.pml"

byte counter[N];
byte ended;

/* What rank 0 lacks: each look at a counter is a step of its own. */
inline count()
{
    lacks = 0;
    q = 1;
    do
    :: atomic { q < N ->
        if
        :: counter[q] < round -> lacks++
        :: else
        fi;
        q++ }
    :: else -> q = 0; break
    od;
    ok = lacks == 0
}

#ifdef CHAIN

/* Rank 0 hands on what has come. */
inline look()
{
    if
    :: me == 0 ->
        if
        :: counter[1] && !counter[0] -> signal(2, counter[0], 1)
        :: else
        fi;
        count()
    :: else ->
        ok = counter[0];
        lacks = 1
    fi
}

proctype rank(byte me)
{
    byte q, round = 1, lacks;
    bit ok;
    if
    :: me == 0 -> await()
    :: me == 1 -> signal(0, counter[1], 1)
    :: me == 2 -> await(); signal(0, counter[2], 1)
    fi;
    ended++
}

#else

inline look()
{
    count()
}

proctype rank(byte me)
{
    byte q, round = 1, lacks;
    bit ok;
    do
    :: round <= ROUNDS ->
        if
        :: me == 0 -> await()
        :: else -> signal(0, counter[me], round)
        fi;
        round++
    :: else -> break
    od;
    ended++
}

#endif

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
