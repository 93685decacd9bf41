/* A kernel as a user of a window would write it, for the simulated device and for CUDA. It waits until a signal of its
 * own rank has a value, then it stores a number into a peer's buffer and signals that peer. */
#ifndef WEFT_TESTS_PASS_KERNEL_H
#define WEFT_TESTS_PASS_KERNEL_H
#include "device/device.h"

struct pass_kernel {
    void *waits, *to, *tells; /* the signal that it waits for, where the number goes, the signal that it sets */
    uint64_t value;           /* of both signals */
    float x;
};

/* Queues it. *k stays as it is until it has run. Sets an error as calls of weft do. */
int pass_kernel_queue(struct device *d, void *stream, struct pass_kernel *k);
#endif
