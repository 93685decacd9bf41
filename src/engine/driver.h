/* Drivers: how a whole run is driven. Each is a file in drivers/ that exports one struct driver, and a row of the table
 * in driver.c. At bind every rank asks the rows in order; the first that can drive the program is the exec's. A row
 * that is `agreed` drives the runs of all ranks or of none: each rank votes for it at the second meeting of bind. The
 * other rows are each rank's own choice, since they signal their peers in the same way.
 *
 * Functions that may be NULL say so. `make` and `open` run at bind, the others while a run is in flight, by whoever
 * makes progress on the comm. */
#ifndef WEFT_ENGINE_DRIVER_H
#define WEFT_ENGINE_DRIVER_H
#include "engine/block.h"

/* How far a channel is, for the flight recorder. */
struct driver_count {
    uint32_t begun, done; /* messages */
    uint32_t next;        /* the message that it is at */
};

struct driver {
    enum driver_id id;
    const char *name;
    const char *what; /* in a few words, for explain */
    bool basic;       /* it drives every program, so it cannot be switched off */
    bool agreed;      /* it drives the runs of all ranks or of none */
    bool copies;      /* it copies messages itself, whatever their ways are */
    size_t state;     /* bytes of its own in the program, zeroed: driver_state */

    /* Before the ways of messages are chosen: would it drive the program best if messages stayed where they are? May be
     * NULL: it has no opinion. */
    bool (*prefers)(const weft_exec *x, const struct program *p);
    /* Bytes that it needs in this rank's block, 0: it will not drive this program. *shown is set if ranks that are no
     * peers look at them. May be NULL: none. */
    uint64_t (*room)(const weft_exec *x, const struct program *p, bool *shown);
    /* With the peers' blocks: makes its state. *can: it can drive the program, which is this rank's vote. */
    int (*make)(weft_exec *x, struct program *p, const uint64_t *block_at, void *state, bool *can);
    /* It has been chosen. May be NULL. */
    void (*open)(weft_exec *x, struct program *p, const uint64_t *block_at);

    void (*start)(weft_exec *x); /* begins a run; a pass or `call` follows */
    /* Puts a whole run on a stream of a device, without the host in it. NULL: its runs need the host. */
    int (*enqueue)(weft_exec *x, void *stream);
    /* Does what can be done, within bounds; true if something moved. `eager`: also what might go better later. Sets
     * program->left to 0 at the end of the run. */
    bool (*pass)(weft_exec *x, bool eager);
    void (*call)(weft_exec *x); /* wakes those who sleep and are to see what the start has sent; may be NULL */

    /* What the run waits for: has the peer of the channel yet to do something? */
    bool (*in_waits)(const weft_exec *x, const struct exec_in *in);
    bool (*out_waits)(const weft_exec *x, const struct exec_out *out);
    /* Has a rank that may be no peer yet to do something? NULL: runs wait for peers only. */
    bool (*rank_waits)(const weft_exec *x, int rank);
    int (*lacking)(const weft_exec *x); /* signals without which the run cannot go on, at least 1 */

    struct driver_count (*in_count)(const weft_exec *x, const struct exec_in *in);
    struct driver_count (*out_count)(const weft_exec *x, const struct exec_out *out);
};

extern const struct driver driver_lists, driver_faces, driver_onepass, driver_pipeline;

const struct driver *driver_at(int i); /* the rows from 0 on; NULL after the last */
/* The state of a driver in the program it drives. */
static inline void *driver_state(const weft_exec *x)
{
    return x->program->state;
}
/* The same of any driver, whether or not it drives the program; NULL: it has not been made. */
static inline void *driver_state_of(const struct program *p, const struct driver *d)
{
    return p->states[d->id];
}
/* What the driver has in a block, NULL: nothing. */
static inline void *driver_room(const struct driver *d, const struct block *b)
{
    return b->rooms[d->id] ? (char *)(uintptr_t)b + b->rooms[d->id] : NULL;
}
static inline uint64_t driver_bit(const struct driver *d) /* of toggle.h */
{
    return UINT64_C(1) << d->id;
}

/* ---- bind ---- */

bool driver_prefers(const weft_exec *x, const struct program *p);
/* Bytes that drivers need in the block from `from` on; at[i]: where driver i's are, 0: it has none. */
uint64_t driver_rooms(const weft_exec *x, const struct program *p, uint64_t from, uint64_t at[DRIVERS], bool *shown);
/* Makes the states; *vote has a bit for each agreed row that can drive the program. */
int driver_make(weft_exec *x, struct program *p, const uint64_t *block_at, uint32_t *vote);
/* Chooses the program's driver, with the votes of all ranks at the meeting. */
void driver_open(weft_exec *x, struct program *p, const uint64_t *block_at, uint64_t meeting);

/* ---- the run ---- */

static inline void driver_start(weft_exec *x)
{
    x->program->driver->start(x);
}

static inline bool driver_pass(weft_exec *x, bool eager)
{
    return x->program->driver->pass(x, eager);
}

static inline void driver_call(weft_exec *x)
{
    if (x->program->driver->call)
        x->program->driver->call(x);
}
#endif
