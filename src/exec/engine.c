/* The run of a program: one pipeline for all messages. A SEND is prepared (staged ones take a slot and
 * are packed), launched (the peer's counter says so) and retired when the peer has read it. A RECV
 * is taken when it is the next of its channel, has been launched and waits for nothing; it is
 * settled, which the sender sees, when nobody here will look at the message again. Channels are
 * first in first out both ways, so one counter each way says all.
 *
 * Counters only grow: bucket k of run r (from 0) of a channel with n buckets a run is launched when
 * `ready` reaches r*n + k + 1 and read when `done` does. core_signal's store of `ready` releases
 * what the sender wrote, and the load in `receive` acquires it; the store of `done` releases the
 * reads of the receiver, and the load in `retire` acquires them.
 *
 * Why runs need nothing else between them: peers read a rank's SRC, DST and TEMP memory through
 * its SENDs only, and nobody but the rank itself writes it. A run of a rank is over when all its
 * steps are done and all its SENDs are retired. So when it returns, no peer will touch its memory
 * for this run any more: the caller may change the source, and the next run may overwrite DST and
 * TEMP. A sender that is a run ahead only raises `ready` beyond what the receiver asks for.
 *
 * Why staging cannot block for ever: a staged RECV is unpacked as soon as it is launched and first
 * in its channel, and frees the slot. A SEND that waits for a slot therefore waits for receivers
 * that have yet to start at the worst; and the slot that its exec has reserved can only be held by
 * a SEND of the same run, which its receivers take for this SEND's run to end at all.
 *
 * What a step that depends on a SEND waits for is that the memory behind it has been read: by the
 * packing if it is staged, by the peer if not. */
#include <string.h>

#include "exec/block.h"

#define SLICE (256 << 10) /* bytes that one pass moves in each of its parts, and one step more */

static void open_next(struct program *p, const struct exec_step *step)
{
    for (uint32_t k = 0; k < step->nnext; k++) {
        uint32_t s = p->next[step->next + k];
        if (--p->open[s])
            continue;
        switch (p->steps[s].kind) {
        case PLAN_SEND: p->launchable = true; break;
        case PLAN_RECV: break; /* receive looks at the first of each channel */
        default:
            if (p->steps[s].urgent)
                p->urgent[p->urgent_tail++] = s;
            else
                p->lazy[p->lazy_tail++] = s;
        }
    }
}

static void move(const struct exec_move *m, char *dst, const char *src)
{
    if (m->tile)
        memory_copy(m->tile, dst, m->to, src, m->from);
    else
        memcpy(dst, src, (size_t)m->bytes);
}

/* ---- sending ---- */

static bool prepare(weft_exec *x, struct exec_out *out, const struct exec_step *step)
{
    struct program *p = x->program;
    struct staging *staging = &x->comm->staging;
    struct block_send *send = &out->sends[out->posted];
    int64_t slot;
    if (out->posted - out->retired >= (uint32_t)x->comm->channel_buckets ||
        !staging_take(staging, &p->reserve, send->bytes, &slot))
        return false;
    for (uint32_t k = 0; k < step->nwork; k++) {
        const struct exec_move *m = &p->moves[step->work + k];
        move(m, staging->base + slot + m->offset, m->src);
    }
    send->slot = (uint64_t)slot;
    open_next(p, step);
    return true;
}

/* Launches what can go: of a staged channel one bucket, so that channels take turns, of others all. */
static bool launch(weft_exec *x)
{
    struct program *p = x->program;
    bool moved = false;
    p->launchable = false;
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        uint32_t before = out->posted;
        while (out->posted < out->n && !p->open[out->steps[out->posted]]) {
            const struct exec_step *step = &p->steps[out->steps[out->posted]];
            if (step->staged && (out->posted != before || !prepare(x, out, step)))
                break;
            out->posted++;
        }
        if (out->posted == before)
            continue;
        p->unposted -= out->posted - before;
        core_signal(x->comm->group, out->peer, out->ready, out->base + out->posted);
        moved = true;
    }
    return moved;
}

static bool retire(weft_exec *x)
{
    struct program *p = x->program;
    bool moved = false;
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        if (out->retired == out->posted)
            continue;
        uint64_t done = atomic_load_explicit(out->done, memory_order_seq_cst);
        while (out->retired < out->posted && out->base + out->retired < done) {
            const struct exec_step *step = &p->steps[out->steps[out->retired]];
            const struct block_send *send = &out->sends[out->retired++];
            if (step->staged)
                staging_give(&x->comm->staging, &p->reserve, send->bytes, (int64_t)send->slot);
            else
                open_next(p, step);
            p->left--;
            moved = true;
        }
    }
    return moved;
}

