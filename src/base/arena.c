#include "base/arena.h"

#include <stdlib.h>

struct arena_block {
    struct arena_block *next;
    size_t cap;
    _Alignas(max_align_t) unsigned char data[];
};

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t need = (bytes + 15) & ~(size_t)15;
    if (need < bytes || need > SIZE_MAX - sizeof(struct arena_block))
        return NULL;
    if (!a->head || a->cap - a->used < need) {
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
        a->used = 0;
        a->cap = cap;
        a->total += cap;
    }
    void *p = a->head->data + a->used;
    a->used += need;
    return p;
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
