/* The context of a device as a thread's current one, and what CUDA's errors mean. */
#include <stdio.h>

#include "device/cuda/cuda_device.h"
#include "weft.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the text of a device that fails */

/* After these no call of the context succeeds any more. */
static bool is_sticky(CUresult r)
{
    switch ((int)r) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_SERVER_NOT_READY:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE: return true;
    default: return false;
    }
}

static int report_failed(struct cuda_device *d)
{
    return d->error(WEFT_ETRANSPORT, "%s", d->text);
}

int cuda_check(struct cuda_device *d, CUresult r, const char *what)
{
    const char *text = NULL;
    if (!r)
        return 0;
    d->cu->cuGetErrorString(r, &text);
    text = text ? text : "an unknown error";
    if (is_sticky(r)) {
        pthread_mutex_lock(&lock);
        if (!atomic_load_explicit(&d->failed, memory_order_relaxed)) {
            snprintf(
                d->text, sizeof d->text,
                "CUDA device %d has failed: %s (%s). No work of this process on the device can go on, and under MPS "
                "a failure of another process does the same: restart the process",
                d->device.number, text, what);
            /* pairs with the load in cuda_enter: a thread that sees it sees the text */
            atomic_store_explicit(&d->failed, true, memory_order_release);
        }
        pthread_mutex_unlock(&lock);
        return report_failed(d);
    }
    return d->error(r == CUDA_ERROR_OUT_OF_MEMORY ? WEFT_ENOMEM : WEFT_ETRANSPORT, "CUDA device %d: %s: %s",
                    d->device.number, what, text);
}

int cuda_enter(struct cuda_device *d, bool *pushed)
{
    CUcontext now = NULL;
    *pushed = false;
    if (atomic_load_explicit(&d->failed, memory_order_acquire))
        return report_failed(d);
    d->cu->cuCtxGetCurrent(&now);
    if (now == d->context)
        return 0;
    int e = cuda_check(d, d->cu->cuCtxPushCurrent(d->context), "making the context current");
    *pushed = !e;
    return e;
}

void cuda_leave(struct cuda_device *d, bool pushed)
{
    CUcontext old;
    if (pushed)
        d->cu->cuCtxPopCurrent(&old);
}
