/* Pieces of a few bytes, which a vector instruction picks out of the vectors that they lie in. */
#ifndef WEFT_MEMORY_PICK_H
#define WEFT_MEMORY_PICK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is there an instruction that looks up bytes in several vectors? One that looks into one vector (pshufb) was slower on
 * 16 x86-64 cores than a copy piece by piece: blocks of 3 bytes ran at 0.25 of memcpy instead of 0.38. All ranks of a
 * host have the same. */
#if defined(__aarch64__)
#define PICK_HERE 1
#else
#define PICK_HERE 0
#endif

/* `bytes` bytes of each turn: those at src + turn * step. */
struct pick_piece {
    const unsigned char *src;
    int64_t step, bytes;
};

/* Writes turns, dstep bytes apart: in each, the n pieces follow each other. Returns how many turns it has written from
 * the first on. The caller copies the others, which may be all. It also reads what lies between bytes of a piece. */
int64_t pick_turns(unsigned char *dst, int64_t dstep, const struct pick_piece *pieces, int n, int64_t turns);

/* For pick.c and the kernels. 16 bytes of a period: those with the numbers in `table` of some vectors. */
#define PICK_WAYS 8
#define PICK_VECTOR 16
struct pick_vector {
    const unsigned char *src[PICK_WAYS]; /* where the vectors are in the first period, */
    int64_t step[PICK_WAYS];             /* and how far on in the next one */
    int64_t to;                          /* bytes from the beginning of the period in dst */
    uint8_t table[PICK_VECTOR];
};

/* Writes `periods` periods of n vectors, dstep bytes apart, each looked up in `ways` vectors. These lie apart, or all
 * follow each other from src[0] on. */
typedef void pick_loop(unsigned char *dst, int64_t dstep, const struct pick_vector *v, int n, int ways, bool apart,
                       int64_t periods);
#endif
