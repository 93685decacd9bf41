/* What all transports do in the same way with their links. */
#include <stdlib.h>

#include "transport/transport.h"

void transport_link_enter(struct transport_link *l)
{
    l->inside = true;
    core_arrive(l->group, l->rank);
}

int *transport_link_origin(const struct transport_link *l, const int *ranks, int size)
{
    int *origin = malloc((size_t)size * sizeof *origin);
    for (int r = 0; r < size && origin; r++)
        origin[r] = l->origin ? l->origin[ranks[r]] : ranks[r];
    return origin;
}
