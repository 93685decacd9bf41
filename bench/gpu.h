/* What the programs that measure on a GPU share: the driver, which is opened when it is run, and medians. */
#ifndef WEFT_BENCH_GPU_H
#define WEFT_BENCH_GPU_H
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <weft.h>

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

static void must(int err)
{
    if (err)
        stop("weft", weft_errmsg());
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_size);
    return v[n / 2];
}

/* ---- the driver ---- */

static struct {
    int (*init)(unsigned flags);
    int (*device)(int *out, int number);
    int (*retain)(void **context, int device);
    int (*current)(void *context);
    int (*stream)(void **out, unsigned flags);
    int (*sync)(void *stream);
    int (*copy)(uintptr_t dst, uintptr_t src, size_t bytes, void *stream);
    int (*capture)(void *stream, int mode);
    int (*captured)(void *stream, void **graph);
    int (*instantiate)(void **launchable, void *graph, unsigned long long flags);
    int (*launch)(void *launchable, void *stream);
    int (*free_launchable)(void *launchable);
    int (*free_graph)(void *graph);
} cuda;

static void *find(void *library, const char *name)
{
    void *f = dlsym(library, name);
    if (!f)
        stop("libcuda.so.1", name);
    return f;
}

static void check(int code, const char *call)
{
    char text[32];
    snprintf(text, sizeof text, "error %d", code);
    if (code)
        stop(call, text);
}

static void cuda_open(void)
{
    void *l = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!l)
        stop("libcuda.so.1", dlerror());
    *(void **)&cuda.init = find(l, "cuInit");
    *(void **)&cuda.device = find(l, "cuDeviceGet");
    *(void **)&cuda.retain = find(l, "cuDevicePrimaryCtxRetain");
    *(void **)&cuda.current = find(l, "cuCtxSetCurrent");
    *(void **)&cuda.stream = find(l, "cuStreamCreate");
    *(void **)&cuda.sync = find(l, "cuStreamSynchronize");
    *(void **)&cuda.copy = find(l, "cuMemcpyDtoDAsync_v2");
    *(void **)&cuda.capture = find(l, "cuStreamBeginCapture_v2");
    *(void **)&cuda.captured = find(l, "cuStreamEndCapture");
    *(void **)&cuda.instantiate = find(l, "cuGraphInstantiateWithFlags");
    *(void **)&cuda.launch = find(l, "cuGraphLaunch");
    *(void **)&cuda.free_launchable = find(l, "cuGraphExecDestroy");
    *(void **)&cuda.free_graph = find(l, "cuGraphDestroy");
    int device;
    void *context;
    check(cuda.init(0), "cuInit");
    check(cuda.device(&device, 0), "cuDeviceGet");
    check(cuda.retain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuda.current(context), "cuCtxSetCurrent");
}
#endif
