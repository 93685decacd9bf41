/* An arena: memory that is taken piece by piece and freed all at once. Used for whole objects (a lowering, a
 * verification), so that no code path has to free the parts. */
#ifndef WEFT_BASE_ARENA_H
#define WEFT_BASE_ARENA_H
#include <stddef.h>
#include <stdint.h>

struct arena_block {
    struct arena_block *next;
    size_t cap;
    _Alignas(max_align_t) unsigned char data[];
};
struct arena {
    struct arena_block *head;
    size_t used, cap; /* of the head block */
    size_t total;     /* bytes of all blocks */
};

/* Takes a new block. */
void *arena_grow(struct arena *a, size_t bytes);
/* Aligned for any object; NULL when memory is out. The memory is not zeroed. */
static inline void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t need = (bytes + 15) & ~(size_t)15, used = a->used;
    if (need < bytes || need > a->cap - used || !a->head)
        return arena_grow(a, bytes);
    a->used = used + need;
    return a->head->data + used;
}
/* Frees everything, but keeps the largest block for reuse. */
void arena_reset(struct arena *a);
void arena_free(struct arena *a);
#endif
