/* Allocations of device memory that a rank shares with others, each asked of the device once: thousands of tensors are
 * often in few allocations, and to ask for a handle takes microseconds. */
#ifndef WEFT_ENGINE_DEVICE_OBJECTS_H
#define WEFT_ENGINE_DEVICE_OBJECTS_H
#include "device/device.h"

struct objects {
    struct device_share *v; /* in the order in which they were found */
    uint32_t *sorted;       /* their indexes, by ascending base */
    uint32_t n, room;
};

/* *index: the allocation that has the address. */
int objects_take(struct objects *o, struct device *d, const void *address, uint32_t *index);
void objects_free(struct objects *o);
#endif
