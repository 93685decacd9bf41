/* A program that has MPI for itself and gives weft's wire one of its communicators: half of the ranks, in reverse
 * order. The rules on threads are kept, the program's own messages do not meet weft's, and MPI stays the program's to
 * end. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "transport/wire/wire.h"
#include "weft.h"

#define SECOND INT64_C(1000000000)

static int failed;

#define CHECK(condition)                                                                                  \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            printf("failed: wire_user.c:%d: %s (last error: %s)\n", __LINE__, #condition, weft_errmsg()); \
            failed = 1;                                                                                   \
        }                                                                                                 \
    } while (0)

static void talk(struct wire *w, MPI_Comm comm)
{
    const struct wire_ops *o = w->ops;
    int rank, next = (w->rank + 1) % w->size, before = (w->rank + w->size - 1) % w->size;
    int out = 1000 + w->rank, in = -1, own_out = w->rank, own_in = -1;
    struct wire_message *send, *recv;
    MPI_Request own;
    MPI_Comm_rank(comm, &rank);
    CHECK(rank == w->rank);
    MPI_Irecv(&own_in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &own); /* must not get what is weft's */
    CHECK(!o->make(w, next, 7, &out, sizeof out, true, &send) && !o->make(w, before, 7, &in, sizeof in, false, &recv));
    CHECK(!o->start(recv) && !o->start(send));
    while (o->test(recv) == 0 || o->test(send) == 0)
        o->progress(w);
    CHECK(o->test(recv) == 1 && o->test(send) == 1 && in == 1000 + before);
    MPI_Send(&own_out, 1, MPI_INT, next, 7, comm);
    MPI_Wait(&own, MPI_STATUS_IGNORE);
    CHECK(own_in == before);
    o->drop(send);
    o->drop(recv);
}

/* Rank 0 closes first, so that the others' words of leaving come when it is closed; they are not for the next wire. */
static void close_in_turn(struct wire *w, MPI_Comm comm)
{
    const void *bytes;
    size_t n;
    int peer, rank = w->rank;
    for (int i = 0; i < 1000; i++)
        CHECK(!w->ops->fetch(w, &peer, &bytes, &n));
    for (int r = 0; r < w->size; r++)
        CHECK(w->ops->gone(w, r) == TRANSPORT_HERE);
    MPI_Barrier(comm);
    if (!rank)
        w->ops->close(w);
    MPI_Barrier(comm);
    if (rank)
        w->ops->close(w);
}

int main(int argc, char **argv)
{
    int level, rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    struct wire_boot boot = {.wait_ns = 30 * SECOND, .communicator = &half, .modules = argc > 1 ? argv[1] : NULL};
    struct wire *w = NULL;
    if (level < MPI_THREAD_SERIALIZED) {
        CHECK(wire_open("mpi:", &boot, &w) == WEFT_EUNSUPPORTED);
        CHECK(strstr(weft_errmsg(), "MPI_THREAD_SERIALIZED"));
    }
    boot.one_thread = true;
#if defined(OPEN_MPI)
    CHECK(wire_open("mpi:mpich", &boot, &w) == WEFT_EINVAL);
#else
    CHECK(wire_open("mpi:openmpi", &boot, &w) == WEFT_EINVAL);
#endif
    CHECK(strstr(weft_errmsg(), "loaded"));
    boot.size = 99;
    CHECK(wire_open("mpi:", &boot, &w) == WEFT_EINVAL);
    boot.size = 0;
    for (int i = 0; i < 3 && !failed; i++) {
        CHECK(!wire_open("mpi:", &boot, &w));
        if (!failed) {
            talk(w, half);
            close_in_turn(w, half);
        }
    }
    MPI_Comm_free(&half);
    fflush(stdout);
    if (failed)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
