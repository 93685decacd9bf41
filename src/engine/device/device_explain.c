/* Devices in words and as JSON: those that this process can use, and how an exec uses them. */
#include "engine/device/device_explain.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "comm/environment.h"
#include "comm/lock.h"
#include "engine/device/exec_device.h"
#include "engine/device/mirror.h"
#include "engine/driver.h"

#define MIRRORS "mirrors" /* the form of execs whose ranks do not share a device */

/* ---- the devices of this process ---- */

/* The module, or NULL; then `why` has the reason. */
static const struct device_ops *find_ops(char *why, size_t cap)
{
    static const char what[] = "weft_device_explain";
    const struct device_ops *ops;
    struct error_text kept;
    error_keep(&kept);
    int err = device_find(what, WEFT_MEMORY_CUDA, environment_modules(), &ops);
    const char *text = weft_errmsg();
    bool named = !strncmp(text, what, sizeof what - 1);
    struct text t = text_start(why, cap);
    text_put(&t, err ? text + (named ? sizeof what + 1 : 0) : "");
    error_restore(&kept);
    return err ? NULL : ops;
}

static const char *sharing(const struct device_facts *f)
{
    return f->handles && f->descriptors ? "IPC handles and descriptors"
           : f->handles                 ? "IPC handles"
           : f->descriptors             ? "descriptors"
                                        : "nothing";
}

static void text_device(const struct device_ops *ops, int number, struct text *t)
{
    struct device_facts f;
    bool known = ops->facts(number, &f);
    text_printf(t, "device %d: %s", number, f.name);
    if (known && f.bytes)
        text_printf(t, ", %" PRIu64 " MiB", f.bytes >> 20);
    if (known)
        text_printf(t, "; driver %s; memory shared by %s; %s", f.driver, sharing(&f), f.mps ? "MPS" : "no MPS");
    text_put(t, "\n");
}

static void text_devices(struct text *t)
{
    char why[512];
    const char *ignored;
    const struct device_ops *ops = find_ops(why, sizeof why);
    if (!ops) {
        text_printf(t, "none: %s\n", why);
        return;
    }
    struct device_facts f;
    ops->facts(0, &f);
    text_printf(t, "%s%s\n", ops->name, f.simulated ? ": a simulation on the host, not a GPU (WEFT_DEVICE=sim)" : "");
    for (int i = 0, n = ops->count(&ignored); i < n; i++)
        text_device(ops, i, t);
    text_printf(t, "engines: %s (%s), %s (", driver_launcher.name, driver_launcher.what, driver_nccl.name);
    const char *group = ops->group_name(false, &ignored);
    text_printf(t, "%s%s), %s (device memory is copied through host memory)\n",
                group ? "" : "none: ", group ? group : ignored, MIRRORS);
}

static void json_device(const struct device_ops *ops, int number, struct text *t)
{
    struct device_facts f;
    bool known = ops->facts(number, &f);
    text_printf(t, "{\"number\": %d, \"name\": ", number);
    text_json(t, f.name);
    if (known) {
        text_put(t, ", \"driver\": ");
        text_json(t, f.driver);
        text_printf(t, ", \"memory\": %" PRIu64 ", \"mps\": %s, \"sharing\": [%s%s%s]", f.bytes,
                    f.mps ? "true" : "false", f.handles ? "\"handles\"" : "", f.handles && f.descriptors ? ", " : "",
                    f.descriptors ? "\"descriptors\"" : "");
    }
    text_put(t, "}");
}

static void json_devices(struct text *t)
{
    char why[512];
    const char *ignored;
    const struct device_ops *ops = find_ops(why, sizeof why);
    if (!ops) {
        text_put(t, "{\"kind\": null, \"simulated\": false, \"why\": ");
        text_json(t, why);
        text_put(t, ", \"devices\": [], \"engines\": []}\n");
        return;
    }
    struct device_facts f;
    ops->facts(0, &f);
    text_printf(t, "{\"kind\": \"%s\", \"simulated\": %s, \"why\": null, \"devices\": [", ops->name,
                f.simulated ? "true" : "false");
    for (int i = 0, n = ops->count(&ignored); i < n; i++) {
        text_put(t, i ? ", " : "");
        json_device(ops, i, t);
    }
    const char *group = ops->group_name(false, &ignored);
    text_printf(t, "], \"engines\": [\"%s\"", driver_launcher.name);
    if (group)
        text_printf(t, ", \"%s\"", driver_nccl.name);
    text_printf(t, ", \"%s\"], \"%s\": ", MIRRORS, group ? "nccl" : "nccl_why");
    text_json(t, group ? group : ignored);
    text_put(t, "}\n");
}

