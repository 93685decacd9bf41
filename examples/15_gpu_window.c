/* A window on a GPU, whose kernels signal a peer. Ranks are processes that share the GPU:
 *
 *   weft run -n 2 build/examples/15_gpu_window
 *   WEFT_DEVICE=sim weft run -n 2 build/examples/15_gpu_window      without a GPU
 *
 * In each step a kernel of this rank stores a number into the window of the next rank, in the memory of the GPU, and
 * then sets a signal there. The host of the next rank waits for the signal, and reads the number. No rank tells the
 * host of another one anything.
 *
 * The kernel is in PTX, so that the program is built without CUDA. The simulated device has no kernels of a program's
 * own: there the host puts and notifies, which peers cannot tell from a kernel. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft.h>

#define STEPS 100

/* Stores first, then the signal, with release at system scope: those that see the signal see the number. */
static const char kernel_text[] = ".version 7.0\n"
                                  ".target sm_70\n"
                                  ".address_size 64\n"
                                  ".visible .entry tell(.param .u64 to, .param .f32 x, .param .u64 signal,\n"
                                  "                     .param .u64 value)\n"
                                  "{\n"
                                  "    .reg .u64 %a, %s, %v;\n"
                                  "    .reg .f32 %x;\n"
                                  "    ld.param.u64 %a, [to];\n"
                                  "    ld.param.f32 %x, [x];\n"
                                  "    ld.param.u64 %s, [signal];\n"
                                  "    ld.param.u64 %v, [value];\n"
                                  "    st.global.f32 [%a], %x;\n"
                                  "    fence.acq_rel.sys;\n"
                                  "    st.release.sys.global.u64 [%s], %v;\n"
                                  "    ret;\n"
                                  "}\n";

static void must(int err)
{
    if (err) {
        fprintf(stderr, "gpu_window: %s\n", weft_errmsg());
        exit(1);
    }
}

/* ---- the CUDA driver, of which this program needs a few calls ---- */

static struct {
    int (*init)(unsigned);
    int (*retain)(void **context, int device);
    int (*set)(void *context);
    int (*load)(void **module, const void *text);
    int (*find)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *stream,
                  void **arguments, void **extra);
    int (*synchronize)(void);
} cuda;

static void must_cuda(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "gpu_window: %s: CUDA error %d\n", what, code);
        exit(1);
    }
}

static void find_call(void *library, const char *name, void *call, size_t bytes)
{
    void *at = library ? dlsym(library, name) : NULL;
    if (!at) {
        fprintf(stderr, "gpu_window: the CUDA driver has no %s\n", name);
        exit(1);
    }
    memcpy(call, &at, bytes);
}

static void *make_kernel(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context, *module, *kernel;
    find_call(library, "cuInit", &cuda.init, sizeof cuda.init);
    find_call(library, "cuDevicePrimaryCtxRetain", &cuda.retain, sizeof cuda.retain);
    find_call(library, "cuCtxSetCurrent", &cuda.set, sizeof cuda.set);
    find_call(library, "cuModuleLoadData", &cuda.load, sizeof cuda.load);
    find_call(library, "cuModuleGetFunction", &cuda.find, sizeof cuda.find);
    find_call(library, "cuLaunchKernel", &cuda.launch, sizeof cuda.launch);
    find_call(library, "cuCtxSynchronize", &cuda.synchronize, sizeof cuda.synchronize);
    must_cuda(cuda.init(0), "cuInit");
    must_cuda(cuda.retain(&context, 0), "cuDevicePrimaryCtxRetain");
    must_cuda(cuda.set(context), "cuCtxSetCurrent");
    must_cuda(cuda.load(&module, kernel_text), "cuModuleLoadData");
    must_cuda(cuda.find(&kernel, module, "tell"), "cuModuleGetFunction");
    return kernel;
}

/* ---- steps ---- */

/* The next rank's buffer gets x at `step`, and then its signal becomes `step`. */
static void tell(weft_window *w, int next, uint64_t step, float x, void *kernel)
{
    if (!kernel) {
        must(weft_window_put(w, 0, next, (int64_t)step, &x, 1));
        must(weft_window_notify(w, next, 0, WEFT_NOTIFY_SET, step));
        return;
    }
    uint64_t to = (uint64_t)(uintptr_t)weft_window_pointer(w, 0, next) + step * sizeof x;
    uint64_t signal = (uint64_t)(uintptr_t)weft_window_signal_pointer(w, next, 0);
    void *arguments[] = {&to, &x, &signal, &step};
    must_cuda(cuda.launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel");
}

int main(void)
{
    const char *device = getenv("WEFT_DEVICE");
    weft_comm *comm;
    weft_window *w;
    weft_layout *layout;
    weft_plan *plan;
    weft_exec *read;
    float got[STEPS + 1];
    must(weft_comm_open(NULL, NULL, &comm));
    const int rank = weft_comm_rank(comm), ranks = weft_comm_size(comm), next = (rank + 1) % ranks;
    const weft_buffer buffer = {.name = "x", .dtype = WEFT_F32, .count = STEPS + 1, .memory = WEFT_MEMORY_CUDA};
    int err = weft_window_open(comm, &buffer, 1, 1, &w);
    if (err == WEFT_EUNSUPPORTED) {
        printf("%s\n", weft_errmsg()); /* there is no module, no driver or no GPU */
        weft_comm_close(comm);
        return 0;
    }
    must(err);
    void *kernel = device && !strcmp(device, "sim") ? NULL : make_kernel();
    for (uint64_t step = 1; step <= STEPS; step++) {
        tell(w, next, step, (float)(1000 * rank) + (float)step, kernel);
        must(weft_window_wait(w, 0, WEFT_GE, step, WEFT_DEADLINE));
    }
    if (kernel)
        must_cuda(cuda.synchronize(), "cuCtxSynchronize");

    /* A plan that every rank has for itself copies the buffer to the host. */
    char text[64];
    snprintf(text, sizeof text, "f32[%d,%d/r] @r%d", STEPS + 1, ranks, ranks);
    must(weft_layout_parse(text, &layout));
    must(weft_lower(&(weft_move){"x", layout, layout}, 1, rank, NULL, &plan));
    weft_view from = {.data = weft_window_pointer(w, 0, rank), .bytes = sizeof got, .memory = WEFT_MEMORY_CUDA};
    weft_view to = WEFT_VIEW(got, sizeof got);
    must(weft_bind(plan, comm, &from, &to, NULL, &read));
    must(weft_exec_run(read));
    const int before = (rank + ranks - 1) % ranks;
    for (int step = 1; step <= STEPS; step++)
        if (got[step] != (float)(1000 * before + step)) {
            fprintf(stderr, "rank %d, step %d: %g\n", rank, step, (double)got[step]);
            return 1;
        }
    if (rank == 0)
        printf("%d numbers from rank to rank on %d ranks, signalled by %s: right\n", STEPS, ranks,
               kernel ? "kernels" : "the host");
    weft_exec_close(read);
    weft_plan_free(plan);
    weft_layout_free(layout);
    weft_window_close(w);
    weft_comm_close(comm);
    return 0;
}
