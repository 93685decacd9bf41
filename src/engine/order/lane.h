/* Rows of several moves that go through memory in step: one lane for each move. They are copied or cast a few rows at a
 * time, so that what lies side by side in memory is read and written together. weave.c chooses the moves. */
#ifndef WEFT_ENGINE_ORDER_LANE_H
#define WEFT_ENGINE_ORDER_LANE_H
#include <stdbool.h>
#include <stdint.h>

#include "memory/line.h"
#include "memory/memory.h"

#define LANE_TURN (32 << 10) /* bytes of all streams together in a turn */
#define LANE_CHUNK 4096      /* bytes: a dense move is cut at multiples of it */
#define LANE_ROW 8192        /* bytes of a row: longer ones are cut if there is a loop to cut */
#define LANE_RUN 64          /* bytes in one piece that are worth a turn */

/* A tile as n rows of `bytes` bytes: loops 0 to `cut` are walked here, and `inner` is copied by the kernel. */
struct lane_rows {
    struct memory_tile inner;
    int cut;
    bool plain; /* a row is one piece on both sides, or one element, and is not cast */
    bool casts; /* a row is one piece on both sides, and is cast */
    int64_t n, bytes;
};

/* The position of a stream that goes row by row with the others. */
struct lane {
    char *dst;
    const char *src;
    int64_t dstep, sstep, bytes; /* bytes of a row */
    struct weave_stream *stream; /* weave.c */
    bool pushes;                 /* reads its source from end to end */
    struct lane_rows *rows;
    const struct memory_line *line;
    int64_t left; /* rows that are not copied yet */
    uint8_t to, from;
};

/* Bytes of a row in all lanes together. */
int64_t lane_across(const struct lane *lanes, uint32_t n);
/* Each copies or casts `rows` rows of n lanes. past: the run writes more than caches hold. */
void lane_copy(struct lane *lanes, uint32_t n, int64_t rows, bool past); /* `plain` rows, and lines */
void lane_cast(struct lane *lanes, uint32_t n, int64_t rows, bool past); /* rows that `casts` says */
void lane_kernel(struct lane *lanes, uint32_t n, int64_t rows);          /* all others, as the kernel copies a tile */
#endif
