/* The memory of the simulated devices of this process: allocations, memory of other processes, and pinned host memory.
 *
 * An allocation is a memory file that is mapped twice: at its public address, which nobody may touch, and at a private
 * one, its shadow, which kernels use. All devices reach all of it, as with peer access. */
#ifndef WEFT_DEVICE_SIM_SIM_MEMORY_H
#define WEFT_DEVICE_SIM_SIM_MEMORY_H
#include "device/sim/sim_device.h"

void *sim_memory_alloc(struct device *d, size_t bytes);
void sim_memory_free(struct device *d, void *memory);
int sim_memory_share(struct device *d, const void *memory, struct device_share *out);
int sim_memory_map(struct device *d, const struct device_share *share, void **base);
void sim_memory_unmap(struct device *d, void *base);
int sim_memory_pin(struct device *d, void *host, size_t bytes, uint64_t *at);
void sim_memory_unpin(struct device *d, void *host);
int sim_memory_owner(const void *address);
bool sim_memory_pinned(const void *address, size_t bytes); /* is all of it one pin's? */
void sim_memory_use(const struct sim_device *d, struct sim_use *out);
void sim_memory_close(const struct sim_device *d); /* gives back all that is left of the device; no stream runs */

/* Around fork: the parent's memory does not exist in the child. */
void sim_memory_before_fork(void);
void sim_memory_in_parent(void);
void sim_memory_in_child(void);

/* ---- the memory as a kernel sees it ----
 * Memory that a kernel has reached stays until the kernel ends: free, unmap and unpin wait for it. */

struct sim_range;

struct sim_view {
    struct sim_range **ranges; /* those that were reached, in order of their addresses */
    size_t n, cap;
    const struct sim_range *last;
    uint64_t bad; /* the address that could not be reached */
};

/* The shadow of the bytes at an address; NULL: a stream does not reach them. */
void *sim_memory_at(struct sim_view *v, uint64_t address, size_t bytes);
void sim_memory_leave(struct sim_view *v); /* the kernel has ended */
#endif
