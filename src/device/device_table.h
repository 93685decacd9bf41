/* The table of work that a kernel does: all copies, casts and folds of one run on one device. It is made at bind,
 * copied into device memory once, and read by the kernels in each run.
 *
 * The work is a list of tasks. A task writes one box: dst = cast(cast(fold(op, terms in order) / div, via), to),
 * element by element, as memory_fold of memory/memory.h does with the same arguments, bit by bit (a NaN may be another
 * NaN). Tasks of one level are independent of each other, and run after all tasks of lower levels. */
#ifndef WEFT_DEVICE_DEVICE_TABLE_H
#define WEFT_DEVICE_DEVICE_TABLE_H
#include "device/device.h"

#define DEVICE_THREADS 256 /* of a block */

/* The kernels. Those with ANY take all dtypes and ops; the others are made for what is frequent. */
enum device_kernel {
    DEVICE_COPY,
    DEVICE_CAST,
    DEVICE_CAST_ANY,
    DEVICE_FOLD,
    DEVICE_FOLD_ANY,
    DEVICE_TRANSPOSE,
    DEVICE_TRANSPOSE_ANY,
    DEVICE_SUM,
    DEVICE_KERNELS
};

/* Can one kernel do all launches behind a gate? Its blocks wait there, and a block that waits takes the place of
 * others, so it has at most MEET_BLOCKS of them, each of which does many blocks of the work in turn. More work is
 * faster with kernels of its own between two that meet. */
#define MEET_BLOCKS 32
#define MEET_LAUNCHES 4
#define MEET_WORK 128 /* blocks of a launch */
bool device_table_small(const struct device_launch *l, size_t n);

struct device_operand {
    uint64_t at;           /* the address of its first element */
    const int64_t *stride; /* in bytes, one for each loop */
    int dtype;
};

struct device_task {
    uint32_t level;
    int loops;        /* up to 16, outermost first; 0: one element */
    const int64_t *n; /* turns of each */
    struct device_operand dst;
    const struct device_operand *terms;
    uint32_t nterms; /* 0: fills with the identity of op */
    int op;          /* enum weft_op, never avg; with one term it does not matter */
    int acc;         /* the dtype in which terms are folded; one term and no div: 0 */
    int via;         /* the dtype between the fold and dst; 0: none */
    int64_t div;     /* at most 1: none */
};

struct device_table;
struct device_table *device_table_new(void); /* NULL: no memory */
int device_table_add(struct device_table *t, const struct device_task *task);
/* The 8 bytes at dst get sum_bytes (memory/sum.h) of `bytes` bytes at src, from position 0 on. dst is a multiple of 8,
 * src of 16. Such a task has a level, too. */
int device_table_sum(struct device_table *t, uint32_t level, uint64_t dst, uint64_t src, uint32_t bytes);
/* Levels are run one by one, and other work comes between them. So each task stays at its level. */
void device_table_apart(struct device_table *t);
/* All tasks are there: makes the image and the launches. */
int device_table_close(struct device_table *t);
/* The image works at any address that is aligned to 256 bytes. */
const void *device_table_image(const struct device_table *t, size_t *bytes);
/* In the order in which they are to be queued on one stream. */
const struct device_launch *device_table_launches(const struct device_table *t, size_t *n);
void device_table_free(struct device_table *t); /* NULL is fine */
#endif
