/* Runs in graphs, as src/engine/device/replay.h says: the launcher (rank 0) and N - 1 other ranks, each with a stream that
 * does its part of RUNS replays in order. `come` and `gone` are the words in device memory, and `shown` is `come` in host
 * memory, where the watcher sees which rank waits. `source` and `result` stand for the data: the run
 * whose value a source has, and that which the launcher's kernels have made of it.
 *
 * What can be broken to see that spin finds it:
 *   GONE_FIRST  the launcher writes gone before it resets come
 *   NO_COME     the launcher does not reset come
 *   NO_GONE     a rank does not reset gone
 *   HOST_LAST   a rank writes come in host memory after that in device memory
 *   ONE_GONE    one word `gone` for all ranks, which each resets */
#ifndef N
#define N 3
#endif
#ifndef RUNS
#define RUNS 3
#endif
#ifdef ONE_GONE
#define GONE(r) gone[0]
#else
#define GONE(r) gone[r]
#endif

bit come[N], shown[N], gone[N];
byte source[N], result[N]; /* the run whose value it is */

proctype other(byte me)
{
    byte turn = 1;
    do
    :: turn <= RUNS ->
        source[me] = turn; /* what stands before the run in the stream */
        assert(!shown[me]); /* the watcher sees no wait in front of the run */
#ifdef HOST_LAST
        come[me] = 1;
        shown[me] = 1;
#else
        shown[me] = 1;
        come[me] = 1;
#endif
        GONE(me) == 1;
#ifndef NO_GONE
        GONE(me) = 0;
#endif
        assert(result[me] == turn); /* what stands behind it */
        turn++
    :: else -> break
    od
}

proctype launcher()
{
    byte turn = 1, r;
    do
    :: turn <= RUNS ->
        r = 1;
        do
        :: r < N -> come[r] == 1; r++
        :: else -> break
        od;
        r = 1;
        do
        :: r < N ->
            assert(source[r] == turn);
            result[r] = source[r];
            r++
        :: else -> break
        od;
#ifdef GONE_FIRST
        r = 1;
        do
        :: r < N -> GONE(r) = 1; r++
        :: else -> break
        od;
#endif
#ifndef NO_COME
        r = 1;
        do
        :: r < N -> shown[r] = 0; come[r] = 0; r++
        :: else -> break
        od;
#endif
#ifndef GONE_FIRST
        r = 1;
        do
        :: r < N -> GONE(r) = 1; r++
        :: else -> break
        od;
#endif
        turn++
    :: else -> break
    od
}

init
{
    byte r = 1;
    atomic {
        run launcher();
        do
        :: r < N -> run other(r); r++
        :: else -> break
        od
    }
}
