/* Ranks that a launcher of MPI started. Each process goes through the whole of a test program, and all of them alike:
 * in ranks_run it is one of the ranks, or waits for them. What ranks and their test share is in files of a folder that
 * the script of the launcher made; the communicator of some ranks comes from launched_mpi.c, since the test knows no
 * MPI.
 */
#ifndef WEFT_TESTS_LAUNCHED_H
#define WEFT_TESTS_LAUNCHED_H
#include <stddef.h>

/* Ends of launched_mpi.c, which is built with each MPI library. */
struct launched_ops {
    int (*begin)(int *rank, int *size);
    void (*barrier)(void);
    const void *(*group)(int n); /* of the first n ranks, who call this together: a pointer to the MPI_Comm */
    void (*end)(void);
};
#define LAUNCHED_OPS "launched_ops"
#define LAUNCHED_MAX 16

extern struct launched {
    const struct launched_ops *ops;
    int rank, size; /* size 0: nobody launched this */
} launched;

/* Finds out who this process is; -1: it was not launched as the variables of the environment say. */
int launched_begin(void);

/* All processes come here before one goes on. */
void launched_meet(void);

/* Zeroed memory that all processes see, who call this together. */
void *launched_shared(size_t bytes);
#endif
