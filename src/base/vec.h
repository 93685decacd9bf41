/* A growing array. VEC(T) declares one; vec_push gives the address of a new last element, or
 * NULL when memory is out. The memory is malloc's: free v->v. */
#ifndef WEFT_BASE_VEC_H
#define WEFT_BASE_VEC_H
#include <stddef.h>
#include <stdlib.h>

#define VEC(T)         \
    struct {           \
        T *v;          \
        size_t n, cap; \
    }

static inline void *vec_grow_(void *v, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return v;
    size_t c = *cap ? *cap : 8;
    while (c < need) {
        if (c > ((size_t)-1) / 2 / size)
            return NULL;
        c *= 2;
    }
    void *p = realloc(v, c * size);
    if (p)
        *cap = c;
    return p;
}

/* Makes room for k more elements; false when memory is out (the array is as before). */
#define vec_room(a, k) vec_room_((void **)&(a)->v, &(a)->cap, (a)->n + (k), sizeof *(a)->v)
static inline int vec_room_(void **v, size_t *cap, size_t need, size_t size)
{
    void *p = vec_grow_(*v, cap, need, size);
    if (!p && need)
        return 0;
    *v = p;
    return 1;
}
#define vec_push(a) (vec_room((a), 1) ? &(a)->v[(a)->n++] : NULL)
#endif
