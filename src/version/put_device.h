/* Putting from devices: which tensors of a put are there, and copying them into a snapshot. */
#ifndef WEFT_VERSION_PUT_DEVICE_H
#define WEFT_VERSION_PUT_DEVICE_H
#include "memory/memory.h"
#include "version/publish.h"

/* A tensor of a put: its array as loops, and where it is. */
struct put_tensor {
    struct memory_tile tile; /* operand 0 is dense, operand 1 the caller's array. Boxes: not used */
    int device;              /* the number of its device; -1: host memory, or the rank holds nothing of it */
};

/* ---- put_copy.c ---- */
/* Copies a tensor in host memory into a snapshot, casts it, sums its blocks, and finds what has changed in them. */
void put_copy(weft_publisher *p, struct copy_threads *threads, size_t tensor, const weft_view *v,
              const struct memory_tile *tile, struct publish_ring *into);

/* ---- put_device.c ---- */
struct put_device;
/* Opens the device if some tensors are on one, and makes its work for these views, unless they are those of the last
 * put. Views on several devices are refused. Nothing of the publisher's versions has changed on an error. */
int put_device_prepare(weft_publisher *p, const weft_view *views, const struct put_tensor *tensors);
/* Waits for what is in a stream of the caller, if a tensor of the prepared put is on the device. Otherwise the stream
 * need not be one. */
int put_device_await(const weft_publisher *p, void *stream);
/* Copies the tensors that are on the device into the snapshot, cast and summed. */
int put_device_run(weft_publisher *p, struct publish_ring *r);
void put_device_close(weft_publisher *p); /* before its snapshots are closed */
#endif
