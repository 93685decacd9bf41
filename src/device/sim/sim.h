/* What the simulated device (weft_sim.so) has beside struct device_ops: what a program does with CUDA's own library,
 * and what tests want to know or to break. The module exports it as weft_sim_calls.
 *
 * The simulation keeps the rules of a device, and is strict about them. Device memory faults when the host touches it.
 * Streams are threads that run late on purpose. Calls that give memory back wait for all streams of the process, as
 * CUDA's do. A kernel reaches device memory, and host memory that is pinned;
 * anything else makes the device fail. What it reads from the environment, when a device is opened:
 *   WEFT_SIM_DEVICES  how many devices there are; 1
 *   WEFT_SIM_SEED     of the delays; 1. 0: no delays
 *   WEFT_SIM_QUEUES   hardware queues of a device. Streams share them in turn, and a stream that waits holds up the
 *                     others of its queue. 0: each stream has its own; that is the default
 *   WEFT_SIM_RATE     bytes of a microsecond by which a queue copies between host and device; 0: as fast as it can
 *   WEFT_SIM_FAIL     the number of the launch at which the device fails, from 1 on; 0: none
 *   WEFT_SIM_MPS      1: the device says that processes share it by MPS; 0. They overlap in any case
 *   WEFT_SIM_NCCL     1: ranks can form groups, as with NCCL; 2: and rank 1 fails to join one; 0 */
#ifndef WEFT_DEVICE_SIM_SIM_H
#define WEFT_DEVICE_SIM_SIM_H
#include "device/device.h"

#define SIM_SYMBOL "weft_sim_calls"

/* The memory as a kernel sees it while it runs. */
struct sim_view;

/* A kernel of the program's own. */
typedef void sim_kernel(struct sim_view *view, void *arg);

/* What is not given back yet, of one device in this process. */
struct sim_use {
    size_t allocations, maps, pins, streams, graphs;
    size_t bytes;    /* of the allocations */
    uint64_t calls;  /* of the engine that queued work on streams, since the device was opened */
    uint64_t shares; /* how often memory was asked for how other processes find it, since the device was opened */
    /* With WEFT_SIM_RATE, since the device was opened: nanoseconds in which at least one queue was copying, and in
     * which at least two were. */
    int64_t copying_ns, overlap_ns;
};

struct sim_calls {
    uint32_t abi; /* DEVICE_ABI */

    /* Work that is queued on the stream from now on is recorded and not run. */
    int (*capture_begin)(struct device *d, void *stream);
    /* *graph is what was recorded. WEFT_EINVAL: a call that cannot be recorded (sync, idle) was made meanwhile. */
    int (*capture_end)(struct device *d, void *stream, void **graph);
    /* Queues all of it, as often as wanted. */
    int (*graph_launch)(struct device *d, void *graph, void *stream);
    /* What was launched runs on. */
    void (*graph_free)(struct device *d, void *graph);

    /* Queues a kernel of the program's own: body(view, arg). */
    int (*kernel)(struct device *d, void *stream, sim_kernel *body, void *arg);
    /* In a kernel: where the bytes at an address of the device are. If a stream does not reach them, the kernel ends
     * here, and the device fails. */
    void *(*at)(struct sim_view *view, const void *address, size_t bytes);

    /* The device fails now, with this text. */
    void (*crash)(struct device *d, const char *text);
    void (*use)(struct device *d, struct sim_use *out);
};
#endif
