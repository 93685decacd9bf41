/* Drivers: how a whole run is driven. Each is a file in drivers/ that exports one struct driver, and a row of the table
 * in driver.c. At bind every rank asks the rows in order and takes the first that can drive its program. A row that is
 * `agreed` drives the runs of all ranks or of none: each rank votes for it at the second meeting of bind. Each rank
 * chooses among the other rows by itself, since they signal their peers in the same way.
 *
 * The comment of a function that may be NULL says so. `make` and `open` run at bind, the others while a run is in
 * flight, in the thread that makes progress on the comm. */
#ifndef WEFT_ENGINE_DRIVER_H
#define WEFT_ENGINE_DRIVER_H
#include "engine/block.h"

/* How far the messages of a channel are, for the flight recorder. */
struct driver_count {
    uint32_t begun, done; /* messages */
    uint32_t next;        /* the first message that is not done */
};

struct driver {
    enum driver_id id;
    const char *name;
    const char *what;    /* in a few words, for explain */
    bool basic;          /* it drives every program, so it cannot be switched off */
    bool agreed;         /* it drives the runs of all ranks or of none */
    bool copies;         /* it copies messages itself, whatever their ways are */
    enum exec_form form; /* it drives execs of this form, and no others */
    size_t state;        /* bytes of its own in the program, zeroed: driver_state */

    /* Asked before messages are offered. True: it drives the program best if all messages stay in place, neither eager
     * nor packed by choice. NULL: false. */
    bool (*prefers)(const weft_exec *x, const struct program *p);
    /* Bytes that it needs in this rank's control block; 0: it will not drive this program. Sets *shown if ranks that
     * are not peers look at them. NULL: it needs none. */
    uint64_t (*room)(const weft_exec *x, const struct program *p, bool *shown);
    /* Makes its state, with the peers' blocks at hand. Sets *can if it can drive the program: this rank's vote. */
    int (*make)(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can);
    /* It has been chosen. May be NULL. */
    void (*open)(weft_exec *x, struct program *p, const uint64_t *block_at);
    /* Collective, after the second meeting of bind: makes what all ranks need to know of each other. Another meeting
     * follows. `call` is what meetings are about. NULL: there is nothing. */
    int (*gather)(weft_exec *x, struct program *p, const uint64_t *block_at, uint32_t call, int64_t deadline_ns);
    /* The program is freed. Its state may not have been made. May be NULL. */
    void (*free)(weft_exec *x, struct program *p);

    void (*start)(weft_exec *x); /* begins a run; the caller then makes a pass, or calls `call` */
    /* Puts a whole run on a stream of a device, without the host in it. NULL: its runs need the host. */
    int (*enqueue)(weft_exec *x, void *stream);
    /* Records a run on a stream that is being captured into a graph. NULL: it cannot. */
    int (*capture)(weft_exec *x, void *stream);
    /* The comm has failed, or a rank is gone: streams of this rank that wait for others go on, and those of graphs
     * that are launched later. Any thread may call it. NULL: no stream waits. */
    void (*release)(weft_exec *x);
    /* Does a stream of this rank wait for `rank`? Any thread may call it. Drivers with `enqueue` have it. */
    bool (*stream_waits)(weft_exec *x, int rank);
    /* Does a stream of this rank wait in a run of a graph for ranks that have not launched theirs: *missing is one of
     * them, and *replay the number of that run? Any thread may call it. NULL: there are no graphs. */
    bool (*lacks)(const weft_exec *x, int *missing, uint32_t *replay);
    /* Does what can be done now, within bounds. Returns whether anything moved. `idle`: also does what would be faster
     * later, because the rank has nothing else to do. Sets program->left to 0 at the end of the run. */
    bool (*pass)(weft_exec *x, bool idle);
    void (*call)(weft_exec *x); /* wakes the ranks that sleep and wait for what `start` has sent; may be NULL */

    /* Does the run wait for the peer of the channel? */
    bool (*in_waits)(const weft_exec *x, const struct exec_in *in);
    bool (*out_waits)(const weft_exec *x, const struct exec_out *out);
    /* Does the run wait for this rank, which need not be a peer? NULL: runs wait for peers only. */
    bool (*rank_waits)(const weft_exec *x, int rank);
    int (*lacking)(const weft_exec *x); /* how many signals must come before the run can go on, at least 1 */

    struct driver_count (*in_count)(const weft_exec *x, const struct exec_in *in);
    struct driver_count (*out_count)(const weft_exec *x, const struct exec_out *out);
};

extern const struct driver driver_launcher, driver_nccl, driver_lists, driver_faces, driver_onepass, driver_pipeline;

const struct driver *driver_at(int i); /* row i of the table; NULL after the last */
/* The state of a driver in the program it drives. */
static inline void *driver_state(const weft_exec *x)
{
    return x->program->state;
}
/* The state of any driver, whether or not it drives the program; NULL: it has not been made. */
static inline void *driver_state_of(const struct program *p, const struct driver *d)
{
    return p->states[d->id];
}
/* The driver's bytes in a block; NULL: it has none. */
static inline void *driver_room(const struct driver *d, const struct block *b)
{
    return b->rooms[d->id] ? (char *)(uintptr_t)b + b->rooms[d->id] : NULL;
}
static inline uint64_t driver_bit(const struct driver *d) /* of toggle.h */
{
    return driver_id_bit(d->id);
}

/* ---- bind ---- */

bool driver_prefers(const weft_exec *x, const struct program *p);
/* How many bytes all drivers need in the block, where they begin at `from`. Sets at[i] to where those of driver i are;
 * 0: it has none. */
uint64_t driver_rooms(const weft_exec *x, const struct program *p, uint64_t from, uint64_t at[DRIVERS], bool *shown);
/* Makes the states. Sets a bit of *vote for each agreed row that can drive the program. */
int driver_make(weft_exec *x, struct program *p, const uint64_t *block_at, uint32_t *vote);
/* Chooses the program's driver, from what this rank can do and the votes of all ranks at the meeting. */
void driver_open(weft_exec *x, struct program *p, const uint64_t *block_at, uint64_t meeting);

void driver_free(weft_exec *x, struct program *p);
void driver_release(weft_exec *x); /* `release` of the program's driver */

/* ---- drivers/nccl.c ---- */

/* How many groups of messages a run has, and how many bytes of device memory they are staged in. */
void nccl_figures(const weft_exec *x, uint32_t *groups, int64_t *staging);

/* ---- the run ---- */

static inline void driver_start(weft_exec *x)
{
    x->program->driver->start(x);
}

static inline bool driver_pass(weft_exec *x, bool idle)
{
    return x->program->driver->pass(x, idle);
}

static inline void driver_call(weft_exec *x)
{
    if (x->program->driver->call)
        x->program->driver->call(x);
}
#endif
