#include "base/arena.h"

#include <stdlib.h>

void *arena_grow(struct arena *a, size_t bytes)
{
    size_t need = (bytes + 15) & ~(size_t)15;
    if (need < bytes || need > SIZE_MAX - sizeof(struct arena_block))
        return NULL;
    size_t cap = a->head ? a->cap * 2 : 8192;
    if (cap > (size_t)1 << 22)
        cap = (size_t)1 << 22;
    if (cap < need)
        cap = need;
    struct arena_block *b = malloc(sizeof *b + cap);
    if (!b)
        return NULL;
    b->next = a->head;
    b->cap = cap;
    a->head = b;
    a->used = need;
    a->cap = cap;
    a->total += cap;
    return b->data;
}

void arena_reset(struct arena *a)
{
    if (!a->head)
        return;
    struct arena_block *keep = a->head; /* blocks grow, so the newest is the largest or close to it */
    for (struct arena_block *b = keep->next, *n; b; b = n) {
        n = b->next;
        free(b);
    }
    keep->next = NULL;
    a->used = 0;
    a->cap = a->total = keep->cap;
}

void arena_free(struct arena *a)
{
    while (a->head) {
        struct arena_block *b = a->head;
        a->head = b->next;
        free(b);
    }
    *a = (struct arena){0};
}
