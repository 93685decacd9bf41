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

/* With its communicator. */
static int begin(struct wire_mpi *w, const struct wire_boot *boot, int rank, struct wire **out)
{
    int tagged, *highest;
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    MPI_Comm_get_attr(w->comm, MPI_TAG_UB, &highest, &tagged);
    w->mail_tag = tagged ? *highest : 32767; /* what MPI promises */
    w->base = (struct wire){&weft_wire, boot->error, rank, w->base.size, (uint64_t)w->mail_tag, -1, false};
    int code = wire_mpi_letters_open(w);
    if (!code) {
        *out = &w->base;
        return 0;
    }
    int err = wire_mpi_error(&w->base, code, "mpi: receives for mail on", rank);
    if (w->closed)
        *w->closed = true;
    return abandon(w, err);
}

static int open_wire(const struct wire_boot *boot, struct wire **out)
{
    int rank, size, between, err = wire_mpi_begin(boot);
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
    struct wire_mpi *w = wire_new(boot, size);
    err = w ? wire_mpi_duplicate(boot, of, &w->comm, &w->closed) : WEFT_ENOMEM;
    return err ? abandon(w, err) : begin(w, boot, rank, out);
}

/* ---- wires that were split, and their end ----
 *
 * Each has a communicator of its ranks' own. To free one is collective by the letter; in both libraries each rank frees its
 * own and none waits. But the number by which the library knows it is used again then, and what has come and was not
 * received would be taken for messages of the next one. So who closes says so to all the others, and frees it when all of
 * them have said so: what they sent before has come then. Looked at when the next one is made. */

static struct wire_mpi *closed_wires;

static bool all_left(const struct wire_mpi *w)
{
    for (int i = 0; i < w->base.size; i++)
        if (i != w->base.rank && !w->peers[i].left)
            return false;
    return true;
}

static void free_closed(void)
{
    for (struct wire_mpi **at = &closed_wires; *at && !wire_mpi_troubled();) {
        struct wire_mpi *w = *at;
        const void *bytes;
        size_t n;
        int peer;
        while (wire_mpi_fetch(&w->base, &peer, &bytes, &n))
            ; /* nobody wants it any more */
        if (!all_left(w)) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        wire_mpi_letters_close(w);
        MPI_Comm_free(&w->comm);
        free(w->peers);
        free(w);
    }
}

/* MPI is about to end, whoever ends it: it calls this for what hangs on MPI_COMM_SELF. */
static int forget(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    for (struct wire_mpi *w = closed_wires; w; w = w->next)
        wire_mpi_letters_close(w);
    return MPI_SUCCESS;
}

static void forget_at_end(void)
{
    static int keyval = MPI_KEYVAL_INVALID;
    if (keyval == MPI_KEYVAL_INVALID && !MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL))
        MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
}

static void close_split(struct wire_mpi *w)
{
    for (int i = 0; i < w->base.size; i++)
        if (i != w->base.rank && !w->peers[i].left)
            wire_mpi_bye(w, i);
    if (!wire_mpi_letters_leave(w))
        wire_mpi_trouble();
    forget_at_end();
    w->next = closed_wires;
    closed_wires = w;
    free_closed();
}

static int split_wire(struct wire *base, const int *ranks, const struct wire_boot *boot, struct wire **out)
{
    struct wire_boot own = *boot;
    own.error = base->error;
    free_closed();
    struct wire_mpi *w = wire_new(&own, boot->size);
    if (!w)
        return WEFT_ENOMEM;
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

static void close_wire(struct wire *base)
{
    struct wire_mpi *w = (struct wire_mpi *)base;
    if (base->failed)
        wire_mpi_trouble();
    if (!w->closed) {
        close_split(w);
        return;
    }
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
    .split = split_wire,
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
