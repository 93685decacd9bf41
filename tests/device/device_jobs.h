/* Random tasks of device tables with their memory, and what memory/ says about them. */
#ifndef WEFT_TESTS_DEVICE_JOBS_H
#define WEFT_TESTS_DEVICE_JOBS_H
#include "device/device_table.h"
#include "memory/memory.h"
#include "memory/memory_nests.h"

#define JOBS_TERMS 10

/* One task with its memory: what the device writes is beside what the host writes. */
struct job {
    struct memory_tile tile;
    struct operand dst, term[JOBS_TERMS];
    unsigned char *want;
    int to, via, acc, op, dtype[JOBS_TERMS];
    int64_t div;
    uint32_t terms, level;
    struct device_operand operand[JOBS_TERMS];
};

/* A job by nests_seed: all dtypes and ops, strides, misalignment. */
void jobs_make(struct job *j);
/* The next job, from number *at on, of those that take the kernels' own forms: aligned, one run or turned by tiles,
 * every cast, and every fold. *at becomes its number. False: there are no more. */
bool jobs_make_dense(struct job *j, int64_t *at);
/* Adds it as a task. at() gives the device's address of an operand's data; NULL: it is where the host has it. */
int jobs_add(struct job *j, struct device_table *t, uint64_t (*at)(const struct operand *o));
/* Does it by memory/, into `want`. */
void jobs_host(struct job *j);
/* How many elements of dst are wrong; all NaNs are equal. What lies between elements must be untouched. Prints the
 * first element that is wrong. */
int64_t jobs_check(struct job *j);
bool jobs_nan(uint64_t value, int dtype);
void jobs_free(struct job *j);
#endif
