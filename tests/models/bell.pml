/* The doorbell of src/transport/core.c: how a rank sleeps until another has changed what it looks at. A sleep has no
 * time limit here, as it has there, so that a wake-up that is lost ends in a deadlock, which spin finds.
 *
 * spin's memory is one order that all agree on, which is what the code asks for: all words are seq_cst.
 *
 * What can be broken to see that spin finds it:
 *   NO_LOOK     the sleeper does not look once more after it has said that it sleeps
 *   LATE_BELL   it reads the bell after that look and not before
 *   EARLY_RING  the waker looks for sleepers before it stores */

bit rung[N]; /* the bell has changed since its owner read it: all that the kernel's comparison asks */
bit sleeping[N];
bit blocked[N]; /* in the futex */

/* core_ring, and wake: the bell changes, then the kernel wakes those who are in the futex by now. */
inline ring(r)
{
    if
    :: sleeping[r] ->
        rung[r] = 1;
        blocked[r] = 0
    :: else
    fi
}

/* core_signal */
inline signal(r, counter, value)
{
#ifdef EARLY_RING
    ring(r);
    counter = value
#else
    counter = value;
    ring(r)
#endif
}

/* core_arm; then a look, then doze or disarm. */
inline arm()
{
    rung[me] = 0;
    sleeping[me] = 1
}

inline disarm()
{
    sleeping[me] = 0
}

/* The kernel compares and sleeps in one step. */
inline doze()
{
#ifdef LATE_BELL
    rung[me] = 0;
#endif
    atomic {
        if
        :: !rung[me] -> blocked[me] = 1
        :: else
        fi
    }
    !blocked[me];
    sleeping[me] = 0
}
