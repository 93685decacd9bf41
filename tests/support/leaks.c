/* A quick look for leaks under AddressSanitizer, before its own slow one.
 *
 * LeakSanitizer walks the whole address space when a program ends, which takes more than four seconds of CPU on
 * AArch64, for each of a hundred programs. It has nothing to find if the program has freed all that it has allocated
 * since main began. This file keeps the addresses of all blocks that are allocated. The dynamic linker keeps its own
 * blocks for libraries and threads, also for threads that have ended: those do not count. If another block is left,
 * LeakSanitizer decides, as it does without this file. */
#define _GNU_SOURCE
#include "leaks.h"

#if !defined(__SANITIZE_ADDRESS__)
void leaks_begin(void) {}

void leaks_unsearched(void) {}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

/* AddressSanitizer calls these by their names: the first two for each block, the third before it looks for leaks. */
void __sanitizer_malloc_hook(const volatile void *block, size_t size);
void __sanitizer_free_hook(const volatile void *block);
int __lsan_is_turned_off(void);
/* AddressSanitizer's: the calls that led to the allocation of a block, the innermost one first; their number. */
size_t __asan_get_alloc_stack(void *block, void **calls, size_t room, int *thread);

/* The linker sends the calls of these functions here (tests/CMakeLists.txt). What they allocate is kept for the whole
 * life of the process: the environment, and what is made once. */
int __real_setenv(const char *name, const char *value, int overwrite);
int __wrap_setenv(const char *name, const char *value, int overwrite);
int __real_pthread_once(pthread_once_t *once, void (*make)(void));
int __wrap_pthread_once(pthread_once_t *once, void (*make)(void));

/* The table of blocks. A block stands at one of the NEAR places from its own on, at the first that was free. */
enum { PLACES = 1 << 20, NEAR = 256, FREED = 1 };
static _Atomic uintptr_t *blocks; /* 0: was never taken, FREED: is free again */
static atomic_bool overfull;      /* a block did not find a place */
static bool unsearched;
static _Thread_local bool kept; /* this thread is in one of these functions */

/* Blocks that are neighbours in memory are neighbours in the table; areas of 1 MiB stand anywhere. */
static size_t own_place(uintptr_t block)
{
    uint64_t area = (block >> 20) * 0xff51afd7ed558ccdu;
    return (size_t)((block >> 4) ^ (area >> 33));
}

void __sanitizer_malloc_hook(const volatile void *block, size_t size)
{
    (void)size;
    if (!blocks || kept)
        return;
    size_t place = own_place((uintptr_t)block);
    for (int i = 0; i < NEAR; i++) {
        _Atomic uintptr_t *at = &blocks[(place + (size_t)i) % PLACES];
        uintptr_t found = atomic_load_explicit(at, memory_order_relaxed);
        if (found <= FREED && atomic_compare_exchange_strong_explicit(at, &found, (uintptr_t)block,
                                                                      memory_order_relaxed, memory_order_relaxed))
            return;
    }
    atomic_store_explicit(&overfull, true, memory_order_relaxed);
}

/* A block that is not in the table was allocated before main, or is kept. */
void __sanitizer_free_hook(const volatile void *block)
{
    if (!blocks || !block)
        return;
    size_t place = own_place((uintptr_t)block);
    for (int i = 0; i < NEAR; i++) {
        _Atomic uintptr_t *at = &blocks[(place + (size_t)i) % PLACES];
        uintptr_t found = atomic_load_explicit(at, memory_order_relaxed);
        if (found == (uintptr_t)block)
            atomic_store_explicit(at, FREED, memory_order_relaxed);
        if (found == (uintptr_t)block || !found)
            return;
    }
}

/* Is malloc's caller in the dynamic linker? */
static bool is_linkers(uintptr_t block)
{
    void *calls[2];
    int thread;
    Dl_info caller;
    return __asan_get_alloc_stack((void *)block, calls, 2, &thread) == 2 && dladdr(calls[1], &caller) &&
           (uintptr_t)caller.dli_fbase == getauxval(AT_BASE);
}

int __lsan_is_turned_off(void)
{
    if (unsearched)
        return true;
    if (!blocks || atomic_load_explicit(&overfull, memory_order_relaxed))
        return false;
    for (size_t i = 0; i < PLACES; i++) {
        uintptr_t block = atomic_load_explicit(&blocks[i], memory_order_relaxed);
        if (block > FREED && !is_linkers(block))
            return false;
    }
    return true;
}

void leaks_begin(void)
{
    const size_t size = PLACES * sizeof *blocks;
    if (blocks)
        (void)munmap(blocks, size);
    blocks = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (blocks == MAP_FAILED)
        blocks = NULL;
}

void leaks_unsearched(void)
{
    unsearched = true;
}

int __wrap_setenv(const char *name, const char *value, int overwrite)
{
    kept = true;
    int status = __real_setenv(name, value, overwrite);
    kept = false;
    return status;
}

int __wrap_pthread_once(pthread_once_t *once, void (*make)(void))
{
    bool outer = kept;
    kept = true;
    int status = __real_pthread_once(once, make);
    kept = outer;
    return status;
}

/* Standard output gets a buffer that is not allocated: it would be freed after the look for leaks. */
__attribute__((constructor)) static void note_blocks_before_main(void)
{
    static char buffer[BUFSIZ];
    (void)setvbuf(stdout, buffer, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, sizeof buffer);
    leaks_begin();
}
#endif
