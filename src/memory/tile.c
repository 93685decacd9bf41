/* Tiles: counting and merging their loops. */
#include <stdbool.h>

#include "memory/memory.h"

int64_t memory_tile_count(const struct memory_tile *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->loops; i++)
        count *= t->n[i];
    return count;
}

static void keep(struct memory_tile *t, int to, int from)
{
    t->n[to] = t->n[from];
    for (int k = 0; k < MEMORY_OPERANDS; k++)
        t->stride[k][to] = t->stride[k][from];
}

/* Does one turn of loop a equal all turns of loop b, on both sides? */
static bool joins(const struct memory_tile *t, int a, int b)
{
    for (int k = 0; k < MEMORY_OPERANDS; k++)
        if (t->stride[k][a] != t->stride[k][b] * t->n[b])
            return false;
    return true;
}

void memory_tile_merge(struct memory_tile *t)
{
    int kept = 0;
    for (int i = 0; i < t->loops; i++) {
        if (t->n[i] == 0) {
            keep(t, 0, i);
            t->loops = 1;
            return;
        }
        if (t->n[i] == 1)
            continue;
        if (kept && joins(t, kept - 1, i)) {
            int64_t turns = t->n[kept - 1];
            keep(t, kept - 1, i);
            t->n[kept - 1] *= turns;
        } else {
            keep(t, kept++, i);
        }
    }
    t->loops = kept;
}
