/* Execs with memory on devices. At bind the ranks find out whether some view of any rank is on a device. If none is,
 * the exec is an ordinary one. Otherwise they choose one of four forms, the same on all ranks:
 *
 *   shared     All device memory of all ranks is on one device, all ranks are on one host, and each rank can share its
 *              memory with the others. Then one rank, the launcher, starts kernels that do the work of all ranks
 *              (drivers/launcher.c). Host memory is mirrored on the device.
 *   grouped    All ranks have memory on devices, and each can join a group of NCCL. Then
 *              each rank's device does the work of its steps, and sends and receives messages (drivers/nccl.c). Host
 *              memory is mirrored on the device.
 *   carried    Otherwise messages go through slots of pinned host memory, and each rank's own device packs and unpacks
 *              them, one message beside the other (carry.h, ways/pinned.c).
 *   mirrored   Where messages are checked, or the way `pinned` is switched off, device memory is mirrored on the host,
 *              and the run is an ordinary one between the mirrors.
 *
 * Why one rank starts all kernels: processes that share a device without MPS do not overlap there, and each change from
 * one process to another costs more than most runs take. There no kernel of weft ever waits for a peer. NCCL's kernels
 * do.
 *
 *   sites.c      where a rank's views are
 *   carry.c      the device does the work of one rank's steps; tasks.c moves and folds as work of a device
 *   ranges.c     which bytes views cover; objects.c which allocations they are in
 *   mirror.c     mirrors, and the copies into and out of them
 *   symbol.h     addresses that mean the same on all ranks
 *   published.c  what a rank shows the launcher: its allocations and its work
 *   watcher.c    a thread that looks after runs on streams of the caller
 *   joining.c    ranks join a group
 *   levels.c     the launcher makes one table of the work of all ranks, in the order that the plans ask for */
#ifndef WEFT_ENGINE_DEVICE_EXEC_DEVICE_H
#define WEFT_ENGINE_DEVICE_EXEC_DEVICE_H
#include "device/device.h"
#include "engine/device/carry.h"
#include "engine/device/objects.h"
#include "engine/device/sites.h"
#include "engine/exec.h"

/* Of an exec. */
struct exec_device {
    struct device *device;
    bool shared;                /* the form: all ranks share the device */
    struct device_group *group; /* the form grouped; otherwise NULL */
    char why[VIEW_NAME + 64];   /* not shared: the reason, as far as this rank knows it */
    char joining[256];          /* grouped: what the group is made by; otherwise why there is none */
    void *stream; /* of runs that no stream of the caller orders: exec_device_stream; NULL: none was needed yet */
    void *lanes[CARRY_LANES]; /* carried: streams for the work of steps */
    void *scratch;            /* unless mirrored: the plan's scratch memory, on the device */
    char *near;               /* behind it: words of this rank for kernels (enum near_word) */
    struct objects known; /* shared: allocations that the choice of the form has found, until the program has them */
    bool watched;         /* by watcher.c */
    bool polled;          /* the comm counts its run in flight: comm.h */
};

/* The words in device memory: where they are. Kernels look at some all the time while others are written. */
enum near_word {
    NEAR_ARRIVED = 0,
    NEAR_DONE = 128,
    NEAR_COME = 256, /* this one and the next two: replay.h */
    NEAR_GONE = 384,
    NEAR_REPLAYS = 512,
    NEAR_BYTES = 640
};

/* Of a program of such an exec. */
struct program_device {
    uint64_t near;               /* the symbol of its near words */
    struct mirror *mirror;       /* NULL: nothing is mirrored */
    struct objects objects;      /* the allocations of its buffers */
    struct published *published; /* in memory that the launcher reaches; NULL: not any more */
};

/* Are its kernels started by the launcher? */
static inline bool exec_device_shared(const weft_exec *x)
{
    return x->device && x->device->shared;
}

static inline enum exec_form exec_device_form(const weft_exec *x)
{
    return exec_device_shared(x) ? FORM_SHARED : x->device && x->device->group ? FORM_GROUPED : FORM_HOST;
}

/* Has the group of the exec failed, if there is one? */
static inline int exec_device_group_failed(const weft_exec *x)
{
    return x->device->group ? x->device->device->ops->group_health(x->device->group) : 0;
}

/* Collective: a rank has views on a device. Chooses the form and opens what it needs. x->device stays NULL if this rank
 * has nothing to do with a device. *chosen: all ranks know the form, even if this rank has failed since. */
int exec_device_choose(weft_exec *x, const struct sites *s, const weft_view *src, const weft_view *dst,
                       int64_t deadline_ns, bool *chosen);
void exec_device_close(weft_exec *x);

/* Mirrors what is to be mirrored: *src and *dst are the views that the program is made of. */
int exec_device_outline(weft_exec *x, struct program *p, const weft_view **src, const weft_view **dst);
void exec_device_outline_free(weft_exec *x, struct program *p);
/* The memory of the plan's TEMP buffers. */
char *exec_device_scratch(const weft_exec *x);
/* shared: the places become symbols. */
int exec_device_places(const weft_exec *x, struct program *p);
/* mirrored, carried: the moves of the program are known. */
int exec_device_fill(weft_exec *x, struct program *p, const weft_view *src, const weft_view *dst);
/* Streams may share queues of the hardware, where a stream that waits holds up the others. So there are no more than
 * are needed. */
int exec_device_stream(weft_exec *x, void **out);
/* mirrored: before and after a run. */
int exec_device_begin(weft_exec *x);
int exec_device_end(weft_exec *x);
/* Before the memory of the exec is freed, and peers free theirs: waits until its own streams are at rest, and lets go
 * of memory of peers. */
void exec_device_rest(weft_exec *x);
#endif
