#define _GNU_SOURCE
#include "device/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libcuda.so.1"
#define TEXT(x) TEXT_OF(x)
#define TEXT_OF(x) #x

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cuda_driver driver;
static char problem[256]; /* empty: the driver works */

/* A pointer to a function is read from a pointer to an object, as dlsym gives it. */
static int find(void *library, const char *name, void *call)
{
    void *at = dlsym(library, name);
    if (!at) {
        snprintf(problem, sizeof problem, "%s has no %s: it is too old, CUDA 12.4 is needed", LIBRARY, name);
        return 0;
    }
    memcpy(call, &at, sizeof at);
    return 1;
}

/* Is the daemon of MPS there? The driver does not say it before it has started. */
static int mps_runs(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/control", folder && *folder ? folder : "/tmp/nvidia-mps");
    return n > 0 && (size_t)n < sizeof path && !access(path, F_OK);
}

static void open_driver(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(problem, sizeof problem, "there is no CUDA driver (%s is not found)", LIBRARY);
        return;
    }
#define FIND(name)                                \
    if (!find(library, TEXT(name), &driver.name)) \
        return;
    CUDA_CALLS(FIND)
    /* Streams share the queues of the hardware, and a stream that waits for another rank holds up the others of its
     * queue. The driver reads how many there are when it starts; the most is 32. Under MPS all processes have about
     * 128 together, and a process that finds none left cannot make a context. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", mps_runs() ? "8" : "32", 0);
    CUresult r = driver.cuInit(0);
    const char *text = NULL;
    if (r) {
        driver.cuGetErrorString(r, &text);
        snprintf(problem, sizeof problem, "CUDA does not start: %s", text ? text : "an unknown error");
    }
}

const struct cuda_driver *cuda_driver(const char **why)
{
    pthread_once(&once, open_driver);
    *why = problem;
    return *problem ? NULL : &driver;
}
