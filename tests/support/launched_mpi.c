/* What launched.h asks of MPI. */
#include <mpi.h>
#include <stdbool.h>

#include "launched.h"

static int begin(int *rank, int *size)
{
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) || level < MPI_THREAD_SERIALIZED)
        return -1;
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    return *size <= LAUNCHED_MAX ? 0 : -1;
}

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Each is made once: MPI has room for some thousand. */
static const void *group(int n)
{
    static MPI_Comm groups[LAUNCHED_MAX + 1];
    static bool made[LAUNCHED_MAX + 1];
    if (made[n])
        return &groups[n];
    MPI_Group all, some;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_range_incl(all, 1, (int[1][3]){{0, n - 1, 1}}, &some);
    made[n] = !MPI_Comm_create_group(MPI_COMM_WORLD, some, 0, &groups[n]);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return made[n] ? &groups[n] : NULL;
}

static void end(void)
{
    MPI_Finalize();
}

__attribute__((visibility("default"))) const struct launched_ops launched_ops = {begin, barrier, group, end};
