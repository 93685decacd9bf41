/* Snapshots of the bus: a publisher with KEEP pieces of memory for VERSIONS versions, and READERS readers. The directory has
 * a record for each version that is visible, and the leases of readers.
 *
 * For a new version the publisher takes memory that was never used, or that of the oldest version without a lease, but not that
 * of the newest version: it looks at the leases, withdraws the version's record, and looks at the leases again, since a reader
 * may have come in between. If one has, the record is put back. Then it changes the memory's generation word, writes the data,
 * and puts the record. It may die at any moment. Where all memory is leased it gives up.
 *
 * A reader finds a record, takes its lease in a transaction that compares the record, copies the data, and looks at the
 * generation word after its last load. Its lease may end at any moment (it was stopped for too long), and it goes on as if nothing
 * had been.
 *
 * Right is: data does not change while a lease on it is alive; a reader that accepts its copy has the version's data, all
 * of it; while the publisher writes a version, the newest one before it is there.
 *
 * Broken on purpose:
 *   LATE_GENERATION  the generation word changes after the first store of the data (or a fence between them is missing)
 *   EARLY_CHECK      the reader looks at the generation word before its last load (or a fence between them is missing)
 *   NO_CHECK         the reader does not look at the generation word
 *   SMALL_NUMBER     the generation is one bit, so that it comes back
 *   LOOK_ONCE        the publisher does not look at the leases again after it has withdrawn the record
 *   BLIND_LEASE      the reader takes its lease without a compare of the record
 *   EARLY_RECORD     the record is put before the data is written
 *   TAKES_NEWEST     the newest version may go, if the older ones are leased */
#ifndef KEEP
#define KEEP 2
#endif
#ifndef VERSIONS
#define VERSIONS 4
#endif
#ifndef READERS
#define READERS 1
#endif
#define WORDS 2
#ifdef SMALL_NUMBER
#define GENERATION(v) ((v) % 2)
#else
#define GENERATION(v) (v)
#endif

bit record[VERSIONS + 1];     /* the directory: versions that can be found, */
byte lease[READERS];          /* the version on which the reader has a lease; 0: none */
byte place[VERSIONS + 1];     /* the memory of a version, which its record names */
byte generation[KEEP];
byte data[KEEP * WORDS];      /* the version whose data it is */
byte holds[KEEP];             /* the version whose memory it is, as the publisher knows; 0: none */
byte newest;                  /* that was committed */
bit over;                     /* the publisher does nothing more */
#define DATA(m, w) data[(m) * WORDS + (w)]

#if READERS == 1
#define LEASED(v) (lease[0] == (v))
#else
#define LEASED(v) (lease[0] == (v) || lease[1] == (v))
#endif
#ifdef TAKES_NEWEST
#define MAY_GO(v) true
#else
#define MAY_GO(v) ((v) != newest || KEEP == 1)
#endif

proctype publisher()
{
    byte v = 1, m, old, w;
    do
    :: v <= VERSIONS ->
        /* Memory: m, and the version that it holds still. */
        atomic {
            m = 0;
            old = 0;
            do
            :: m < KEEP && holds[m] -> m++
            :: else -> break
            od;
            if
            :: m < KEEP
            :: else ->
                old = 1;
                do
                :: old <= newest && !(holds[place[old]] == old && !LEASED(old) && MAY_GO(old)) -> old++
                :: else -> break
                od;
                if
                :: old > newest -> goto out /* all is leased */
                :: else -> m = place[old]
                fi
            fi
        }
        if
        :: old ->
            record[old] = 0;
#ifndef LOOK_ONCE
            if
            :: atomic { LEASED(old) -> record[old] = 1; m = 0; old = 0 }
               goto again
            :: !LEASED(old)
            fi
#endif
        :: else
        fi;
        atomic {
            assert(!old || !LEASED(old)); /* the publisher will change the data now */
            holds[m] = v
        }
        assert(!newest || record[newest] || KEEP == 1);
        place[v] = m;
#ifdef EARLY_RECORD
        record[v] = 1;
#endif
#ifdef LATE_GENERATION
        DATA(m, 0) = v;
        generation[m] = GENERATION(v);
#else
        generation[m] = GENERATION(v);
        DATA(m, 0) = v;
#endif
        DATA(m, 1) = v;
        atomic { record[v] = 1; newest = v; v++; m = 0; old = 0 }
again:
        skip
    :: true -> break /* it dies */
    :: else -> break
    od;
out:
    atomic { v = 0; m = 0; old = 0; over = 1 }
}

proctype reader(byte me)
{
    byte v, m, got[WORDS], goes;
    do
    :: goes < 2 ->
        v = 1;
        do /* any version that it finds */
        :: atomic { v <= VERSIONS && record[v] -> m = place[v] }
           break
        :: v < VERSIONS -> v++
        :: v == VERSIONS -> goto next
        od;
        atomic {
#ifdef BLIND_LEASE
            lease[me] = v
#else
            if
            :: record[v] && place[v] == m -> lease[me] = v
            :: else -> goto next
            fi
#endif
        }
        got[0] = DATA(m, 0);
#ifdef EARLY_CHECK
        if
        :: generation[m] == GENERATION(v)
        :: else -> goto torn
        fi;
#endif
        got[1] = DATA(m, 1);
#if !defined(EARLY_CHECK) && !defined(NO_CHECK)
        if
        :: generation[m] == GENERATION(v)
        :: else -> goto torn
        fi;
#endif
        assert(got[0] == v && got[1] == v);
torn:
        lease[me] = 0;
next:
        atomic { v = 0; m = 0; got[0] = 0; got[1] = 0; goes++ }
    :: else -> break
    od
}

/* Leases end under readers that are stopped. */
proctype clock()
{
end:
    do
    :: atomic { lease[0] -> lease[0] = 0 }
#if READERS > 1
    :: atomic { lease[1] -> lease[1] = 0 }
#endif
    od
}

init
{
    atomic {
        run publisher();
        run clock();
        run reader(0);
#if READERS > 1
        run reader(1)
#endif
    }
}
