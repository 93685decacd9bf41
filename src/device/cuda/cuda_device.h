/* One CUDA device as this process uses it, for the files of the module. */
#ifndef WEFT_DEVICE_CUDA_CUDA_DEVICE_H
#define WEFT_DEVICE_CUDA_CUDA_DEVICE_H
#include <pthread.h>
#include <stdatomic.h>

#include "device/cuda/cuda_driver.h"
#include "device/device.h"
#include "device/device_table.h"

struct cuda_pin;
struct cuda_map;
struct cuda_export;

struct cuda_device {
    struct device device;
    const struct cuda_driver *cu;
    bool ready; /* it has been opened */
    int (*error)(int code, const char *form, ...);
    CUdevice cuda;
    CUcontext context; /* the primary one, which the runtime and frameworks use too */
    CUmodule module;
    CUfunction kernels[DEVICE_KERNELS];
    CUfunction meets[DEVICE_KERNELS], meet_any, meet; /* with one launch, with several, without any */
    CUfunction meet_elements;                         /* with launches that take single elements */
    CUstream stream;                                  /* for what is done at once */
    unsigned early;     /* 1: a kernel may come to the multiprocessors while the one before it ends: gate_order */
    uint32_t most;      /* blocks of a kernel whose blocks wait: meet_most */
    atomic_bool failed; /* the context is lost: `text` says why, and was written before */
    char text[512];
    pthread_mutex_t lock; /* of what follows */
    struct cuda_pin *pins;
    struct cuda_map *maps;
    struct cuda_export *exports;
    int64_t swept_ns; /* when those of memory that is gone were last looked for */
};

static inline struct cuda_device *cuda_of(struct device *d)
{
    return (struct cuda_device *)d; /* it is the first field */
}

/* ---- cuda_context.c ----
 * Prefix of cuda_context.c: cuda_. */

/* Makes the device's context the thread's current one until cuda_leave, which restores what was there. An error if the
 * device has failed. */
int cuda_enter(struct cuda_device *d, bool *pushed);
void cuda_leave(struct cuda_device *d, bool pushed);
/* 0, or the error that the result of the call `what` is, with its text. */
int cuda_check(struct cuda_device *d, CUresult r, const char *what);

/* ---- cuda_share.c, cuda_pin.c: the calls of struct device_ops ---- */

int cuda_share(struct device *d, const void *memory, struct device_share *out);
int cuda_share_map(struct device *d, const struct device_share *share, void **base);
void cuda_share_unmap(struct device *d, void *base);
void cuda_share_close(struct cuda_device *d); /* the context is entered */

int cuda_pin(struct device *d, void *host, size_t bytes, uint64_t *at);
int cuda_pin_read(struct device *d, void *host, size_t bytes, uint64_t *at);
void cuda_pin_undo(struct device *d, void *host);
/* How many of the bytes from `at` on are all pinned by one region, or all by none. */
size_t cuda_pin_piece(uint64_t at, size_t bytes);
void cuda_pin_close(struct cuda_device *d); /* the context is entered */
#endif
