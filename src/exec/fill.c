/* The tiles of a program. With the peers' blocks at hand, a message that can be read where it is
 * becomes one copy from its place to its place; a message that feeds a fold and nothing else is not
 * copied at all, the fold reads it at the peer's. */
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "exec/block.h"

/* One operand of a tile. */
struct operand {
    char *base;
    int64_t stride[MEMORY_LOOPS];
    int dtype;
};

struct filler {
    weft_exec *x;
    struct program *p;
    const weft_plan *plan;
    uint32_t nmoves, nfolds, nterms, nholds;
    struct memory_term *terms;
    const struct block_part **direct; /* of each part that a fold reads at a peer's: the peer's part */
    uint32_t *direct_step;            /* and the RECV step it stands for */
    uint32_t *reader_at, *readers;    /* of each buffer: the parts that are read from it */
    bool *folded;                     /* of each part: a fold reads it */
    char *bounce;
};

static int own_operand(const struct filler *f, uint32_t part, int64_t *n, struct operand *o)
{
    const struct plan_part *pp = &f->plan->parts[part];
    const struct exec_place *at = &f->p->places[pp->buf];
    int64_t first;
    int loops = tile_loops(f->plan, pp, at->stride, n, o->stride, &first);
    o->base = at->base + first;
    o->dtype = f->plan->bufs[pp->buf].dtype;
    return loops;
}

static void peer_operand(const struct filler *f, const struct exec_in *in, const struct block_part *part,
                         struct operand *o)
{
    struct transport_link *l = f->x->comm->link;
    o->base = l->transport->reach(l, in->peer, part->at);
    o->dtype = part->dtype;
    for (int i = 0; i < part->nloops; i++)
        o->stride[i] = block_loops(in->block)[part->loop + (uint32_t)i].stride;
}

/* Writes a move; one that would change nothing (in place, and no cast) is left out. */
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
    t.loops = tile_merge(loops, t.n, t.stride, 2);
    bool same = dst->base == src->base && dst->dtype == src->dtype;
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
    struct memory_tile *tile = program_take(f->p, 1, sizeof *tile);
    if (!tile)
        return error_nomem();
    *tile = t;
    m->tile = tile;
    return 0;
}

/* ---- messages ---- */

/* One part between its place and the staged message. */
static int staged_part(struct filler *f, uint32_t part, bool pack)
{
    const struct plan_part *pp = &f->plan->parts[part];
    struct operand own, message = {.dtype = pp->wire};
    int64_t n[MEMORY_LOOPS];
    int loops = own_operand(f, part, n, &own);
    tile_dense(loops, n, (int64_t)weft_dtype_size(pp->wire), message.stride);
    return pack ? add_move(f, loops, n, &message, &own, pp->offset) : add_move(f, loops, n, &own, &message, pp->offset);
}

/* One part straight from the peer's place. If neither side has the message's dtype there are two casts, the first into
 * the bounce buffer. */
