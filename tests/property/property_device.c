#define _GNU_SOURCE
#include "property_device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "device/device.h"

enum { ALL, SOME, FORMS };

bool device_sides_by_nccl;

static uint64_t drawn(const struct property_case *c, uint64_t of)
{
    return hash_u64(hash_u64(c->seed, 0x6465766963650000), of);
}

bool device_sides_chosen(const struct property_case *c, int m, int rank, int side)
{
    if (device_sides_by_nccl || drawn(c, 1) % FORMS == ALL)
        return true;
    return drawn(c, 2 + (uint64_t)((rank * CASE_MOVES + m) * 2 + side)) % 2;
}

const char *device_sides_ways(const struct property_case *c)
{
    static const char *const ways[] = {"-launcher", "", "", "-launcher", "", "", "-launcher,-pinned", "", ""};
    return device_sides_by_nccl ? "-launcher" : ways[drawn(c, 0) % 9];
}

static int place(struct device_sides *d, weft_comm *comm, struct device_side *s, struct trial_side *of)
{
    s->comm = comm;
    s->of = of;
    int rc = weft_comm_alloc(comm, (size_t)of->bytes, WEFT_MEMORY_CUDA, 0, &s->memory);
    if (!rc && !d->device)
        rc = device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &d->device);
    if (!rc && !d->stream)
        rc = d->device->ops->stream_open(d->device, &d->stream);
    return rc;
}

int device_sides_place(struct device_sides *d, const struct property_case *c, weft_comm *comm, int rank,
                       struct trial_tensor *tensors[CASE_MOVES], weft_view *view[2])
{
    int rc = 0;
    for (int m = 0; m < c->moves; m++) {
        struct trial_tensor *t = tensors[m];
        for (int k = 0; k < 2 && !rc; k++) {
            struct trial_side *of = &t->side[k];
            struct device_side *s = &d->side[m][k], *other = &d->side[m][0];
            bool one = k && t->shared; /* both sides are in the source's memory */
            if (!device_sides_chosen(c, m, rank, t->shared ? 0 : k) || (!of->bytes && !view[k][m].data))
                continue;
            if (!one || !other->memory)
                rc = place(d, comm, s, of);
            if (rc)
                return rc;
            char *memory = one && other->memory ? other->memory : s->memory;
            view[k][m].data = memory + of->view.first;
            view[k][m].memory = drawn(c, 1000 + (uint64_t)m) % 4 ? WEFT_MEMORY_CUDA : WEFT_MEMORY_ANY;
        }
    }
    return rc;
}

/* By way of pages that hold nothing else: what is in a page with pinned memory may be half pinned. */
static int copy_side(struct device_sides *d, const struct device_side *s, bool up)
{
    size_t bytes = (size_t)s->of->bytes, page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *between = aligned_alloc(page, (bytes + page - 1) / page * page);
    if (!between)
        return WEFT_ENOMEM;
    if (up)
        memcpy(between, s->of->memory, bytes);
    int rc = d->device->ops->copy(d->device, d->stream, up ? s->memory : between, up ? between : s->memory, bytes);
    if (!rc)
        rc = d->device->ops->sync(d->device, d->stream);
    if (!rc && !up)
        memcpy(s->of->memory, between, bytes);
    free(between);
    return rc;
}

static int copy_all(struct device_sides *d, bool up)
{
    int rc = 0;
    for (int m = 0; m < CASE_MOVES && !rc; m++)
        for (int k = 0; k < 2 && !rc; k++)
            if (d->side[m][k].memory && d->side[m][k].of->bytes)
                rc = copy_side(d, &d->side[m][k], up);
    return rc;
}

int device_sides_up(struct device_sides *d)
{
    return copy_all(d, true);
}

int device_sides_down(struct device_sides *d)
{
    return copy_all(d, false);
}

void device_sides_free(struct device_sides *d)
{
    for (int m = 0; m < CASE_MOVES; m++)
        for (int k = 0; k < 2; k++)
            if (d->side[m][k].memory)
                weft_comm_free(d->side[m][k].comm, d->side[m][k].memory);
    if (d->stream)
        d->device->ops->stream_close(d->device, d->stream);
    if (d->device)
        d->device->ops->close(d->device);
}
