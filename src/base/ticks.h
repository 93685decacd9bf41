/* CLOCK_MONOTONIC by the processor's counter, for those who ask so often that asking the system costs too much: 7 ns a
 * look instead of 31 on a Neoverse-N1.
 *
 * The counter and the clock are read together once every TICKS_SPAN, and the counter alone in between. How long a tick
 * takes is what it took from one such pair to the next, so that the clock's own changes of speed are followed. The
 * error is how far the two of a pair lie apart, and what the speed changes within TICKS_SPAN: some ten nanoseconds as a
 * rule. It is at most 1 us, of which one half is a clock that the system slews as fast as it may (500 ppm). Where no
 * counter runs at an even speed on all cores each look asks the system.
 *
 * One thread at a time uses a struct ticks, which starts as zeros. */
#ifndef WEFT_BASE_TICKS_H
#define WEFT_BASE_TICKS_H
#include <stdbool.h>
#include <stdint.h>

#define TICKS_SPAN INT64_C(1000000) /* ns */

struct ticks {
    uint64_t at;    /* counter, */
    int64_t ns;     /* and clock, when they were read together; 0: never */
    uint64_t span;  /* ticks that the counter may count alone; 0: it is not to be trusted yet */
    uint64_t each;  /* ns of a tick, times 2^32; 0: not known yet */
    int64_t latest; /* no look has given more */
    bool good;      /* they were read so quickly that they are of the same time */
};

/* The counter. `after`: what comes before in the program has been done when it is read. Otherwise the processor may
 * read it up to some ten nanoseconds early. */
static inline uint64_t ticks_count(int after)
{
#if defined(__aarch64__)
    uint64_t n;
    if (after)
        __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(n) : : "memory");
    else
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(n) : : "memory");
    return n;
#elif defined(__x86_64__)
    uint32_t low, high;
    if (after)
        __asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
    else
        __asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
#else
    (void)after;
    return 0;
#endif
}

int64_t ticks_ask(struct ticks *t); /* asks the system, too */

/* Nanoseconds of CLOCK_MONOTONIC. They never go back. */
static inline int64_t ticks_look(struct ticks *t, int after)
{
    uint64_t n = ticks_count(after) - t->at;
    if (n >= t->span)
        return ticks_ask(t);
    int64_t now = t->ns + (int64_t)(n * t->each >> 32);
    return t->latest = now > t->latest ? now : t->latest;
}
static inline int64_t ticks_now(struct ticks *t)
{
    return ticks_look(t, 0);
}
static inline int64_t ticks_after(struct ticks *t)
{
    return ticks_look(t, 1);
}
#endif
