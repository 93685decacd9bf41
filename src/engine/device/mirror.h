/* Mirrors: memory on the other side of the bus that stands for the caller's memory in a run. If the ranks of an exec
 * share a device, host memory is mirrored on the device; otherwise device memory is mirrored on the host. A mirror has
 * the caller's geometry: views that overlap in the caller's memory overlap in the mirror in the same way.
 *
 * Before a run the sources are copied into the mirror. After it, what the run has written is copied out of the mirror,
 * and nothing else: other elements of the caller's memory may be changed by the caller during the run. Kernels of the
 * device do both, through pinned memory of the host. */
#ifndef WEFT_ENGINE_DEVICE_MIRROR_H
#define WEFT_ENGINE_DEVICE_MIRROR_H
#include "device/device.h"
#include "engine/exec.h"

struct mirror;

/* Memory for the mirror, in bytes that are contiguous; NULL: there is none. */
struct mirror_memory {
    void *(*alloc)(void *arg, size_t bytes);
    void (*free)(void *arg, void *memory);
    void *arg;
};

/* Mirrors all views that are in host memory (`hosted`) or on a device (otherwise). *out is NULL if there are none. */
int mirror_make(const weft_plan *p, struct device *d, bool hosted, const weft_view *src, const weft_view *dst,
                const struct mirror_memory *memory, struct mirror **out);
/* The views with the mirror in place of the caller's memory; they live as long as the mirror. */
void mirror_views(const struct mirror *m, const weft_view **src, const weft_view **dst);
/* How many bytes of the caller's memory, from the first to the last, the mirror has of one side of a tensor; 0: none.
 */
int64_t mirror_bytes(const struct mirror *m, uint32_t tensor, bool written);
/* The first byte of the mirror, and how many there are. */
void *mirror_base(const struct mirror *m, size_t *bytes);
/* With the steps of the program, bound to the mirror: makes the copies of runs. */
int mirror_fill(struct mirror *m, const weft_exec *x, const struct program *p);
int mirror_in(struct mirror *m, void *stream);  /* queues the copies into the mirror, */
int mirror_out(struct mirror *m, void *stream); /* and those out of it */
void mirror_free(struct mirror *m);             /* NULL is fine */
#endif
