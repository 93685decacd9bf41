/* CUDA devices, on the driver API: struct device_ops of weft_cuda.so. Work is done in the primary context of a device,
 * which CUDA's runtime and the frameworks use too. Each call makes it current and then restores what was there. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_nccl.h"
#include "device/cuda/gate.h"
#include "weft.h"

/* kernels.cu, as a fat binary. */
extern const unsigned char cuda_kernels[];
__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl cuda_kernels\n"
        ".hidden cuda_kernels\n"
        "cuda_kernels:\n"
        ".incbin \"" CUDA_FATBIN "\"\n"
        ".previous\n");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_device **devices; /* by their numbers; guarded by the lock */
static int room;

extern const struct device_ops weft_device_ops;

/* ---- devices ---- */

/* What a call does inside the context: `expr` is a CUresult. */
#define CALL(device, what, expr)                 \
    do {                                         \
        struct cuda_device *d = cuda_of(device); \
        bool pushed;                             \
        int e = cuda_enter(d, &pushed);          \
        if (!e) {                                \
            e = cuda_check(d, expr, what);       \
            cuda_leave(d, pushed);               \
        }                                        \
        return e;                                \
    } while (0)

static int count(const char **why)
{
    int n = 0;
    const struct cuda_driver *cu = cuda_driver(why);
    if (!cu)
        return 0;
    if (cu->cuDeviceGetCount(&n) || n == 0)
        *why = "the CUDA driver finds no device";
    return n;
}

static int load_kernel(struct cuda_device *d, const char *which, CUfunction *out)
{
    char name[64];
    snprintf(name, sizeof name, "weft_device_%s", which);
    int e = cuda_check(d, d->cu->cuModuleGetFunction(out, d->module, name), "finding a kernel");
    /* not at its first launch, for which the driver may wait for streams that wait for this one */
    return e ? e : cuda_check(d, d->cu->cuFuncLoad(*out), "loading a kernel");
}

static int load_kernels(struct cuda_device *d)
{
    static const char *const names[DEVICE_KERNELS] = {
        [DEVICE_COPY] = "copy",
        [DEVICE_CAST] = "cast",
        [DEVICE_CAST_ANY] = "cast_any",
        [DEVICE_FOLD] = "fold",
        [DEVICE_FOLD_ANY] = "fold_any",
        [DEVICE_TRANSPOSE] = "transpose",
        [DEVICE_TRANSPOSE_ANY] = "transpose_any",
        [DEVICE_SUM] = "sum",
    };
    static const char *const meets[DEVICE_KERNELS] = {
        [DEVICE_COPY] = "meet_copy",
        [DEVICE_CAST] = "meet_cast",
        [DEVICE_FOLD] = "meet_fold",
    };
    int e = cuda_check(d, d->cu->cuModuleLoadData(&d->module, cuda_kernels), "loading the kernels");
    for (int k = 0; k < DEVICE_KERNELS && !e; k++)
        e = load_kernel(d, names[k], &d->kernels[k]);
    for (int k = 0; k < DEVICE_KERNELS && !e; k++)
        if (meets[k])
            e = load_kernel(d, meets[k], &d->meets[k]);
    e = e ? e : load_kernel(d, "meet_any", &d->meet_any);
    e = e ? e : load_kernel(d, "meet_elements", &d->meet_elements);
    return e ? e : load_kernel(d, "meet", &d->meet);
}