/* ---- receiving ---- */

/* Tells the sender of the messages that have been read to the end. */
static void settle(weft_exec *x, struct exec_in *in)
{
    struct program *p = x->program;
    uint32_t before = in->settled;
    while (in->settled < in->taken && !p->readers[in->steps[in->settled]])
        in->settled++;
    if (in->settled != before)
        core_signal(x->comm->group, in->peer, in->done, in->base + in->settled);
}

static int64_t take(weft_exec *x, struct exec_in *in)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[in->steps[in->taken]];
    const char *message = step->staged ? in->staging + in->sends[in->taken].slot : NULL;
    for (uint32_t k = 0; k < step->nwork; k++) {
        const struct exec_move *m = &p->moves[step->work + k];
        move(m, m->dst, step->staged ? message + m->offset : m->src);
    }
    in->taken++;
    p->left--;
    settle(x, in);
    open_next(p, step);
    return step->nwork ? step->bytes : 0;
}

static bool receive(weft_exec *x)
{
    struct program *p = x->program;
    int64_t room = SLICE;
    bool moved = false;
    for (uint32_t i = 0; i < p->nins && room > 0; i++) {
        struct exec_in *in = &p->ins[i];
        if (in->taken == in->n || p->open[in->steps[in->taken]])
            continue;
        uint64_t ready = atomic_load_explicit(in->ready, memory_order_seq_cst);
        while (room > 0 && in->taken < in->n && in->base + in->taken < ready && !p->open[in->steps[in->taken]]) {
            room -= take(x, in);
            moved = true;
        }
    }
    return moved;
}

/* ---- local steps ---- */

static void fold(const struct exec_fold *f)
{
    if (f->n)
        memory_fold(f->tile, f->dst, f->to, f->via, f->acc, f->op, f->div, f->terms, f->n);
    else
        memory_fill_identity(f->tile, f->dst, f->to, f->op);
}

static void work(weft_exec *x, uint32_t s)
{
    struct program *p = x->program;
    const struct exec_step *step = &p->steps[s];
    if (step->kind == PLAN_REDUCE) {
        fold(&p->folds[step->work]);
        for (uint32_t k = 0; k < step->nholds; k++) {
            uint32_t recv = p->holds[step->hold + k];
            if (--p->readers[recv] == 0)
                settle(x, &p->ins[p->steps[recv].channel]);
        }
    } else {
        for (uint32_t k = 0; k < step->nwork; k++) {
            const struct exec_move *m = &p->moves[step->work + k];
            move(m, m->dst, m->src);
        }
    }
    p->left--;
    open_next(p, step);
}

static bool drain(weft_exec *x, const uint32_t *queue, uint32_t *head, const uint32_t *tail)
{
    bool moved = false;
    for (int64_t room = SLICE; *head < *tail && room > 0; moved = true) {
        uint32_t s = queue[(*head)++];
        work(x, s);
        room -= x->program->steps[s].bytes;
    }
    return moved;
}

/* ---- the run ---- */

void engine_start(weft_exec *x)
{
    struct program *p = x->program;
    memcpy(p->open, p->open0, p->nsteps * sizeof *p->open);
    memcpy(p->readers, p->readers0, p->nsteps * sizeof *p->readers);
    p->left = p->nsteps;
    p->unposted = 0;
    for (uint32_t i = 0; i < p->nins; i++) {
        struct exec_in *in = &p->ins[i];
        in->base = (x->run - 1) * in->n;
        in->taken = in->settled = 0;
        in->seen_at = 0;
    }
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        out->base = (x->run - 1) * out->n;
        out->posted = out->retired = 0;
        out->seen_at = 0;
        p->unposted += out->n;
    }
    p->urgent_head = p->urgent_tail = p->lazy_head = p->lazy_tail = 0;
    for (uint32_t k = 0; k < p->nfirst; k++) {
        uint32_t s = p->first[k];
        if (p->steps[s].urgent)
            p->urgent[p->urgent_tail++] = s;
        else
            p->lazy[p->lazy_tail++] = s;
    }
    if (p->unposted)
        launch(x);
}

/* Others wait for what is launched, folded and received; copies that only this rank needs come last. */
bool engine_pass(weft_exec *x)
{
    struct program *p = x->program;
    bool moved = retire(x);
    moved |= drain(x, p->urgent, &p->urgent_head, &p->urgent_tail);
    if (p->unposted && (p->launchable || p->staged)) /* slots are freed by other execs, too */
        moved |= launch(x);
    moved |= receive(x);
    if (!moved)
        moved = drain(x, p->lazy, &p->lazy_head, &p->lazy_tail);
    return moved;
}
