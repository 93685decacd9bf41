/* weft bench bus --device: one process that puts a set from memory of a CUDA device, and fetches it into memory of the
 * same device. */
#ifndef WEFT_BENCH_RANKS_RANK_BUS_DEVICE_H
#define WEFT_BENCH_RANKS_RANK_BUS_DEVICE_H
#include <stdbool.h>
#include <stdint.h>

enum { RANK_BUS_DEVICE_ROUNDS = 25 };

struct rank_bus_device_job {
    char url[300];
    int device, tensors, rounds;
    int64_t rows, columns; /* of a tensor */
    /* the way: */
    const char *to;   /* the dtype that is published; the arrays that are put are f32 */
    const char *want; /* the dtype of the reader */
    bool half;        /* the reader wants half of the columns, otherwise all of it */
    bool digest;
};
/* Medians. GB/s: bytes of the snapshot that are written, or those of the blocks that are read, and seconds. */
struct rank_bus_device_line {
    double put, fetch, put_GBps, fetch_GBps;
    double first_put, first_fetch; /* of the first version: with pinning */
    char way[16];                  /* how the reader reaches the snapshot: pinned or mapped */
};

/* 0, or an error of weft. It is WEFT_EMISMATCH if an element is wrong. */
int rank_bus_device(const struct rank_bus_device_job *j, struct rank_bus_device_line *out);
#endif
