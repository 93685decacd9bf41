/* A device table while it is made: works, which are boxes on their way into the image. */
#ifndef WEFT_DEVICE_WORKS_H
#define WEFT_DEVICE_WORKS_H
#include "base/vec.h"
#include "device/device_table.h"
#include "device/item.h"
#include "memory/memory.h"

#define WORKS_LOOPS (MEMORY_LOOPS + 1) /* of a task, with the one over the parts of complex numbers */

#define WORKS_MOST (INT64_C(1) << 30) /* bytes that a work writes, so that there are fewer units than 2^31 */

struct works_loop {
    int64_t n, stride[2];
};

/* A box on its way into the image. */
struct work {
    uint32_t level, kernel, blocks;
    uint32_t each;          /* units of a thread; 0: a unit is a block */
    bool gone;              /* it was joined to another one */
    bool inner;             /* its innermost loop walks along a run */
    uint64_t run[2];        /* bytes that are contiguous in dst and src; 0: it is not to be joined */
    size_t loop, term, box; /* where its loops, terms and boxes begin in the table's arrays */
    uint32_t boxes;         /* 0: one, in the item */
    size_t number;
    struct device_item item;
};

/* One operand. */
struct works_side {
    uint64_t at;
    int64_t stride[WORKS_LOOPS + 1], size; /* size: of an element */
    int dtype;
};

struct device_table {
    VEC(struct work) works;
    VEC(struct works_loop) loops;
    VEC(struct works_side) terms;
    VEC(struct device_box) boxes;
    VEC(struct device_launch) launches;
    unsigned char *image;
    size_t bytes;
    bool apart; /* each work stays at its level */
};

/* Joins works that go on where others end, and works whose boxes are interleaved in memory. */
int works_join(struct device_table *t);

/* Makes folds of copies of what folds have written; called by works_join. */
int works_forward(struct device_table *t);

uint32_t works_blocks(const struct work *w); /* as many as its units need */

/* Takes a task apart into works of the table: device_table_add. */
int works_add(struct device_table *t, const struct device_task *task);
#endif
