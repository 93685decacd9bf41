/* Entries of a checkpoint and their parts: making them, and finding the array of a rank. */
#include "checkpoint/checkpoint.h"

struct checkpoint_part *checkpoint_entry_new_part(struct checkpoint *c)
{
    struct checkpoint_part **at = vec_push(&c->parts);
    if (!at)
        return NULL;
    *at = arena_alloc(&c->arena, sizeof **at);
    if (!*at) {
        c->parts.n--;
        return NULL;
    }
    **at = (struct checkpoint_part){0};
    return *at;
}

struct checkpoint_entry *checkpoint_entry_new(struct checkpoint *c, struct checkpoint_side *side, const char *name,
                                              int nparts, size_t nholds)
{
    struct checkpoint_entry *e = arena_alloc(&c->arena, sizeof *e), **at;
    if (!e)
        return NULL;
    *e = (struct checkpoint_entry){.name = name, .nparts = nparts, .nholds = nholds};
    e->parts = arena_alloc(&c->arena, (size_t)nparts * sizeof *e->parts);
    e->holds = arena_alloc(&c->arena, (nholds + 1) * sizeof *e->holds);
    if (!e->parts || !e->holds || !(at = vec_push(&side->entries)))
        return NULL;
    return *at = e;
}

const struct checkpoint_hold *checkpoint_entry_hold(const struct checkpoint_entry *e, int rank)
{
    size_t lo = 0, hi = e->nholds;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        *(e->holds[mid].rank <= rank ? &lo : &hi) = mid;
    }
    return &e->holds[lo];
}
