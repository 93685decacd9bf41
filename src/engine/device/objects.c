#include "engine/device/objects.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* How many of them begin at the address or before it. */
static uint32_t up_to(const struct objects *o, uint64_t address)
{
    uint32_t low = 0, high = o->n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (o->v[o->sorted[mid]].base <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static int make_room(struct objects *o)
{
    if (o->n < o->room)
        return 0;
    uint32_t room = o->room ? 2 * o->room : 16;
    struct device_share *v = realloc(o->v, room * sizeof *v);
    o->v = v ? v : o->v;
    uint32_t *sorted = realloc(o->sorted, room * sizeof *sorted);
    o->sorted = sorted ? sorted : o->sorted;
    if (!v || !sorted)
        return error_nomem();
    o->room = room;
    return 0;
}

int objects_take(struct objects *o, struct device *d, const void *address, uint32_t *index)
{
    uint64_t at = (uint64_t)(uintptr_t)address;
    uint32_t k = up_to(o, at);
    if (k && at - o->v[o->sorted[k - 1]].base < o->v[o->sorted[k - 1]].bytes) {
        *index = o->sorted[k - 1];
        return 0;
    }
    int err = make_room(o);
    err = err ? err : d->ops->share(d, address, &o->v[o->n]);
    if (err)
        return err;
    k = up_to(o, o->v[o->n].base);
    memmove(o->sorted + k + 1, o->sorted + k, (o->n - k) * sizeof *o->sorted);
    *index = o->sorted[k] = o->n++;
    return 0;
}

void objects_free(struct objects *o)
{
    free(o->v);
    free(o->sorted);
    *o = (struct objects){0};
}
