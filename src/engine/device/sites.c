#include "engine/device/sites.h"

#include <stdio.h>

#include "base/error.h"
#include "comm/environment.h"
#include "device/device.h"
#include "engine/exec.h"

const weft_view *sites_view(const weft_plan *p, uint32_t tensor, const weft_view *views, bool written)
{
    const struct plan_tensor *pt = &p->tensors[tensor];
    uint32_t buf = written ? pt->dst_buf : pt->src_buf;
    return buf != PLAN_NONE && views && views[tensor].data ? &views[tensor] : NULL;
}

bool sites_on_device(const weft_view *v)
{
    int device;
    return !device_of_view("", v, environment_modules(), &device) && device >= 0;
}

static int add(const char *what, const weft_view *v, struct sites *s)
{
    int device, err = device_of_view(what, v, environment_modules(), &device);
    if (err)
        return err;
    if (device < 0) {
        s->hosted++;
        return 0;
    }
    if (s->placed && s->device != device)
        return error_set(
            WEFT_EUNSUPPORTED,
            "%s is on device %d, and another buffer of this rank is on device %d: one exec uses one device "
            "on each rank",
            what, device, s->device);
    s->placed++;
    s->memory = WEFT_MEMORY_CUDA;
    s->device = device;
    return 0;
}

int sites_of(const weft_plan *p, const weft_view *src, const weft_view *dst, struct sites *out)
{
    *out = (struct sites){0};
    int err = 0;
    for (uint32_t t = 0; t < p->ntensors && !err; t++)
        for (int side = 0; side < 2 && !err; side++) {
            const weft_view *v = sites_view(p, t, side ? dst : src, side);
            char who[VIEW_NAME], what[VIEW_NAME + 16];
            snprintf(what, sizeof what, "%s: %s", view_tensor(p, t, who), side ? "destination" : "source");
            err = v ? add(what, v, out) : 0;
        }
    return err;
}
