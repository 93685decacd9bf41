/* weft's own kernels, done by the thread of a stream. */
#ifndef WEFT_DEVICE_SIM_SIM_KERNELS_H
#define WEFT_DEVICE_SIM_SIM_KERNELS_H
#include "device/sim/sim_work.h"

void sim_kernels_run(struct sim_view *view, uint64_t table, const struct device_launch *l, struct sim_luck *luck);
#endif
