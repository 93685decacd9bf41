/* Opening and closing a wire of MPI. */
#define _GNU_SOURCE
#include "transport/wire/mpi/wire_mpi.h"

#include <sched.h>
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

/* ---- the end of wires ----
 *
 * To close a wire waits for nobody, and others may still send to it: at least their word that they leave. Who does not
 * receive that loses it to MPI, which knows a communicator by a number that is used again when it is freed: it would
 * come to the next wire with that number, where it says that a peer has left that has not. (Some libraries also warn of
 * it when they end.) So two ranks with anything between them tell each other when they close, and each goes on to
 * receive until it was told.
 *
 * A split wire has a communicator of its ranks' own. To free that is collective by the letter; in both libraries each
 * rank frees its own and none waits. There all ranks tell all, so that who was told by all knows that nothing can come
 * any more. It is looked at when the next one is made. */

#define END_NS INT64_C(30000000000) /* for others to come to the end of MPI, which would wait for them for ever */

static struct wire_mpi *wires;

static bool concerns(const struct wire_mpi *w, int peer)
{
    return peer != w->base.rank && (w->split || w->peers[peer].used);
}

static void say_bye(struct wire_mpi *w)
{
    for (int i = 0; i < w->base.size; i++)
        if (concerns(w, i) && !w->peers[i].told)
            w->peers[i].told = !wire_mpi_bye(w, i);
}

bool wire_mpi_settled(struct wire_mpi *w)
{
    const void *bytes;
    size_t n;
    int peer;
    if (!w->closed)
        return false;
    while (wire_mpi_fetch(&w->base, &peer, &bytes, &n))
        ;       /* nobody wants it any more */
    say_bye(w); /* to those of whom this is the first that was heard */
    wire_mpi_move(w);
    for (int i = 0; i < w->base.size; i++)
        if (concerns(w, i) && !w->peers[i].left)
            return false;
    return !w->posts;
}

bool wire_mpi_over(struct wire_mpi *w)
{
    int left = 1;
    return wire_mpi_settled(w) && !MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, w->comm, &left, MPI_STATUS_IGNORE) && !left;
}

void wire_mpi_free(struct wire_mpi *w)
{
    struct wire_mpi **at = &wires;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    wire_mpi_letters_close(w);
    MPI_Comm_free(&w->comm);
    free(w->peers);
    free(w);
}

static void free_splits(void)
{
    for (struct wire_mpi *w = wires, *next; w && !wire_mpi_troubled(); w = next) {
        next = w->next;
        if (w->split && wire_mpi_over(w))
            wire_mpi_free(w);
    }
}

/* But for those that have failed, whose peers may be gone. */
static bool all_settled(void)
{
    bool all = true;
    for (struct wire_mpi *w = wires; w; w = w->next)
        all &= w->base.failed || wire_mpi_settled(w);
    return all;
}

/* MPI is about to end, whoever ends it: it calls this for what hangs on MPI_COMM_SELF. Wires that are open end with it,
 * since others may wait to be told. */
static int forget(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    for (struct wire_mpi *w = wires; w; w = w->next)
        w->closed = true;
    for (int64_t until = wire_mpi_now() + END_NS; !wire_mpi_troubled() && !all_settled() && wire_mpi_now() < until;)
        sched_yield();
    for (struct wire_mpi *w = wires; w; w = w->next)
        wire_mpi_letters_close(w);
    return MPI_SUCCESS;
}

static void forget_at_end(void)
{
    static int keyval = MPI_KEYVAL_INVALID;
    if (keyval == MPI_KEYVAL_INVALID && !MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL))
        MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
}

static void close_wire(struct wire *base)
{
    struct wire_mpi *w = (struct wire_mpi *)base;
    if (w->closed) /* MPI has ended */
        return;
    if (base->failed)
        wire_mpi_trouble();
    w->closed = true;
    say_bye(w);
    if (!wire_mpi_letters_leave(w))
        wire_mpi_trouble();
    free_splits();
}

/* ---- opening ---- */

/* With its communicator. */
static int begin(struct wire_mpi *w, const struct wire_boot *boot, int rank, struct wire **out)
{
    int tagged, *highest;
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    MPI_Comm_get_attr(w->comm, MPI_TAG_UB, &highest, &tagged);
    w->mail_tag = tagged ? *highest : 32767; /* what MPI promises */
    w->base = (struct wire){&weft_wire, boot->error, rank, w->base.size, (uint64_t)w->mail_tag, -1, false};
    forget_at_end();
    w->next = wires;
    wires = w;
    int code = wire_mpi_letters_open(w);
    if (!code) {
        *out = &w->base;
        return 0;
    }
    close_wire(&w->base);
    return wire_mpi_error(&w->base, code, "mpi: receives for mail on", rank);
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
    err = w ? wire_mpi_duplicate(boot, of, w) : WEFT_ENOMEM;
    return err ? abandon(w, err) : begin(w, boot, rank, out);
}

static int split_wire(struct wire *base, const int *ranks, const struct wire_boot *boot, struct wire **out)
{
    struct wire_boot own = *boot;
    own.error = base->error;
    free_splits();
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
