/* A quick look for leaks under AddressSanitizer, before its own slow one.
 *
 * LeakSanitizer walks the whole address space when a program ends, which takes more than four seconds of CPU on
 * AArch64, for each of a hundred programs. It has nothing to find if the blocks that are allocated at the end are those
 * that were allocated before main. This file keeps a sum over all allocated blocks, in which each block counts with a
 * mixed form of its address, so that only the same blocks give the same sum. If the sum at the end is another one,
 * LeakSanitizer decides, as it does without this file. */
#define _GNU_SOURCE
#include "leaks.h"

#if !defined(__SANITIZE_ADDRESS__)
void leaks_begin(void) {}

void leaks_unsearched(void) {}
#else
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* AddressSanitizer calls these by their names: the first two for each block, the third before it looks for leaks. */
void __sanitizer_malloc_hook(const volatile void *block, size_t size);
void __sanitizer_free_hook(const volatile void *block);
int __lsan_is_turned_off(void);

/* The linker sends the calls of these functions here (tests/CMakeLists.txt). What they allocate, the C library keeps
 * for later calls (the environment, the stacks of threads that have ended), and it is freed in these functions alone.
 */
int __real_setenv(const char *name, const char *value, int overwrite);
int __wrap_setenv(const char *name, const char *value, int overwrite);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

static _Atomic uint64_t allocated; /* the sum */
static uint64_t at_begin;          /* the sum before main, or at leaks_begin */
static bool unsearched;
static _Thread_local bool kept; /* this thread is in one of the functions that keep what they allocate */

static uint64_t mixed(const volatile void *block)
{
    uint64_t x = (uint64_t)(uintptr_t)block;
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 33);
}

void __sanitizer_malloc_hook(const volatile void *block, size_t size)
{
    (void)size;
    if (!kept)
        atomic_fetch_add_explicit(&allocated, mixed(block), memory_order_relaxed);
}

void __sanitizer_free_hook(const volatile void *block)
{
    if (!kept)
        atomic_fetch_sub_explicit(&allocated, mixed(block), memory_order_relaxed);
}

int __lsan_is_turned_off(void)
{
    return unsearched || atomic_load_explicit(&allocated, memory_order_relaxed) == at_begin;
}

void leaks_begin(void)
{
    at_begin = atomic_load_explicit(&allocated, memory_order_relaxed);
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

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg)
{
    kept = true;
    int status = __real_pthread_create(thread, attributes, body, arg);
    kept = false;
    return status;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    kept = true;
    int status = __real_pthread_join(thread, result);
    kept = false;
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
