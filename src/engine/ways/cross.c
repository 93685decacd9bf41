/* Messages out of private memory that the receiver reads where they are, with the system's help (cross-memory attach):
 * one copy instead of the two of staging. The system's copies are slower than a program's own, so senders measure at
 * bind, on the memory itself, how long a piece has to be to be worth it, and receivers ask whether they are permitted.
 * Each shows it to the other.
 *
 * To the sender such a message is a pull: it lets the message be read from its launch until the receiver has told that
 * it was, and no longer. After a failure nobody begins a read, and one that is under way harms nobody: it changes
 * nothing at the sender's, and what it has read is thrown away. Messages that are cast or go to several receivers stay
 * with staging. */
#include <sys/uio.h>

#include "base/error.h"
#include "engine/channel.h"
#include "engine/shape.h"
#include "engine/ways/eager.h"

#define LEAST (64 << 10) /* bytes of a message for which it is worth measuring */

/* May this rank read the peer's private memory? */
static bool may(const weft_comm *c, int peer)
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
        if (st->kind != PLAN_SEND || p->steps[s].offer != OFFER_STAGED || st->bytes <= most ||
            p->multicasts[p->steps[s].multicast].nouts > 1)
            continue;
        most = st->bytes;
        found = &x->plan->parts[st->part];
    }
    return most >= LEAST ? found : NULL;
}

/* The least bytes in one piece with which the messages of this rank's private memory should be read there; INT64_MAX:
 * none. Messages that stream are better off so. */
static int64_t worth(const weft_exec *x, const struct program *p)
{
    const weft_comm *c = x->comm;
    if (!c->transport->can.crosses || c->opts.cross || !p->staged)
        return c->opts.cross > 0 && !c->staged ? 1 : INT64_MAX;
    const struct plan_part *part = sample(x, p);
    if (!part || c->staged || p->one_way)
        return INT64_MAX;
    const struct plan_buf *buf = &x->plan->bufs[part->buf];
    const struct exec_place *at = &p->places[part->buf];
    int64_t n[MEMORY_LOOPS], stride[MEMORY_LOOPS], first;
    shape_loops(x->plan, part, at->stride, n, stride, &first);
    int64_t bytes = view_extent(plan_ndim(x->plan, part), x->plan->shapes + buf->shape, at->stride,
                                (int64_t)weft_dtype_size(buf->dtype));
    return c->transport->worth(c->link, at->base + first, (size_t)(bytes - first));
}

static void survey(weft_exec *x, struct program *p)
{
    p->cross_least = worth(x, p);
    for (uint32_t i = 0; i < p->nins; i++) {
        int64_t most = 0;
        for (uint32_t k = 0; k < p->ins[i].n; k++) {
            int64_t bytes = x->plan->steps[p->ins[i].steps[k]].bytes;
            most = bytes > most ? bytes : most;
        }
        bool asks = most > EAGER_MOST || x->comm->opts.cross > 0; /* otherwise all of them are eager */
        block_ins(x->block)[i].crosses = asks && may(x->comm, p->ins[i].peer);
    }
}

static void describe(weft_exec *x, struct program *p, uint32_t s, struct block_message *m)
{
    (void)x;
    bool one = m->offer == OFFER_STAGED && p->multicasts[p->steps[s].multicast].nouts == 1;
    m->least = one ? p->cross_least : INT64_MAX;
}

/* A piece in one piece on both sides, in the order of the merged loops, is one of the system's. */
static bool fits(const struct way_ends *e)
{
    const struct block_message *send = e->send, *recv = e->recv;
    if (!e->crosses || send->offer != OFFER_STAGED || send->bytes < send->least || send->nparts != recv->nparts)
        return false;
    for (uint32_t q = 0; q < send->nparts; q++) {
        const struct block_part *src = &block_parts(e->from)[send->part + q],
                                *dst = &block_parts(e->to)[recv->part + q];
        if (src->dtype != src->wire || dst->dtype != src->wire || src->nloops != dst->nloops)
            return false;
        struct shape s = shape_pair(e->from, src, e->to, dst);
        if (s.length * (int64_t)weft_dtype_size(src->dtype) < send->least)
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

/* A rank that is still there when all has been read was there all the time. */
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
    if (err == WEFT_EPEER || c->transport->gone(c->link, in->peer) == TRANSPORT_DIED)
        comm_fail(c, WEFT_EPEER, "%s has died, rank %d was reading from it", names_rank(c, in->peer, who), c->rank);
    else if (err)
        comm_fail(c, err, "%s: %s; it was rank %d that tried", names_rank(c, in->peer, who), weft_errmsg(), c->rank);
    else
        return WAY_OVER;
    *bytes = INT64_MAX; /* the comm has failed: nothing more in this pass */
    return WAY_BEGUN;
}

const struct way way_cross = {
    .name = "cross",
    .what = "the receiver copies out of the sender's private memory, with the system's help",
    .why = "private memory in pieces that are long enough",
    .told = true,
    .recv_moves = WAY_MOVES_PRIVATE,
    .fits = fits,
    .survey = survey,
    .describe = describe,
    .take = take,
};
