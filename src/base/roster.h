/* What all ranks of a group have told each other, for instance their addresses: the same number of bytes of each rank,
 * in order of rank. The ranks of a host share one copy where they can, so that it costs a rank no memory of its own. It
 * is only read. It stays until it is dropped, also when the store from which it came is gone. */
#ifndef WEFT_BASE_ROSTER_H
#define WEFT_BASE_ROSTER_H
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* What a rank tells, and what is made of that which all have told. */
struct roster_ask {
    const void *mine;
    size_t bytes; /* the same on all ranks, and so is `more` */
    /* NULL, or called once for each copy, by the rank that makes it, before any rank reads it: it may change `all`,
     * checks what the ranks have told, and fills in `more` bytes. An error, with its text set, is that of all ranks
     * that would share the copy. */
    int (*sum_up)(void *arg, void *all, void *more);
    void *arg;
    size_t more;
};

struct roster {
    const void *all;  /* NULL: there is none */
    const void *more; /* aligned as malloc does */
    size_t size;      /* bytes of the memory that begins with `all` */
    void (*drop)(struct roster *r);
};

static inline size_t roster_more_at(const struct roster_ask *ask, int ranks)
{
    return ((size_t)ranks * ask->bytes + 63) / 64 * 64;
}

static inline size_t roster_size(const struct roster_ask *ask, int ranks)
{
    return roster_more_at(ask, ranks) + ask->more;
}

static inline void roster_drop_own(struct roster *r)
{
    free((void *)(size_t)r->all);
}

/* Makes a roster of memory of roster_size bytes, from malloc, whose first part is filled in. An error leaves the memory
 * to the caller. */
static inline int roster_make(const struct roster_ask *ask, int ranks, void *all, struct roster *out)
{
    void *more = (char *)all + roster_more_at(ask, ranks);
    int err = ask->sum_up ? ask->sum_up(ask->arg, all, more) : 0;
    if (!err)
        *out = (struct roster){.all = all, .more = more, .size = roster_size(ask, ranks), .drop = roster_drop_own};
    return err;
}

/* One that was not made may be dropped, too. */
static inline void roster_drop(struct roster *r)
{
    if (r->all)
        r->drop(r);
    *r = (struct roster){.all = NULL};
}
#endif
