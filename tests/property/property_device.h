/* Device memory for the property campaign: some sides of a case's tensors are on a device. The host memory of a side
 * stays; it is copied to the device before a run and back after it. */
#ifndef WEFT_TESTS_PROPERTY_DEVICE_H
#define WEFT_TESTS_PROPERTY_DEVICE_H
#include "property_trial.h"

struct device_side {
    weft_comm *comm;
    void *memory; /* on the device; NULL: the side is in host memory */
    struct trial_side *of;
};

struct device_sides {
    struct device_side side[CASE_MOVES][2];
    struct device *device;
    void *stream;
};

extern bool device_sides_by_nccl; /* all sides are on the device, and the launcher does nothing */
/* Is this side of the tensor on the device? The case's seed says so: all sides, or some of them. */
bool device_sides_chosen(const struct property_case *c, int m, int rank, int side);
/* Allocates device memory for the chosen sides of a rank's tensors and points the views to it. */
int device_sides_place(struct device_sides *d, const struct property_case *c, weft_comm *comm, int rank,
                       struct trial_tensor *tensors[CASE_MOVES], weft_view *view[2]);
int device_sides_up(struct device_sides *d);
int device_sides_down(struct device_sides *d);
void device_sides_free(struct device_sides *d);
/* weft_bind_opts.ways for the case: some cases go through pinned slots, or are mirrored on the host, instead of being
 * done by the launcher. */
const char *device_sides_ways(const struct property_case *c);
#endif
