/* The progress lock of src/comm/lock.c: a caller and the progress thread drive one after the other, and a peer signals. The
 * caller starts RUNS runs one after another; each ends when somebody has passed after its signal has come. What the caller
 * does after a start is its choice in each run: nothing at all, test, wait, or ask for the lock and give up. Sleeps have no
 * time limit here, so that a wake-up that is lost ends in a deadlock; pass() asserts that nobody else drives.
 *
 * Who sleeps on the bell lacks one signal; wake.pml has counts. What can be broken to see that spin finds it:
 *   TWO_STEPS     the lock is looked at and then taken
 *   NO_RECHECK    who leaves does not look for runs that were submitted meanwhile
 *   PARK_BLIND    the thread parks without a second look at the lock
 *   NO_CALL       who leaves does not look for a thread that has parked
 *   NO_DISTURB    a start in the lock does not count as work that the thread has not seen
 *   LATE_ASLEEP   the thread says that it sleeps after it has left the lock
 *   DISARM_AWAY   the thread disarms the bell as it wakes, though another may be in the lock
 *   COUNT_FIRST   it looks before it arms
 *   WANT_LATE     who leaves looks whether the lock is wanted before it is free */
#ifndef RUNS
#define RUNS 2
#endif
#define AWAKE 0
#define PARKED 1
#define ON_BELL 2
#define CALLER 0
#define THREAD 1

bit lock, submitted, disturbed;
byte wanted, asleep, drivers;
byte begun, came, ended; /* runs */
bit armed;
bit rung[2], in_bell[2];     /* the bell has changed since this one read it; it is in the futex */
bit called, in_calls;        /* the thread's other futex */
bit in_lock;                 /* the caller is in the futex of the lock */

inline knock()
{
    rung[CALLER] = 1; rung[THREAD] = 1;
    d_step { in_bell[CALLER] = 0; in_bell[THREAD] = 0 }
}

inline take(got)
{
#ifdef TWO_STEPS
    if
    :: !lock -> lock = 1; got = 1
    :: lock -> got = 0
    fi
#else
    if
    :: d_step { !lock -> lock = 1; got = 1 }
    :: d_step { lock -> got = 0 }
    fi
#endif
}

inline begin_submitted()
{
    if
    :: submitted -> submitted = 0; begun++; disturbed = 1; began = 1
    :: else
    fi
}

inline pass()
{
    drivers++;
    assert(drivers == 1);
    moved = 0;
    if
    :: ended < begun && came == begun -> ended = begun; moved = 1; in_lock = 0 /* progress_ended wakes who waits */
    :: else
    fi;
    drivers--
}

/* Leaves the lock; began: a run was begun in it. */
inline release()
{
    got = 1;
    do
    :: got ->
        begin_submitted();
#ifdef WANT_LATE
        if
        :: wanted -> lock = 0; in_lock = 0
        :: else -> lock = 0
        fi;
#else
        lock = 0;
        if
        :: wanted -> in_lock = 0
        :: else
        fi;
#endif
#ifdef NO_RECHECK
        break
#else
        if
        :: submitted -> take(got)
        :: else -> break
        fi
#endif
    :: else -> break
    od
}

inline call_thread()
{
    if
    :: asleep == PARKED -> called = 1; in_calls = 0
    :: asleep == ON_BELL -> knock()
    :: else
    fi
}

/* progress_leave */
inline leave()
{
    work = ended < begun;
    changed = disturbed;
    disturbed = 0;
    began = 0;
    release();
    work = work || began;
    changed = changed || began;
    if
#ifdef NO_CALL
    :: work && changed -> call_thread()
#else
    :: work && (changed || asleep == PARKED) -> call_thread()
#endif
    :: else
    fi
}

inline start()
{
    take(got);
    if
    :: got ->
        begun++;
#ifndef NO_DISTURB
        disturbed = 1;
#endif
        leave()
    :: else ->
        submitted = 1;
        take(got);
        if
        :: got -> begin_submitted(); leave()
        :: else
        fi
    fi
}

