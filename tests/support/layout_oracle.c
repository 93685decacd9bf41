#define _GNU_SOURCE
#include "layout_oracle.h"

#include <string.h>

int oracle_axis(const struct sample *s, const char *name)
{
    int a = 0;
    while (strcmp(s->axes[a].name, name))
        a++;
    return a;
}

int64_t oracle_index(const struct sample *s, int rank)
{
    int64_t mesh = sample_mesh_size(s);
    for (int64_t i = 0; i < mesh; i++)
        if ((s->desc.ranks ? s->ranks[i] : (int)i) == rank)
            return i;
    return -1;
}

int64_t oracle_coord(const struct sample *s, int64_t index, int axis)
{
    for (int a = s->desc.naxes - 1; a > axis; a--)
        index /= s->axes[a].size;
    return index % s->axes[axis].size;
}

static void oracle_split(struct oracle *o, int64_t p, int64_t block, int64_t c)
{
    int64_t size = (o->n + p - 1) / p, kept = 0;
    for (int64_t k = 0; k < o->n; k++)
        if ((block ? k / block % p : k / size) == c)
            o->at[kept++] = o->at[k];
    o->n = kept;
}

void oracle_dim(const struct sample *s, int dim, int64_t index, struct oracle *o)
{
    const weft_dim *d = &s->dims[dim];
    for (o->n = 0; o->n < d->extent; o->n++)
        o->at[o->n] = o->n;
    for (int k = 0; k < d->nsplits; k++) {
        int a = oracle_axis(s, d->splits[k].axis);
        oracle_split(o, s->axes[a].size, d->splits[k].block, oracle_coord(s, index, a));
    }
    o->room = o->first = 0;
    if (!o->n)
        return;
    o->first = d->lo;
    o->room = d->lo + o->n + d->hi;
    for (int64_t k = 0; k < o->room; k++) {
        int64_t x = k - d->lo; /* counted from the piece's first element */
        if (x >= 0 && x < o->n) {
            o->slot[k] = o->at[x];
            continue;
        }
        x += o->at[0];
        while (d->wrap && x < 0)
            x += d->extent;
        o->slot[k] = d->wrap ? x % d->extent : x < d->extent ? x : -1;
        if (o->slot[k] < 0)
            o->slot[k] = -1;
    }
}
