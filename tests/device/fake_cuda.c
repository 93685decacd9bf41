/* A libcuda.so.1 for tests of the CUDA module where there is no GPU: one device, whose memory is the host's. Streams do
 * at once what is queued on them. It keeps the rules that the module has to know: a page is registered once, a handle
 * is not opened by the process that made it, and most calls need a current context. */
#include <cuda.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device/body.h"
#include "device/cuda/gate.h"

#define CALL __attribute__((visibility("default"))) CUresult CUDAAPI
#define MOST 256           /* allocations and registrations */
#define MULTIPROCESSORS 16 /* as a small part of a GPU has */

static struct {
    uintptr_t at;
    size_t bytes;
} allocations[MOST], registered[MOST];
static _Thread_local CUcontext stack[8];
static _Thread_local int depth;

static int find(uintptr_t at)
{
    for (int i = 0; i < MOST; i++)
        if (allocations[i].bytes && at - allocations[i].at < allocations[i].bytes)
            return i;
    return -1;
}

static bool entered(void)
{
    return depth > 0;
}

#define NEEDS_CONTEXT \
    if (!entered())   \
    return CUDA_ERROR_INVALID_CONTEXT

CALL cuInit(unsigned flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CALL cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_SUCCESS;
}
CALL cuGetErrorName(CUresult r, const char **text)
{
    *text = r ? "FAKE_ERROR" : "FAKE_SUCCESS";
    return CUDA_SUCCESS;
}
CALL cuGetErrorString(CUresult r, const char **text)
{
    static _Thread_local char line[] = "fake error 0000";
    for (int i = 0, v = (int)r; i < 4; i++, v /= 10)
        line[14 - i] = (char)('0' + v % 10);
    *text = line;
    return CUDA_SUCCESS;
}
CALL cuDeviceGetCount(int *n)
{
    *n = 1;
    return CUDA_SUCCESS;
}
CALL cuDeviceGet(CUdevice *d, int number)
{
    *d = number;
    return number ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
CALL cuDeviceGetName(char *name, int cap, CUdevice d)
{
    (void)d;
    strncpy(name, "fake", (size_t)cap);
    return CUDA_SUCCESS;
}
CALL cuDeviceGetUuid(CUuuid *id, CUdevice d)
{
    memset(id, 7 + d, sizeof *id);
    return CUDA_SUCCESS;
}
CALL cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice d)
{
    *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? MULTIPROCESSORS : 9 + d;
    return CUDA_SUCCESS;
}
CALL cuDeviceTotalMem(size_t *bytes, CUdevice d)
{
    *bytes = ((size_t)1 << 30) + (size_t)d;
    return CUDA_SUCCESS;
}
CALL cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    static char context;
    (void)d;
    *c = (CUcontext)&context;
    return CUDA_SUCCESS;
}
CALL cuDevicePrimaryCtxRelease(CUdevice d)
{
    return d ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
CALL cuCtxGetCurrent(CUcontext *c)
{
    *c = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}
CALL cuCtxPushCurrent(CUcontext c)
{
    stack[depth++] = c;
    return CUDA_SUCCESS;
}
CALL cuCtxPopCurrent(CUcontext *c)
{
    NEEDS_CONTEXT;
    *c = stack[--depth];
    return CUDA_SUCCESS;
}
CALL cuModuleLoadData(CUmodule *m, const void *image)
{
    uint32_t magic;
    NEEDS_CONTEXT;
    memcpy(&magic, image, sizeof magic);
    *m = (CUmodule)(uintptr_t)image;
    return magic == 0xba55ed50 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE; /* a fat binary */
}
CALL cuModuleUnload(CUmodule m)
{
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
/* Functions: a kernel's number and 1, and one for all that have a gate. */
enum { MEET = 100 };

CALL cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    static const char *const names[DEVICE_KERNELS] = {"copy",     "cast",      "cast_any",      "fold",
                                                      "fold_any", "transpose", "transpose_any", "sum"};
    (void)m;
    if (!strncmp(name, "weft_device_meet", 16)) {
        *f = (CUfunction)(uintptr_t)MEET;
        return CUDA_SUCCESS;
    }
    for (int k = 0; k < DEVICE_KERNELS; k++)
        if (!strncmp(name, "weft_device_", 12) && !strcmp(name + 12, names[k])) {
            *f = (CUfunction)(uintptr_t)(k + 1);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}
CALL cuFuncLoad(CUfunction f)
{
    NEEDS_CONTEXT;
    return f ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
/* The kernels are compiled for an architecture whose launches may not begin early. */
CALL cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction f)
{
    NEEDS_CONTEXT;
    *value = 80;
    return f && which == CU_FUNC_ATTRIBUTE_PTX_VERSION ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static uint32_t *near_word(const struct device_words *w, uint32_t i)
{
    return (uint32_t *)(uintptr_t)(w->near + (w->list ? ((const uint64_t *)(uintptr_t)w->list)[i] : 0));
}
static uint32_t *host_word(const struct device_words *w, uint32_t i)
{
    return (uint32_t *)(uintptr_t)(w->at + (uint64_t)i * w->stride);
}
static void write_words(const struct device_words *w, uint32_t base)
{
    for (uint32_t i = 0; i < w->hosts; i++)
        *host_word(w, i) = w->value + base;
    for (uint32_t i = 0; i < w->n; i++)
        *near_word(w, i) = w->value + base;
}
/* Nobody else works while a kernel runs here, so a word that is not there yet never comes. */
static bool words_are_there(const struct device_words *w, uint32_t base)
{
    for (uint32_t i = 0; i < w->n; i++)
        if ((int32_t)(*near_word(w, i) - w->value - base) < 0 &&
            (int32_t)(*host_word(w, i) - w->host_value - (w->host_counts ? base : 0)) < 0)
            return false;
    return true;
}
static uint32_t base_of(const struct gate_end *e)
{
    return e->counter ? *(const uint32_t *)(uintptr_t)e->counter : 0;
}
static void tell(const struct gate_end *e)
{
    write_words(&e->told, base_of(e));
    if (e->counts)
        ++*(uint32_t *)(uintptr_t)e->counter;
}
static void run_blocks(uint64_t table, const struct device_launch *l)
{
    for (uint32_t block = 0; block < l->blocks; block++)
        device_body_block((const void *)(uintptr_t)table, l, block);
}

/* A graph keeps its launches: kernel, blocks and arguments, as long as those of this module are. */
struct CUgraph_st {
    struct {
        CUfunction kernel;
        uint32_t blocks;
        uint64_t table;
        uint32_t numbers[3];
        struct gate_end end;
        struct gate gate;
    } launches[8];
    int n;
    CUstream stream;
};
static struct CUgraph_st *recording;

static CUresult record(const CUlaunchConfig *c, CUfunction f, void **arguments)
{
    const int i = recording->n++;
    if (i == 8)
        return CUDA_ERROR_OUT_OF_MEMORY;
    recording->launches[i].kernel = f;
    recording->launches[i].blocks = c->gridDimX;
    memcpy(&recording->launches[i].table, arguments[0], sizeof recording->launches[i].table);
    if ((uintptr_t)f == MEET) {
        recording->launches[i].gate = *(const struct gate *)arguments[1];
        return CUDA_SUCCESS;
    }
    for (int k = 0; k < 3; k++)
        memcpy(&recording->launches[i].numbers[k], arguments[k + 1], sizeof *recording->launches[i].numbers);
    recording->launches[i].end = *(const struct gate_end *)arguments[4];
    return CUDA_SUCCESS;
}

CALL cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **arguments, void **extra)
{
    NEEDS_CONTEXT;
    if (c->gridDimY * c->gridDimZ * c->blockDimY * c->blockDimZ != 1 || c->blockDimX != DEVICE_THREADS ||
        c->sharedMemBytes || extra || !c->hStream || c->numAttrs)
        return CUDA_ERROR_INVALID_VALUE;
    if (recording && recording->stream == c->hStream)
        return record(c, f, arguments);
    uint64_t table;
    memcpy(&table, arguments[0], sizeof table);
    if ((uintptr_t)f != MEET) {
        struct device_launch l = {.kernel = (uint32_t)(uintptr_t)f - 1, .blocks = c->gridDimX};
        const struct gate_end *end = arguments[4];
        memcpy(&l.first, arguments[1], sizeof l.first);
        memcpy(&l.n, arguments[2], sizeof l.n);
        run_blocks(table, &l);
        if (end->count)
            tell(end);
        return CUDA_SUCCESS;
    }
    const struct gate *gate = arguments[1];
    if (c->gridDimX > MULTIPROCESSORS / 4) /* all blocks must have a place, beside other kernels that wait */
        return CUDA_ERROR_INVALID_VALUE;
    write_words(&gate->come, base_of(&gate->end));
    if (!words_are_there(&gate->awaited, base_of(&gate->end)))
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    for (int i = 0; i < 2 && gate->shown; i++)
        ((uint32_t *)(uintptr_t)gate->late)[i] = gate->come.value + base_of(&gate->end);
    for (uint32_t i = 0; i < gate->n; i++)
        run_blocks(table, &gate->launches[i]);
    tell(&gate->end);
    return CUDA_SUCCESS;
}
CALL cuMemAlloc(CUdeviceptr *at, size_t bytes)
{
    NEEDS_CONTEXT;
    for (int i = 0; i < MOST; i++)
        if (!allocations[i].bytes) {
            void *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
            if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
            memset(p, 0xa5, bytes);
            allocations[i].at = *at = (CUdeviceptr)(uintptr_t)p;
            allocations[i].bytes = bytes;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_OUT_OF_MEMORY;
}
CALL cuMemFree(CUdeviceptr at)
{
    NEEDS_CONTEXT;
    int i = find((uintptr_t)at);
    if (i < 0 || allocations[i].at != at)
        return CUDA_ERROR_INVALID_VALUE;
    allocations[i].bytes = 0;
    free((void *)(uintptr_t)at);
    return CUDA_SUCCESS;
}
CALL cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t n, CUstream s)
{
    NEEDS_CONTEXT;
    memset((void *)(uintptr_t)at, value, n);
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
    NEEDS_CONTEXT;
    memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, n);
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
    int i = find((uintptr_t)at);
    if (i < 0)
        return CUDA_ERROR_NOT_FOUND;
    *base = allocations[i].at;
    *bytes = allocations[i].bytes;
    return CUDA_SUCCESS;
}
CALL cuPointerGetAttribute(void *out, CUpointer_attribute which, CUdeviceptr at)
{
    int i = find((uintptr_t)at);
    if (i < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (which == CU_POINTER_ATTRIBUTE_BUFFER_ID)
        *(unsigned long long *)out = (unsigned long long)i + 1;
    else
        *(int *)out = which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? (int)CU_MEMORYTYPE_DEVICE : 0;
    return CUDA_SUCCESS;
}
CALL cuMemHostRegister(void *p, size_t bytes, unsigned flags)
{
    int room = -1;
    NEEDS_CONTEXT;
    (void)flags;
    for (int i = 0; i < MOST; i++) {
        if (!registered[i].bytes)
            room = i;
        else if ((uintptr_t)p < registered[i].at + registered[i].bytes && registered[i].at < (uintptr_t)p + bytes)
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (room < 0 || (uintptr_t)p % 4096 || bytes % 4096)
        return CUDA_ERROR_INVALID_VALUE;
    registered[room].at = (uintptr_t)p;
    registered[room].bytes = bytes;
    return CUDA_SUCCESS;
}
CALL cuMemHostUnregister(void *p)
{
    for (int i = 0; i < MOST; i++)
        if (registered[i].bytes && registered[i].at == (uintptr_t)p) {
            registered[i].bytes = 0;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
CALL cuMemHostGetDevicePointer(CUdeviceptr *at, void *p, unsigned flags)
{
    for (int i = 0; i < MOST && !flags; i++)
        if (registered[i].bytes && (uintptr_t)p - registered[i].at < registered[i].bytes) {
            *at = (CUdeviceptr)(uintptr_t)p;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}
CALL cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr at)
{
    NEEDS_CONTEXT;
    memset(h, 0, sizeof *h);
    memcpy(h, &at, sizeof at);
    return CUDA_SUCCESS;
}
CALL cuIpcOpenMemHandle(CUdeviceptr *at, CUipcMemHandle h, unsigned flags)
{
    (void)h;
    (void)flags;
    *at = 0;
    return CUDA_ERROR_INVALID_CONTEXT;
}
CALL cuIpcCloseMemHandle(CUdeviceptr at)
{
    return at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuStreamCreate(CUstream *s, unsigned flags)
{
    NEEDS_CONTEXT;
    *s = malloc(1);
    return flags == CU_STREAM_NON_BLOCKING && *s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuStreamDestroy(CUstream s)
{
    free(s);
    return CUDA_SUCCESS;
}
CALL cuStreamSynchronize(CUstream s)
{
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuStreamQuery(CUstream s)
{
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode)
{
    NEEDS_CONTEXT;
    if (!s || recording || mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    recording = calloc(1, sizeof *recording);
    recording->stream = s;
    return CUDA_SUCCESS;
}
CALL cuStreamEndCapture(CUstream s, CUgraph *out)
{
    NEEDS_CONTEXT;
    if (!recording || recording->stream != s)
        return CUDA_ERROR_INVALID_VALUE;
    *out = recording;
    recording = NULL;
    return CUDA_SUCCESS;
}
CALL cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
    NEEDS_CONTEXT;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUgraph_st *copy = malloc(sizeof *copy);
    *copy = *g;
    *out = (CUgraphExec)(void *)copy;
    return CUDA_SUCCESS;
}
CALL cuGraphUpload(CUgraphExec g, CUstream s)
{
    NEEDS_CONTEXT;
    return g && s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuGraphLaunch(CUgraphExec graph, CUstream s)
{
    NEEDS_CONTEXT;
    struct CUgraph_st *g = (struct CUgraph_st *)(void *)graph;
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < g->n && !r; i++) {
        const CUlaunchConfig c = {g->launches[i].blocks, 1, 1, DEVICE_THREADS, 1, 1, 0, s, NULL, 0};
        void *meets[] = {&g->launches[i].table, &g->launches[i].gate};
        void *works[] = {&g->launches[i].table, &g->launches[i].numbers[0], &g->launches[i].numbers[1],
                         &g->launches[i].numbers[2], &g->launches[i].end};
        r = cuLaunchKernelEx(&c, g->launches[i].kernel, (uintptr_t)g->launches[i].kernel == MEET ? meets : works, NULL);
    }
    return r;
}
CALL cuGraphDestroy(CUgraph g)
{
    free(g);
    return CUDA_SUCCESS;
}
CALL cuGraphExecDestroy(CUgraphExec g)
{
    NEEDS_CONTEXT;
    free(g);
    return CUDA_SUCCESS;
}
CALL cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status)
{
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    static __thread CUstreamCaptureMode now = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUstreamCaptureMode old = now;
    now = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
/* The word must be there already: this stream cannot wait. */
CALL cuStreamWaitValue32(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned flags)
{
    const uint32_t now = *(volatile uint32_t *)(uintptr_t)at;
    if (!s || flags != CU_STREAM_WAIT_VALUE_GEQ)
        return CUDA_ERROR_INVALID_VALUE;
    return (int32_t)(now - value) >= 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}
static bool reached(CUdeviceptr at)
{
    bool found = false;
    for (int i = 0; i < MOST && !found; i++)
        found = at - registered[i].at < registered[i].bytes || at - allocations[i].at < allocations[i].bytes;
    return found;
}
CALL cuStreamWriteValue32(CUstream s, CUdeviceptr at, cuuint32_t value, unsigned flags)
{
    if (!reached(at))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    *(volatile uint32_t *)(uintptr_t)at = value;
    return s && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuStreamBatchMemOp(CUstream s, unsigned n, CUstreamBatchMemOpParams *list, unsigned flags)
{
    CUresult r = flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (unsigned i = 0; i < n && !r; i++)
        if (list[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32)
            r = cuStreamWaitValue32(s, list[i].waitValue.address, list[i].waitValue.value, list[i].waitValue.flags);
        else
            r = cuStreamWriteValue32(s, list[i].writeValue.address, list[i].writeValue.value, list[i].writeValue.flags);
    return r;
}

/* Memory as files: this device has none. */
CALL cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *h, void *p)
{
    *h = 0;
    return p ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}
CALL cuMemExportToShareableHandle(void *fd, CUmemGenericAllocationHandle h, CUmemAllocationHandleType t,
                                  unsigned long long flags)
{
    return fd && h && t && !flags ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}
CALL cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *fd, CUmemAllocationHandleType t)
{
    *h = 0;
    return fd && t ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}
CALL cuMemRelease(CUmemGenericAllocationHandle h)
{
    return h ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuMemAddressReserve(CUdeviceptr *at, size_t n, size_t align, CUdeviceptr hint, unsigned long long flags)
{
    *at = hint;
    return n && !align && !flags ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}
CALL cuMemAddressFree(CUdeviceptr at, size_t n)
{
    return at && n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuMemMap(CUdeviceptr at, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
    return at && n && !offset && h && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuMemUnmap(CUdeviceptr at, size_t n)
{
    return at && n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CALL cuMemSetAccess(CUdeviceptr at, size_t n, const CUmemAccessDesc *d, size_t count)
{
    return at && n && d && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
