/* An exec: a plan bound to memory and peers. Bind makes a program of the plan (program.h), and a run works on that.
 *
 *   view.c      the caller's views become places: an address and strides for each buffer of the plan
 *   overlap.c   which places may share memory
 *   shape.c     the geometry of parts
 *   block.c     what a rank shows its peers: counters, and where its messages are
 *   program.c   steps and channels, from the plan alone; fill.c the moves, with the peers' blocks at hand
 *   way.c       how one message travels: the choice among the rows of way_table.c; ways/ has a file for each
 *   driver.c    how a whole run is driven: the table and the choice; drivers/ has a file for each
 *   channel.c   what a run knows of a channel, and of the steps that wait for each other; work.c the copies and folds
 *   order/      copies of several channels in one walk
 *   run.c       the calls around a run; arrivals.c which boxes of the destination are complete
 *   watch.c     peers that are gone or stalled */
#ifndef WEFT_ENGINE_EXEC_H
#define WEFT_ENGINE_EXEC_H
#include "comm/task.h"
#include "engine/program.h"
#include "engine/toggle.h"

struct weft_exec {
    struct comm_task task; /* first: a task is its exec. In the comm's list while a run is in flight */
    weft_comm *comm;
    const weft_plan *plan;
    struct block *block;
    const struct block **held; /* of ranks that are no peers: faces.c */
    uint32_t nheld;
    uint64_t place;                 /* of the block */
    struct comm_deferred *deferred; /* for the block's end, kept so that free cannot fail */
    char *scratch;
    struct program *program;
    uint64_t off;      /* drivers, ways and orders that are switched off: toggle.h */
    int64_t pulsed_at; /* exec_mail.c: when peers on other hosts last heard that this rank is at work */
    /* These four are also for threads without the progress lock: */
    _Atomic int state;                    /* EXEC_IN_FLIGHT, or how its last run ended: 0 or a failure */
    _Atomic int64_t asked, ended, failed; /* runs; asked: for which start was called, with a progress thread */
    bool binding;                         /* in rebind: callbacks that run meanwhile must not start it */
    bool orphan;                          /* freed in a callback while in flight */
    uint64_t run;                         /* started so far */
    void (*done)(void *arg, int err);
    void *arg;
    struct arrivals *arrivals; /* NULL: nobody asks for them */
};

/* ---- run.c ---- */

#define EXEC_IN_FLIGHT 1

/* Has it a run in flight? Acquire: if not, all that the last one wrote is there. */
static inline bool exec_in_flight(const weft_exec *x)
{
    return atomic_load_explicit(&x->state, memory_order_acquire) == EXEC_IN_FLIGHT;
}
extern const struct comm_task_ops run_task;

/* ---- describe.c ---- */

void describe_exec(const struct comm_task *t, struct text *text); /* for the flight recorder, as a JSON object */

/* ---- view.c ---- */

/* Fills places of SRC, DST and TEMP buffers; refuses views that are missing, too small or not aligned. */
int view_places(const weft_exec *x, const weft_view *src, const weft_view *dst, struct exec_place *places);
/* Bytes from the first element's address to the last one's end; shape without a 0. */
int64_t view_extent(int ndim, const int64_t *shape, const int64_t *stride, int64_t size);
/* "tensor 'w'" or, without a name, "tensor 3"; in a buffer of VIEW_NAME bytes. */
#define VIEW_NAME 96
const char *view_tensor(const weft_plan *p, uint32_t tensor, char *buf);

/* ---- overlap.c ---- */

int overlap_check(const weft_plan *p, const struct exec_place *places);

/* ---- arrivals.c: only where x->arrivals ---- */

void arrivals_reset(struct arrivals *a);         /* a run begins */
void arrivals_step(weft_exec *x, uint32_t step); /* a COPY, REDUCE or RECV is done */
void arrivals_free(struct arrivals *a);          /* NULL is fine */
#endif
