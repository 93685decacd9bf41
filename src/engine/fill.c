/* The moves and folds of a program, made with the peers' blocks at hand. A message that one side can read or write in
 * the other's memory is one copy from its place to its place (zero-copy). A message that only a fold needs is not
 * copied at all: the fold reads it in the peer's memory. */
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"
#include "engine/device/exec_device.h"
#include "engine/order/weave.h"
#include "engine/shape.h"
#include "engine/ways/eager.h"
#include "engine/ways/way_wire.h"

/* One operand of a tile. */
struct operand {
    char *base;
    int64_t stride[MEMORY_LOOPS];
    int dtype;
    bool foreign; /* base is an address of another process */
};

#define SEEN 64 /* tiles that a new one is compared with: moves of other peers and tensors often have the same */

struct filler {
    weft_exec *x;
    struct program *p;
    const weft_plan *plan;
    uint32_t nmoves, nfolds, nterms, nholds, neager_terms;
    struct memory_term *terms;
    struct exec_eager_term *eager_terms;
    const struct block_part **direct; /* for each part that a fold reads in a peer's memory: the peer's part */
    uint32_t *direct_step;            /* and the RECV step for which it does so */
    uint32_t *reader_at, *readers;    /* for each buffer: the parts that are read from it */
    bool *folded;                     /* for each part: a fold reads it */
    char *bounce;                     /* between the two casts of a part */
    const struct memory_tile *seen[SEEN];
};

static int own_operand(const struct filler *f, uint32_t part, int64_t *n, struct operand *o)
{
    const struct plan_part *pp = &f->plan->parts[part];
    const struct exec_place *at = &f->p->places[pp->buf];
    int64_t first;
    o->foreign = false;
    int loops = shape_loops(f->plan, pp, at->stride, n, o->stride, &first);
    o->base = at->base + first;
    o->dtype = f->plan->bufs[pp->buf].dtype;
    return loops;
}

static void peer_operand(const struct filler *f, int peer, const struct block *b, const struct block_part *part,
                         struct operand *o)
{
    struct transport_link *l = f->x->comm->link;
    o->base = exec_device_shared(f->x) ? (char *)(uintptr_t)part->at : l->transport->reach(l, peer, part->at);
    o->foreign = false;
    o->dtype = part->dtype;
    for (int i = 0; i < part->nloops; i++)
        o->stride[i] = block_loops(b)[part->loop + (uint32_t)i].stride;
}

static uint64_t tile_hash(const struct memory_tile *t)
{
    size_t bytes = (size_t)t->loops * sizeof *t->n;
    return hash_bytes(hash_bytes(hash_bytes(0, t->n, bytes), t->stride[0], bytes), t->stride[1], bytes);
}

static bool tile_same(const struct memory_tile *a, const struct memory_tile *b)
{
    size_t bytes = (size_t)a->loops * sizeof *a->n;
    return a->loops == b->loops && !memcmp(a->n, b->n, bytes) && !memcmp(a->stride[0], b->stride[0], bytes) &&
           !memcmp(a->stride[1], b->stride[1], bytes);
}

/* The same tile in memory that lives as long as the program; NULL: there is no memory. */
static const struct memory_tile *keep(struct filler *f, const struct memory_tile *t)
{
    const struct memory_tile **seen = &f->seen[tile_hash(t) % SEEN];
    if (*seen && tile_same(*seen, t))
        return *seen;
    struct memory_tile *tile = arena_alloc(&f->p->arena, sizeof *tile);
    if (tile)
        *tile = *t;
    return *seen = tile;
}

/* Adds a move, unless it would change nothing (in place and without a cast). */
static int add_move(struct filler *f, int loops, const int64_t *n, const struct operand *dst, const struct operand *src,
                    int64_t offset)
{
    struct memory_tile t = {0};
    int64_t count = 1, size = (int64_t)weft_dtype_size(dst->dtype);
    for (int i = 0; i < loops; i++) {
        t.n[i] = n[i];
        t.stride[0][i] = dst->stride[i];
        t.stride[1][i] = src->stride[i];
        count *= n[i];
    }
    t.loops = shape_merge(loops, t.n, t.stride, 2);
    bool same = dst->base == src->base && dst->dtype == src->dtype && !src->foreign;
    for (int i = 0; same && i < t.loops; i++)
        same = t.stride[0][i] == t.stride[1][i];
    if (same || !count)
        return 0;
    struct exec_move *m = &f->p->moves[f->nmoves++];
    *m = (struct exec_move){.dst = dst->base,
                            .src = src->base,
                            .offset = offset,
                            .bytes = count * size,
                            .to = (uint8_t)dst->dtype,
                            .from = (uint8_t)src->dtype};
    if (m->to == m->from && (t.loops == 0 || (t.loops == 1 && t.stride[0][0] == size && t.stride[1][0] == size)))
        return 0;
    m->tile = keep(f, &t);
    return m->tile ? 0 : error_nomem();
}

