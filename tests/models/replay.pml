/* Runs by numbers, as src/engine/drivers/launcher.c and src/engine/device/replay.h say: the launcher (rank 0) and N - 1
 * other ranks, each with a stream that does its part of RUNS runs in order, and a host that closes the exec when its
 * runs are over. `come` and `gone` are the words in device memory. `shown` and `done` are the same in host memory; they
 * are written beside the others, so that they may come later; graphs do without them. `source` and `result` stand for the data: the run
 * whose value a source has, and that which the launcher's kernels have made of it. The counter is that of a graph.
 * The words in host memory belong to the launcher, which frees them when all ranks have let go of them.
 *
 * What can be broken to see that spin finds it:
 *   GONE_FIRST   the launcher writes gone before its kernels have done the work
 *   COUNT_EARLY  the launcher counts a run before it has looked at all words
 *   DONE_ALONE   a rank's host takes the exec for idle when `done` is written, whatever its own kernel still writes
 *   NO_HOLD      the launcher frees the words without regard to other ranks
 *   DONE_FIRST   the launcher writes `done` in host memory before it has written all words in device memory */
#ifndef N
#define N 3
#endif
#ifndef RUNS
#define RUNS 3
#endif

byte come[N], gone[N];
byte shown[N], done;
byte source[N], result[N]; /* the run whose value it is */
byte holders = N;
bool freed, closed[N]; /* closed: the rank has freed its words in device memory */

/* Another warp of the kernel of run n, which ends before the kernel does. */
proctype tell_host(byte me, n; chan over)
{
    assert(!freed);
    shown[me] = n;
    over ! 1
}

proctype other(byte me)
{
    byte counter = 0;
    chan over = [1] of { byte };
    do
    :: counter < RUNS ->
        source[me] = counter + 1; /* what stands before the run in the stream */
        run tell_host(me, counter + 1, over);
        come[me] = counter + 1;
        gone[me] >= counter + 1;
        over ? _; /* the kernel ends */
        assert(result[me] == counter + 1); /* what stands behind it */
        counter++
    :: else -> break
    od
}

proctype other_host(byte me)
{
#ifdef DONE_ALONE
    done == RUNS;
#else
    done == RUNS && shown[me] == RUNS;
#endif
    closed[me] = true;
    holders--
}

proctype launcher()
{
    byte counter = 0, r;
    do
    :: counter < RUNS ->
        r = 1;
        do
        :: r < N ->
            come[r] >= counter + 1;
            r++;
#ifdef COUNT_EARLY
            if
            :: r == 2 -> counter++
            :: else
            fi
#endif
        :: else -> break
        od;
#ifdef COUNT_EARLY
        counter--;
#endif
#ifdef GONE_FIRST
        r = 1;
        do
        :: r < N -> gone[r] = counter + 1; r++
        :: else -> break
        od;
#endif
        r = 1;
        do
        :: r < N ->
            assert(source[r] == counter + 1);
            result[r] = source[r];
            r++
        :: else -> break
        od;
#ifdef DONE_FIRST
        done = counter + 1;
#endif
        r = 1;
        do
        :: r < N -> assert(!closed[r]); gone[r] = counter + 1; r++
        :: else -> break
        od;
        counter++;
        assert(!freed);
        done = counter
    :: else -> break
    od
}

proctype launcher_host()
{
    done == RUNS;
    holders--;
#ifndef NO_HOLD
    holders == 0;
#endif
    freed = true
}

init
{
    byte r = 1;
    atomic {
        run launcher();
        run launcher_host();
        do
        :: r < N -> run other(r); run other_host(r); r++
        :: else -> break
        od
    }
}
