/* The end of wires.
 *
 * Closing a wire does not wait for other ranks, and they may still send to it: at least a farewell. If this rank did
 * not receive a farewell, the message would stay in MPI. MPI knows a communicator by a number, which it uses again when
 * the communicator is freed. So the farewell would come to the next wire with that number, and say wrongly that a peer
 * has left. (Some libraries also warn of messages that were not received when they end.) So two ranks that had messages
 * or mail send each other a farewell when they close, and each goes on receiving until it has the other's.
 *
 * A split wire has a communicator of its own. By the standard, freeing it is collective; in both libraries each rank
 * frees its own end and does not wait. On a split wire every rank sends a farewell to every other rank. So a rank that
 * has the farewells of all knows that nothing more can come. This is checked when the next wire is made. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

#include "transport/wire/mpi/wire_mpi.h"

/* Time for other ranks to come to the end of MPI, which itself would wait for them for ever. */
#define END_NS INT64_C(30000000000)

static struct wire_mpi *wires;

static bool concerns(const struct wire_mpi *w, int peer)
{
    return peer != w->base.rank && (w->split || w->peers[peer].used);
}

void wire_mpi_end_bye(struct wire_mpi *w)
{
    for (int i = 0; i < w->base.size; i++)
        if (concerns(w, i) && !w->peers[i].told)
            w->peers[i].told = !wire_mpi_mail_bye(w, i);
}

bool wire_mpi_end_settled(struct wire_mpi *w)
{
    const void *bytes;
    size_t n;
    int peer;
    if (!w->closed)
        return false;
    while (wire_mpi_mail_fetch(&w->base, &peer, &bytes, &n))
        ;                /* the mail is not wanted any more */
    wire_mpi_end_bye(w); /* also to peers that have sent something only now */
    wire_mpi_mail_move(w);
    for (int i = 0; i < w->base.size; i++)
        if (concerns(w, i) && !w->peers[i].left_at)
            return false;
    return !w->posts;
}

bool wire_mpi_end_over(struct wire_mpi *w)
{
    int left = 1;
    return wire_mpi_end_settled(w) && !MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, w->comm, &left, MPI_STATUS_IGNORE) &&
           !left;
}

void wire_mpi_end_free(struct wire_mpi *w)
{
    struct wire_mpi **at = &wires;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    wire_mpi_mail_close(w);
    MPI_Comm_free(&w->comm);
    free(w->peers);
    free(w);
}

void wire_mpi_end_free_splits(void)
{
    for (struct wire_mpi *w = wires, *next; w && !wire_mpi_error_troubled(); w = next) {
        next = w->next;
        if (w->split && wire_mpi_end_over(w))
            wire_mpi_end_free(w);
    }
}

/* Wires that have failed do not count, because their peers may be gone. */
static bool all_settled(void)
{
    bool all = true;
    for (struct wire_mpi *w = wires; w; w = w->next)
        all &= w->base.failed || wire_mpi_end_settled(w);
    return all;
}

/* MPI is about to end, by weft or by the program: it calls this because it is an attribute of MPI_COMM_SELF. Open wires
 * are closed, since other ranks may wait for the farewell. */
static int forget(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    for (struct wire_mpi *w = wires; w; w = w->next)
        w->closed = true;
    for (int64_t until = wire_mpi_now() + END_NS;
         !wire_mpi_error_troubled() && !all_settled() && wire_mpi_now() < until;)
        sched_yield();
    for (struct wire_mpi *w = wires; w; w = w->next)
        wire_mpi_mail_close(w);
    return MPI_SUCCESS;
}

void wire_mpi_end_list(struct wire_mpi *w)
{
    static int keyval = MPI_KEYVAL_INVALID;
    if (keyval == MPI_KEYVAL_INVALID && !MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL))
        MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    w->next = wires;
    wires = w;
}
