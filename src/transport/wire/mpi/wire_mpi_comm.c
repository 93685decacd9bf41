/* Starting and ending MPI, and the communicators of wires.
 *
 * Each wire has a duplicate of the communicator that it was opened on, so that its messages do not meet the program's.
 * Freeing a duplicate is collective, but closing a wire is not, and MPI has room for only some thousand duplicates. So
 * each duplicate is remembered with its parent when it is made (in the same order on all ranks), and the next open on
 * that parent, which is collective, frees those that are over on all ranks. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/wire/mpi/wire_mpi.h"
#include "weft.h"

/* ---- MPI itself ---- */

static pid_t began; /* the process that started MPI, if weft did; 0: the program did */

static void end(void)
{
    int over;
    MPI_Finalized(&over);
    if (!over && !wire_mpi_error_troubled() && began == getpid())
        MPI_Finalize();
}

int wire_mpi_comm_begin(const struct wire_boot *boot)
{
    int there, over, level, main_thread;
    MPI_Initialized(&there);
    MPI_Finalized(&over);
    if (over)
        return boot->error(WEFT_EINVAL, "mpi: MPI_Finalize has been called already");
    if (!there) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level))
            return boot->error(WEFT_ETRANSPORT, "mpi: MPI_Init_thread failed");
        began = getpid();
        atexit(end);
    }
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&main_thread);
    if (level < MPI_THREAD_SERIALIZED && !boot->one_thread)
        return boot->error(WEFT_EUNSUPPORTED, "mpi: MPI was started without support for threads: call MPI_Init_thread "
                                              "with MPI_THREAD_SERIALIZED or more before weft is opened");
    if (level < MPI_THREAD_SERIALIZED && !main_thread)
        return boot->error(WEFT_EUNSUPPORTED,
                           "mpi: only the thread that started MPI may use it: call MPI_Init_thread with "
                           "MPI_THREAD_SERIALIZED or more, or open weft there");
    return 0;
}

/* ---- communicators ---- */

struct past {
    MPI_Comm comm;
    struct wire_mpi *wire; /* the wire that uses the duplicate */
    struct past *next;
};

static int keyval = MPI_KEYVAL_INVALID;

/* The parent is being freed. Wires on its duplicates stay until MPI ends. */
static int forget(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)extra;
    struct past **list = value;
    for (struct past *p = *list, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    free(list);
    return MPI_SUCCESS;
}

/* The duplicates of a parent, in the order in which they were made; NULL: no memory. */
static struct past **pasts(MPI_Comm parent)
{
    struct past **list = NULL;
    int found;
    if (keyval == MPI_KEYVAL_INVALID)
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, NULL);
    MPI_Comm_get_attr(parent, keyval, &list, &found);
    if (!found && (list = calloc(1, sizeof *list)))
        MPI_Comm_set_attr(parent, keyval, list);
    return list;
}

/* Waits for a collective call, at most until the deadline. */
static int finish(const struct wire_boot *boot, MPI_Request *request, int64_t deadline)
{
    for (int done = 0; !done;) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE))
            return boot->error(WEFT_ETRANSPORT, "mpi: the communicator cannot be duplicated");
        if (!done && wire_mpi_now() > deadline) {
            wire_mpi_error_trouble();
            return boot->error(WEFT_ETIMEOUT, "mpi: not all ranks of the communicator have opened it in time");
        }
        if (!done)
            sched_yield();
    }
    return 0;
}

static int free_over(const struct wire_boot *boot, MPI_Comm parent, struct past **list, int64_t deadline)
{
    int n = 0, i = 0;
    for (struct past *p = *list; p; p = p->next)
        n++;
    if (!n)
        return 0;
    unsigned char *mine = malloc((size_t)n), *all = malloc((size_t)n);
    int err = mine && all ? 0 : boot->error(WEFT_ENOMEM, "out of memory");
    MPI_Request request;
    for (struct past *p = *list; p && !err; p = p->next)
        mine[i++] = wire_mpi_end_over(p->wire);
    if (!err && MPI_Iallreduce(mine, all, n, MPI_UNSIGNED_CHAR, MPI_BAND, parent, &request))
        err = boot->error(WEFT_ETRANSPORT, "mpi: the ranks cannot agree");
    if (!err)
        err = finish(boot, &request, deadline);
    if (err == WEFT_ETIMEOUT)
        return err; /* MPI may still use the two arrays */
    i = 0;
    for (struct past **at = list; *at && !err; i++) {
        struct past *p = *at;
        if (all[i]) {
            *at = p->next;
            wire_mpi_end_free(p->wire);
            free(p);
        } else {
            at = &p->next;
        }
    }
    free(mine);
    free(all);
    return err;
}

int wire_mpi_comm_duplicate(const struct wire_boot *boot, MPI_Comm of, struct wire_mpi *w)
{
    int64_t deadline = wire_mpi_now() + boot->wait_ns;
    struct past *p = calloc(1, sizeof *p), **list = pasts(of);
    MPI_Request request;
    int err = p && list ? free_over(boot, of, list, deadline) : boot->error(WEFT_ENOMEM, "out of memory");
    if (!err && MPI_Comm_idup(of, &p->comm, &request))
        err = boot->error(WEFT_ETRANSPORT, "mpi: the communicator cannot be duplicated");
    if (err) {
        free(p);
        return err;
    }
    err = finish(boot, &request, deadline);
    if (err)
        return err; /* MPI may still write p->comm */
    while (*list)
        list = &(*list)->next;
    *list = p;
    p->wire = w;
    w->comm = p->comm;
    return 0;
}
