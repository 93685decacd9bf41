/* Messages over MPI that are set up once: persistent requests. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>

#include "transport/wire/mpi/wire_mpi.h"
#include "weft.h"

#define CANCEL_NS INT64_C(200000000)
#define PIECE                                                                                              \
    (INT64_C(1) << 30) /* bytes of the type of which large messages are made, since counts in MPI are ints \
                        */

struct message {
    struct wire_message base;
    MPI_Request plain, sync; /* sync: for every WIRE_AHEAD-th start of a send; otherwise null */
    MPI_Request once;        /* of a loose message */
    MPI_Request *active;     /* the one that is started; NULL: none */
    MPI_Datatype large;      /* the type of a large message; otherwise null */
    unsigned starts;
    int code;           /* of a start or a test that failed */
    MPI_Count received; /* bytes of the last run of a receive */
    bool settled;       /* false: MPI may still use the request */
};

static struct wire_mpi *wire_of(const struct message *m)
{
    return (struct wire_mpi *)m->base.wire;
}

/* Makes a type of `bytes` bytes: pieces, and the rest. */
static int large_type(size_t bytes, MPI_Datatype *out)
{
    size_t pieces = bytes / PIECE;
    MPI_Datatype piece, all, types[2];
    int code = MPI_Type_contiguous((int)PIECE, MPI_BYTE, &piece);
    if (code)
        return code;
    code = MPI_Type_contiguous((int)pieces, piece, &all);
    if (!code) {
        int lengths[2] = {1, (int)(bytes % PIECE)};
        MPI_Aint places[2] = {0, (MPI_Aint)(pieces * PIECE)};
        types[0] = all;
        types[1] = MPI_BYTE;
        code = MPI_Type_create_struct(2, lengths, places, types, out);
        MPI_Type_free(&all);
    }
    MPI_Type_free(&piece);
    return code ? code : MPI_Type_commit(out);
}

static int init(struct message *m)
{
    struct wire_mpi *w = wire_of(m);
    const struct wire_message *b = &m->base;
    int code = 0, count = (int)b->bytes, tag = (int)b->tag;
    MPI_Datatype type = MPI_BYTE;
    if (b->bytes > INT_MAX) {
        code = large_type(b->bytes, &m->large);
        type = m->large;
        count = 1;
    }
    if (!code && !b->send)
        return MPI_Recv_init(b->memory, count, type, b->peer, tag, w->comm, &m->plain);
    if (!code)
        code = MPI_Send_init(b->memory, count, type, b->peer, tag, w->comm, &m->plain);
    return code ? code : MPI_Ssend_init(b->memory, count, type, b->peer, tag, w->comm, &m->sync);
}

int wire_mpi_data_make(struct wire *base, int peer, uint64_t tag, void *memory, size_t bytes, bool send,
                       struct wire_message **out)
{
    if (peer < 0 || peer >= base->size)
        return base->error(WEFT_EINVAL, "there is no rank %d among %d", peer, base->size);
    if (tag >= base->tags)
        return base->error(WEFT_EINVAL, "mpi: no tag %llu", (unsigned long long)tag);
    if (bytes / PIECE > INT_MAX)
        return base->error(WEFT_EUNSUPPORTED, "mpi: a message of %zu bytes; it can have 2^61", bytes);
    struct message *m = malloc(sizeof *m);
    if (!m)
        return base->error(WEFT_ENOMEM, "out of memory");
    *m = (struct message){
        .base = {.wire = base, .memory = memory, .bytes = bytes, .tag = tag, .peer = peer, .send = send},
        .plain = MPI_REQUEST_NULL,
        .sync = MPI_REQUEST_NULL,
        .once = MPI_REQUEST_NULL,
        .large = MPI_DATATYPE_NULL,
        .received = (MPI_Count)bytes,
        .settled = true};
    int code = init(m);
    if (code) {
        int err = wire_mpi_error(base, code, "a message with", peer);
        wire_mpi_data_drop(&m->base);
        return err;
    }
    wire_of(m)->peers[peer].used = true;
    *out = &m->base;
    return 0;
}

