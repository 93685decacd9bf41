/* The work that is measured: what a collective's size means, what its buffers hold, whether the result is right, and in
 * which ways peers do it. The command and the programs that it measures share this file; it needs neither weft nor
 * MPI. */
#ifndef WEFT_BENCH_WORK_WORK_H
#define WEFT_BENCH_WORK_WORK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum work_op {
    WORK_BARRIER,
    WORK_BROADCAST,
    WORK_ALLGATHER,
    WORK_REDUCE_SCATTER,
    WORK_ALLREDUCE,
    WORK_ALL_TO_ALL,
    WORK_HALO,
    WORK_PING, /* from rank 0 to rank 1 and back */
    WORK_RESHARD,
    WORK_MANY,     /* small tensors from rows to columns */
    WORK_EXCHANGE, /* a message to either neighbour, which does not know its size */
    WORK_GRID,     /* halos of a grid, ghosts around each rank's cells; in place */
    WORK_COPY,     /* memory: each rank by itself, in memory of its own */
    WORK_READ,
    WORK_WRITE,
    WORK_OPS
};

enum work_kind { WORK_WEFT, WORK_FLOOR, WORK_PEER, WORK_MEMORY }; /* memory: plain loops of each rank by itself */

enum { WORK_DIMS = 3 };

/* Cells and ghosts of each rank, and ranks, along each dim; see grid.h. */
struct work_grid {
    int dims, ranks[WORK_DIMS];
    int64_t own[WORK_DIMS], wide[WORK_DIMS];
};

/* One thing to measure. bytes, f32 unless a layout says otherwise, is for
 *   broadcast, allreduce, ping   the buffer
 *   allgather                    what each rank gives (it gets ranks * bytes)
 *   reduce_scatter               each rank's input (it keeps bytes / ranks)
 *   all_to_all                   each rank's whole input (bytes / ranks for each rank)
 *   halo                         one face: each rank sends one to either side; the ends do not wrap
 *   reshard                      the tensor in its source's type
 *   many                         all tensors together
 *   exchange                     one message
 *   grid                         one face
 *   copy, read, write            each rank's buffer
 * A share is one float at least. */
struct work_cell {
    enum work_op op;
    int64_t bytes;
    int tensors;           /* many: how many; reshard: how many of the same shape, 0 is one */
    char src[64], dst[64]; /* reshard: the layouts; all that follows says the same as they do */
    int64_t rows, columns; /* of a matrix that goes from rows to columns */
    int64_t block;         /* both in blocks of this many, dealt round-robin; 0: in one piece for each rank */
    bool apart;            /* the first half of the ranks sends to the other half */
    bool turned;           /* the destination is bound with its strides in column order */
    bool casts;            /* to bf16 */
    struct work_grid grid; /* grid */
};

/* One of many tensors: rows * columns floats, 1 to 64 KiB, in a rank's buffer behind the tensors before it. Both sizes
 * are multiples of 16. */
struct work_tensor {
    int64_t rows, columns;
    int64_t before; /* floats of the whole tensors before it */
};
struct work_tensor work_tensor(int i);

const char *work_name(enum work_op op);
/* The name of the i-th way in which this kind does the op, from 0 on; NULL after the last. "" if there is only one. */
const char *work_variant(enum work_kind kind, const struct work_cell *cell, int i);

int64_t work_count(const struct work_cell *cell);            /* floats in bytes */
int64_t work_share(const struct work_cell *cell, int ranks); /* floats of one rank's share */
/* Bytes of the buffers of one rank, in plain form (halo: both faces one behind the other). */
void work_sizes(const struct work_cell *cell, int rank, int ranks, size_t *in, size_t *out);

/* A rank's buffers; faces of a halo, or messages, that come from the left are at out, those from the right at right. */
struct work_memory {
    float *in, *out, *right;
};
/* Fills the input and spoils the output. A broadcast's root has its values in out. */
void work_fill(const struct work_cell *cell, int rank, int ranks, const struct work_memory *m);
int64_t work_check(const struct work_cell *cell, int rank, int ranks, const struct work_memory *m); /* wrong elements */
/* The value of the element at a place of a resharded tensor; it is exact in bf16, too. */
float work_value(int64_t place);
/* Half of the bytes that all ranks together must read and write, as a memcpy counts them. */
double work_moved(const struct work_cell *cell, int ranks);
/* The factor from bytes / time to what nccl-tests call the bus bandwidth. */
double work_bus(const struct work_cell *cell, int ranks);

double work_now(void); /* seconds, the same clock in all processes */
/* Binds this process to a core, in turn. Otherwise, with more ranks than cores, chance would decide for the whole run
 * which ranks share a core. */
void work_pin(int rank);
int work_cores(void);
#endif
