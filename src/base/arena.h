/* An arena: memory that is taken piece by piece and freed all at once. Used for whole objects (a lowering, a
 * verification), so that no code path has to free the parts. */
#ifndef WEFT_BASE_ARENA_H
#define WEFT_BASE_ARENA_H
#include <stddef.h>
#include <stdint.h>

struct arena_block;
struct arena {
    struct arena_block *head;
    size_t used, cap; /* of the head block */
    size_t total;     /* bytes of all blocks */
};

/* Aligned for any object; NULL when memory is out. The memory is not zeroed. */
void *arena_alloc(struct arena *a, size_t bytes);
/* Frees everything, but keeps the largest block for reuse. */
void arena_reset(struct arena *a);
void arena_free(struct arena *a);
#endif
