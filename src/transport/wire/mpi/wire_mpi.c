/* Opening and closing a wire of MPI. */
#define _GNU_SOURCE
#include "transport/wire/mpi/wire_mpi.h"

#include <stdlib.h>

#include "weft.h"

extern const struct wire_ops weft_wire;

#define LEFT_NS INT64_C(100000000)

static int check_size(const struct wire_boot *boot, int rank, int size)
{
    if (!boot->size || (boot->size == size && boot->rank == rank))
        return 0;
    return boot->error(WEFT_EINVAL, "mpi: this is rank %d of %d of the communicator, not rank %d of %d", rank, size,
                       boot->rank, boot->size);
}

static struct wire_mpi *wire_new(const struct wire_boot *boot, int size)
{
    struct wire_mpi *w = calloc(1, sizeof *w);
    if (w && (w->peers = calloc((size_t)size, sizeof *w->peers))) {
        w->base.size = size;
        return w;
    }
    free(w);
    boot->error(WEFT_ENOMEM, "out of memory");
    return NULL;
}

static int abandon(struct wire_mpi *w, int err)
{
    if (w)
        free(w->peers);
    free(w);
    return err;
}

static void close_wire(struct wire *base)
{
    struct wire_mpi *w = (struct wire_mpi *)base;
    if (w->closed) /* MPI has ended, and the wire with it */
        return;
    if (base->failed)
        wire_mpi_error_trouble();
    w->closed = true;
    wire_mpi_end_bye(w);
    if (!wire_mpi_mail_leave(w))
        wire_mpi_error_trouble();
    wire_mpi_end_free_splits();
}

/* ---- opening ---- */

/* Begins a wire that has its communicator. */
static int begin(struct wire_mpi *w, const struct wire_boot *boot, int rank, struct wire **out)
{
    int tagged, *highest;
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    MPI_Comm_get_attr(w->comm, MPI_TAG_UB, &highest, &tagged);
    w->mail_tag = tagged ? *highest : 32767; /* the least that MPI guarantees */
    w->base = (struct wire){&weft_wire, boot->error, rank, w->base.size, (uint64_t)w->mail_tag, -1, false, 0};
    wire_mpi_end_list(w);
    int code = wire_mpi_mail_open(w);
    if (!code) {
        *out = &w->base;
        return 0;
    }
    close_wire(&w->base);
    return wire_mpi_error(&w->base, code, "mpi: receives for mail on", rank);
}

static int open_wire(const struct wire_boot *boot, struct wire **out)
{
    int rank, size, between, err = wire_mpi_comm_begin(boot);
    if (err)
        return err;
    MPI_Comm of = boot->communicator ? *(const MPI_Comm *)boot->communicator : MPI_COMM_WORLD;
    MPI_Comm_test_inter(of, &between);
    MPI_Comm_rank(of, &rank);
    MPI_Comm_size(of, &size);
    if (between)
        return boot->error(WEFT_EINVAL, "mpi: an intercommunicator is not a group of ranks");
    if ((err = check_size(boot, rank, size)))
        return err;
    struct wire_mpi *w = wire_new(boot, size);
    err = w ? wire_mpi_comm_duplicate(boot, of, w) : WEFT_ENOMEM;
    return err ? abandon(w, err) : begin(w, boot, rank, out);
}

static int split_wire(struct wire *base, const int *ranks, const struct wire_boot *boot, struct wire **out)
{
    struct wire_boot own = *boot;
    own.error = base->error;
    wire_mpi_end_free_splits();
    struct wire_mpi *w = wire_new(&own, boot->size);
    if (!w)
        return WEFT_ENOMEM;
    w->split = true;
    MPI_Comm of = ((struct wire_mpi *)base)->comm;
    MPI_Group all, some;
    MPI_Comm_group(of, &all);
    MPI_Group_incl(all, boot->size, ranks, &some);
    int code = MPI_Comm_create_group(of, some, 0, &w->comm);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    if (code)
        return abandon(w, wire_mpi_error(base, code, "mpi: a communicator of some ranks, on", base->rank));
    return begin(w, &own, boot->rank, out);
}

/* ---- the rest ---- */

static bool progress(struct wire *base)
{
    return wire_mpi_mail_move((struct wire_mpi *)base);
}

/* A peer that has done its part may leave. MPI does not guarantee that this rank learns of the end of their last
 * message before the peer says that it leaves. So a message that ends within LEFT_NS after that has ended well. */
enum transport_fate wire_mpi_gone(struct wire *base, int rank)
{
    int64_t at = ((struct wire_mpi *)base)->peers[rank].left_at;
    return at && wire_mpi_now() - at >= LEFT_NS ? TRANSPORT_LEFT : TRANSPORT_HERE;
}

static bool used(struct wire *base, int rank)
{
    return ((struct wire_mpi *)base)->peers[rank].used;
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
    .split = split_wire,
    .close = close_wire,
    .progress = progress,
    .mail = wire_mpi_mail,
    .flushed = wire_mpi_mail_flushed,
    .fetch = wire_mpi_mail_fetch,
    .make = wire_mpi_data_make,
    .start = wire_mpi_data_start,
    .test = wire_mpi_data_test,
    .cancel = wire_mpi_data_cancel,
    .drop = wire_mpi_data_drop,
    .gone = wire_mpi_gone,
    .used = used,
    .arm = arm,
};
