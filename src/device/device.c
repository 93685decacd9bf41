/* Which module serves a kind of memory. WEFT_DEVICE says whether CUDA memory is that of CUDA devices or of the
 * simulation, so that programs for CUDA run where there is none. */
#include "device/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/module.h"

enum { CUDA, SIM, MODULES };

static const struct {
    const char *name; /* in WEFT_DEVICE */
    struct module module;
} known[MODULES] = {
    {"cuda", {"weft_cuda.so", "CUDA", "the CUDA toolkit", DEVICE_SYMBOL, DEVICE_ABI}},
    {"sim", {"weft_sim.so", "the simulated device", "weft", DEVICE_SYMBOL, DEVICE_ABI}},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const void *loaded[MODULES]; /* guarded by the lock, and so is: */
static bool tried[MODULES];         /* device_loaded has found out whether there is one */

static int choose(const char *what, int memory, int *which)
{
    const char *text = getenv("WEFT_DEVICE");
    if (memory != WEFT_MEMORY_CUDA)
        return error_set(WEFT_EUNSUPPORTED, "%s: no device has memory of kind %d", what, memory);
    for (int k = 0; k < MODULES; k++)
        if (!strcmp(text && *text ? text : "cuda", known[k].name)) {
            *which = k;
            return 0;
        }
    return error_set(WEFT_EINVAL, "WEFT_DEVICE=%s: expected cuda or sim", text);
}

int device_find(const char *what, int memory, const char *modules, const struct device_ops **out)
{
    int which = 0, err = choose(what, memory, &which);
    if (err)
        return err;
    char begin[256];
    snprintf(begin, sizeof begin, "%s: memory of a CUDA device", what);
    pthread_mutex_lock(&lock);
    if (!loaded[which])
        err = module_load(&known[which].module, begin, modules, &loaded[which]);
    const struct device_ops *ops = loaded[which];
    pthread_mutex_unlock(&lock);
    if (err)
        return err;
    const char *why = "";
    if (!ops->count(&why))
        return error_set(WEFT_EUNSUPPORTED, "%s is not possible: %s", begin, why);
    *out = ops;
    return 0;
}

const struct device_ops *device_loaded(int memory, const char *modules)
{
    struct error_text kept;
    const struct device_ops *ops = NULL;
    int which;
    error_keep(&kept);
    if (choose("", memory, &which)) {
        error_restore(&kept);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    bool missing = tried[which] && !loaded[which];
    pthread_mutex_unlock(&lock);
    if (!missing && device_find("", memory, modules, &ops))
        ops = NULL;
    pthread_mutex_lock(&lock);
    tried[which] = true; /* not before: a thread that came meanwhile would take the module for missing */
    pthread_mutex_unlock(&lock);
    error_restore(&kept);
    return ops;
}

int device_open(const char *what, int memory, int number, const char *modules, struct device **out)
{
    const struct device_ops *ops;
    const char *why = "";
    int err = device_find(what, memory, modules, &ops);
    if (err)
        return err;
    int n = ops->count(&why);
    if (number < 0 || number >= n)
        return error_set(WEFT_EINVAL, "%s: there is no device %d: the devices are 0 to %d", what, number, n - 1);
    return ops->open(number, error_set, out);
}

int device_of_view(const char *what, const weft_view *v, const char *modules, int *number)
{
    *number = -1;
    if (v->memory == WEFT_MEMORY_ANY) {
        const struct device_ops *ops = device_loaded(WEFT_MEMORY_CUDA, modules);
        *number = ops ? ops->owner(v->data) : -1;
        return 0;
    }
    if (v->memory != WEFT_MEMORY_HOST && v->memory != WEFT_MEMORY_CUDA)
        return error_set(WEFT_EUNSUPPORTED,
                         "%s: there is no memory of kind %d: weft %s knows WEFT_MEMORY_HOST, WEFT_MEMORY_CUDA and, to "
                         "have it looked up, WEFT_MEMORY_ANY",
                         what, v->memory, weft_version_string());
    if (v->memory == WEFT_MEMORY_HOST && v->device)
        return error_set(WEFT_EINVAL, "%s: host memory has no device %d: set device to 0", what, v->device);
    if (v->device < 0)
        return error_set(WEFT_EINVAL, "%s: there is no device %d", what, v->device);
    *number = v->memory == WEFT_MEMORY_HOST ? -1 : v->device;
    return 0;
}
