/* Groups that are split from others, in the same file. */
#include <stdlib.h>

#include "base/error.h"
#include "transport/shm/shm.h"

int shm_split(struct transport_link *base, const int *ranks, int size, int rank, uint64_t *place,
              struct transport_link **out)
{
    struct shm_link *l = (struct shm_link *)base, *k = calloc(1, sizeof *k);
    int *origin = transport_link_origin(base, ranks, size), *process = malloc((size_t)size * sizeof *process);
    if (!k || !origin || !process)
        goto fail;
    for (int r = 0; r < size; r++)
        process[r] = shm_process_of(l, ranks[r]);
    k->base = (struct transport_link){.transport = base->transport, .rank = rank, .size = size, .origin = origin};
    k->home = l->home;
    k->process = process;
    k->claim = -1;
    if (rank == 0) {
        k->base.group = base->transport->alloc(&k->base, core_bytes(size), &k->core);
        if (!k->base.group)
            goto fail;
        core_init_split(k->base.group, base->group, ranks, size);
        *place = k->core;
    } else {
        k->base.group = base->transport->reach(base, ranks[0], *place);
    }
    k->home->links++;
    *out = &k->base;
    return 0;
fail:
    if (k)
        free(k->used.item);
    free(process);
    free(origin);
    free(k);
    return error_nomem();
}
