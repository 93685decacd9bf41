/* Pieces of a few bytes, which a vector instruction picks out of the vectors that they lie in. */
#ifndef WEFT_MEMORY_PICK_H
#define WEFT_MEMORY_PICK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Does the level in use have an instruction for it? TBL of AArch64 looks up bytes in four vectors, and vpermb of
 * AVX-512 VBMI in one of 64 bytes. pshufb, which looks into one of 16 bytes, was slower on 16 x86-64 cores than a copy
 * piece by piece. All ranks of a host have the same. */
bool pick_here(void);

/* `bytes` bytes of each turn: those at src + turn * step. */
struct pick_piece {
    const unsigned char *src;
    int64_t step, bytes;
};

/* Writes turns, dstep bytes apart: in each, the n pieces follow each other. Returns how many turns it has written from
 * the first on. The caller copies the others, which may be all. It also reads what lies between bytes of a piece. */
int64_t pick_turns(unsigned char *dst, int64_t dstep, const struct pick_piece *pieces, int n, int64_t turns);

/* The same in several calls. pick_begin returns how many turns can be written, from the first on; 0: none. pick_next
 * writes the next ones, whole periods, to dst: period->turns each. */
struct pick_period;
int64_t pick_begin(struct pick_period *period, int64_t dstep, const struct pick_piece *pieces, int n, int64_t turns);
void pick_next(struct pick_period *period, unsigned char *dst, int64_t dstep, int64_t turns);

/* For pick.c and the kernels. One vector of a period: bytes of some vectors. */
#define PICK_WAYS 8
#if defined(__x86_64__)
#define PICK_VECTOR 64
#define PICK_MASKED 1 /* a part of a vector can be stored, and looked up */
#else
#define PICK_VECTOR 16
#define PICK_MASKED 0
#endif
struct pick_vector {
    const unsigned char *src[PICK_WAYS]; /* where the vectors are in the first period, */
    int64_t step[PICK_WAYS];             /* and how far on in the next one */
    int64_t to;                          /* bytes from the beginning of the period in dst */
    uint8_t table[PICK_VECTOR];          /* the number of each byte in them: on x86-64 within the one that has it, */
    uint8_t way[PICK_VECTOR];            /* and the number of that one */
    int bytes;                           /* of the vector */
};

/* Writes `periods` periods of n vectors, dstep bytes apart, each looked up in `ways` vectors. These lie apart, or all
 * follow each other from src[0] on. */
typedef void pick_loop(unsigned char *dst, int64_t dstep, const struct pick_vector *v, int n, int ways, bool apart,
                       int64_t periods);

/* Turns that are a whole number of vectors. */
#define PICK_PERIOD 512 /* bytes at most */
struct pick_period {
    int64_t turns, bytes, count; /* count: periods that can be read whole */
    int n, ways;
    bool apart;
    struct pick_vector vectors[PICK_PERIOD / PICK_VECTOR];
};
#endif