/* ---- messages ---- */

/* One part, between its place and a dense message. */
static int staged_part(struct filler *f, uint32_t part, bool pack)
{
    const struct plan_part *pp = &f->plan->parts[part];
    struct operand own, message = {.dtype = pp->wire};
    int64_t n[MEMORY_LOOPS];
    int loops = own_operand(f, part, n, &own);
    shape_dense(loops, n, (int64_t)weft_dtype_size(pp->wire), message.stride);
    return pack ? add_move(f, loops, n, &message, &own, pp->offset) : add_move(f, loops, n, &own, &message, pp->offset);
}

/* One part, from its place to its place. If neither has the message's dtype, there are two casts with the bounce buffer
 * between them. */
static int direct_part(struct filler *f, int loops, const int64_t *n, const struct operand *dst,
                       const struct operand *src, int wire)
{
    struct operand mid = {.base = f->bounce, .dtype = wire};
    if (wire == dst->dtype || wire == src->dtype)
        return add_move(f, loops, n, dst, src, 0);
    if (exec_device_shared(f->x)) { /* one kernel does both casts */
        uint32_t before = f->nmoves;
        int err = add_move(f, loops, n, dst, src, 0);
        if (f->nmoves > before)
            f->p->moves[before].via = (uint8_t)wire;
        return err;
    }
    shape_dense(loops, n, (int64_t)weft_dtype_size(wire), mid.stride);
    int err = add_move(f, loops, n, &mid, src, 0);
    return err ? err : add_move(f, loops, n, dst, &mid, 0);
}

/* One part, between its place here and its place in the peer's memory. */
static int shared_part(struct filler *f, int peer, const struct block *b, const struct block_part *theirs,
                       uint32_t part, bool push)
{
    struct operand own, other;
    int64_t n[MEMORY_LOOPS];
    int loops = own_operand(f, part, n, &own);
    peer_operand(f, peer, b, theirs, &other);
    return push ? direct_part(f, loops, n, &other, &own, theirs->wire)
                : direct_part(f, loops, n, &own, &other, theirs->wire);
}

/* One part, out of the peer's private memory. */
static int private_part(struct filler *f, const struct block *b, const struct block_part *theirs, uint32_t part)
{
    struct operand own, other = {.base = (char *)(uintptr_t)theirs->at, .dtype = theirs->dtype, .foreign = true};
    int64_t n[MEMORY_LOOPS];
    int loops = own_operand(f, part, n, &own);
    for (int i = 0; i < theirs->nloops; i++)
        other.stride[i] = block_loops(b)[theirs->loop + (uint32_t)i].stride;
    return add_move(f, loops, n, &own, &other, 0);
}

static bool same_box(const weft_plan *p, const struct plan_part *a, const struct plan_part *b)
{
    size_t ndim = (size_t)plan_ndim(p, a);
    return !ndim || (!memcmp(p->runs + a->runs, p->runs + b->runs, ndim * sizeof *p->runs) &&
                     !memcmp(p->spots + a->spots, p->spots + b->spots, ndim * sizeof *p->spots));
}

static bool boxes_apart(const weft_plan *p, const struct plan_part *a, const struct plan_part *b)
{
    for (uint32_t d = 0; d < (uint32_t)plan_ndim(p, a); d++) {
        const struct plan_run *ra = &p->runs[a->runs + d], *rb = &p->runs[b->runs + d];
        const struct plan_spot *sa = &p->spots[a->spots + d], *sb = &p->spots[b->spots + d];
        int64_t end_a = sa->to + (ra->n - 1) * sa->tostep + ra->len,
                end_b = sb->to + (rb->n - 1) * sb->tostep + rb->len;
        if (end_a <= sb->to || end_b <= sa->to)
            return true;
    }
    return false;
}

