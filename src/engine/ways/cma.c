/* Messages out of private memory that the receiver reads where they are, by cross-memory attach: a system call that
 * copies out of another process (process_vm_readv). It takes one copy instead of the two of staging.
 *
 * The system's copy of a byte takes longer than a program's own, since the system looks up each page. How much longer
 * depends on the system and on the size of the pages. So the sender measures at bind, on the memory itself, how long a
 * piece must be to be worth it. That takes longer than a move of that memory, so an exec that is bound again mostly
 * keeps what was measured before. The receiver asks whether it is permitted to read. Each shows it to the other. On
 * x86-64 with 16 cores, collectives of 1 and 16 MiB took 0.45 to 0.75 of the time (docs/ways.md). On two AArch64 cores
 * it made no difference.
 *
 * To the sender such a message is a pull: it may be read from its launch until the receiver has said that it was read.
 * After a failure no rank begins a read. A read that is under way does no harm: it changes nothing at the sender, and
 * what was read is thrown away. Messages that are cast, and those that go to several receivers, are staged. */
#include <sys/uio.h>

#include "base/error.h"
#include "engine/channel.h"
#include "engine/shape.h"

#define LEAST (64 << 10) /* bytes of a message for which it is worth measuring */

/* ---- bind ---- */

/* From how many bytes in one piece on private memory of this rank should be read by its peers. It is measured on the
 * first part of the first message that is long enough. */
static int64_t measure(const weft_exec *x, const struct program *p, const struct plan_part *part)
{
    const struct transport_link *l = x->comm->link;
    const struct plan_buf *buf = &x->plan->bufs[part->buf];
    const struct exec_place *at = &p->places[part->buf];
    int64_t n[MEMORY_LOOPS], stride[MEMORY_LOOPS], first;
    shape_loops(x->plan, part, at->stride, n, stride, &first);
    int64_t bytes = view_extent(plan_ndim(x->plan, part), x->plan->shapes + buf->shape, at->stride,
                                (int64_t)weft_dtype_size(buf->dtype));
    return l->transport->read_worth(at->base + first, (size_t)(bytes - first));
}

/* Memory that an exec is bound to later may have other pages, or have been touched meanwhile. So it is measured again
 * at the 2nd, 4th, 8th bind and so on. */
static int64_t least_of(const weft_exec *x, struct program *p, const struct plan_step *st)
{
    if (x->comm->cma_least)
        return x->comm->cma_least;
    if (!p->cma_least && st->bytes >= LEAST) {
        const struct program *was = x->program == p ? NULL : x->program;
        p->cma_asked = was && was->cma_least ? was->cma_asked + 1 : 1;
        bool again = !(p->cma_asked & (p->cma_asked - 1));
        p->cma_least = again ? measure(x, p, &x->plan->parts[st->part]) : was->cma_least;
    }
    return st->bytes >= LEAST ? p->cma_least : INT64_MAX;
}

static bool is_private(const weft_exec *x, const struct program *p, const struct plan_step *st)
{
    for (uint32_t q = 0; q < st->nparts; q++)
        if (p->places[x->plan->parts[st->part + q].buf].reached)
            return false;
    return st->nparts > 0;
}

static void describe(weft_exec *x, struct program *p, uint32_t s, struct block_message *m)
{
    weft_comm *c = x->comm;
    const struct plan_step *st = &x->plan->steps[s];
    if (!c->transport->can.reads || c->staged || x->off & way_table_bit(&way_cma))
        return;
    if (st->kind == PLAN_RECV && (st->bytes >= LEAST || c->cma_least))
        m->reads = c->transport->may_read(c->link, st->peer);
    else if (st->kind == PLAN_SEND && m->offer == OFFER_STAGED && p->multicasts[p->steps[s].multicast].nouts == 1 &&
             is_private(x, p, st))
        m->read_least = least_of(x, p, st);
}

/* A span of both sides, in the order of the merged loops, is a piece that the system copies. */
static bool fits(const struct way_ends *e)
{
    const struct block_message *send = e->send, *recv = e->recv;
    if (!recv->reads || !send->read_least || send->bytes < send->read_least || send->nparts != recv->nparts)
        return false;
    for (uint32_t q = 0; q < send->nparts; q++) {
        const struct block_part *src = &block_parts(e->from)[send->part + q],
                                *dst = &block_parts(e->to)[recv->part + q];
        if (src->dtype != src->wire || dst->dtype != src->wire || src->nloops != dst->nloops)
            return false;
        struct shape s = shape_pair(e->from, src, e->to, dst);
        if (s.length * (int64_t)weft_dtype_size(src->dtype) < send->read_least)
            return false;
    }
    return true;
}

/* ---- the run ---- */

/* Pieces that one system call reads. */
struct batch {
    struct transport_link *link;
    int peer;
    size_t n, bytes;
    struct iovec to[TRANSPORT_PIECES], from[TRANSPORT_PIECES];
};

static int flush(struct batch *b)
{
    int err = b->n ? b->link->transport->read(b->link, b->peer, b->to, b->from, b->n) : 0;
    b->n = b->bytes = 0;
    return err;
}

static int add(struct batch *b, char *dst, const char *src, int64_t bytes)
{
    int err = 0;
    while (bytes && !err) {
        size_t room = TRANSPORT_READ - b->bytes, piece = (size_t)bytes < room ? (size_t)bytes : room;
        b->to[b->n] = (struct iovec){dst, piece};
        b->from[b->n++] = (struct iovec){(void *)(uintptr_t)src, piece};
        b->bytes += piece;
        dst += piece;
        src += piece;
        bytes -= (int64_t)piece;
        if (b->n == TRANSPORT_PIECES || b->bytes == TRANSPORT_READ)
            err = flush(b);
    }
    return err;
}

static int read_move(struct batch *b, const struct exec_move *m)
{
    const struct memory_tile *t = m->tile;
    if (!t)
        return add(b, m->dst, m->src, m->bytes);
    bool span = shape_tile_span(t, m->to, m->from);
    int64_t size = (int64_t)weft_dtype_size(m->to), piece = span ? t->n[t->loops - 1] * size : size;
    int64_t turn[MEMORY_LOOPS] = {0};
    int outer = t->loops - span, err = 0;
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

static enum way_state take(weft_exec *x, struct exec_in *in, const struct exec_step *step, int64_t *bytes)
{
    weft_comm *c = x->comm;
    struct batch b;
    char who[NAMES_RANK];
    b.link = c->link;
    b.peer = in->peer;
    b.n = b.bytes = 0;
    int err = 0;
    *bytes = step->bytes;
    for (uint32_t k = 0; k < step->nwork && !err; k++)
        err = read_move(&b, &x->program->moves[step->work + k]);
    if (!err)
        err = flush(&b);
    if (err == WEFT_EPEER)
        comm_fail(c, WEFT_EPEER, "%s has died, rank %d was reading from it", names_rank(c, in->peer, who), c->rank);
    else if (err)
        comm_fail(c, err, "rank %d cannot read the memory of %s: %s", c->rank, names_rank(c, in->peer, who),
                  weft_errmsg());
    else
        return WAY_OVER;
    *bytes = INT64_MAX; /* the comm has failed: nothing more in this pass */
    return WAY_BEGUN;
}

const struct way way_cma = {
    .name = "cma",
    .what = "the receiver has the system copy out of the sender's private memory",
    .why = "private memory in pieces that are long enough",
    .told = true,
    .recv_moves = WAY_MOVES_PRIVATE,
    .fits = fits,
    .describe = describe,
    .take = take,
};
