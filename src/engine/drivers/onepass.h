/* What onepass.c and onepass_pull.c share: the state of a program that is driven in one pass. */
#ifndef WEFT_ENGINE_DRIVERS_ONEPASS_H
#define WEFT_ENGINE_DRIVERS_ONEPASS_H
#include "engine/driver.h"
#include "engine/way.h"

/* An eager message to write. */
struct onepass_eager {
    char *slot;
    const char *src; /* the message, in one piece; NULL: its step packs it */
    uint32_t slot_bytes, slots, bytes;
    uint32_t eager; /* its index in program.eagers */
    uint32_t stamp; /* offset in the slot; 0: it has no stamp of its own */
};

/* An eager message to receive. */
struct onepass_due {
    const char *slot;
    char *dst; /* where it goes in one piece, or where an inline one is put together; NULL: moves copy it, or a fold
                  reads it */
    uint32_t slot_bytes, slots, bytes, stamp;
    uint32_t move, nmoves; /* to be done when all messages have come */
};

/* A message that is pulled: not there yet, may be read, copied, told to the sender, and the sender woken. */
enum pull_state { PULL_DUE, PULL_SHOWN, PULL_TAKEN, PULL_TOLD, PULL_OVER };
struct pull_in {
    const _Atomic uint64_t *ready;
    _Atomic uint64_t *done;
    char *dst; /* where it goes in one piece; NULL: the moves of its step copy it */
    const char *src;
    int64_t bytes;
    uint32_t step;
    int peer;
    uint8_t state; /* enum pull_state */
    bool stays;    /* a fold reads a part of it in place */
};

struct pull_out {
    _Atomic uint64_t *ready;
    const _Atomic uint64_t *done;
    int peer;
};

struct pulls {
    struct pull_in *in;
    struct pull_out *out;
    uint32_t nins, nouts;
    uint32_t got;  /* how many of `in` may be read or have been */
    uint32_t read; /* those of `out` before this one have been read */
};

struct onepass {
    bool written; /* the eager messages of this run are written */
    bool calls;   /* receivers that sleep have yet to be woken for them */
    bool moves;   /* some message has moves to be done when all messages have come */
    bool rested;  /* all is done, but receivers may have yet to read the pulls */
    struct onepass_eager *eagers;
    struct onepass_due *dues;
    uint32_t *rest; /* COPY and REDUCE steps */
    struct onepass_peer {
        const _Atomic int32_t *awaits; /* more than 0: it sleeps (core.h) */
        int rank;
    } * peers; /* that are sent to */
    uint32_t neagers, ndues, nrest, npeers;
    uint32_t next;       /* the dues before this one have come */
    uint64_t free_until; /* eager messages of runs before this one have free slots */
    struct pulls pulls;
};

/* ---- onepass_pull.c ---- */

/* Can this driver pull the message? Adds its size to *bytes, of all pulls. */
bool onepass_pull_fits(const struct program *p, const struct exec_step *step, int64_t *bytes);
int onepass_pull_make(struct program *p, struct pulls *q);
void onepass_pull_start(weft_exec *x);
/* Says that the peers may read this rank's messages. The caller wakes them, behind core_fence_all. */
void onepass_pull_show(weft_exec *x);
/* Copies the messages that may be read. False: there was none. */
bool onepass_pull_take(weft_exec *x);
/* Tells the senders that their messages were read. Unless `all`, it leaves out those that a fold has yet to read.
 * False: there was none. */
bool onepass_pull_tell(weft_exec *x, bool all);
void onepass_pull_call(weft_exec *x); /* behind core_fence_all: wakes the senders that were told */
bool onepass_pull_read(weft_exec *x); /* have the peers read all messages of this rank? */
#endif
