/* Commits of the bus: JOBS publishers of one set, one after the other or at once, each with P ranks. The directory does one
 * transaction at a time. Rank 0 of a job takes the next epoch by a compare, and the other ranks of its job learn it. For each
 * step a rank puts its data, writes its slot's record (under its lease), and looks: a rank that sees the records of all slots
 * commits, in a transaction that compares the epoch and all these records. Up to DEATHS ranks die at any moment, and their
 * leases end at any moment after that. Up to STOPS leases end under ranks that live: they were stopped, and go on later as if
 * nothing had been. With READER, a reader looks for the newest version at any moment.
 *
 * Right is: no two jobs have one epoch; a version that is visible was put by all ranks of one job and of no other; no version of an epoch becomes visible
 * after a newer epoch was taken; what a reader finds never becomes older, by (epoch, step); at the end the newest job has
 * committed all steps, if no lease has ended; nothing is left of a version that was not committed when all leases have ended.
 *
 * Broken on purpose:
 *   NO_FENCE      a commit does not compare the epoch
 *   BLIND_EPOCH   an epoch is taken without a compare
 *   ONE_KEY       records of slots are found by their step, not by epoch and step
 *   LOOK_FIRST    a rank looks for the records of the others before it writes its own
 *   NO_LEASE      records of slots are put without a lease
 *   UNCOMPARED    a commit does not compare the records of the slots that the rank has seen before
 *   HALF          a rank commits without looking for the others
 *   STEP_ORDER    a reader orders versions by their step alone */
#ifndef JOBS
#define JOBS 2
#endif
#ifndef P
#define P 2
#endif
#ifndef STEPS
#define STEPS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef STOPS
#define STOPS 1
#endif
#define RANKS (JOBS * P)
#define EPOCHS (JOBS + 1)
#ifdef ONE_KEY
#define KEY(e, step, r) ((step) * P + (r))
#else
#define KEY(e, step, r) (((e) * (STEPS + 1) + (step)) * P + (r))
#endif
#define VERSION(e, step) ((e) * (STEPS + 1) + (step))

byte epoch;                                   /* the directory: the newest epoch, */
byte slot[(JOBS + 1) * (STEPS + 1) * P];      /* records: rank + 1 that has written it; 0: there is none, */
bit version[(JOBS + 1) * (STEPS + 1)];        /* and the versions that are visible */
byte mine[JOBS];                              /* the epoch that the job has taken */
bit dead[RANKS], lapsed[RANKS];               /* lapsed: its lease has ended */
byte deaths, stops, over;                     /* over: ranks that do nothing more */

#define ME (job * P + r)
#define LIVES (!dead[ME])

inline lapse(who)
{
    lapsed[who] = 1;
#ifndef NO_LEASE
    k = 0;
    do
    :: k < (JOBS + 1) * (STEPS + 1) * P ->
        if
        :: slot[k] == who + 1 -> slot[k] = 0
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
#endif
}

/* A version becomes visible: this must be right whatever was compared. */
inline visible(e, s)
{
    assert(epoch == e); /* no newer epoch was taken */
    k = 0;
    do
    :: k < P ->
        assert(slot[KEY(e, s, k)] == job * P + k + 1); /* by this rank of this job, and its lease has not ended */
        k++
    :: else -> break
    od;
    k = 0;
    version[VERSION(e, s)] = 1
}

inline all_there(e, s)
{
    k = 0;
    all = 1;
    do
    :: k < P ->
        all = all && slot[KEY(e, s, k)];
        k++
    :: else -> break
    od;
    k = 0
}

/* No other job has the epoch that this one has taken. */
inline alone(who)
{
    k = 0;
    do
    :: k < JOBS -> assert(k == who || mine[k] != mine[who]); k++
    :: else -> break
    od;
    k = 0
}

