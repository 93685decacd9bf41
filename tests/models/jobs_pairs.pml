/* The jobs of src/engine/drivers/jobs.c, for groups of two ranks (faces.c): N ranks in a row, each pair of neighbours with
 * SHARES jobs, which any rank may do when both of the pair have begun its run. A job reads and writes the memory of both:
 * they must be in that run from the begin of the job to its end. Each job is done once, and those of a rank are done when it
 * goes on; other pairs may be in other runs.
 *
 * Broken on purpose:
 *   TWO_STEPS   a share is looked for and taken in two steps
 *   TOO_EARLY   a pair has begun when one of it has
 *   EARLY_OVER  a rank goes on when all shares are taken
 *   DONE_FIRST  with DIES: a share is marked as done before it is counted */
#ifndef N
#define N 3
#endif
#ifndef RUNS
#define RUNS 2
#endif
#ifndef SHARES
#define SHARES 2
#endif
#ifndef DIES
#define DIES 0
#endif
#define PAIRS (N - 1)
#define ALL (PAIRS * SHARES)
#define DONE 255

byte begun[N];             /* the last run that a rank has begun; of a pair each rank has a word, all written at once */
byte in_run[N];            /* the run that a rank is in; 0: its caller has its memory */
byte over[PAIRS];          /* shares, over all runs */
byte taken[ALL], who[ALL]; /* of each share: the run, and one more than the rank that has it, or DONE */
byte got[ALL];             /* the last run that a share was done in */
byte dead;                 /* one more than the rank that has died */

#ifdef TOO_EARLY
#define READY(p, turn) (begun[p] >= turn || begun[(p) + 1] >= turn)
#else
#define READY(p, turn) (begun[p] >= turn && begun[(p) + 1] >= turn)
#endif
#ifdef EARLY_OVER
#define OVER(p, turn) (taken[(p) * SHARES] >= turn && taken[(p) * SHARES + SHARES - 1] >= turn)
#else
#define OVER(p, turn) (over[p] >= (turn) * SHARES)
#endif
#define LEFT(p, turn) (READY(p, turn) && (taken[(p) * SHARES] < turn || taken[(p) * SHARES + SHARES - 1] < turn))
#define FIRST (_pid -> _pid - 1 : 0)                 /* the pairs of a rank: that one, */
#define LAST (_pid == N - 1 -> PAIRS - 1 : _pid)     /* and this */
#define ENDED(turn) (OVER((FIRST), turn) && OVER((LAST), turn))

/* The pair of a share is in the run, or has died in it. */
inline check(i, turn)
{
    assert(in_run[(i) / SHARES] == turn && in_run[(i) / SHARES + 1] == turn)
}

inline take(i, turn)
{
    mine = false;
#ifdef TWO_STEPS
    if
    :: READY((i) / SHARES, turn) && taken[i] < turn -> mine = true
    :: else
    fi;
    if
    :: mine -> d_step { taken[i] = turn; who[i] = _pid + 1 }
    :: else
    fi
#else
    if /* what was begun stays so: the word is changed later */
    :: READY((i) / SHARES, turn) ->
        d_step {
            if
            :: taken[i] < turn -> mine = true; taken[i] = turn; who[i] = _pid + 1
            :: else
            fi
        }
    :: else
    fi
#endif
}

inline may_die()
{
    if
    :: atomic { DIES && !dead -> dead = _pid + 1 }; goto end
    :: true
    fi
}

inline do_share(i, turn)
{
    take(i, turn);
    if
    :: mine ->
        may_die();
        d_step { check(i, turn) };
        d_step {
            check(i, turn);
            assert(got[i] == turn - 1);
            got[i] = turn
        };
#ifdef DONE_FIRST
        who[i] = DONE;
        may_die();
        over[(i) / SHARES]++
#else
        over[(i) / SHARES]++;
        may_die();
        who[i] = DONE
#endif
    :: else
    fi
}

/* Who is to blame if the pair's run cannot end: the rank that has died, if it is in it and has not begun, or has a share. */
#define HAS(i, turn) (taken[i] == turn && who[i] == dead)
#define BLAMED(p, turn)                                                                                                \
    (dead && !OVER(p, turn) && ((dead - 1 == p || dead - 1 == (p) + 1) && begun[dead - 1] < turn ||                    \
                                HAS((p) * SHARES, turn) || HAS((p) * SHARES + SHARES - 1, turn)))

bool failed; /* one rank has blamed another: all end */

active [N] proctype rank()
{
    byte turn = 1, k;
    bool mine;
    do
    :: turn <= RUNS ->
        may_die();
        d_step { in_run[_pid] = turn; begun[_pid] = turn };
        do
        :: ENDED(turn) -> break
        :: !ENDED(turn) && (LEFT(0, turn) || LEFT(PAIRS - 1, turn)) ->
            k = 0;
            do
            :: k < ALL -> do_share(k, turn); k++
            :: else -> break
            od
        :: !ENDED(turn) && (failed || BLAMED((FIRST), turn) || BLAMED((LAST), turn)) -> failed = true; goto end
        od;
        k = (FIRST) * SHARES;
        do
        :: k < (LAST) * SHARES + SHARES -> assert(got[k] >= turn); k++
        :: else -> break
        od;
        in_run[_pid] = 0;
        turn++
    :: else -> break
    od;
end:
    skip
}
