/* A window: one piece of memory of each rank that the transport lets the others reach. It holds a head with the words
 * of the barriers, then the signals, then the words for barriers with neighbours (one pair of cache lines each), then
 * the description of the buffers. The buffers follow from the next page on. It has offsets only, no pointers. Buffers
 * on a device are in one allocation there (window_device.h). */
#ifndef WEFT_WINDOW_WINDOW_H
#define WEFT_WINDOW_WINDOW_H
#include "base/arena.h"
#include "comm/comm.h"
#include "comm/task.h"
#include "device/device.h"

#define WINDOW_PAGE 4096 /* the least alignment of a rank's mapping */

struct window_word {
    _Alignas(CORE_LINE) _Atomic uint64_t value;
};

struct window_head {
    /* Only in rank 0's head, on one host: arrivals of all ranks at all barriers of the group. */
    _Alignas(CORE_LINE) _Atomic uint64_t arrivals;
    _Alignas(CORE_LINE) _Atomic uint64_t met; /* only in the chair's head: barriers of the group that are complete */
    _Alignas(CORE_LINE) _Atomic uint64_t entered; /* barriers of the group that the owner has entered, for texts */
    _Atomic uint32_t freed;                       /* the owner has freed its window */
    _Atomic uint32_t refcount;                    /* ranks that have not closed their window */
    int32_t buffers, signals;
    uint64_t describe, data; /* offsets from the head */
    /* offset; on several hosts: barriers of the group that each rank of other hosts has entered, as the first rank of
     * the host knows. */
    uint64_t came;
    /* If the rank has buffers on a device: on which, the allocation that they are in, where they begin in it; and the
     * rank, plus one, that adds to them now. */
    unsigned char device[16];
    struct device_share share;
    uint64_t begin;
    _Atomic uint32_t adder;
    uint64_t let_go; /* offset; a byte for each rank: it has given back its mapping of that memory */
};

/* One buffer, as its rank asked for it; its name follows the last of them. */
struct window_desc {
    int64_t count;
    uint64_t align;
    uint64_t name; /* offset from the head; the name ends with a zero */
    uint32_t dtype, memory;
};

struct window_buffer {
    const char *name;
    int dtype;
    size_t size; /* of an element */
    int64_t count;
    uint64_t at;    /* offset from the data, or from the beginning of the device's memory */
    bool on_device; /* it is in device memory */
};

struct weft_window {
    struct comm_task task; /* first member; listed for the trace alone */
    weft_comm *comm;
    struct arena arena; /* memory of all members below */
    int n, signals;
    struct window_buffer *buffers;
    struct window_head **heads; /* by rank, mapped here; NULL: the rank is on another host */
    char **data;                /* in the same way: the buffers */
    int chair; /* the rank whose head counts barriers of the group: rank 0, or the first rank of the host */
    struct window_remote *remote;   /* of remote.h; NULL: all ranks share memory */
    struct window_device *device;   /* of window_device.h; NULL: no buffer is on a device */
    struct window_trace *trace;     /* of window_trace.h; NULL: nobody asked for one */
    struct comm_deferred *deferred; /* for the deferred free, allocated early so that close cannot fail */
    unsigned polls;

    uint64_t generation; /* barriers of the group that this rank has entered */
    bool open;           /* the last of them ran out of time and is not complete */
    uint64_t *turns;     /* barriers that this rank has entered with each rank */
    int *with, nwith;    /* ranks of a barrier that ran out of time and is not complete; 0: there is none */
};

static inline struct window_word *window_signals(struct window_head *h)
{
    return (struct window_word *)(h + 1);
}
/* For each rank, the barriers that it has entered with the owner. That rank writes the word. */
static inline struct window_word *window_turns(struct window_head *h)
{
    return window_signals(h) + h->signals;
}
static inline _Atomic uint64_t *window_came(struct window_head *h)
{
    return (_Atomic uint64_t *)(void *)((char *)h + h->came);
}

static inline _Atomic unsigned char *window_let_go(struct window_head *h)
{
    return (_Atomic unsigned char *)(void *)((char *)h + h->let_go);
}

/* ---- window_head.c ---- */

/* These write to the head of a rank on this host: its signal, of which the new value is returned; and, at rank `at`,
 * the turn of rank `of`. */
uint64_t window_head_notify(weft_window *w, int rank, uint32_t signal, enum weft_notify how, uint64_t value);
void window_head_turn(weft_window *w, int at, int of, uint64_t value);

void window_head_end(weft_window *w); /* frees all memory of a window that no list has any more */
#endif
