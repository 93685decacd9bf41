/* Numbers of things that are found by a hash: open addressing. The caller compares the things. */
#ifndef WEFT_BASE_FOUND_H
#define WEFT_BASE_FOUND_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FOUND_NONE UINT32_MAX /* a free place */

struct found {
    uint32_t *v;
    size_t mask;
};

/* Room for n things. False: no memory. The caller frees f->v. */
static inline bool found_open(struct found *f, size_t n)
{
    size_t cap = 4;
    while (cap < 2 * n)
        cap *= 2;
    *f = (struct found){malloc(cap * sizeof *f->v), cap - 1};
    if (f->v)
        memset(f->v, 0xff, cap * sizeof *f->v);
    return f->v != NULL;
}

/* Places where a thing of this hash may be: the first, and from one to the next, until v[place] is FOUND_NONE. */
static inline size_t found_first(const struct found *f, uint64_t hash)
{
    return (size_t)hash & f->mask;
}
static inline size_t found_next(const struct found *f, size_t place)
{
    return (place + 1) & f->mask;
}
#endif
