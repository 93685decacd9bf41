/* An exec: a plan bound to memory and peers. Bind makes a program of the plan (program.h), and a run works on that.
 *
 *   view.c      the caller's views become places: an address and strides for each buffer of the plan
 *   overlap.c   which places may share memory
 *   shape.c     the geometry of parts
 *   block.c     the control block, which a rank shows its peers: counters, and where its messages are
 *   outline.c   the program's steps and channels, from the plan alone; fill.c its moves, with the peers' blocks
 *   differs.c   what differs between plans, if ranks bind different ones
 *   way.c       how one message travels: the choice among the rows of way_table.c; ways/ has a file for each
 *   driver.c    how a whole run is driven: the table and the choice; drivers/ has a file for each
 *   channel.c   what a run knows of a channel, and of the steps that wait for each other; work.c the copies and folds
 *   order/      copies of several channels in one walk through memory
 *   toggle.c    switching drivers, ways and orders off
 *   quantise.c  values that the caller has without scales, before the first step and behind the last
 *   proof.c     proving messages by sums, if that is asked for
 *   run.c       the calls around a run; arrivals.c which boxes of the destination are complete
 *   tracer.c    what a trace has of the runs, if there is one; traffic.c what metrics say of them
 *   watch.c     peers that are gone or stalled
 *   device/     memory on devices (device/exec_device.h) */
#ifndef WEFT_ENGINE_EXEC_H
#define WEFT_ENGINE_EXEC_H
#include "comm/task.h"
#include "engine/program.h"
#include "engine/toggle.h"

/* Where the work of an exec's runs is done, the same on all ranks. */
enum exec_form {
    FORM_HOST,   /* by hosts. Devices may carry their share of it (device/carry.h), or their memory is mirrored */
    FORM_SHARED, /* on one device, which all ranks share */
    FORM_GROUPED /* on each rank's own device, which sends and receives messages: drivers/nccl.c */
};

struct weft_exec {
    struct comm_task task; /* first, so that a task is its exec; in the comm's list while a run is in flight */
    /* What each run uses is together, in few cache lines. */
    weft_comm *comm;
    struct program *program;
    struct block *block;
    struct exec_device *device; /* of device/exec_device.c; NULL: all memory is the host's */
    struct quantise *quantise;  /* of quantise.h; NULL: the plan makes no scales */
    struct arrivals *arrivals;  /* NULL: the caller has not asked for them */
    uint64_t run;               /* how many were started, which is the number of the last one */
    void (*done)(void *arg, int err);
    _Atomic int state;                    /* EXEC_IN_FLIGHT, or how its last run ended: 0 or a failure. Threads without
                                             the progress lock may use it, and so they may use the numbers of runs */
    bool binding;                         /* it is being bound again: a callback must not start it */
    bool orphan;                          /* freed in a callback while in flight */
    bool on_stream;                       /* the run in flight is ordered by a stream of the caller, */
    _Atomic int64_t ended, asked, failed; /* numbers of runs; asked: those that were started, if there is a lock */
    int64_t more;                         /* on_stream: as many further runs are ordered by streams */
    void *arg;

    const weft_plan *plan;
    const struct block **held; /* blocks of ranks that are not peers: block_hold */
    uint32_t nheld;
    uint64_t place; /* of the block */
    struct comm_deferred
        *deferred; /* for the deferred free of the block; allocated at bind, so that close cannot fail */
    char *scratch;
    uint64_t off;       /* drivers, ways and orders that are switched off: toggle.h */
    bool carried;       /* some rank has memory on a device, and messages go through pinned slots: ways/pinned.c */
    uint32_t slots;     /* of a channel, then; 0: not chosen yet */
    int64_t slot_bytes; /* of all of them, charged to the comm */
    bool checks;        /* messages are checked: proof.h */
    int64_t checked;    /* messages that were received and checked */
    int64_t pulsed_at;  /* exec_mail.c: when peers on other hosts last heard that this rank is at work */
    int64_t counted, counted_failed; /* runs that are in the comm's metrics */
};

/* ---- run.c ---- */

#define EXEC_IN_FLIGHT 1

/* Has it a run in flight? Acquire: if not, the caller sees all that the last run wrote. */
static inline bool exec_in_flight(const weft_exec *x)
{
    return atomic_load_explicit(&x->state, memory_order_acquire) == EXEC_IN_FLIGHT;
}
extern const struct comm_task_ops run_task;
/* At bind: the steps of a run of x begin when a run of `fold`, which x starts, has ended. */
void run_after(weft_exec *fold, weft_exec *x);

/* ---- differs.c ---- */

/* Collective, if the first meeting of bind has failed with `refused`, an error that all ranks have. If their plans
 * differ, the error says where: the first tensor that differs, and both texts. Otherwise it returns `refused` with its
 * text as it is. */
int differs_tell(weft_comm *c, const weft_plan *p, int64_t deadline_ns, int refused);

/* ---- describe.c ---- */

void describe_exec(const struct comm_task *t, struct text *text); /* for the flight recorder, as a JSON object */

/* ---- traffic.c ---- */

/* At bind, before the last meeting: takes the memory that traffic_open needs. */
int traffic_make(weft_exec *x, struct program *p);
void traffic_open(weft_exec *x, struct program *p); /* the driver has been chosen: notes what a run moves */
void traffic_count(struct comm_task *t);            /* adds the runs that are not in the comm's metrics yet */

/* ---- view.c ---- */

/* Fills the places of SRC, DST and, if scratch is not NULL, TEMP buffers. Refuses views that are missing, too small or
 * not aligned. */
int view_places(const weft_plan *p, char *scratch, const weft_view *src, const weft_view *dst,
                struct exec_place *places);
/* Says where peers find them. */
void view_offer(const weft_exec *x, struct exec_place *places);
/* Bytes from the first element to the end of the last one. No dim of the shape is 0. */
int64_t view_extent(int ndim, const int64_t *shape, const int64_t *stride, int64_t size);
/* "tensor 'w'" or, without a name, "tensor 3", in a buffer of VIEW_NAME bytes. */
#define VIEW_NAME 96 /* bytes */
const char *view_tensor(const weft_plan *p, uint32_t tensor, char *buf);

/* ---- overlap.c ---- */

int overlap_check(const weft_plan *p, const struct exec_place *places);

/* ---- arrivals.c, only with x->arrivals ---- */

void arrivals_reset(struct arrivals *a);         /* a run begins */
void arrivals_step(weft_exec *x, uint32_t step); /* a COPY, REDUCE or RECV is done */
void arrivals_free(struct arrivals *a);          /* NULL is fine */
#endif
