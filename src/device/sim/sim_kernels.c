/* Blocks of a launch are done in a random order, and with pauses: on a device nobody knows the order either. */
#include "device/sim/sim_kernels.h"

static _Thread_local struct sim_view *current; /* that of the kernel that this thread runs */

#define DEVICE_AT(address, bytes) sim_work_at(current, (const void *)(uintptr_t)(address), (bytes))
#include "device/body.h"

#define PAUSES 4 /* in a launch */

static uint32_t divisor(uint32_t a, uint32_t b)
{
    return b ? divisor(b, a % b) : a;
}

void sim_kernels_run(struct sim_view *view, uint64_t table, const struct device_launch *l, struct sim_luck *luck)
{
    uint32_t block = 0, step = 1;
    current = view;
    const void *image = sim_work_at(view, (const void *)(uintptr_t)table, 1);
    if (luck->on && l->blocks > 1) {
        block = (uint32_t)sim_work_below(luck, l->blocks);
        step = 1 + (uint32_t)sim_work_below(luck, l->blocks - 1);
        while (divisor(step, l->blocks) != 1) /* ends at 1 */
            step--;
    }
    for (uint32_t i = 0; i < l->blocks; i++) {
        if (i % (l->blocks / PAUSES + 1) == 0)
            sim_work_late(luck);
        device_body_block(image, l, block);
        block = (uint32_t)(((uint64_t)block + step) % l->blocks);
    }
}
