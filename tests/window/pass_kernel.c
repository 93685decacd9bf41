#define _GNU_SOURCE
#include "pass_kernel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "support/simulated.h"

/* ---- the simulated device ---- */

static void pass_on(struct sim_view *view, void *arg)
{
    const struct pass_kernel *k = arg;
    const struct sim_calls *calls = simulated_calls();
    _Atomic uint64_t *waits = calls->at(view, k->waits, sizeof *waits), *tells = calls->at(view, k->tells, 8);
    while (atomic_load_explicit(waits, memory_order_acquire) < k->value)
        usleep(50);
    float *to = calls->at(view, k->to, sizeof *to);
    *to = k->x;
    atomic_store_explicit(tells, k->value, memory_order_release);
}

/* ---- CUDA ---- */

static const char text[] = ".version 7.0\n"
                           ".target sm_70\n"
                           ".address_size 64\n"
                           ".visible .entry pass_on(.param .u64 waits, .param .u64 to, .param .u64 tells,\n"
                           "                        .param .u64 value, .param .f32 number)\n"
                           "{\n"
                           "    .reg .u64 %w, %t, %s, %v, %n;\n"
                           "    .reg .f32 %x;\n"
                           "    .reg .pred %less;\n"
                           "    ld.param.u64 %w, [waits];\n"
                           "    ld.param.u64 %t, [to];\n"
                           "    ld.param.u64 %s, [tells];\n"
                           "    ld.param.u64 %v, [value];\n"
                           "    ld.param.f32 %x, [number];\n"
                           "LOOK:\n"
                           "    ld.acquire.sys.global.u64 %n, [%w];\n"
                           "    setp.lt.u64 %less, %n, %v;\n"
                           "    @%less bra LOOK;\n"
                           "    st.global.f32 [%t], %x;\n"
                           "    fence.acq_rel.sys;\n"
                           "    st.release.sys.global.u64 [%s], %v;\n"
                           "    ret;\n"
                           "}\n";

static struct {
    int (*retain)(void **context, int device);
    int (*set)(void *context);
    int (*load)(void **module, const void *text);
    int (*find)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *stream,
                  void **arguments, void **extra);
    void *context, *kernel;
} cuda;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *call(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

/* The context is the one that weft uses: the device's primary one. */
static void make_kernel(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *module = NULL;
    *(void **)&cuda.retain = call(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&cuda.set = call(driver, "cuCtxSetCurrent");
    *(void **)&cuda.load = call(driver, "cuModuleLoadData");
    *(void **)&cuda.find = call(driver, "cuModuleGetFunction");
    *(void **)&cuda.launch = call(driver, "cuLaunchKernel");
    if (!cuda.retain || !cuda.set || !cuda.load || !cuda.find || !cuda.launch || cuda.retain(&cuda.context, 0) ||
        cuda.set(cuda.context) || cuda.load(&module, text) || cuda.find(&cuda.kernel, module, "pass_on"))
        cuda.kernel = NULL;
}

static int queue_cuda(void *stream, struct pass_kernel *k)
{
    void *arguments[] = {&k->waits, &k->to, &k->tells, &k->value, &k->x};
    pthread_once(&once, make_kernel);
    if (!cuda.kernel)
        return error_set(WEFT_ETRANSPORT, "the kernel of the test cannot be loaded");
    int code = cuda.set(cuda.context);
    code = code ? code : cuda.launch(cuda.kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
    return code ? error_set(WEFT_ETRANSPORT, "the kernel of the test cannot be started: CUDA error %d", code) : 0;
}

int pass_kernel_queue(struct device *d, void *stream, struct pass_kernel *k)
{
    return strcmp(d->ops->name, "sim") ? queue_cuda(stream, k) : simulated_calls()->kernel(d, stream, pass_on, k);
}
