/* A window: what each rank shows the others, in one piece of memory that the transport lets them reach. A head with
 * the words of the barriers, then the signals, then the words that neighbours meet on, one pair of lines each, then
 * the description of the buffers, and from the next page on the buffers. Offsets only, no pointers. */
#ifndef WEFT_WINDOW_WINDOW_H
#define WEFT_WINDOW_WINDOW_H
#include "base/arena.h"
#include "comm/comm.h"

#define WINDOW_PAGE 4096 /* what ranks' mappings are aligned to at least */

struct window_word {
    _Alignas(CORE_LINE) _Atomic uint64_t value;
};

struct window_head {
    _Alignas(CORE_LINE) _Atomic uint64_t arrivals; /* rank 0's counts: at all barriers of the group by all ranks */
    _Alignas(CORE_LINE) _Atomic uint64_t met;      /* rank 0's counts: barriers of the group that are complete */
    _Alignas(CORE_LINE) _Atomic uint64_t entered;  /* barriers of the group that the owner has entered, for texts */
    _Atomic uint32_t freed;                        /* the owner has freed its window */
    _Atomic uint32_t refcount;                     /* ranks that have not closed theirs */
    int32_t buffers, signals;
    uint64_t describe, data; /* offsets from the head */
    uint64_t came;           /* offset, on several hosts: barriers of the group that each rank of other hosts has
                              * entered, as the first rank of the host has heard */
};

/* One buffer, as its rank asked for it; its name follows the last of them. */
struct window_desc {
    int64_t count;
    uint64_t align;
    uint64_t name; /* offset from the head; closed by a zero */
    uint32_t dtype;
};

struct window_buffer {
    const char *name;
    int dtype;
    size_t size; /* of an element */
    int64_t count;
    uint64_t at; /* offset from the data */
};

struct weft_window {
    weft_comm *comm;
    struct arena arena; /* of all below */
    int n, signals;
    struct window_buffer *buffers;
    struct window_head **heads; /* of each rank, mapped here; NULL: it is on another host */
    char **data;                /* in the same way: the buffers of each rank */
    int chair; /* in whose head barriers of the group are counted: rank 0, or the first rank of the host */
    struct window_remote *remote;   /* of remote.h; NULL: all ranks share memory */
    struct comm_deferred *deferred; /* for the memory's end, kept so that free cannot fail */
    unsigned polls;

    uint64_t generation; /* barriers of the group that this rank has entered */
    bool open;           /* the time of the last of them ran out */
    uint64_t *turns;     /* barriers that this rank has entered with each rank */
    int *with, nwith;    /* ranks of the barrier whose time ran out; 0: none is open */
};

static inline struct window_word *window_signals(struct window_head *h)
{
    return (struct window_word *)(h + 1);
}
/* Turns of the owner's barriers with each rank, written by that rank. */
static inline struct window_word *window_turns(struct window_head *h)
{
    return window_signals(h) + h->signals;
}
static inline _Atomic uint64_t *window_came(struct window_head *h)
{
    return (_Atomic uint64_t *)(void *)((char *)h + h->came);
}

/* ---- window_head.c ---- */

/* In a head that is here: the signal of a rank; and the turn of rank `of` at rank `at`. */
void window_head_notify(weft_window *w, int rank, uint32_t signal, enum weft_notify how, uint64_t value);
void window_head_turn(weft_window *w, int at, int of, uint64_t value);

void window_head_end(weft_window *w); /* lets go of all memory; nobody finds it any more */
#endif
