/* A device for tests of the bus, the simulated one unless WEFT_DEVICE says otherwise. */
#ifndef WEFT_VERSION_DEVICE_KIT_H
#define WEFT_VERSION_DEVICE_KIT_H
#include <stdlib.h>

#include "device/device.h"
#include "support/simulated.h"
#include "support/suite.h"
#include "weft.h"

static struct device *device;

static inline int device_kit_open(void **state)
{
    (void)state;
    setenv("WEFT_DEVICE", "sim", 0);
    int err = device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &device);
    if (err)
        print_error("%s\n", weft_errmsg());
    return err;
}

static inline int device_kit_close(void **state)
{
    (void)state;
    device->ops->close(device);
    return 0;
}

static inline bool device_kit_simulated(void)
{
    return !strcmp(device->ops->name, "sim");
}

static inline void device_kit_copy(void *to, const void *from, size_t bytes)
{
    if (device->ops->copy(device, NULL, to, from, bytes) || device->ops->sync(device, NULL))
        fail_msg("%s", weft_errmsg());
}

/* Memory of the device with these bytes; bytes 0: it has some nevertheless. */
static inline void *device_kit_new(const void *from, size_t bytes)
{
    void *to = device->ops->alloc(device, bytes + 1);
    assert_non_null(to);
    if (from && bytes)
        device_kit_copy(to, from, bytes);
    return to;
}

static inline void device_kit_free(void *memory)
{
    device->ops->free(device, memory);
}
#endif
