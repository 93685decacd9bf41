/* A growing array. VEC(T) declares one; vec_push gives the address of a new last element, or
 * NULL when memory is out. The memory is malloc's: free v->v. */
#ifndef WEFT_BASE_VEC_H
#define WEFT_BASE_VEC_H
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define VEC(T)         \
    struct {           \
        T *v;          \
        size_t n, cap; \
    }

/* Makes room for k more elements; 0 when memory is out (the array is as before). */
#define vec_room(a, k) vec_room_(&(a)->v, &(a)->cap, (a)->n + (k), sizeof *(a)->v)
static inline int vec_room_(void *v, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return 1;
    size_t c = *cap ? *cap : 8;
    while (c < need) {
        if (c > ((size_t)-1) / 2 / size)
            return 0;
        c *= 2;
    }
    void *p;
    memcpy(&p, v, sizeof p); /* v is the address of a pointer of any type: read and written as bytes */
    p = realloc(p, c * size);
    if (!p)
        return 0;
    memcpy(v, &p, sizeof p);
    *cap = c;
    return 1;
}
#define vec_push(a) (vec_room((a), 1) ? &(a)->v[(a)->n++] : NULL)
#endif
