/* The doorbell of src/transport/core/core.c: how a rank sleeps until as many signals have come as it lacks. Signallers store
 * and then call: they take one off what a sleeper awaits, and who comes to 0 wakes it. The sleeper arms, counts what it
 * lacks, and takes off the rest. Calls that it did not count (of signals that it has seen, or that are of no interest)
 * wake it early, which every model here must bear.
 *
 * A sleep has no time limit here, as it has there, so that a wake-up that is lost ends in a deadlock, which spin finds.
 * -DPATIENCE gives waits for several signals the short limit that they have in src/comm/meeting.c.
 *
 * spin's memory is one order that all agree on. The code's words are seq_cst, or have a seq_cst fence between a store
 * and the looks that follow it; without the fence looks can come first, which is what COUNT_FIRST and EARLY_LOOK do.
 *
 * Who includes this gives each process `byte me, lacks; bit ok` and look(), which sets ok, or else lacks.
 * What can be broken to see that spin finds it:
 *   COUNT_FIRST  the sleeper looks and counts before it has armed (or its fence is missing)
 *   LATE_BELL    it reads the bell after the look and not before
 *   NO_CHECK     it sleeps though what it lacked has come since it counted
 *   SET_COUNT    it stores what it lacks, and does not take off the rest
 *   EARLY_LOOK   the signaller looks for sleepers before its store is out (or its fence is missing) */

#define MANY 60 /* more than all signals of a model */

short awaits[N];
bit rung[N];    /* the bell has changed since its owner read it: all that the kernel's comparison asks */
bit blocked[N]; /* in the futex */

/* The bell changes, then the kernel wakes those who are in the futex by now. */
inline wake(r)
{
    rung[r] = 1;
    blocked[r] = 0
}

/* core_call: a load, and only if somebody sleeps the subtraction. */
inline take_one(r)
{
    if
    :: d_step { awaits[r] == 1 -> awaits[r] = 0 } -> wake(r)
    :: d_step { awaits[r] != 1 -> awaits[r]-- }
    fi
}

inline call(r)
{
    if
    :: awaits[r] > 0 -> take_one(r)
    :: else
    fi
}

/* core_signal */
inline signal(r, counter, value)
{
#ifdef EARLY_LOOK
    if
    :: awaits[r] > 0 -> counter = value; take_one(r)
    :: else -> counter = value
    fi
#else
    counter = value;
    call(r)
#endif
}

/* core_ring */
inline ring(r)
{
    if
    :: awaits[r] > 0 -> wake(r)
    :: else
    fi
}

/* core_arm */
inline arm()
{
    rung[me] = 0;
    awaits[me] = MANY
}

/* core_disarm: relaxed, so others may see it late, but before the owner's next arm. */
inline disarm()
{
#ifdef LATE_DISARM
    if
    :: awaits[me] = 0
    :: skip
    fi
#else
    awaits[me] = 0
#endif
}

/* core_doze; the kernel compares and sleeps in one step. */
inline sleep(n)
{
#ifdef LATE_BELL
    rung[me] = 0;
#endif
    if
    :: rung[me]
    :: d_step { !rung[me] -> blocked[me] = 1 } ->
        if
        :: !blocked[me]
#ifdef PATIENCE
        :: n > 1 -> blocked[me] = 0
#endif
        fi
    fi;
    disarm()
}

inline doze(n)
{
#ifdef SET_COUNT
    awaits[me] = n;
    sleep(n)
#else
#ifdef NO_CHECK
    awaits[me] = awaits[me] - (MANY - n);
    sleep(n)
#else
    if
    :: d_step { awaits[me] > MANY - n -> awaits[me] = awaits[me] - (MANY - n) } -> sleep(n)
    :: d_step { awaits[me] <= MANY - n -> awaits[me] = 0 } /* and disarms */
    fi
#endif
#endif
}

/* comm_wait. It has looks that are not armed, too, which can only spare it these. */
inline await()
{
    do
    ::
#ifdef COUNT_FIRST
        look();
        arm();
#else
        arm();
        look();
#endif
        if
        :: ok -> disarm(); ok = 0; break
        :: else -> doze(lacks)
        fi
    od
}