static void device_end(struct cuda_device *d)
{
    bool pushed;
    if (d->context && !cuda_enter(d, &pushed)) {
        cuda_share_close(d);
        cuda_pin_close(d);
        if (d->stream)
            d->cu->cuStreamDestroy(d->stream);
        if (d->module)
            d->cu->cuModuleUnload(d->module);
        cuda_leave(d, pushed);
    }
    if (d->context)
        d->cu->cuDevicePrimaryCtxRelease(d->cuda);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* 0 if the driver does not know the attribute. */
static int attribute(const struct cuda_driver *cu, CUdevice d, CUdevice_attribute which)
{
    int value = 0;
    return cu->cuDeviceGetAttribute(&value, which, d) ? 0 : value;
}

/* Blocks that wait for each other between levels must all be on the device at the same time, beside those of other
 * kernels that wait. A part of a GPU (MIG, or MPS with a share of the threads) has few multiprocessors. */
static uint32_t meet_most(const struct cuda_device *d)
{
    const int most = attribute(d->cu, d->cuda, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) / 4;
    return most < 1 ? 1 : most < MEET_BLOCKS ? (uint32_t)most : MEET_BLOCKS;
}

static int device_begin(struct cuda_device *d, int number)
{
    CUuuid uuid;
    bool pushed;
    int compiled = 0;
    int e = cuda_check(d, d->cu->cuDeviceGet(&d->cuda, number), "finding the device");
    if (!e)
        e = cuda_check(d, d->cu->cuDeviceGetUuid(&uuid, d->cuda), "reading the device's id");
    if (e)
        return e;
    _Static_assert(sizeof uuid == sizeof d->device.id, "an id is a UUID");
    memcpy(d->device.id, &uuid, sizeof uuid);
    e = cuda_check(d, d->cu->cuDevicePrimaryCtxRetain(&d->context, d->cuda), "making a context");
    if (!e)
        e = cuda_enter(d, &pushed);
    if (e)
        return e;
    e = load_kernels(d);
    if (!e)
        e = cuda_check(d, d->cu->cuFuncGetAttribute(&compiled, CU_FUNC_ATTRIBUTE_PTX_VERSION, d->meet),
                       "asking what a kernel was compiled for");
    d->early = compiled >= 90; /* otherwise gate_order does nothing, whatever the device could do */
    d->most = meet_most(d);
    if (!e)
        e = cuda_check(d, d->cu->cuStreamCreate(&d->stream, CU_STREAM_NON_BLOCKING), "making a stream");
    cuda_leave(d, pushed);
    return e;
}

/* A device that has failed stays as it is until the process ends. */
static int open_locked(int number, int (*error)(int code, const char *form, ...), struct cuda_device **out)
{
    const char *why;
    const struct cuda_driver *cu = cuda_driver(&why);
    if (!cu)
        return error(WEFT_EUNSUPPORTED, "CUDA: %s", why);
    if (number >= room) {
        struct cuda_device **more = realloc(devices, ((size_t)number + 1) * sizeof(struct cuda_device *));
        if (!more)
            return error(WEFT_ENOMEM, "out of memory");
        for (devices = more; room <= number; room++)
            devices[room] = NULL;
    }
    if ((*out = devices[number]))
        return 0;
    struct cuda_device *d = calloc(1, sizeof *d);
    if (!d)
        return error(WEFT_ENOMEM, "out of memory");
    d->device = (struct device){.ops = &weft_device_ops, .number = number};
    d->cu = cu;
    d->error = error;
    pthread_mutex_init(&d->lock, NULL);
    *out = devices[number] = d;
    return 0;
}

static int open_device(int number, int (*error)(int code, const char *form, ...), struct device **out)
{
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* others may look for devices meanwhile */
    struct cuda_device *d = NULL;
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    int e = open_locked(number, error, &d);
    pthread_mutex_unlock(&lock);
    if (!e && !d->ready)
        e = device_begin(d, number);
    if (e && d && !d->ready) {
        pthread_mutex_lock(&lock);
        devices[number] = NULL;
        pthread_mutex_unlock(&lock);
        device_end(d);
    }
    if (!e) {
        d->ready = true;
        *out = &d->device;
    }
    pthread_mutex_unlock(&opening);
    return e;
}

/* The device stays open until the process ends: making a context takes 150 ms. */
static void close_device(struct device *device)
{
    (void)device;
}

static int owner(const void *address)
{
    const char *why;
    const struct cuda_driver *cu = cuda_driver(&why);
    int kind = 0, number = -1;
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    if (!cu || cu->cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) || kind != CU_MEMORYTYPE_DEVICE ||
        cu->cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at))
        return -1;
    return number;
}