/* The part of a fold that reads all of this part of a message, if no other part reads any of it; otherwise
 * PLAN_NONE. */
static uint32_t only_reader(const struct filler *f, uint32_t part)
{
    const struct plan_part *pp = &f->plan->parts[part];
    uint32_t found = PLAN_NONE;
    if (f->plan->bufs[pp->buf].space != PLAN_TEMP)
        return PLAN_NONE;
    for (uint32_t i = f->reader_at[pp->buf]; i < f->reader_at[pp->buf + 1]; i++) {
        const struct plan_part *r = &f->plan->parts[f->readers[i]];
        if (boxes_apart(f->plan, pp, r))
            continue;
        if (found != PLAN_NONE || !f->folded[f->readers[i]] || !same_box(f->plan, pp, r))
            return PLAN_NONE;
        found = f->readers[i];
    }
    return found;
}

/* The first message of a channel from which on no message holds a staging slot, and no step of the sender waits until
 * one has been read. */
static uint32_t unwatched_from(const struct exec_in *in)
{
    uint32_t k = in->n;
    while (k && (in->sends[k - 1].offer == OFFER_EAGER ||
                 (in->sends[k - 1].offer == OFFER_PLACE && !in->sends[k - 1].watched)))
        k--;
    return k;
}

/* Can a fold read the part without a copy? Not if the sender waits until this message, or one behind it, has been read:
 * the fold may have to wait for other messages first. */
static bool stays(const struct way *way, bool watched, const struct block_part *theirs)
{
    return way->folds == WAY_FOLDS_SLOT || (way->folds == WAY_FOLDS_PLACE && !watched && theirs->dtype == theirs->wire);
}

/* The moves of one part of a message. */
static int message_part(struct filler *f, enum way_moves moves, int peer, const struct block *b,
                        const struct block_part *theirs, uint32_t part, bool send)
{
    switch (moves) {
    case WAY_MOVES_MESSAGE: return staged_part(f, part, send);
    case WAY_MOVES_PLACES: return shared_part(f, peer, b, theirs, part, send);
    case WAY_MOVES_PRIVATE: return private_part(f, b, theirs, part);
    case WAY_MOVES_NONE: break;
    }
    return 0;
}

static int fill_recv(struct filler *f, const struct exec_in *in, uint32_t k, bool watched)
{
    uint32_t s = in->steps[k];
    struct exec_step *step = &f->p->steps[s];
    const struct plan_step *st = &f->plan->steps[s];
    int err = block_compare(f->x, in, k);
    if (err)
        return err;
    struct way_ends ends = way_ends_in(f->x, in, k);
    step->way = way_choose(&ends);
    if (step->way->accept)
        err = step->way->accept(f->x, f->p, in, k, step);
    step->work = f->nmoves;
    for (uint32_t q = 0; q < st->nparts && !err; q++) {
        const struct block_part *theirs = &block_parts(in->block)[ends.send->part + q];
        uint8_t dtype = f->plan->bufs[f->plan->parts[st->part + q].buf].dtype;
        uint32_t reader = PLAN_NONE;
        if (!f->x->checks && stays(step->way, watched, theirs) && theirs->wire == dtype)
            reader = only_reader(f, st->part + q);
        if (reader != PLAN_NONE) {
            f->direct[reader] = theirs;
            f->direct_step[reader] = s;
            f->p->readers0[s]++;
        } else {
            err = message_part(f, step->way->recv_moves, in->peer, in->block, theirs, st->part + q, false);
        }
    }
    step->nwork = f->nmoves - step->work;
    return err || !step->way->prepare ? err : step->way->prepare(f->p, step, st->bytes);
}

static int fill_send(struct filler *f, const struct exec_out *out, uint32_t k)
{
    struct exec_step *step = &f->p->steps[out->steps[k]];
    const struct plan_step *st = &f->plan->steps[out->steps[k]];
    struct way_ends ends = way_ends_out(f->x, out, k);
    int err = 0;
    step->way = way_choose(&ends);
    step->work = f->nmoves;
    for (uint32_t q = 0; q < st->nparts && !err; q++)
        err = message_part(f, step->way->send_moves, out->peer, out->block,
                           &block_parts(out->block)[ends.recv->part + q], st->part + q, true);
    step->nwork = f->nmoves - step->work;
    return err || !step->way->prepare ? err : step->way->prepare(f->p, step, st->bytes);
}

