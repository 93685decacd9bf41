/* Tensors on devices. What is put or fetched passes through staging memory of the device, a chunk at a time: kernels
 * cast and gather, or scatter, between the caller's tensors and the staging memory, and sum the blocks there; the copy
 * engine copies between the staging memory and the snapshot, which is in host memory. Two chunks are on their way at a
 * time, each in a lane of its own: a stream with a staging memory. So the copies follow each other without a pause.
 *
 *     bus_device.c     lanes, and the work of a chunk
 *     put_device.c     from tensors into a snapshot
 *     fetch_device.c   from snapshots into a subscriber's memory
 *
 * The rules of snapshot.h hold for what a device loads and stores. A stream begins when the host has told it to, behind
 * W1, and the host has waited for it before R1, and before the next even number. */
#ifndef WEFT_VERSION_BUS_DEVICE_H
#define WEFT_VERSION_BUS_DEVICE_H
#include "device/device_queue.h"
#include "memory/memory.h"
#include "version/snapshot.h"

#define BUS_DEVICE_LANES 2

struct bus_device {
    struct device *device;
    int64_t chunk; /* bytes of a staging memory: a multiple of SCHEMA_BLOCK */
    struct {
        void *stream, *memory;
    } lane[BUS_DEVICE_LANES];
};

/* `call` begins the texts of errors. On an error nothing is left open. */
int bus_device_open(const char *call, int number, struct bus_device *out);
void bus_device_close(struct bus_device *d); /* also one that is zeroed; waits for its lanes */
int bus_device_rest(struct bus_device *d);   /* waits for all lanes */
/* Memory of the device, zeroed; `what` says for what. WEFT_ENOMEM: there is none. */
int bus_device_alloc(struct bus_device *d, size_t bytes, const char *what, void **out);
void bus_device_free(struct bus_device *d, void *memory); /* NULL is allowed */
/* Has streams reach a snapshot, so that copies do not wait for the host. If it cannot be had they work nevertheless,
 * and are slower. */
bool bus_device_pin(struct bus_device *d, const struct snapshot *s, bool read_only);
void bus_device_unpin(struct bus_device *d, const struct snapshot *s);

/* A tile between two arrays. Of operand `cut` only the elements in the bytes [lo, hi) of its array count; no element is
 * cut there. */
struct bus_device_move {
    const struct memory_tile *tile;
    int64_t at[2];    /* bytes from the beginning of each array to its first element of the tile */
    uint64_t base[2]; /* the device's address of the array; of operand `cut`: where it would begin */
    int dtype[2];     /* operand 0 is written, 1 is read */
    int cut;
    int64_t lo, hi;
};
int bus_device_add(struct device_queue *q, uint32_t level, const struct bus_device_move *m);

/* For tests: lanes that are opened from now on have chunks of this size; 0: of the usual one. */
void bus_device_chunks(int64_t bytes);
#endif
