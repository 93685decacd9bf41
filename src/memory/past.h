/* Stores that go past the caches, into memory that is not read again soon. Processors that read each line before they
 * write it, even if it is written whole, do not read it then. */
#ifndef WEFT_MEMORY_PAST_H
#define WEFT_MEMORY_PAST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Does the processor keep enough lines under way for such stores of several rows at once? On x86-64 from Ice Lake on.
 * Earlier ones are slower with them than without: on Cascade Lake rows took 1.2 to 1.4 times as long, and widening
 * casts 1.6 times. */
bool past_many(void);
void past_assume(int many); /* for tests: 0 or 1; -1: as the processor is. Nothing may be copied during the call. */
/* Are units of `unit` bytes that are dstep bytes apart in dst better written past the caches? They are if they are
 * whole lines, or so long that their ends, which are not, weigh little. */
bool past_pays(const void *dst, int64_t dstep, size_t unit);
/* Moves n units, which are dstep and sstep bytes apart: some of them side by side, since what comes next in one of them
 * is foreseen by the hardware too late. On processors that need no such stores it writes as usual. */
void past_units(void *dst, int64_t dstep, const void *src, int64_t sstep, int64_t n, size_t unit);
#endif