/* The moves between the places of a message and the message of the wire, or of a device that sends it. */
static int fill_wired(struct filler *f, uint32_t s)
{
    struct exec_step *step = &f->p->steps[s];
    const struct plan_step *st = &f->plan->steps[s];
    int err = 0;
    step->work = f->nmoves;
    for (uint32_t q = 0; q < st->nparts && !err; q++)
        err = staged_part(f, st->part + q, st->kind == PLAN_SEND);
    step->nwork = f->nmoves - step->work;
    return err;
}

/* ---- local steps ---- */

static int fill_copy(struct filler *f, uint32_t s)
{
    struct exec_step *step = &f->p->steps[s];
    uint32_t part = f->plan->steps[s].part;
    struct operand src, dst;
    int64_t n[MEMORY_LOOPS];
    own_operand(f, part, n, &src);
    int loops = own_operand(f, part + 1, n, &dst);
    step->work = f->nmoves;
    int err = add_move(f, loops, n, &dst, &src, 0);
    step->nwork = f->nmoves - step->work;
    return err;
}

/* Term k of the fold is an eager message: dense, and in another slot in each run unless it is inline. */
static void eager_operand(struct filler *f, uint32_t recv, uint32_t k, const struct block_part *part, int loops,
                          const int64_t *n, struct operand *o)
{
    const struct exec_step *step = &f->p->steps[recv];
    const char *at = step->inlined ? step->inlined + part->offset : step->slot + part->offset;
    if (!step->inlined)
        f->eager_terms[f->neager_terms++] = (struct exec_eager_term){k, step->slots, at, step->slot_bytes};
    o->base = (char *)(uintptr_t)at;
    o->dtype = part->wire;
    shape_dense(loops, n, (int64_t)weft_dtype_size(part->wire), o->stride);
}

static int fill_fold(struct filler *f, uint32_t s)
{
    struct exec_step *step = &f->p->steps[s];
    const struct plan_step *st = &f->plan->steps[s];
    struct exec_fold *fold = &f->p->folds[f->nfolds];
    uint32_t n = st->nparts - 1;
    struct memory_tile *tile = program_take(f->p, 1, sizeof *tile);
    int64_t(*stride)[MEMORY_LOOPS] = program_take(f->p, n + 1, sizeof *stride);
    struct operand o;
    if (!tile || !stride)
        return error_nomem();
    int loops = own_operand(f, st->part, tile->n, &o);
    memcpy(stride[0], o.stride, sizeof o.stride);
    *fold = (struct exec_fold){.dst = o.base,
                               .tile = tile,
                               .terms = f->terms + f->nterms,
                               .n = n,
                               .div = st->div,
                               .to = (uint8_t)o.dtype,
                               .via = st->via,
                               .op = st->op};
    step->work = f->nfolds++;
    step->hold = f->nholds;
    fold->eager_terms = f->eager_terms + f->neager_terms;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t part = st->part + 1 + k, recv = f->direct_step[part];
        int64_t turns[MEMORY_LOOPS];
        int n_own = own_operand(f, part, turns, &o);
        if (recv != PLAN_NONE) {
            const struct exec_in *in = &f->p->ins[f->p->steps[recv].channel];
            if (f->p->steps[recv].way->folds == WAY_FOLDS_SLOT)
                eager_operand(f, recv, k, f->direct[part], n_own, turns, &o);
            else
                peer_operand(f, in->peer, in->block, f->direct[part], &o);
            f->p->holds[f->nholds++] = recv;
        }
        memcpy(stride[k + 1], o.stride, sizeof o.stride);
        f->terms[f->nterms++] = (struct memory_term){.data = o.base, .dtype = o.dtype, .stride = stride[k + 1]};
        fold->acc =
            (uint8_t)dtype_acc(o.dtype); /* the same for all terms: they have the source's dtype or its accumulator's */
    }
    step->nholds = f->nholds - step->hold;
    fold->neager_terms = f->neager_terms - (uint32_t)(fold->eager_terms - f->eager_terms);
    tile->loops = shape_merge(loops, tile->n, stride, n + 1);
    memcpy(tile->stride[0], stride[0], sizeof stride[0]);
    if (!memory_fold_runs(tile, fold->to, fold->via, fold->acc, fold->op, fold->div, fold->terms, n, &fold->runs))
        return 0;
    fold->count = tile->loops ? (size_t)tile->n[0] : 1;
    fold->in = program_take(f->p, n, sizeof *fold->in);
    for (uint32_t k = 0; fold->in && k < n; k++)
        fold->in[k] = fold->terms[k].data;
    return fold->in ? 0 : error_nomem();
}

