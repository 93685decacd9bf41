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

/* The kind of memory, and the device. A kind that is not known is looked up: memory that no device owns is the host's.
 */
static void look_up(const weft_view *v, int *memory, int *device)
{
    *memory = v->memory;
    *device = v->device;
    if (v->memory != WEFT_MEMORY_ANY)
        return;
    const struct device_ops *ops = device_loaded(WEFT_MEMORY_CUDA, environment_modules());
    int owner = ops ? ops->owner(v->data) : -1;
    *memory = owner < 0 ? WEFT_MEMORY_HOST : WEFT_MEMORY_CUDA;
    *device = owner < 0 ? 0 : owner;
}

bool sites_on_device(const weft_view *v)
{
    int memory, device;
    look_up(v, &memory, &device);
    return memory != WEFT_MEMORY_HOST;
}

static int add(const char *what, const weft_view *v, struct sites *s)
{
    int memory, device;
    look_up(v, &memory, &device);
    if (memory != WEFT_MEMORY_HOST && memory != WEFT_MEMORY_CUDA)
        return error_set(WEFT_EUNSUPPORTED,
                         "%s: there is no memory of kind %d: weft %s knows WEFT_MEMORY_HOST, WEFT_MEMORY_CUDA and, to "
                         "have it looked up, WEFT_MEMORY_ANY",
                         what, memory, weft_version_string());
    if (memory == WEFT_MEMORY_HOST && device)
        return error_set(WEFT_EINVAL, "%s: host memory has no device %d: set device to 0", what, device);
    if (memory == WEFT_MEMORY_HOST) {
        s->hosted++;
        return 0;
    }
    if (device < 0)
        return error_set(WEFT_EINVAL, "%s: there is no device %d", what, device);
    if (s->placed && s->device != device)
        return error_set(
            WEFT_EUNSUPPORTED,
            "%s is on device %d, and another buffer of this rank is on device %d: one exec uses one device "
            "on each rank",
            what, device, s->device);
    s->placed++;
    s->memory = memory;
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