/* Makes progress once if the lock is free. */
inline test()
{
    take(got);
    if
    :: got ->
        begin_submitted();
        pass();
        disturbed = disturbed || moved;
        leave()
    :: else
    fi
}

/* In the lock, as comm_wait is, until the run has ended. */
inline wait_in_lock()
{
    do
    :: rung[CALLER] = 0;
        armed = 1;
        disturbed = 1;
        pass();
        if
        :: ended == round -> armed = 0; break
        :: else -> /* the kernel compares and sleeps in one step */
            if
            :: rung[CALLER]
            :: d_step { !rung[CALLER] -> in_bell[CALLER] = 1 } -> !in_bell[CALLER]
            fi;
            armed = 0
        fi
    od;
    leave()
}

inline wait()
{
    wanted++;
    do
    :: take(got);
        if
        :: got -> wanted--; begin_submitted(); wait_in_lock(); break
        :: !got && ended == round -> wanted--; gave_up(); break
        :: else ->
            if
            :: d_step { lock && ended < round -> in_lock = 1 } -> !in_lock
            :: !lock || ended == round
            fi
        fi
    od
}

/* The thread may have parked because of it. */
inline gave_up()
{
    if
    :: asleep == PARKED -> call_thread()
    :: else
    fi
}

active proctype caller()
{
    byte round = 1;
    bit got, moved, work, changed, began;
    do
    :: round <= RUNS ->
        start();
        if
        :: skip
        :: test()
        :: test(); test()
        :: wait()
        :: wanted++; wanted--; gave_up()
        fi;
        ended == round;
        round++
    :: else -> break
    od
}

active proctype peer()
{
    byte round = 1;
    do
    :: round <= RUNS ->
        begun == round;
        came = round;
        if
        :: armed -> armed = 0; knock()
        :: else
        fi;
        round++
    :: else -> break
    od
}

active proctype thread()
{
    bit got, moved, began, work;
    byte look;
sit:
    look = wanted;
    got = 0;
    if
    :: !look -> take(got)
    :: else
    fi;
    if
    :: got -> goto drive
    :: else
    fi;
    called = 0;
    asleep = PARKED;
#ifdef PARK_BLIND
    look = 1;
#else
    if
    :: lock || wanted -> look = 1
    :: else -> look = 0
    fi;
#endif
    if
    :: look -> goto park
    :: else -> asleep = AWAKE; goto sit
    fi;
drive:
    armed = 0;
turn:
    began = 0;
    begin_submitted();
    pass();
    if
    :: wanted -> disturbed = 0; release(); goto sit
    :: else
    fi;
    if
    :: ended == begun -> /* nothing is in flight */
        called = 0;
#ifndef LATE_ASLEEP
        asleep = PARKED;
#endif
        disturbed = 0;
        began = 0;
        release();
#ifdef LATE_ASLEEP
        asleep = PARKED;
#endif
        if
        :: began -> asleep = AWAKE; goto sit
        :: else -> goto park
        fi
    :: else
    fi;
    rung[THREAD] = 0;
#ifdef COUNT_FIRST
    pass();
    armed = 1;
#else
    armed = 1;
    began = 0;
    begin_submitted();
    pass();
    moved = moved || began;
#endif
    if
    :: moved -> armed = 0; goto turn
    :: else
    fi;
#ifndef LATE_ASLEEP
    asleep = ON_BELL;
#endif
    disturbed = 0;
    began = 0;
    release();
#ifdef LATE_ASLEEP
    asleep = ON_BELL;
#endif
    if
    :: began || rung[THREAD]
    :: d_step { !began && !rung[THREAD] -> in_bell[THREAD] = 1 } ->
end_on_bell: /* it may stay where it is once a caller has ended the last run */
        !in_bell[THREAD]
    fi;
#ifdef DISARM_AWAY
    armed = 0;
#endif
    asleep = AWAKE;
    goto sit;
park:
    if
    :: called
    :: d_step { !called -> in_calls = 1 } ->
end_parked: /* where it stays in the end, with nothing in flight */
        !in_calls
    fi;
    asleep = AWAKE;
    goto sit
}