/* ---- all of it ---- */

static bool is_read(const struct plan_step *st, uint32_t k)
{
    return st->kind == PLAN_SEND || (st->kind == PLAN_COPY && k == 0) || (st->kind == PLAN_REDUCE && k > 0);
}

/* Lists the parts that are read from each buffer. */
static void list_readers(struct filler *f)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t s = 0; s < f->plan->nsteps; s++) {
            const struct plan_step *st = &f->plan->steps[s];
            for (uint32_t k = 0; k < st->nparts; k++) {
                uint32_t buf = f->plan->parts[st->part + k].buf;
                if (!is_read(st, k))
                    continue;
                if (pass == 0)
                    f->reader_at[buf + 1]++;
                else
                    f->readers[f->reader_at[buf]++] = st->part + k;
                f->folded[st->part + k] = st->kind == PLAN_REDUCE;
            }
        }
        if (pass == 0)
            for (size_t b = 0; b < f->plan->nbufs; b++)
                f->reader_at[b + 1] += f->reader_at[b];
    }
    memmove(f->reader_at + 1, f->reader_at, f->plan->nbufs * sizeof *f->reader_at);
    f->reader_at[0] = 0;
}

/* Bytes of the largest part with two casts, among the messages with one peer. */
static size_t bounce_of(const struct filler *f, const uint32_t *steps, uint32_t n, const struct block *b,
                        const struct block_message *theirs)
{
    size_t most = 0;
    for (uint32_t k = 0; k < n; k++) {
        const struct plan_step *st = &f->plan->steps[steps[k]];
        for (uint32_t q = 0; q < st->nparts && q < theirs[k].nparts; q++) {
            const struct plan_part *pp = &f->plan->parts[st->part + q];
            size_t bytes = (size_t)pp->count * weft_dtype_size(pp->wire);
            if (pp->wire != f->plan->bufs[pp->buf].dtype && bytes > most &&
                pp->wire != block_parts(b)[theirs[k].part + q].dtype)
                most = bytes;
        }
    }
    return most;
}

static size_t largest_bounce(const struct filler *f)
{
    size_t most = 0;
    for (uint32_t i = 0; i < f->p->nins; i++) {
        const struct exec_in *in = &f->p->ins[i];
        size_t bytes = bounce_of(f, in->steps, in->n, in->block, in->sends);
        most = bytes > most ? bytes : most;
    }
    for (uint32_t i = 0; i < f->p->nouts; i++) {
        const struct exec_out *out = &f->p->outs[i];
        size_t bytes = bounce_of(f, out->steps, out->n, out->block, out->recvs);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Allocates room for as many moves, folds and terms as there can be. */
static int make_room(struct filler *f)
{
    size_t moves = 0, folds = 0, terms = 0;
    for (size_t s = 0; s < f->plan->nsteps; s++) {
        const struct plan_step *st = &f->plan->steps[s];
        if (st->kind == PLAN_REDUCE) {
            folds++;
            terms += st->nparts - 1;
        } else {
            moves += st->kind == PLAN_COPY ? st->nparts : 2 * (size_t)st->nparts;
        }
    }
    f->p->moves = program_take(f->p, moves, sizeof *f->p->moves);
    f->p->folds = program_take(f->p, folds, sizeof *f->p->folds);
    f->p->holds = program_take(f->p, terms, sizeof *f->p->holds);
    f->terms = program_take(f->p, terms, sizeof *f->terms);
    f->eager_terms = program_take(f->p, terms, sizeof *f->eager_terms);
    f->direct = program_take(f->p, f->plan->nparts, sizeof *f->direct);
    f->direct_step = program_take(f->p, f->plan->nparts, sizeof *f->direct_step);
    f->reader_at = program_take(f->p, f->plan->nbufs + 2, sizeof *f->reader_at);
    f->readers = program_take(f->p, f->plan->nparts, sizeof *f->readers);
    f->folded = program_take(f->p, f->plan->nparts, sizeof *f->folded);
    f->bounce = arena_alloc(&f->p->arena, largest_bounce(f));
    if (!f->p->moves || !f->p->folds || !f->p->holds || !f->terms || !f->eager_terms || !f->direct || !f->direct_step ||
        !f->reader_at || !f->readers || !f->folded || !f->bounce)
        return error_nomem();
    memset(f->direct_step, 0xff, f->plan->nparts * sizeof *f->direct_step);
    return 0;
}

static int64_t bytes_read(const weft_plan *plan, const struct plan_step *st)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k < st->nparts; k++)
        if (st->kind == PLAN_RECV || is_read(st, k))
            bytes += plan->parts[st->part + k].count *
                     (int64_t)weft_dtype_size(plan->bufs[plan->parts[st->part + k].buf].dtype);
    return bytes;
}

