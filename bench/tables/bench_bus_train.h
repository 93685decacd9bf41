/* weft bench bus --trainer: is a trainer slowed down by those that read its version? */
#ifndef WEFT_BENCH_TABLES_BENCH_BUS_TRAIN_H
#define WEFT_BENCH_TABLES_BENCH_BUS_TRAIN_H
#include <stdbool.h>
#include <stdint.h>

#include "tool/failure.h"

struct bench_bus_train_options {
    int64_t bytes, tensors, rounds;
    double seconds; /* of a turn */
    bool json;
};
/* Measures and prints. folder: for the directory of the bus. */
int bench_bus_train(const struct bench_bus_train_options *o, const char *folder, struct failure *why);
#endif
