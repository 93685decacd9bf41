#define _GNU_SOURCE
#include "launched.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct launched launched;
static pthread_barrier_t *launched_barrier;
static unsigned launched_files;

void launched_meet(void)
{
    pthread_barrier_wait(launched_barrier);
}

static void *launched_map(const char *path, size_t bytes)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *memory = MAP_FAILED;
    if (file >= 0 && !ftruncate(file, (off_t)bytes))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        perror(path);
        abort(); /* the launcher ends the others */
    }
    close(file);
    return memory;
}

void *launched_shared(size_t bytes)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%u", getenv("WEFT_TEST_LAUNCHED"), launched_files++);
    void *memory = launched_map(path, bytes);
    launched_meet();
    if (launched.rank == 0)
        unlink(path);
    return memory;
}

int launched_begin(void)
{
    const char *module = getenv("WEFT_TEST_MPI");
    char path[200];
    void *library = module ? dlopen(module, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
    launched.ops = library ? dlsym(library, LAUNCHED_OPS) : NULL;
    if (!launched.ops) {
        fprintf(stderr, "WEFT_TEST_MPI: %s\n", module ? dlerror() : "is not set");
        return -1;
    }
    if (launched.ops->begin(&launched.rank, &launched.size))
        return -1;
    snprintf(path, sizeof path, "%s/all", getenv("WEFT_TEST_LAUNCHED"));
    if (launched.rank == 0) {
        pthread_barrierattr_t shared;
        launched_barrier = launched_map(path, sizeof *launched_barrier);
        pthread_barrierattr_init(&shared);
        pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(launched_barrier, &shared, (unsigned)launched.size);
        pthread_barrierattr_destroy(&shared);
    }
    launched.ops->barrier();
    if (launched.rank > 0)
        launched_barrier = launched_map(path, sizeof *launched_barrier);
    return 0;
}