/* Chooses the way of each message and makes its moves. RECVs come before the folds, since they decide what folds read
 * in place. */
static int fill_channels(struct filler *f)
{
    struct program *p = f->p;
    const struct block *own = f->x->block;
    int err = 0;
    for (uint32_t i = 0; i < p->nins && !err; i++) {
        struct exec_in *in = &p->ins[i];
        for (uint32_t k = 0; k < in->n; k++)
            in->acks |= in->sends[k].offer == OFFER_EAGER && !in->sends[k].unacked;
        in->pushed =
            way_pushes(in->block, in->sends, own, block_messages(own) + block_ins(own)[i].message, in->n, &in->woven);
        p->pushed |= in->pushed;
        for (uint32_t k = 0, from = unwatched_from(in); k < in->n && !err; k++)
            err = fill_recv(f, in, k, k < from);
    }
    for (uint32_t i = 0; i < p->nouts && !err; i++) {
        struct exec_out *out = &p->outs[i];
        out->pushed = way_pushes(own, out->sends, out->block, out->recvs, out->n, &out->woven);
        for (uint32_t k = 0; k < out->n && !err; k++)
            err = fill_send(f, out, k);
    }
    for (uint32_t i = 0; i < p->grouped[0] + p->grouped[1] && !err; i++)
        err = fill_wired(f, p->buckets[i]);
    for (uint32_t i = 0; i < p->wired.n && !err; i++)
        for (uint32_t k = 0; k < p->wired.channels[i].n && !err; k++)
            err = fill_wired(f, p->wired.channels[i].messages[k].step);
    return err ? err : way_wire_fill(f->x, p);
}

/* x86-64 reads each cache line before it writes it, even if it is written whole. That is a third of the traffic of a
 * copy, and nontemporal stores avoid it. They are used in a run that writes 8 MiB or more, for pieces of 64 KiB or more
 * and for tiles: what that run writes first has left the caches of the core anyway when it ends. */
static void mark_nontemporal(struct filler *f)
{
    const int64_t run = 8 << 20, piece = 64 << 10; /* bytes */
    int64_t bytes = 0;
    for (uint32_t i = 0; i < f->nmoves; i++)
        bytes += f->p->moves[i].dst ? f->p->moves[i].bytes : 0;
    f->p->past = bytes >= run;
    for (uint32_t i = 0; i < f->nmoves && f->p->past; i++) {
        struct exec_move *m = &f->p->moves[i];
        m->nontemporal = m->dst && (m->tile || m->bytes >= piece);
    }
}

int fill_program(weft_exec *x, struct program *p, const uint64_t *block_at)
{
    struct filler f = {.x = x, .p = p, .plan = x->plan};
    int err = block_connect(x, p, block_at);
    if (!err)
        err = make_room(&f);
    if (err)
        return err;
    list_readers(&f);
    err = fill_channels(&f);
    for (uint32_t s = 0; s < p->nsteps && !err; s++) {
        p->steps[s].bytes = bytes_read(x->plan, &x->plan->steps[s]);
        if (x->plan->steps[s].kind == PLAN_COPY)
            err = fill_copy(&f, s);
        else if (x->plan->steps[s].kind == PLAN_REDUCE)
            err = fill_fold(&f, s);
    }
    if (err)
        return err;
    mark_nontemporal(&f);
    return weave_make(x, p);
}
