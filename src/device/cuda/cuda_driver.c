#define _GNU_SOURCE
#include "device/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
     * queue. The driver reads how many there are when it starts; the most is 32. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
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
