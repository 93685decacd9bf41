/* Messages out of private memory that the receiver reads where they are, with the system's help: one
 * copy instead of the two of staging. The system's copies are slower than a program's own, so senders
 * measure at bind, on the memory itself, how long a piece has to be to be worth it, and receivers ask
 * whether they are permitted. Each shows it to the other, and both come to the same answer.
 *
 * The engine treats such a message as a pull: the sender lets it be read from its launch until the
 * receiver has told that it was, and no longer. After a failure nobody begins a read, and one that is
 * under way harms nobody: it changes nothing at the sender's, and what it has read is thrown away.
 * Messages that are cast or shared by several receivers stay with staging. */
#include <sys/uio.h>

#include "base/error.h"
#include "engine/block.h"

#define LEAST (64 << 10) /* bytes of a message for which it is worth measuring */

bool cross_may(const weft_comm *c, int peer)
{
    return c->transport->can.crosses && !c->staged && c->opts.cross >= 0 && c->transport->crosses(c->link, peer);
}

/* The first part of the largest staged message that has one reader. */
static const struct plan_part *sample(const weft_exec *x, const struct program *p)
{
    const struct plan_part *found = NULL;
    int64_t most = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct plan_step *st = &x->plan->steps[s];
        if (st->kind != PLAN_SEND || p->steps[s].way != WAY_STAGED || st->bytes <= most ||
            p->shares[p->steps[s].letter].nouts > 1)
            continue;
        most = st->bytes;
        found = &x->plan->parts[st->part];
    }
    return most >= LEAST ? found : NULL;
}

/* Messages that flow are better off so. */
int64_t cross_worth(const weft_exec *x, const struct program *p)
{
    const weft_comm *c = x->comm;
    if (!c->transport->can.crosses || c->opts.cross || !p->staged)
        return c->opts.cross > 0 && !c->staged ? 1 : INT64_MAX;
    const struct plan_part *part = sample(x, p);
    if (!part || c->staged || flow_one_way(x, p))
        return INT64_MAX;
    const struct plan_buf *buf = &x->plan->bufs[part->buf];
    const struct exec_place *at = &p->places[part->buf];
    int64_t n[MEMORY_LOOPS], stride[MEMORY_LOOPS], first;
    tile_loops(x->plan, part, at->stride, n, stride, &first);
    int64_t bytes = view_extent(plan_ndim(x->plan, part), x->plan->shapes + buf->shape, at->stride,
                                (int64_t)weft_dtype_size(buf->dtype));
    return c->transport->worth(c->link, at->base + first, (size_t)(bytes - first));
}

/* Bytes in one piece on both sides, in the order of the merged loops: each piece is one of the system's. */
static int64_t piece_bytes(const struct memory_tile *t, int64_t size)
{
    int last = t->loops - 1;
    return last >= 0 && t->stride[0][last] == size && t->stride[1][last] == size ? t->n[last] * size : size;
}

bool cross_fits(const struct block *from, const struct block_message *send, const struct block *to,
                const struct block_message *recv, bool may)
{
    int64_t least = send->least;
    if (!may || send->way != WAY_STAGED || send->bytes < least || send->nparts != recv->nparts)
        return false;
    for (uint32_t q = 0; q < send->nparts; q++) {
        const struct block_part *src = &block_parts(from)[send->part + q], *dst = &block_parts(to)[recv->part + q];
        int64_t size = (int64_t)weft_dtype_size(src->dtype);
        struct memory_tile t = {0};
        if (src->dtype != src->wire || dst->dtype != src->wire || src->nloops != dst->nloops)
            return false;
        for (int i = 0; i < src->nloops; i++) {
            t.n[i] = block_loops(from)[src->loop + (uint32_t)i].n;
            t.stride[0][i] = block_loops(to)[dst->loop + (uint32_t)i].stride;
            t.stride[1][i] = block_loops(from)[src->loop + (uint32_t)i].stride;
        }
        t.loops = tile_merge(src->nloops, t.n, t.stride, 2);
        if (piece_bytes(&t, size) < least)
            return false;
    }
    return true;
}

/* ---- the run ---- */

struct batch {
    struct transport_link *link;
    int peer;
    size_t n, bytes;
    struct iovec to[TRANSPORT_PIECES], from[TRANSPORT_PIECES];
};

static int flush(struct batch *b)
{
    int err = b->n ? b->link->transport->cross(b->link, b->peer, b->to, b->from, b->n) : 0;
    b->n = b->bytes = 0;
    return err;
}

static int add(struct batch *b, char *dst, const char *src, int64_t bytes)
{
    int err = 0;
    while (bytes && !err) {
        size_t room = TRANSPORT_CROSS - b->bytes, piece = (size_t)bytes < room ? (size_t)bytes : room;
        b->to[b->n] = (struct iovec){dst, piece};
        b->from[b->n++] = (struct iovec){(void *)(uintptr_t)src, piece};
        b->bytes += piece;
        dst += piece;
        src += piece;
        bytes -= (int64_t)piece;
        if (b->n == TRANSPORT_PIECES || b->bytes == TRANSPORT_CROSS)
            err = flush(b);
    }
    return err;
}

static int read_move(struct batch *b, const struct exec_move *m)
{
    const struct memory_tile *t = m->tile;
    if (!t)
        return add(b, m->dst, m->src, m->bytes);
    int64_t size = (int64_t)weft_dtype_size(m->to), piece = piece_bytes(t, size), turn[MEMORY_LOOPS] = {0};
    int outer = piece > size || t->loops == 0 ? t->loops - 1 : t->loops, err = 0;
    char *dst = m->dst;
    const char *src = m->src;
    for (int i = 0; i >= 0 && !err;) {
        err = add(b, dst, src, piece);
        for (i = outer - 1; i >= 0; i--) {
            dst += t->stride[0][i];
            src += t->stride[1][i];
            if (++turn[i] < t->n[i])
                break;
            dst -= t->n[i] * t->stride[0][i];
            src -= t->n[i] * t->stride[1][i];
            turn[i] = 0;
        }
    }
    return err;
}

/* A rank that is still there when all has been read was there all the time. */
bool cross_take(weft_exec *x, const struct exec_in *in, const struct exec_step *step)
{
    weft_comm *c = x->comm;
    struct batch b;
    char who[COMM_WHO];
    b.link = c->link;
    b.peer = in->peer;
    b.n = b.bytes = 0;
    int err = 0;
    for (uint32_t k = 0; k < step->nwork && !err; k++)
        err = read_move(&b, &x->program->moves[step->work + k]);
    if (!err)
        err = flush(&b);
    if (err == WEFT_EPEER || c->transport->gone(c->link, in->peer) == TRANSPORT_DIED)
        comm_fail(c, WEFT_EPEER, "%s has died, rank %d was reading from it", comm_who(c, in->peer, who), c->rank);
    else if (err)
        comm_fail(c, err, "%s: %s; it was rank %d that tried", comm_who(c, in->peer, who), weft_errmsg(), c->rank);
    else
        return true;
    return false;
}
