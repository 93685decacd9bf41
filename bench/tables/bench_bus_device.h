/* weft bench bus --device N: put from and fetch into memory of a CUDA device. */
#ifndef WEFT_BENCH_TABLES_BENCH_BUS_DEVICE_H
#define WEFT_BENCH_TABLES_BENCH_BUS_DEVICE_H
#include <stdbool.h>
#include <stdint.h>

#include "tool/failure.h"

struct bench_bus_device_options {
    int64_t rows, columns; /* of a tensor */
    int64_t tensors, rounds, device;
    bool json;
};
/* Measures and prints. folder: for the directory of the bus. */
int bench_bus_device(const struct bench_bus_device_options *o, const char *folder, struct failure *why);
#endif