proctype rank(byte job, r)
{
    byte step = 1, k, was;
    bit all, seen, refused;
    if
    :: r == 0 ->
        do
        :: atomic { LIVES -> was = epoch }
           atomic {
               if
#ifdef BLIND_EPOCH
               :: LIVES -> epoch = was + 1; mine[job] = epoch; was = 0; alone(job); break
#else
               :: LIVES && epoch == was -> epoch = was + 1; mine[job] = epoch; was = 0; alone(job); break
               :: LIVES && epoch != was -> was = 0
#endif
               :: !LIVES -> goto out
               fi
           }
        :: !LIVES -> goto out
        od
    :: else ->
        if
        :: mine[job]
        :: dead[job * P] && !mine[job] -> goto out
        :: !LIVES -> goto out
        fi
    fi;
    do
    :: step <= STEPS ->
#ifdef LOOK_FIRST
        atomic { /* P is 2 */
            seen = slot[KEY(mine[job], step, 1 - r)] != 0
        }
#endif
        atomic { /* the slot's record: refused if the epoch is not the rank's any more or its lease has ended */
            if
            :: LIVES && !lapsed[ME] && epoch == mine[job] -> slot[KEY(mine[job], step, r)] = ME + 1
            :: LIVES && !(!lapsed[ME] && epoch == mine[job]) -> refused = 1
            :: !LIVES -> goto out
            fi
        }
        if
        :: refused -> goto out
        :: else
        fi;
#ifdef HALF
        seen = 1;
#else
#ifndef LOOK_FIRST
        atomic { all_there(mine[job], step); seen = all; all = 0 }
#endif
#endif
        atomic { /* the commit */
            if
            :: !LIVES -> goto out
            :: LIVES && seen ->
                all_there(mine[job], step);
#if defined(UNCOMPARED) || defined(HALF)
                all = 1;
#endif
#ifndef NO_FENCE
                all = all && epoch == mine[job];
#endif
                if
                :: all && !version[VERSION(mine[job], step)] -> visible(mine[job], step)
                :: else
                fi
            :: LIVES && !seen
            fi;
            seen = 0;
            all = 0
        }
        /* The next step begins when this one is decided, since ranks of a job go step by step. */
        if
        :: version[VERSION(mine[job], step)] -> step++
        :: epoch != mine[job] -> goto out
        :: lapsed[job * P] || lapsed[job * P + P - 1] -> goto out
        :: !LIVES -> goto out
        fi
    :: else -> break
    od;
out:
    atomic { step = 0; seen = 0; refused = 0; over++ }
}

/* Deaths, stops, and leases that end. */
proctype fate()
{
    byte who, k;
    do
    :: atomic {
           over < RANKS && deaths < DEATHS ->
           who = 0;
           do
           :: who < RANKS - 1 -> who++
           :: true -> break
           od;
           if
           :: !dead[who] -> dead[who] = 1; deaths++
           :: else
           fi;
           who = 0
       }
    :: atomic {
           over < RANKS && stops < STOPS ->
           who = 0;
           do
           :: who < RANKS - 1 -> who++
           :: true -> break
           od;
           if
           :: !lapsed[who] && !dead[who] -> lapse(who); stops++
           :: else
           fi;
           who = 0
       }
    :: atomic { dead[0] && !lapsed[0] -> lapse(0) }
    :: atomic { dead[1] && !lapsed[1] -> lapse(1) }
#if RANKS > 2
    :: atomic { dead[2] && !lapsed[2] -> lapse(2) }
    :: atomic { dead[3] && !lapsed[3] -> lapse(3) }
#endif
    :: atomic { /* the end: all have left, and their leases end with them */
           over == RANKS ->
           who = 0;
           if
           :: !deaths && !stops ->
               do
               :: who < STEPS -> who++; assert(version[VERSION(epoch, who)])
               :: else -> break
               od
           :: else
           fi;
           who = 0;
           do
           :: who < RANKS -> lapse(who); who++
           :: else -> break
           od;
           k = 0;
           do
           :: k < (JOBS + 1) * (STEPS + 1) * P -> assert(!slot[k]); k++
           :: else -> break
           od;
           break
       }
    od
}

#ifdef READER
#ifdef STEP_ORDER
#define NEWER(e, s) (s > at_step || s == at_step && e > at_epoch)
#else
#define NEWER(e, s) (e > at_epoch || e == at_epoch && s > at_step)
#endif
proctype reader()
{
    byte at_epoch, at_step, e, s, looks;
    do
    :: looks < 2 ->
        atomic {
            e = 1;
            do
            :: e <= JOBS ->
                s = 1;
                do
                :: s <= STEPS ->
                    if
                    :: version[VERSION(e, s)] && NEWER(e, s) -> at_epoch = e; at_step = s
                    :: else
                    fi;
                    s++
                :: else -> break
                od;
                e++
            :: else -> break
            od;
            /* No version of a newer epoch is there, or of the same epoch and a later step. */
            e = 1;
            do
            :: e <= JOBS ->
                s = 1;
                do
                :: s <= STEPS ->
                    assert(!version[VERSION(e, s)] || e < at_epoch || e == at_epoch && s <= at_step);
                    s++
                :: else -> break
                od;
                e++
            :: else -> break
            od;
            e = 0;
            s = 0;
            looks++
        }
    :: else -> break
    od
}

#endif
init
{
    byte job, r;
    atomic {
        run fate();
#ifdef READER
        run reader();
#endif
        do
        :: job < JOBS ->
            r = 0;
            do
            :: r < P -> run rank(job, r); r++
            :: else -> break
            od;
            job++
        :: else -> break
        od;
        job = 0;
        r = 0
    }
}
