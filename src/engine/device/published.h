/* What a rank shows the launcher at bind, in memory that the launcher can read: the allocations that its symbols name,
 * and its steps with their copies and folds. It is freed when the launcher has read it. */
#ifndef WEFT_ENGINE_DEVICE_PUBLISHED_H
#define WEFT_ENGINE_DEVICE_PUBLISHED_H
#include "engine/device/exec_device.h"

struct published_step {
    uint8_t kind; /* enum plan_kind */
    int32_t peer;
    uint32_t task, ntasks; /* none for a SEND, and for a RECV whose message folds read in place */
    uint32_t dep, ndeps;   /* in deps: steps of the same rank */
};

/* dst = cast(cast(fold(op, terms) / div, via), to): see device_table.h. */
struct published_task {
    uint64_t dst; /* a symbol */
    int64_t div;
    uint32_t loop; /* in ints: the turns of its loops, then the strides of dst */
    uint32_t term, nterms;
    uint8_t loops, to, op, acc, via;
};

struct published_term {
    uint64_t at;     /* a symbol */
    uint32_t stride; /* in ints */
    uint8_t dtype;
};

struct published {
    uint64_t near; /* a symbol */
    uint32_t nobjects, nsteps, ntasks, nterms, ndeps, nints;
    /* behind it: objects, steps, tasks, terms, ints, deps */
};

static inline struct device_share *published_objects(const struct published *p)
{
    return (struct device_share *)((uintptr_t)p + sizeof *p);
}
static inline int64_t *published_ints(const struct published *p)
{
    return (int64_t *)(void *)(published_objects(p) + p->nobjects);
}
static inline struct published_task *published_tasks(const struct published *p)
{
    return (struct published_task *)(void *)(published_ints(p) + p->nints);
}
static inline struct published_term *published_terms(const struct published *p)
{
    return (struct published_term *)(void *)(published_tasks(p) + p->ntasks);
}
static inline struct published_step *published_steps(const struct published *p)
{
    return (struct published_step *)(void *)(published_terms(p) + p->nterms);
}
static inline uint32_t *published_deps(const struct published *p)
{
    return (uint32_t *)(void *)(published_steps(p) + p->nsteps);
}

/* With all moves and folds of the program. Sets *place to where the launcher finds it. */
int published_make(weft_exec *x, struct program *p, uint64_t *place);
void published_free(weft_exec *x, struct program *p); /* it may be freed already */
#endif
