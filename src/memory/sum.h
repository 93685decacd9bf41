/* Sums that prove a message: its sender and its receiver each sum the bytes of the message in their own memory, and the
 * sums are equal if the bytes are.
 *
 * The bytes have positions: those of the dense message. Every byte adds its own part to the sum, modulo 2^64, and that
 * part depends on the byte and its position alone. So a message can be summed in any order and in any pieces, and the
 * sums of disjoint pieces add up to that of the whole.
 *
 * The sum is a product sum. Word w (32 bits, little-endian) of the message has the key T[w % 64] * R(w / 64), modulo
 * 2^64. T is a table of odd random numbers below 2^32, and R is odd and random (sum_keys.h). What is certain:
 *   - a change within one word changes the sum: the difference times T is not 0 and below 2^64, and R is odd;
 *   - two words that differ and change places change the sum, if they are less than 16 GiB apart: the low 33 bits of
 *     the keys are all different, and the words differ by less than 2^32.
 * Any other change goes unseen with a probability of about 2^-64. The keys are no secret, so this is a check against
 * faults. It is no protection against somebody who wants to forge a message. */
#ifndef WEFT_MEMORY_SUM_H
#define WEFT_MEMORY_SUM_H
#include "memory/memory.h"
#include "memory/sum_keys.h"

#define SUM_WORDS 64              /* words of a block, which have the same R */
#define SUM_BLOCK (4 * SUM_WORDS) /* bytes */

/* The part that n bytes from position `at` on add to the sum of their message. */
uint64_t sum_bytes(uint64_t at, const void *bytes, size_t n);

/* The part that elements from position `at` on add to the sum of their message. They lie in memory as operand 1 of the
 * tile says, in the order of its loops, from `src` on. They have the dtype `from` and are summed as dtype `to`, after a
 * cast to `via` on the way (0: there is none). */
uint64_t sum_tile(uint64_t at, const struct memory_tile *t, const void *src, int from, int via, int to);

/* Rows that are copied and summed at once, from memory that is not in the caches. The rows are `unit` bytes each, out
 * of an array of messages of 2^shift bytes. The first one begins at byte `at` of the array: byte p adds to sums[p >>
 * shift], at the position that is left of p. The array is at src, or, if what is made of src is summed, at dst. unit,
 * at, and the array's step are multiples of SUM_BLOCK, and so is a message. */
struct sum_rows {
    unsigned char *dst;
    const unsigned char *src;
    int64_t dstep, sstep, n;
    size_t unit;
    uint64_t at;
    int shift;
    uint64_t *sums;
};
/* The bytes that are summed are those of dtype `from`, or, with `made`, those of dtype `to`. False: there is no loop
 * for this cast, and nothing was done. */
bool sum_rows_copy(const struct sum_rows *r, int to, int from, bool made);

/* For sum.c and the kernels. */
extern const uint32_t sum_keys[SUM_WORDS];
typedef uint64_t sum_loop(const void *bytes, uint64_t block,
                          size_t n);           /* n whole blocks, the first is number `block` */
typedef void sum_rows_loop(struct sum_rows r); /* by value: no byte that is copied can be a part of it */
#endif
