/* Ranks that a launcher of MPI started. Each process goes through the whole of a test program, and all of them alike:
 * in ranks_run it is one of the ranks, or waits for them. What ranks and their test share is in files of a folder that
 * the script of the launcher made; the communicator of some ranks comes from launched.c, since the test knows no MPI.
 */
#ifndef WEFT_TESTS_LAUNCHED_H
#define WEFT_TESTS_LAUNCHED_H
#include <stdbool.h>
#include <stddef.h>

/* Ends of launched.c, which is built with each MPI library. */
struct launched_ops {
    int (*begin)(int *rank, int *size);
    void (*barrier)(void);
    const void *(*group)(int n); /* of the first n ranks, who call this together: a pointer to the MPI_Comm */
    void (*end)(void);
};
#define LAUNCHED_OPS "launched_ops"
#define LAUNCHED_MAX 16

#if !defined(MPI_VERSION) /* the rest is the tests' */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    const struct launched_ops *ops;
    pthread_barrier_t *barrier;
    int rank, size; /* size 0: nobody launched this */
    unsigned files;
} launched;

static inline void launched_meet(void)
{
    pthread_barrier_wait(launched.barrier);
}

static inline void *launched_map(const char *path, size_t bytes)
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

/* Zeroed memory that all processes see, who call this together. */
static inline void *launched_shared(size_t bytes)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%u", getenv("WEFT_TEST_LAUNCHED"), launched.files++);
    void *memory = launched_map(path, bytes);
    launched_meet();
    if (launched.rank == 0)
        unlink(path);
    return memory;
}

static inline int launched_begin(void)
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
        launched.barrier = launched_map(path, sizeof *launched.barrier);
        pthread_barrierattr_init(&shared);
        pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(launched.barrier, &shared, (unsigned)launched.size);
        pthread_barrierattr_destroy(&shared);
    }
    launched.ops->barrier();
    if (launched.rank > 0)
        launched.barrier = launched_map(path, sizeof *launched.barrier);
    return 0;
}
#endif
#endif
