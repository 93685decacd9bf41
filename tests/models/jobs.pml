/* The jobs of src/engine/drivers/jobs.c, for a group of all ranks (lists.c): in each of RUNS runs each of N ranks begins,
 * and a rank that finds that all have begun claims the jobs that no rank has. A job reads its rank's memory and writes that
 * of all ranks: all must be in that run from the begin of the job to its end. Each job is done once, and all jobs are done
 * when a rank goes on.
 *
 * Broken on purpose:
 *   TWO_STEPS   a job is looked for and taken in two steps
 *   TOO_EARLY   all have begun when one lacks
 *   EARLY_OVER  a rank goes on when all jobs are taken
 *   DONE_FIRST  with DIES: a job is marked as done before it is counted */
#ifndef N
#define N 3
#endif
#ifndef RUNS
#define RUNS 2
#endif
#ifndef DIES
#define DIES 0
#endif
#define DONE 255

byte begun, over;   /* over all runs */
byte in_run[N];     /* the run that a rank is in; 0: its caller has its memory */
byte taken[N], who[N]; /* of each job: the run, and one more than the rank that has it, or DONE */
byte got[N];        /* the last run that a job was done in */
byte dead;          /* one more than the rank that has died */

#ifdef TOO_EARLY
#define ALL_BEGUN(turn) (begun + 1 >= (turn) * N)
#else
#define ALL_BEGUN(turn) (begun >= (turn) * N)
#endif
#ifdef EARLY_OVER
#define ALL_OVER(turn) (taken[0] >= (turn) && taken[1] >= (turn) && taken[N - 1] >= (turn))
#else
#define ALL_OVER(turn) (over >= (turn) * N)
#endif

/* All ranks are in the run, or have died in it. */
inline check(turn)
{
    byte r = 0;
    do
    :: r < N -> assert(in_run[r] == turn); r++
    :: else -> break
    od
}

inline take(i, turn)
{
    mine = false;
#ifdef TWO_STEPS
    if
    :: taken[i] < turn -> mine = true
    :: else
    fi;
    if
    :: mine -> d_step { taken[i] = turn; who[i] = _pid + 1 }
    :: else
    fi
#else
    d_step {
        if
        :: taken[i] < turn -> mine = true; taken[i] = turn; who[i] = _pid + 1
        :: else
        fi
    }
#endif
}

inline may_die()
{
    if
    :: DIES && !dead -> d_step { dead = _pid + 1 }; goto end
    :: true
    fi
}

inline do_job(i, turn)
{
    take(i, turn);
    if
    :: mine ->
        may_die();
        d_step { check(turn) };
        d_step {
            check(turn);
            assert(got[i] == turn - 1);
            got[i] = turn
        };
#ifdef DONE_FIRST
        who[i] = DONE;
        may_die();
        over++
#else
        over++;
        may_die();
        who[i] = DONE
#endif
    :: else
    fi
}

/* Who is to blame if the run cannot end: the rank that has died, if it has not begun or has a job. */
#define BLAMED(turn)                                                                                              \
    (dead && (!ALL_BEGUN(turn) && in_run[dead - 1] < turn ||                                                      \
              taken[0] == turn && who[0] == dead || taken[1] == turn && who[1] == dead || taken[N - 1] == turn && \
                  who[N - 1] == dead))

active [N] proctype rank()
{
    byte turn = 1, k;
    bool mine;
    do
    :: turn <= RUNS ->
        may_die();
        d_step { in_run[_pid] = turn; begun++ };
        do
        :: ALL_OVER(turn) -> break
        :: ALL_BEGUN(turn) && !ALL_OVER(turn) && (taken[0] < turn || taken[1] < turn || taken[N - 1] < turn) ->
            k = 0;
            do
            :: k < N -> do_job((_pid + k) % N, turn); k++
            :: else -> break
            od
        :: !ALL_OVER(turn) && BLAMED(turn) -> goto end
        od;
        k = 0;
        do
        :: k < N -> assert(got[k] >= turn); k++
        :: else -> break
        od;
        in_run[_pid] = 0;
        turn++
    :: else -> break
    od;
end:
    skip
}
