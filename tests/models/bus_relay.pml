/* The relay of a host: memory for one block of two words, which goes from version to version. The relay turns to the next version
 * when no reader of its host holds the one it has and no thread is at the memory. Two threads bring the block: each asks for it in one
 * round, and may come with it in a later one. A peer is served by a thread of the relay. A reader of the host maps the memory; its hold
 * may end at any moment, because its connection has ended, and it goes on as if nothing had been.
 *
 * Right is: what a peer is sent, and what a reader accepts, is the block of one version, the one that it asked for.
 *
 * Broken on purpose:
 *   NO_BUSY          the relay does not wait for threads at the memory
 *   OLD_ROUND        a thread stores the block of an earlier round
 *   EARLY_PRESENT    the block is said to be there before its last store (or the store has no release)
 *   KEEPS_PRESENT    the relay turns without taking back that the block is there
 *   LATE_GENERATION  the generation changes after the first store of the new version (or a fence between them is missing)
 *   NO_CHECK         the reader does not look at the generation after its last load */
#define VERSIONS 3
bit locked;                /* the relay's lock */
bit setup;                 /* held by who turns, or takes a hold */
byte round = 1, version = 1, generation = 1;
byte data[2];
bit present, storing;
byte busy, users;
bit late;                  /* LATE_GENERATION: the number is still to change */

#define LOCK atomic { !locked -> locked = 1 }
#define UNLOCK locked = 0

proctype relay()
{
    do
    :: version < VERSIONS ->
        atomic { !setup -> setup = 1 }
        LOCK;
        if
        :: users -> UNLOCK
        :: else ->
            round++; /* threads of the one before store nothing from now on */
#ifndef NO_BUSY
            do
            :: busy -> UNLOCK; atomic { !busy && !locked -> locked = 1 } /* a wait on a condition gives the lock up */
            :: else -> break
            od;
#endif
            version = round;
#ifdef LATE_GENERATION
            late = 1;
#else
            generation = version;
#endif
#ifndef KEEPS_PRESENT
            present = 0;
#endif
            UNLOCK
        fi;
        setup = 0
    :: true -> break
    :: else -> break
    od
}

proctype puller()
{
    byte mine;
    do
    :: mine < VERSIONS ->
        LOCK; mine = round; UNLOCK;
        skip; /* the block comes */
        LOCK;
        if
#ifdef OLD_ROUND
        :: !present && !storing ->
#else
        :: mine == round && !present && !storing ->
#endif
            storing = 1; busy++; UNLOCK;
            data[0] = mine;
            if
            :: late -> generation = version; late = 0
            :: else
            fi;
#ifdef EARLY_PRESENT
            present = 1;
#endif
            data[1] = mine;
            LOCK;
            storing = 0; present = 1; busy--;
            UNLOCK
        :: else -> UNLOCK
        fi
    :: true -> break
    :: else -> break
    od
}

proctype peer()
{
    byte v, a, b;
    LOCK;
    if
    :: present -> v = version; busy++; UNLOCK
    :: else -> UNLOCK; goto out
    fi;
    a = data[0];
    b = data[1];
    LOCK; busy--; UNLOCK;
    assert(a == v && b == v);
out:
    skip
}

bit holds;

proctype reader()
{
    byte v, g, a, b;
    atomic { !setup -> setup = 1 }
    LOCK;
    v = version; g = generation; users++; holds = 1;
    UNLOCK;
    setup = 0;
    if
    :: present
    :: timeout -> goto out
    fi;
    a = data[0];
    b = data[1];
#ifndef NO_CHECK
    if
    :: generation != g -> goto out /* torn */
    :: else
    fi;
#endif
    assert(a == v && b == v);
out:
    LOCK;
    if
    :: holds -> holds = 0; users--
    :: else
    fi;
    UNLOCK
}

/* The reader's connection ends. */
proctype clock()
{
    LOCK;
    if
    :: holds -> holds = 0; users--
    :: else
    fi;
    UNLOCK
}

init
{
    atomic { run relay(); run puller(); run puller(); run peer(); run reader(); run clock() }
}
