/* One simulated device as this process uses it, for the files of the module. */
#ifndef WEFT_DEVICE_SIM_SIM_DEVICE_H
#define WEFT_DEVICE_SIM_SIM_DEVICE_H
#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "device/sim/sim.h"
#include "weft.h"

enum sim_state {
    SIM_WORKS,
    SIM_FAILED, /* `text` says why */
    SIM_CLOSED, /* it is being closed: streams end without doing what is queued */
    SIM_FORKED  /* it is the parent's, and this process is its child */
};

struct sim_device {
    struct device device;
    struct list node;
    int opened;
    uint64_t seed, fail_at, rate;
    int queues; /* 0: one for each stream */
    int (*error)(int code, const char *form, ...) __attribute__((format(printf, 2, 3)));
    _Atomic int state; /* enum sim_state; when it is SIM_FAILED, the text is written */
    _Atomic uint64_t launches, shares, calls;
    char text[256];

    pthread_mutex_t lock; /* guards the text, and what follows */
    pthread_cond_t done;  /* work is done, or the device has failed */
    struct list streams, hardware;
    struct sim_stream *usual; /* stream NULL; NULL: it was not used */
    int copying;              /* queues that copy now, with a rate; since when; for how long before: */
    int64_t copying_since, copying_ns, overlap_ns;
    unsigned next, graphs; /* the next stream's queue; graphs that are not freed */
};

static inline struct sim_device *sim_device_of(struct device *d)
{
    return (struct sim_device *)(void *)d;
}

static inline int sim_device_state(const struct sim_device *d)
{
    return atomic_load_explicit(&d->state, memory_order_acquire); /* pairs with the release of those who change it */
}

/* Why no more can be asked of the device; 0: it works. */
int sim_device_check(struct sim_device *d);
/* The device fails, unless it has already. */
void sim_device_fail(struct sim_device *d, const char *form, ...) __attribute__((format(printf, 2, 3)));
#endif