static int direct_part(struct filler *f, const struct exec_in *in, const struct block_part *theirs, uint32_t part)
{
    struct operand own, peer, mid = {.base = f->bounce, .dtype = theirs->wire};
    int64_t n[MEMORY_LOOPS];
    int loops = own_operand(f, part, n, &own);
    peer_operand(f, in, theirs, &peer);
    if (theirs->wire == own.dtype || theirs->wire == peer.dtype)
        return add_move(f, loops, n, &own, &peer, 0);
    tile_dense(loops, n, (int64_t)weft_dtype_size(theirs->wire), mid.stride);
    int err = add_move(f, loops, n, &mid, &peer, 0);
    return err ? err : add_move(f, loops, n, &own, &mid, 0);
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

/* The one part of a fold that reads all of what this part of a message brings, if nothing else reads any of it. */
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

static int fill_recv(struct filler *f, const struct exec_in *in, uint32_t k)
{
    uint32_t s = in->steps[k];
    struct exec_step *step = &f->p->steps[s];
    const struct plan_step *st = &f->plan->steps[s];
    const struct block_send *send = &in->sends[k];
    int err = block_compare(f->x, in, k);
    step->staged = send->staged;
    step->work = f->nmoves;
    for (uint32_t q = 0; q < st->nparts && !err; q++) {
        const struct block_part *theirs = &block_parts(in->block)[send->part + q];
        uint8_t dtype = f->plan->bufs[f->plan->parts[st->part + q].buf].dtype;
        uint32_t reader = PLAN_NONE;
        /* A message that someone waits to have read is copied out at once: its fold may wait for others. */
        if (!send->staged && !send->watched && theirs->dtype == theirs->wire && theirs->wire == dtype)
            reader = only_reader(f, st->part + q);
        if (reader != PLAN_NONE) {
            f->direct[reader] = theirs;
            f->direct_step[reader] = s;
            f->p->readers0[s]++;
        } else {
            err = send->staged ? staged_part(f, st->part + q, false) : direct_part(f, in, theirs, st->part + q);
        }
    }
    step->nwork = f->nmoves - step->work;
    return err;
}

static int fill_send(struct filler *f, uint32_t s)
{
    struct exec_step *step = &f->p->steps[s];
    const struct plan_step *st = &f->plan->steps[s];
    int err = 0;
    step->work = f->nmoves;
    for (uint32_t q = 0; q < st->nparts && step->staged && !err; q++)
        err = staged_part(f, st->part + q, true);
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
    for (uint32_t k = 0; k < n; k++) {
        uint32_t part = st->part + 1 + k, recv = f->direct_step[part];
        int64_t turns[MEMORY_LOOPS];
        own_operand(f, part, turns, &o);
        if (recv != PLAN_NONE) {
            peer_operand(f, &f->p->ins[f->p->steps[recv].channel], f->direct[part], &o);
            f->p->holds[f->nholds++] = recv;
        }
        memcpy(stride[k + 1], o.stride, sizeof o.stride);
        f->terms[f->nterms++] = (struct memory_term){.data = o.base, .dtype = o.dtype, .stride = stride[k + 1]};
        fold->acc = (uint8_t)dtype_acc(o.dtype); /* the same for all: of the source's dtype, or that already */
    }
    step->nholds = f->nholds - step->hold;
    tile->loops = tile_merge(loops, tile->n, stride, n + 1);
    memcpy(tile->stride[0], stride[0], sizeof stride[0]);
    return 0;
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

/* Bytes of the largest part that takes two casts. */
static size_t largest_bounce(const struct filler *f)
{
    size_t most = 0;
    for (uint32_t i = 0; i < f->p->nins; i++) {
        const struct exec_in *in = &f->p->ins[i];
        for (uint32_t k = 0; k < in->n; k++) {
            const struct plan_step *st = &f->plan->steps[in->steps[k]];
            for (uint32_t q = 0; q < st->nparts && q < in->sends[k].nparts && !in->sends[k].staged; q++) {
                const struct plan_part *pp = &f->plan->parts[st->part + q];
                size_t bytes = (size_t)pp->count * weft_dtype_size(pp->wire);
                if (pp->wire != f->plan->bufs[pp->buf].dtype && bytes > most &&
                    pp->wire != block_parts(in->block)[in->sends[k].part + q].dtype)
                    most = bytes;
            }
        }
    }
    return most;
}

/* Room for all moves, folds and terms there can be. */
static int make_room(struct filler *f)
{
    size_t moves = 0, folds = 0, terms = 0;
    for (size_t s = 0; s < f->plan->nsteps; s++) {
        const struct plan_step *st = &f->plan->steps[s];
        if (st->kind == PLAN_REDUCE) {
            folds++;
            terms += st->nparts - 1;
        } else {
            moves += st->kind == PLAN_RECV ? 2 * (size_t)st->nparts : st->nparts;
        }
    }
    f->p->moves = program_take(f->p, moves, sizeof *f->p->moves);
    f->p->folds = program_take(f->p, folds, sizeof *f->p->folds);
    f->p->holds = program_take(f->p, terms, sizeof *f->p->holds);
    f->terms = program_take(f->p, terms, sizeof *f->terms);
    f->direct = program_take(f->p, f->plan->nparts, sizeof *f->direct);
    f->direct_step = program_take(f->p, f->plan->nparts, sizeof *f->direct_step);
    f->reader_at = program_take(f->p, f->plan->nbufs + 2, sizeof *f->reader_at);
    f->readers = program_take(f->p, f->plan->nparts, sizeof *f->readers);
    f->folded = program_take(f->p, f->plan->nparts, sizeof *f->folded);
    f->bounce = arena_alloc(&f->p->arena, largest_bounce(f));
    if (!f->p->moves || !f->p->folds || !f->p->holds || !f->terms || !f->direct || !f->direct_step || !f->reader_at ||
        !f->readers || !f->folded || !f->bounce)
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

int program_fill(weft_exec *x, struct program *p, const uint64_t *block_at)
{
    struct filler f = {.x = x, .p = p, .plan = x->plan};
    int err = block_connect(x, p, block_at);
    if (!err)
        err = make_room(&f);
    if (err)
        return err;
    list_readers(&f);
    for (uint32_t i = 0; i < p->nins && !err; i++) /* before the folds, which ask what they can read in place */
        for (uint32_t k = 0; k < p->ins[i].n && !err; k++)
            err = fill_recv(&f, &p->ins[i], k);
    for (uint32_t s = 0; s < p->nsteps && !err; s++) {
        p->steps[s].bytes = bytes_read(x->plan, &x->plan->steps[s]);
        if (x->plan->steps[s].kind == PLAN_COPY)
            err = fill_copy(&f, s);
        else if (x->plan->steps[s].kind == PLAN_REDUCE)
            err = fill_fold(&f, s);
        else if (x->plan->steps[s].kind == PLAN_SEND)
            err = fill_send(&f, s);
    }
    return err;
}
