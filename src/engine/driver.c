/* The table of drivers, and the choice among them. */
#include "engine/driver.h"

#include "base/error.h"
#include "engine/block.h"
#include "engine/device/exec_device.h"

/* The first that can drive a program is taken. */
static const struct driver *const drivers[DRIVERS] = {&driver_launcher, &driver_nccl,    &driver_lists,
                                                      &driver_faces,    &driver_onepass, &driver_pipeline};

const struct driver *driver_at(int i)
{
    return i >= 0 && i < DRIVERS ? drivers[i] : NULL;
}

bool driver_prefers(const weft_exec *x, const struct program *p)
{
    for (int i = 0; i < DRIVERS; i++)
        if (drivers[i]->prefers && !(x->off & driver_bit(drivers[i])) && drivers[i]->prefers(x, p))
            return true;
    return false;
}

uint64_t driver_rooms(const weft_exec *x, const struct program *p, uint64_t from, uint64_t at[DRIVERS], bool *shown)
{
    uint64_t all = 0;
    *shown = false;
    for (int i = 0; i < DRIVERS; i++) {
        bool off = x->off & driver_bit(drivers[i]);
        uint64_t bytes = !off && drivers[i]->room ? drivers[i]->room(x, p, shown) : 0;
        at[i] = bytes ? from + all : 0;
        all += (bytes + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
    }
    return all;
}

int driver_make(weft_exec *x, struct program *p, const uint64_t *block_at, uint32_t *vote)
{
    *vote = p->drivers = 0;
    for (int i = 0; i < DRIVERS; i++) {
        const struct driver *d = drivers[i];
        bool can = false;
        p->states[i] = program_take(p, 1, d->state);
        if (!p->states[i])
            return error_nomem();
        bool fits = d->form == exec_device_form(x) && !(x->off & driver_bit(d));
        int err = !fits ? 0 : d->make(x, p, block_at, p->states[i], &can);
        if (err)
            return err;
        p->drivers |= can ? UINT32_C(1) << i : 0;
        *vote |= can && d->agreed ? UINT32_C(1) << i : 0;
    }
    return 0;
}

void driver_open(weft_exec *x, struct program *p, const uint64_t *block_at, uint64_t meeting)
{
    uint64_t all = core_tally(x->comm->group, meeting).note; /* what all ranks can */
    for (int i = 0; i < DRIVERS && !p->driver; i++) {
        if (!(p->drivers >> i & 1) || (drivers[i]->agreed && !(all >> i & 1)))
            continue;
        p->driver = drivers[i];
        p->state = p->states[i];
        if (p->driver->open)
            p->driver->open(x, p, block_at);
    }
}

void driver_free(weft_exec *x, struct program *p)
{
    for (int i = 0; i < DRIVERS; i++)
        if (drivers[i]->free && p->states[i])
            drivers[i]->free(x, p);
}

void driver_release(weft_exec *x)
{
    const struct driver *d = x->program->driver;
    if (d && d->release)
        d->release(x);
}