static int start_loose(struct message *m, bool sync)
{
    const struct wire_message *b = &m->base;
    MPI_Comm comm = wire_of(m)->comm;
    int n = (int)b->bytes, tag = (int)b->tag;
    m->active = &m->once;
    if (!b->send)
        return MPI_Irecv(b->memory, n, MPI_BYTE, b->peer, tag, comm, m->active);
    return sync ? MPI_Issend(b->memory, n, MPI_BYTE, b->peer, tag, comm, m->active)
                : MPI_Isend(b->memory, n, MPI_BYTE, b->peer, tag, comm, m->active);
}

int wire_mpi_data_start(struct wire_message *base)
{
    struct message *m = (struct message *)base;
    if (m->active || !m->settled)
        return base->wire->error(WEFT_EBUSY, "a message with rank %d is started twice", base->peer);
    if (base->send && wire_of(m)->peers[base->peer].left_at)
        return base->wire->error(WEFT_EPEER, "rank %d has left", base->peer);
    bool sync = base->send && ++m->starts % WIRE_AHEAD == 0;
    if (base->loose && base->bytes > INT_MAX)
        return base->wire->error(WEFT_EUNSUPPORTED, "mpi: a loose message of %zu bytes", base->bytes);
    m->active = sync ? &m->sync : &m->plain;
    m->code = base->loose ? start_loose(m, sync) : MPI_Start(m->active);
    if (m->code)
        m->active = NULL;
    return m->code ? wire_mpi_error(base->wire, m->code, "a message with", base->peer) : 0;
}

static int result(const struct message *m)
{
    const struct wire_message *b = &m->base;
    if (m->code)
        return wire_mpi_error(b->wire, m->code, "a message with", b->peer);
    if (!b->send && !b->loose && (uint64_t)m->received != b->bytes)
        return b->wire->error(WEFT_EMISMATCH, "rank %d sent %lld bytes; %zu are expected of it", b->peer,
                              (long long)m->received, b->bytes);
    return 1;
}

int wire_mpi_data_test(struct wire_message *base)
{
    struct message *m = (struct message *)base;
    MPI_Status status;
    int done = 0;
    if (!m->active)
        return result(m);
    m->code = MPI_Test(m->active, &done, &status);
    if (!m->code && !done)
        return wire_mpi_gone(base->wire, base->peer) ? base->wire->error(WEFT_EPEER, "rank %d has left", base->peer)
                                                     : 0;
    m->active = NULL;
    if (!m->code && !base->send)
        MPI_Get_elements_x(&status, m->large == MPI_DATATYPE_NULL ? MPI_BYTE : m->large, &m->received);
    base->got = (size_t)m->received;
    return result(m);
}

bool wire_mpi_data_cancel(struct wire_message *base)
{
    struct message *m = (struct message *)base;
    if (!m->active)
        return m->settled;
    if (base->send || base->wire->failed)
        wire_mpi_error_trouble();
    if (!base->send)
        MPI_Cancel(m->active);
    int done = 0;
    for (int64_t end = wire_mpi_now() + CANCEL_NS; !done && wire_mpi_now() < end;)
        if (MPI_Test(m->active, &done, MPI_STATUS_IGNORE))
            done = 1;
    if (!done)
        wire_mpi_error_trouble();
    m->settled = done;
    m->active = NULL;
    return done;
}

/* A message that MPI may still use is not freed; freeing a request that is under way would not end it either. */
void wire_mpi_data_drop(struct wire_message *base)
{
    struct message *m = (struct message *)base;
    if (!m || !wire_mpi_data_cancel(base))
        return;
    if (m->plain != MPI_REQUEST_NULL)
        MPI_Request_free(&m->plain);
    if (m->sync != MPI_REQUEST_NULL)
        MPI_Request_free(&m->sync);
    if (m->large != MPI_DATATYPE_NULL)
        MPI_Type_free(&m->large);
    free(m);
}
