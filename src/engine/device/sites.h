/* Where the views of one rank are: in host memory, or on a device. */
#ifndef WEFT_ENGINE_DEVICE_SITES_H
#define WEFT_ENGINE_DEVICE_SITES_H
#include "plan/plan.h"

struct sites {
    uint32_t hosted, placed; /* views in host memory, and views on a device */
    int memory, device;      /* kind of memory and number of the device, if there are such views */
};

/* Looks at all views that hold something. Refuses kinds of memory that do not exist, host memory with a device's
 * number, and views on more than one device. */
int sites_of(const weft_plan *p, const weft_view *src, const weft_view *dst, struct sites *out);
/* Is the view on a device? WEFT_MEMORY_ANY is looked up. */
bool sites_on_device(const weft_view *v);
/* The view of a tensor on a side; NULL: this rank holds nothing there. */
const weft_view *sites_view(const weft_plan *p, uint32_t tensor, const weft_view *views, bool written);
#endif
