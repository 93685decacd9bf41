/* Opening and closing a wire of MPI. */
#define _GNU_SOURCE
#include "transport/wire_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "weft.h"

int64_t wire_mpi_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int wire_mpi_error(const struct wire *w, int code, const char *what, int peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length, kind = MPI_ERR_OTHER;
    MPI_Error_class(code, &kind);
    MPI_Error_string(code, text, &length);
    return w->error(kind == MPI_ERR_TRUNCATE ? WEFT_EMISMATCH : WEFT_ETRANSPORT, "%s rank %d: %s", what, peer, text);
}

extern const struct wire_ops weft_wire;

static int check_size(const struct wire_boot *boot, int rank, int size)
{
    if (!boot->size || (boot->size == size && boot->rank == rank))
        return 0;
    return boot->error(WEFT_EINVAL, "mpi: this is rank %d of %d of the communicator, not rank %d of %d", rank, size,
                       boot->rank, boot->size);
}

static int open_wire(const struct wire_boot *boot, struct wire **out)
{
    int rank, size, between, tagged, *highest, err = wire_mpi_begin(boot);
    if (err)
        return err;
    MPI_Comm of = boot->communicator ? *(const MPI_Comm *)boot->communicator : MPI_COMM_WORLD;
    MPI_Comm_test_inter(of, &between);
    MPI_Comm_rank(of, &rank);
    MPI_Comm_size(of, &size);
    if (between)
        return boot->error(WEFT_EINVAL, "mpi: an intercommunicator is no group of ranks");
    if ((err = check_size(boot, rank, size)))
        return err;
    struct wire_mpi *w = calloc(1, sizeof *w);
    if (!w || !(w->peers = calloc((size_t)size, sizeof *w->peers))) {
        free(w);
        return boot->error(WEFT_ENOMEM, "out of memory");
    }
    err = wire_mpi_duplicate(boot, of, &w->comm, &w->closed);
    if (err)
        goto fail;
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    MPI_Comm_get_attr(w->comm, MPI_TAG_UB, &highest, &tagged);
    w->mail_tag = tagged ? *highest : 32767; /* what MPI promises */
    w->base = (struct wire){&weft_wire, boot->error, rank, size, (uint64_t)w->mail_tag, -1, false};
    int code = wire_mpi_letters_open(w);
    if (code) {
        err = wire_mpi_error(&w->base, code, "mpi: receives for mail on", rank);
        *w->closed = true;
        goto fail;
    }
    *out = &w->base;
    return 0;
fail:
    free(w->peers);
    free(w);
    return err;
}

static void close_wire(struct wire *base)
{
    struct wire_mpi *w = (struct wire_mpi *)base;
    for (int i = 0; i < base->size; i++)
        if (w->peers[i].used && !w->peers[i].left)
            wire_mpi_bye(w, i);
    wire_mpi_letters_close(w);
    *w->closed = true;
    free(w->peers);
    free(w);
}

static bool progress(struct wire *base)
{
    return wire_mpi_move((struct wire_mpi *)base);
}

static enum transport_fate gone(struct wire *base, int rank)
{
    return ((struct wire_mpi *)base)->peers[rank].left ? TRANSPORT_LEFT : TRANSPORT_HERE;
}

static bool arm(struct wire *base)
{
    (void)base;
    return false;
}

#if defined(OPEN_MPI)
#define TEXT(x) #x
#define VERSION(major, minor) "Open MPI " TEXT(major) "." TEXT(minor)
#define NAME VERSION(OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION)
#elif defined(MPICH_VERSION)
#define NAME "MPICH " MPICH_VERSION
#else
#error "an MPI library that is neither Open MPI nor MPICH"
#endif

__attribute__((visibility("default"))) const struct wire_ops weft_wire = {
    .abi = WIRE_ABI,
    .name = NAME,
    .can = {.sized = true},
    .open = open_wire,
    .close = close_wire,
    .progress = progress,
    .mail = wire_mpi_mail,
    .flushed = wire_mpi_flushed,
    .fetch = wire_mpi_fetch,
    .make = wire_mpi_make,
    .start = wire_mpi_start,
    .test = wire_mpi_test,
    .cancel = wire_mpi_cancel,
    .drop = wire_mpi_drop,
    .gone = gone,
    .arm = arm,
};
