/* Work sharing: copies that any of several ranks may do, for the drivers that share them (lists.c, faces.c).
 *
 * The copies of a run are cut into jobs. A group of ranks, all or two of them, has begun a run when each of its ranks
 * has; from then on any rank that can reach the memory may claim a job and do it. The run is over when all jobs are
 * done. So a rank that has begun and then computes holds up no other rank, and a rank that comes late finds its copies
 * done.
 *
 * The words of a group stand in the control block of one of its ranks. `begun` counts the ranks that have begun and
 * `over` the jobs that are done, both over all runs: run r has begun at r * ranks and is over at r * n. Neither is
 * there too early, since no rank begins run r + 1 before run r is over. Adding to either releases what the rank wrote
 * before, and the adds form one chain; so a rank that reads the sum acquires what all of them have written.
 *
 * A rank claims a job by changing its word from an earlier run's to this run's, with its own rank in it. So a word of
 * an earlier run is that of a job which no rank has claimed, and no rank is at a job of run r when run r is over. The
 * word says which rank to blame for a job that is not done. It is set to JOBS_DONE after `over` was advanced: a rank
 * that dies between the two has done its part. */
#ifndef WEFT_ENGINE_DRIVERS_JOBS_H
#define WEFT_ENGINE_DRIVERS_JOBS_H
#include "engine/driver.h"

#define JOBS_WHO_BITS 8 /* bits of a word that say which rank has the job */
#define JOBS_DONE ((1 << JOBS_WHO_BITS) - 1)
#define JOBS_RANKS 64 /* ranks of a group, at most: their numbers and JOBS_DONE have to fit into JOBS_WHO_BITS */

/* In a control block. */
struct jobs_words {
    _Alignas(CORE_LINE) _Atomic uint64_t begun;
    _Alignas(CORE_LINE) _Atomic uint64_t over;
    struct jobs_word {
        _Alignas(CORE_LINE) _Atomic uint64_t here; /* the last run that rank i of the group has begun, */
        _Atomic int64_t core;                      /* and the core on which it did so */
        _Atomic uint64_t taken; /* job i: run << JOBS_WHO_BITS | one more than the rank that has it, or JOBS_DONE */
    } word[];
};

/* One rank's end of a group. */
struct jobs {
    struct jobs_words *words;
    bool pair;      /* the group is ranks low and high; otherwise it is all ranks of the comm */
    int low, high;  /* of a pair */
    uint32_t ranks; /* of the group */
    uint32_t n;     /* jobs */
};

/* At the beginning of the state of a driver that shares work. */
struct jobs_state {
    bool all;   /* ranks that are not in a group may do its jobs, too, so all ranks are woken for it */
    bool calls; /* ranks that sleep have yet to be woken for what was begun or done here */
    uint32_t n;
    struct jobs *groups; /* those of this rank, and those whose jobs it may do */
};

uint64_t jobs_bytes(uint32_t ranks, uint32_t n); /* size of the words of a group */
/* At bind, the rank in whose block the words are sets them to what they are after the exec's last run. */
void jobs_reset(const weft_exec *x, struct jobs *j);

bool jobs_ready(const weft_exec *x, const struct jobs *j); /* has the group begun the run? */
bool jobs_over(const weft_exec *x, const struct jobs *j);
bool jobs_all_over(const weft_exec *x); /* of all groups that this rank is in */
/* Claims job i; false: some rank has or had it, or the comm has failed. */
bool jobs_claim(weft_exec *x, const struct jobs *j, uint32_t i);
void jobs_finish(weft_exec *x, const struct jobs *j, uint32_t i);
void jobs_end(weft_exec *x); /* the run is over for this rank */

/* For the driver's row: */
void jobs_start(weft_exec *x);
void jobs_call(weft_exec *x);
bool jobs_in_waits(const weft_exec *x, const struct exec_in *in);
bool jobs_out_waits(const weft_exec *x, const struct exec_out *out);
bool jobs_rank_waits(const weft_exec *x, int rank);
int jobs_lacking(const weft_exec *x);
struct driver_count jobs_in_count(const weft_exec *x, const struct exec_in *in);
struct driver_count jobs_out_count(const weft_exec *x, const struct exec_out *out);
#endif
