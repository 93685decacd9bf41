/* The calls of CUDA's driver library that this module uses. The library is opened at run time, so that the module can
 * be loaded where there is no driver. */
#ifndef WEFT_DEVICE_CUDA_CUDA_DRIVER_H
#define WEFT_DEVICE_CUDA_CUDA_DRIVER_H
#include <cuda.h>

/* The names that cuda.h gives them end in the version that its declarations belong to. */
#define CUDA_CALLS(X)                    \
    X(cuInit)                            \
    X(cuDriverGetVersion)                \
    X(cuGetErrorName)                    \
    X(cuGetErrorString)                  \
    X(cuDeviceGetCount)                  \
    X(cuDeviceGet)                       \
    X(cuDeviceGetName)                   \
    X(cuDeviceGetUuid)                   \
    X(cuDeviceGetAttribute)              \
    X(cuDeviceTotalMem)                  \
    X(cuDevicePrimaryCtxRetain)          \
    X(cuDevicePrimaryCtxRelease)         \
    X(cuCtxGetCurrent)                   \
    X(cuCtxPushCurrent)                  \
    X(cuCtxPopCurrent)                   \
    X(cuModuleLoadData)                  \
    X(cuModuleUnload)                    \
    X(cuModuleGetFunction)               \
    X(cuFuncLoad)                        \
    X(cuFuncGetAttribute)                \
    X(cuLaunchKernelEx)                  \
    X(cuMemAlloc)                        \
    X(cuMemFree)                         \
    X(cuMemsetD8Async)                   \
    X(cuMemcpyAsync)                     \
    X(cuMemGetAddressRange)              \
    X(cuPointerGetAttribute)             \
    X(cuMemHostRegister)                 \
    X(cuMemHostUnregister)               \
    X(cuMemHostGetDevicePointer)         \
    X(cuIpcGetMemHandle)                 \
    X(cuIpcOpenMemHandle)                \
    X(cuIpcCloseMemHandle)               \
    X(cuMemRetainAllocationHandle)       \
    X(cuMemExportToShareableHandle)      \
    X(cuMemImportFromShareableHandle)    \
    X(cuMemRelease)                      \
    X(cuMemAddressReserve)               \
    X(cuMemAddressFree)                  \
    X(cuMemMap)                          \
    X(cuMemUnmap)                        \
    X(cuMemSetAccess)                    \
    X(cuStreamCreate)                    \
    X(cuStreamDestroy)                   \
    X(cuStreamSynchronize)               \
    X(cuStreamQuery)                     \
    X(cuStreamIsCapturing)               \
    X(cuThreadExchangeStreamCaptureMode) \
    X(cuStreamWaitValue32)               \
    X(cuStreamWriteValue32)              \
    X(cuStreamBatchMemOp)                \
    X(cuStreamBeginCapture)              \
    X(cuStreamEndCapture)                \
    X(cuGraphInstantiateWithFlags)       \
    X(cuGraphUpload)                     \
    X(cuGraphLaunch)                     \
    X(cuGraphDestroy)                    \
    X(cuGraphExecDestroy)

#define CUDA_FIELD(name) __typeof__(&name) name;
struct cuda_driver {
    CUDA_CALLS(CUDA_FIELD)
};
#undef CUDA_FIELD

/* The driver, after cuInit; NULL: there is none, and *why says so in a few words. Opened once. */
const struct cuda_driver *cuda_driver(const char **why);
#endif
