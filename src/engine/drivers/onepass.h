/* What post.c and post_pull.c have in common: the state of a program that is driven in one pass. */
#ifndef WEFT_ENGINE_DRIVERS_ONEPASS_H
#define WEFT_ENGINE_DRIVERS_ONEPASS_H
#include "engine/driver.h"
#include "engine/way.h"

/* A letter to write. */
struct onepass_eager {
    char *slot;
    const char *src; /* the message, in one piece; NULL: its step packs it */
    uint32_t slot_bytes, slots, bytes, eager;
    uint32_t stamp; /* 0: it has none of its own */
};

/* A letter that is due. */
struct onepass_due {
    const char *slot;
    char *dst; /* where the message goes, or is put together, in one piece; NULL: a fold reads it, or by moves */
    uint32_t slot_bytes, slots, bytes, stamp;
    uint32_t move, nmoves; /* when all have come */
};

/* A message that is pulled. */
enum pull_state { PULL_DUE, PULL_SHOWN, PULL_TAKEN, PULL_TOLD, PULL_OVER };
struct pull_in {
    const _Atomic uint64_t *ready;
    _Atomic uint64_t *done;
    char *dst; /* in one piece; NULL: by its moves */
    const char *src;
    int64_t bytes;
    uint32_t step;
    int peer;
    uint8_t state; /* enum pull_state */
    bool stays;    /* a fold reads some of it where it is */
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
    uint32_t got, read; /* that were shown; those before it have been read */
};

struct onepass {
    bool written; /* the letters of this run */
    bool calls;   /* those who sleep have yet to be woken for them */
    bool moves;   /* some message is moved when all have come */
    bool rested;  /* nothing is left to do but to wait for those who read */
    struct onepass_eager *eagers;
    struct onepass_due *dues;
    uint32_t *rest; /* COPY and REDUCE steps */
    int *peers;     /* that letters go to */
    uint32_t neagers, ndues, nrest, npeers;
    uint32_t next;       /* dues before it are there */
    uint64_t free_until; /* letters of runs before it have free slots */
    struct pulls pulls;
};

/* ---- post_pull.c ---- */

/* Can the message be pulled in a post? Adds to the bytes that are. */
bool onepass_pull_fits(const struct program *p, const struct exec_step *step, int64_t *bytes);
int onepass_pull_make(struct program *p, struct pulls *q);
void onepass_pull_start(weft_exec *x);
void onepass_pull_show(weft_exec *x); /* this rank's to its peers; pull_call and a fence follow */
bool onepass_pull_take(weft_exec *x); /* those that are shown; true: there were some */
bool onepass_pull_tell(weft_exec *x,
                       bool all);     /* that they were read, unless a fold is yet to do so; true: there were some */
void onepass_pull_call(weft_exec *x); /* behind core_fence_all: wakes those who were told */
bool onepass_pull_read(weft_exec *x); /* have peers read all of this rank's? */
#endif
