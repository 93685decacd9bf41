/* What tests of the simulated device do with it: open it, make streams and pinned memory, copy, write words and wait
 * for them. */
#ifndef WEFT_TESTS_SIM_KIT_H
#define WEFT_TESTS_SIM_KIT_H
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "support/clock.h"
#include "support/simulated.h"
#include "support/suite.h"
#include "weft.h"

#define HANGS 60 /* seconds */
#define PAGE 4096

static const struct device_ops *ops;
static const struct sim_calls *sim;

static inline int sim_kit_setup(void **state)
{
    (void)state;
    ops = simulated_ops();
    sim = simulated_calls();
    if (!ops || !sim)
        fprintf(stderr, "the simulation cannot be loaded: %s\n", weft_errmsg());
    return ops && sim ? 0 : 1;
}

static inline struct device *open_device(void)
{
    struct device *d = NULL;
    if (device_open("test", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &d))
        fprintf(stderr, "%s\n", weft_errmsg());
    return d;
}

/* ---- what tests do with a device; in children, too, where cmocka's asserts do not work ---- */

static inline void *new_stream(struct device *d)
{
    void *s = NULL;
    assert_int_equal(ops->stream_open(d, &s), 0);
    assert_non_null(s);
    return s;
}

/* Zeroed host memory that is pinned; pages of its own. */
static inline void *new_host(struct device *d, size_t bytes)
{
    uint64_t at;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p != MAP_FAILED && !ops->pin(d, p, bytes, &at) && at == (uintptr_t)p ? p : NULL;
}

static inline void free_host(struct device *d, void *p, size_t bytes)
{
    ops->unpin(d, p);
    munmap(p, bytes);
}

static inline int put(struct device *d, void *dst, const void *src, size_t bytes)
{
    int err = ops->copy(d, NULL, dst, src, bytes);
    return err ? err : ops->sync(d, NULL);
}

static inline struct device_word word(const uint32_t *at, uint32_t value)
{
    return (struct device_word){(uintptr_t)at, value};
}

static inline uint32_t load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void store(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Waits until the word has the value; false: it hangs. */
static inline bool comes(const uint32_t *word, uint32_t value)
{
    for (int64_t end = clock_now() + HANGS * SECOND; load(word) != value; sched_yield())
        if (clock_now() > end)
            return false;
    return true;
}
#endif
