/* What swap.c has in a block, for its tests. */
#ifndef WEFT_ENGINE_DRIVERS_SWAP_H
#define WEFT_ENGINE_DRIVERS_SWAP_H
#include "engine/driver.h"

/* Where two ranks meet that give each other faces (swap.c), in the block of the lower one, one for each of its
 * channels. */
#define SWAP_SHARES 16 /* parts that their faces are copied in */
#define SWAP_WHO_BITS 8
#define SWAP_DONE ((1 << SWAP_WHO_BITS) - 1)
struct swap_hall {
    struct {
        _Alignas(CORE_LINE) _Atomic uint64_t run;
    } begun[2]; /* of the lower rank, of the higher */
    /* run << SWAP_WHO_BITS | one more than the rank that has it, or SWAP_DONE */
    _Alignas(CORE_LINE) _Atomic uint64_t taken[SWAP_SHARES];
    _Alignas(CORE_LINE) _Atomic uint64_t over;
};

#endif