static bool facts(int number, struct device_facts *out)
{
    const char *why;
    const struct cuda_driver *cu = cuda_driver(&why);
    char name[128] = "?";
    int version = 0;
    size_t bytes = 0;
    CUdevice d;
    *out = (struct device_facts){.mps = false};
    if (!cu || cu->cuDeviceGet(&d, number)) {
        snprintf(out->name, sizeof out->name, "CUDA: %s", cu ? "there is no such device" : why);
        return false;
    }
    cu->cuDeviceGetName(name, sizeof name, d);
    cu->cuDriverGetVersion(&version);
    cu->cuDeviceTotalMem(&bytes, d);
    snprintf(out->name, sizeof out->name, "%s, compute capability %d.%d", name,
             attribute(cu, d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
             attribute(cu, d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    snprintf(out->driver, sizeof out->driver, "for CUDA %d.%d", version / 1000, version % 1000 / 10);
    out->bytes = bytes;
    out->mps = attribute(cu, d, CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
    out->handles = attribute(cu, d, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING); /* what IPC handles of memory need */
    out->descriptors = attribute(cu, d, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    return true;
}

/* ---- memory ---- */

static void *alloc(struct device *device, size_t bytes)
{
    struct cuda_device *d = cuda_of(device);
    CUdeviceptr at = 0;
    bool pushed;
    if (cuda_enter(d, &pushed))
        return NULL;
    int e = cuda_check(d, d->cu->cuMemAlloc(&at, bytes ? bytes : 1), "allocating memory");
    if (!e) {
        e = cuda_check(d, d->cu->cuMemsetD8Async(at, 0, bytes ? bytes : 1, d->stream), "clearing memory");
        if (!e)
            e = cuda_check(d, d->cu->cuStreamSynchronize(d->stream), "clearing memory");
        if (e)
            d->cu->cuMemFree(at);
    }
    cuda_leave(d, pushed);
    return e ? NULL : (void *)(uintptr_t)at;
}

static void free_memory(struct device *device, void *memory)
{
    struct cuda_device *d = cuda_of(device);
    bool pushed;
    if (!memory || cuda_enter(d, &pushed))
        return;
    d->cu->cuMemFree((CUdeviceptr)(uintptr_t)memory);
    cuda_leave(d, pushed);
}

/* ---- streams ---- */

static int stream_open(struct device *device, void **stream)
{
    CUstream *out = (CUstream *)stream;
    CALL(device, "making a stream", d->cu->cuStreamCreate(out, CU_STREAM_NON_BLOCKING));
}

static void stream_close(struct device *device, void *stream)
{
    struct cuda_device *d = cuda_of(device);
    bool pushed;
    if (cuda_enter(d, &pushed))
        return;
    d->cu->cuStreamDestroy(stream);
    cuda_leave(d, pushed);
}

static int stream_sync(struct device *device, void *stream)
{
    CALL(device, "waiting for a stream", d->cu->cuStreamSynchronize(stream));
}

static CUresult query(struct cuda_device *d, void *stream, bool *idle)
{
    CUresult r = d->cu->cuStreamQuery(stream);
    *idle = !r;
    return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
}

static int stream_idle(struct device *device, void *stream, bool *idle)
{
    CALL(device, "asking a stream", query(d, stream, idle));
}

/* The capture of another thread would be broken by a query, if this thread did not say that it means no harm. */
static CUresult query_own(struct cuda_device *d)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool idle;
    CUresult changed = d->cu->cuThreadExchangeStreamCaptureMode(&mode);
    CUresult r = query(d, d->stream, &idle);
    if (!changed)
        d->cu->cuThreadExchangeStreamCaptureMode(&mode);
    return r;
}

static int health(struct device *device)
{
    CALL(device, "asking the device", query_own(d));
}

static CUresult is_capturing(struct cuda_device *d, void *stream, bool *capturing)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r = d->cu->cuStreamIsCapturing(stream, &status);
    *capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
    return r;
}

static int stream_capturing(struct device *device, void *stream, bool *capturing)
{
    CALL(device, "asking a stream", is_capturing(d, stream, capturing));
}

#define BATCH 32 /* words of one call */

static CUresult word_ops(struct cuda_device *d, void *stream, const struct device_word *words, size_t n, bool waits)
{
    CUresult r = CUDA_SUCCESS;
    if (n == 1)
        return waits ? d->cu->cuStreamWaitValue32(stream, words->at, words->value, CU_STREAM_WAIT_VALUE_GEQ)
                     : d->cu->cuStreamWriteValue32(stream, words->at, words->value, CU_STREAM_WRITE_VALUE_DEFAULT);
    for (size_t i = 0; i < n && !r; i += BATCH) {
        CUstreamBatchMemOpParams list[BATCH];
        const size_t k = n - i < BATCH ? n - i : BATCH;
        memset(list, 0, sizeof list);
        for (size_t j = 0; j < k; j++)
            if (waits) {
                list[j].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
                list[j].waitValue.address = words[i + j].at;
                list[j].waitValue.value = words[i + j].value;
                list[j].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
            } else {
                list[j].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
                list[j].writeValue.address = words[i + j].at;
                list[j].writeValue.value = words[i + j].value;
                list[j].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
            }
        r = d->cu->cuStreamBatchMemOp(stream, (unsigned)k, list, 0);
        for (size_t j = 0; j < k && r == CUDA_ERROR_NOT_SUPPORTED; j++) {
            CUresult one = word_ops(d, stream, &words[i + j], 1, waits);
            if (one || j + 1 == k) {
                r = one;
                break;
            }
        }
    }
    return r;
}

static int stream_await(struct device *device, void *stream, const struct device_word *words, size_t n)
{
    CALL(device, "waiting for a word", word_ops(d, stream, words, n, true));
}

static int stream_signal(struct device *device, void *stream, const struct device_word *words, size_t n)
{
    CALL(device, "writing a word", word_ops(d, stream, words, n, false));
}

/* CUDA refuses a copy whose host memory is pinned in part, or by several calls, as happens if rank threads pin pages
 * next to it. Then it is done in pieces. */
static CUresult copy_bytes(struct cuda_device *d, void *stream, uint64_t dst, uint64_t src, size_t bytes)
{
    CUresult r = bytes ? d->cu->cuMemcpyAsync(dst, src, bytes, stream) : CUDA_SUCCESS;
    while (r == CUDA_ERROR_INVALID_VALUE && bytes) {
        const size_t a = cuda_pin_piece(dst, bytes), b = cuda_pin_piece(src, bytes), piece = a < b ? a : b;
        CUresult one = d->cu->cuMemcpyAsync(dst, src, piece, stream);
        if (one)
            return one;
        dst += piece;
        src += piece;
        bytes -= piece;
        r = bytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    return r;
}

static int stream_copy(struct device *device, void *stream, void *dst, const void *src, size_t bytes)
{
    CALL(device, "copying", copy_bytes(d, stream, (uintptr_t)dst, (uintptr_t)src, bytes));
}

static CUresult launch_kernel(struct cuda_device *d, void *stream, CUfunction kernel, uint32_t blocks, void **arguments)
{
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = DEVICE_THREADS,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = stream,
                                   .attrs = &early,
                                   .numAttrs = d->early};
    return d->cu->cuLaunchKernelEx(&config, kernel, arguments, NULL);
}

static int stream_launch(struct device *device, void *stream, uint64_t table, const struct device_launch *l,
                         const struct device_gate *g, uint64_t count)
{
    uint32_t first = l->first, n = l->n, lines = l->lines;
    struct gate_end end = {0};
    void *arguments[] = {&table, &first, &n, &lines, &end};
    if (g)
        end = gate_end_of(g, count);
    CALL(device, "launching a kernel", launch_kernel(d, stream, d->kernels[l->kernel], l->blocks, arguments));
}

static CUfunction meet_kernel(const struct cuda_device *d, const struct device_work *work)
{
    if (!work || !work->n)
        return d->meet;
    for (size_t i = 0; i < work->n; i++)
        if (!d->meets[work->launches[i].kernel])
            return d->meet_elements;
    return work->n == 1 ? d->meets[work->launches->kernel] : d->meet_any;
}

static int stream_meet(struct device *device, void *stream, const struct device_gate *g, const struct device_work *work)
{
    struct gate gate = {.late = g->late,
                        .come = g->come,
                        .awaited = g->awaited,
                        .end = gate_end_of(g, work ? work->count : 0),
                        .shown = g->shown};
    uint64_t table = work ? work->table : 0;
    uint32_t blocks = 1;
    void *arguments[] = {&table, &gate};
    const struct cuda_device *own = cuda_of(device);
    CUfunction kernel = meet_kernel(own, work);
    if (work) {
        gate.n = (uint32_t)work->n;
        for (size_t i = 0; i < work->n; i++) {
            gate.launches[i] = work->launches[i];
            blocks = work->launches[i].blocks > blocks ? work->launches[i].blocks : blocks;
        }
    }
    blocks = blocks < own->most ? blocks : own->most;
    CALL(device, "launching a kernel", launch_kernel(d, stream, kernel, blocks, arguments));
}

/* ---- recordings: graphs ---- */

static int stream_record(struct device *device, void *stream)
{
    /* relaxed: what other threads do meanwhile does not matter */
    CALL(device, "recording", d->cu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

/* The graph is brought to the device now: its first launch may come while streams wait. */
static CUresult make_graph(struct cuda_device *d, void *stream, CUgraphExec *out)
{
    CUgraph graph = NULL;
    CUresult r = d->cu->cuStreamEndCapture(stream, &graph);
    if (!r)
        r = d->cu->cuGraphInstantiateWithFlags(out, graph, 0);
    if (graph)
        d->cu->cuGraphDestroy(graph);
    if (r)
        return r;
    r = d->cu->cuGraphUpload(*out, stream);
    if (!r)
        r = d->cu->cuStreamSynchronize(stream);
    if (r)
        d->cu->cuGraphExecDestroy(*out);
    return r;
}

static int stream_recorded(struct device *device, void *stream, void **recording)
{
    CALL(device, "making a graph", make_graph(d, stream, (CUgraphExec *)recording));
}

static int stream_replay(struct device *device, void *recording, void *stream)
{
    CALL(device, "launching a graph", d->cu->cuGraphLaunch(recording, stream));
}

static void forget(struct device *device, void *recording)
{
    struct cuda_device *d = cuda_of(device);
    bool pushed;
    if (!recording || cuda_enter(d, &pushed))
        return;
    d->cu->cuGraphExecDestroy(recording);
    cuda_leave(d, pushed);
}

__attribute__((visibility("default"))) const struct device_ops weft_device_ops = {
    .abi = DEVICE_ABI,
    .name = "cuda",
    .count = count,
    .open = open_device,
    .close = close_device,
    .owner = owner,
    .facts = facts,
    .alloc = alloc,
    .free = free_memory,
    .share = cuda_share,
    .map = cuda_share_map,
    .unmap = cuda_share_unmap,
    .pin = cuda_pin,
    .pin_read = cuda_pin_read,
    .unpin = cuda_pin_undo,
    .health = health,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .sync = stream_sync,
    .idle = stream_idle,
    .capturing = stream_capturing,
    .await = stream_await,
    .signal = stream_signal,
    .meet = stream_meet,
    .copy = stream_copy,
    .launch = stream_launch,
    .record = stream_record,
    .recorded = stream_recorded,
    .replay = stream_replay,
    .forget = forget,
    .group_name = cuda_nccl_name,
    .group_id = cuda_nccl_id,
    .group_join = cuda_nccl_join,
    .group_move = cuda_nccl_move,
    .group_health = cuda_nccl_health,
    .group_abort = cuda_nccl_abort,
    .group_leave = cuda_nccl_leave,
};
