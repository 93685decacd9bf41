/* Mail over MPI. A ring of receives that take mail from any rank is always posted. MPI fills them in the order in which
 * they were posted, and keeps the messages of one sender in order. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "transport/wire/mpi/wire_mpi.h"
#include "weft.h"

#define CLOSE_NS INT64_C(5000000000) /* within which mail must leave this process */

/* ---- in ---- */

static int start(struct wire_mpi_packet *l)
{
    int code = MPI_Start(&l->request);
    l->open = !code;
    return code;
}

int wire_mpi_mail_open(struct wire_mpi *w)
{
    int code = 0;
    for (int i = 0; i < MPI_MAILS; i++)
        w->in[i].request = MPI_REQUEST_NULL;
    for (int i = 0; i < MPI_MAILS && !code; i++) {
        struct wire_mpi_packet *l = &w->in[i];
        code = MPI_Recv_init(l->bytes, WIRE_MAIL, MPI_BYTE, MPI_ANY_SOURCE, w->mail_tag, w->comm, &l->request);
        if (!code)
            code = start(l);
    }
    return code;
}

static struct wire_mpi_packet *packet(struct wire_mpi *w, unsigned i)
{
    return &w->in[i % MPI_MAILS];
}

static bool receive(struct wire_mpi *w)
{
    struct wire_mpi_packet *l = packet(w, w->next_in);
    int done = 0;
    if (!w->came && l->open && !MPI_Test(&l->request, &done, &w->arrived) && done) {
        w->came = true;
        l->open = false;
    }
    return done;
}

bool wire_mpi_mail_fetch(struct wire *base, int *peer, const void **bytes, size_t *n)
{
    struct wire_mpi *w = (struct wire_mpi *)base;
    for (;;) {
        if (w->read) { /* the caller is done with the last mail: its room is posted again */
            if (start(packet(w, w->next_in - 1)))
                return false;
            w->read = false;
        }
        receive(w);
        if (!w->came)
            return false;
        int count = 0, from = w->arrived.MPI_SOURCE;
        MPI_Get_count(&w->arrived, MPI_BYTE, &count);
        *bytes = packet(w, w->next_in)->bytes;
        w->next_in++;
        w->came = false;
        w->read = true;
        w->peers[from].used = true;
        if (count > 0) {
            *peer = from;
            *n = (size_t)count;
            return true;
        }
        w->peers[from].left_at = wire_mpi_now();
    }
}

/* ---- out ---- */

/* Mail leaves in order, so only the oldest is tested; mail that is done before it waits for it. */
static bool sweep(struct wire_mpi *w)
{
    bool moved = false;
    for (int done = 1; w->posts && done;) {
        struct wire_mpi_packet *l = w->posts;
        if (MPI_Test(&l->request, &done, MPI_STATUS_IGNORE))
            done = 1; /* the mail is lost, and its peer is, too */
        if (!done)
            break;
        w->posts = l->next;
        l->next = w->spare;
        w->spare = l;
        moved = true;
    }
    return moved;
}

bool wire_mpi_mail_move(struct wire_mpi *w)
{
    bool out = sweep(w);
    return receive(w) || out;
}

static int send_packet(struct wire_mpi *w, int peer, const void *bytes, size_t n)
{
    struct wire_mpi_packet *l = w->spare;
    if (l)
        w->spare = l->next;
    else if (!(l = malloc(sizeof *l)))
        return w->base.error(WEFT_ENOMEM, "out of memory");
    if (n)
        memcpy(l->bytes, bytes, n);
    int code = MPI_Isend(l->bytes, (int)n, MPI_BYTE, peer, w->mail_tag, w->comm, &l->request);
    if (code) {
        l->next = w->spare;
        w->spare = l;
        return wire_mpi_error(&w->base, code, "mail to", peer);
    }
    w->peers[peer].used = true;
    l->next = NULL;
    if (w->posts)
        w->last->next = l;
    else
        w->posts = l;
    w->last = l;
    sweep(w);
    return 0;
}

int wire_mpi_mail(struct wire *base, int peer, const void *bytes, size_t n)
{
    if (n < 1 || n > WIRE_MAIL)
        return base->error(WEFT_EINVAL, "a mail of %zu bytes; it can have 1 to %d", n, WIRE_MAIL);
    if (peer < 0 || peer >= base->size)
        return base->error(WEFT_EINVAL, "there is no rank %d among %d", peer, base->size);
    if (((struct wire_mpi *)base)->peers[peer].left_at)
        return base->error(WEFT_EPEER, "rank %d has left", peer);
    return send_packet((struct wire_mpi *)base, peer, bytes, n);
}

int wire_mpi_mail_bye(struct wire_mpi *w, int peer)
{
    return send_packet(w, peer, NULL, 0);
}

bool wire_mpi_mail_leave(struct wire_mpi *w)
{
    for (int64_t end = wire_mpi_now() + CLOSE_NS; w->posts && wire_mpi_now() < end;)
        sweep(w);
    return !w->posts;
}

/* Memory that MPI does not give back in time is not freed: MPI may still use it. */
void wire_mpi_mail_close(struct wire_mpi *w)
{
    int64_t end = wire_mpi_now() + CLOSE_NS;
    if (!wire_mpi_mail_leave(w))
        wire_mpi_error_trouble();
    for (int i = 0; i < MPI_MAILS; i++) {
        struct wire_mpi_packet *l = &w->in[i];
        int done = 0;
        if (l->open)
            MPI_Cancel(&l->request);
        while (l->open && !done && wire_mpi_now() < end)
            if (MPI_Test(&l->request, &done, MPI_STATUS_IGNORE))
                done = 1;
        if (l->request != MPI_REQUEST_NULL)
            MPI_Request_free(&l->request);
    }
    for (struct wire_mpi_packet *l = w->spare, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    w->spare = NULL;
}

bool wire_mpi_mail_flushed(struct wire *w)
{
    return !((struct wire_mpi *)w)->posts;
}