int weft_device_explain(bool json, char *buf, size_t cap, size_t *len)
{
    if (!len || (cap && !buf))
        return error_set(WEFT_EINVAL, "weft_device_explain: arguments must not be NULL");
    struct text t = text_start(buf, cap);
    if (json)
        json_devices(&t);
    else
        text_devices(&t);
    *len = t.len;
    return 0;
}

/* ---- an exec ---- */

static const struct mirror *mirror_of(const weft_exec *x)
{
    return x->program->device ? x->program->device->mirror : NULL;
}

void device_explain_text(const weft_exec *x, struct text *t)
{
    const struct exec_device *e = x->device;
    if (!e)
        return;
    text_printf(t, "device %d (%s): ", e->device->number, e->device->ops->name);
    if (e->shared)
        text_put(t, "shared by all ranks\n");
    else
        text_printf(t, "not shared by all ranks: %s\n", e->why);
    if (e->group) {
        uint32_t groups;
        int64_t staging;
        nccl_figures(x, &groups, &staging);
        text_printf(
            t, "  messages go by %s, in %" PRIu32 " group%s of a run; %" PRId64 " bytes are staged on the device\n",
            e->joining, groups, groups == 1 ? "" : "s", staging);
    } else if (!e->shared) {
        text_printf(t, "  not by NCCL: %s\n", e->joining);
    }
    if (x->carried)
        text_printf(t,
                    "  messages go through %u slots a channel of pinned host memory, and the device copies one while "
                    "others are on their way; %" PRId64 " bytes are pinned\n",
                    x->slots, carry_bytes(x->program->carry));
    const struct mirror *m = mirror_of(x);
    for (uint32_t i = 0; m && i < 2 * x->plan->ntensors; i++) {
        char who[VIEW_NAME];
        int64_t bytes = mirror_bytes(m, i / 2, i % 2);
        if (bytes)
            text_printf(t, "  %s of %s: %" PRId64 " bytes, mirrored on the %s\n", i % 2 ? "destination" : "source",
                        view_tensor(x->plan, i / 2, who), bytes,
                        exec_device_form(x) ? "device, because they are in host memory"
                                            : "host, because the device is not shared");
    }
}

void device_explain_json(const weft_exec *x, struct text *t)
{
    const struct exec_device *e = x->device;
    if (!e) {
        text_put(t, "null");
        return;
    }
    text_printf(t, "{\"number\": %d, \"kind\": \"%s\", \"group\": ", e->device->number, e->device->ops->name);
    if (e->group)
        text_json(t, e->joining);
    else
        text_put(t, "null");
    text_printf(t, ", \"shared\": %s, \"why\": ", e->shared ? "true" : "false");
    if (e->shared)
        text_put(t, "null");
    else
        text_json(t, e->why);
    text_printf(t, ", \"slots\": %u, \"pinned\": %" PRId64 ", \"mirrored\": [", x->slots,
                x->carried ? carry_bytes(x->program->carry) : 0);
    const struct mirror *m = mirror_of(x);
    for (uint32_t i = 0, n = 0; m && i < 2 * x->plan->ntensors; i++) {
        int64_t bytes = mirror_bytes(m, i / 2, i % 2);
        if (bytes)
            text_printf(t, "%s{\"tensor\": %" PRIu32 ", \"side\": \"%s\", \"bytes\": %" PRId64 ", \"on\": \"%s\"}",
                        n++ ? ", " : "", i / 2, i % 2 ? "destination" : "source", bytes,
                        exec_device_form(x) ? "device" : "host");
    }
    text_put(t, "]}");
}
