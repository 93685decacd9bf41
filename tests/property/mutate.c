#define _GNU_SOURCE
#include "mutate.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"

/* Each is false where there is nothing to break so. */

static bool mutate_drop(struct mutation *m)
{
    size_t r, s;
    if (!loose_pick_step(m, ANY_STEP, &r, &s))
        return false;
    loose_drop_step(m->loose[r], s, true);
    return loose_say(m, "rank %zu: step %zu dropped", r, s);
}

static bool mutate_drop_both(struct mutation *m)
{
    size_t r, s, b = 0, q = 0;
    if (!loose_pick_step(m, ANY_SEND, &r, &s) || !loose_other_end(m, r, s, &b, &q))
        return false;
    loose_drop_step(m->loose[r], s, true);
    loose_drop_step(loose_plan(m, b), q, true);
    return loose_say(m, "rank %zu step %zu and rank %zu step %zu, one message, dropped", r, s, b, q);
}

static bool mutate_repeat(struct mutation *m)
{
    size_t r, s;
    if (!loose_pick_step(m, ANY_STEP, &r, &s))
        return false;
    size_t at = s + 1 + loose_pick(m, m->loose[r]->nsteps - s);
    loose_repeat_step(m->loose[r], s, at);
    return loose_say(m, "rank %zu: step %zu repeated at %zu", r, s, at);
}

static bool mutate_repeat_both(struct mutation *m)
{
    size_t r, s, b = 0, q = 0;
    if (!loose_pick_step(m, ANY_SEND, &r, &s) || !loose_other_end(m, r, s, &b, &q))
        return false;
    loose_repeat_step(m->loose[r], s, s + 1);
    loose_repeat_step(loose_plan(m, b), q, q + 1);
    return loose_say(m, "rank %zu step %zu and rank %zu step %zu, one message, repeated", r, s, b, q);
}

static bool mutate_move(struct mutation *m)
{
    size_t r, s;
    if (!loose_pick_step(m, loose_pick(m, 2) ? ANY_STEP : ANY_MESSAGE, &r, &s) || m->loose[r]->nsteps < 2)
        return false;
    size_t to = loose_pick(m, m->loose[r]->nsteps);
    if (to == s)
        to = s ? s - 1 : 1;
    loose_move_step(m->loose[r], s, to);
    return loose_say(m, "rank %zu: step %zu moved to %zu", r, s, to);
}

/* Two messages of one channel change places on one side. */
static bool mutate_swap_messages(struct mutation *m)
{
    size_t r, s;
    if (!loose_pick_step(m, ANY_MESSAGE, &r, &s))
        return false;
    struct loose *l = m->loose[r];
    for (size_t i = s + 1; i < l->nsteps; i++)
        if (l->steps[i].s.kind == l->steps[s].s.kind && l->steps[i].s.peer == l->steps[s].s.peer) {
            loose_move_step(l, s, i);
            return loose_say(m, "rank %zu: message %zu moved behind message %zu of its channel", r, s, i);
        }
    return false;
}

static bool mutate_drop_dep(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_STEP, &r, &s);
    if (!x || !x->s.ndeps)
        return false;
    uint32_t k = (uint32_t)loose_pick(m, x->s.ndeps);
    loose_say(m, "rank %zu: step %zu no longer waits for step %zu", r, s, x->deps[k]);
    loose_drop_dep(x, k);
    return true;
}

static bool mutate_other_dep(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_STEP, &r, &s);
    if (!x || !x->s.ndeps || s < 2)
        return false;
    uint32_t k = (uint32_t)loose_pick(m, x->s.ndeps);
    size_t old = x->deps[k];
    x->deps[k] = loose_pick(m, s);
    return loose_say(m, "rank %zu: step %zu waits for step %zu instead of %zu", r, s, x->deps[k], old);
}

static bool mutate_peer(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_MESSAGE, &r, &s);
    if (!x || m->ranks < 3)
        return false;
    int old = x->s.peer;
    do
        x->s.peer = (int32_t)loose_pick(m, m->ranks);
    while (x->s.peer == old || x->s.peer == (int)r);
    return loose_say(m, "rank %zu: message %zu with rank %d instead of %d", r, s, (int)x->s.peer, old);
}

/* Two messages of a rank swap their peers: sizes often agree. */
static bool mutate_swap_peers(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_MESSAGE, &r, &s);
    if (!x)
        return false;
    struct loose *l = m->loose[r];
    for (size_t i = 0; i < l->nsteps; i++)
        if (l->steps[i].s.kind == x->s.kind && l->steps[i].s.peer != x->s.peer) {
            int32_t peer = x->s.peer;
            x->s.peer = l->steps[i].s.peer;
            l->steps[i].s.peer = peer;
            return loose_say(m, "rank %zu: messages %zu and %zu swap peers", r, s, i);
        }
    return false;
}

static bool mutate_op(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_REDUCE, &r, &s);
    if (!x)
        return false;
    int old = x->s.op, dtype = m->loose[r]->bufs[x->parts[x->s.nparts > 1].p.buf].dtype;
    for (int tries = 0; tries < 20; tries++) {
        int op = 1 + (int)loose_pick(m, OP_COUNT);
        if (op == old || op == WEFT_AVG || !dtype_foldable(op, dtype))
            continue;
        x->s.op = (uint8_t)op;
        return loose_say(m, "rank %zu: step %zu folds by %s instead of %s", r, s, weft_op_name(op), weft_op_name(old));
    }
    return false;
}

static bool mutate_div(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_REDUCE, &r, &s);
    if (!x || (x->s.op != WEFT_SUM))
        return false;
    int64_t old = x->s.div, choice[3] = {0, old + 1, 2};
    x->s.div = choice[loose_pick(m, 3)];
    return x->s.div != old &&
           loose_say(m, "rank %zu: step %zu divides by %lld, not %lld", r, s, (long long)x->s.div, (long long)old);
}

static bool mutate_via(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_REDUCE, &r, &s);
    if (!x)
        return false;
    int old = x->s.via;
    x->s.via = (uint8_t)(old && loose_pick(m, 2) ? 0 : 1 + loose_pick(m, DTYPE_COUNT));
    return x->s.via != old && loose_say(m, "rank %zu: step %zu goes via %d instead of %d", r, s, x->s.via, old);
}

static bool mutate_wire(struct mutation *m)
{
    size_t r, s, b = 0, q = 0;
    struct loose_step *x = loose_pick_step(m, ANY_MESSAGE, &r, &s);
    if (!x)
        return false;
    uint32_t k = (uint32_t)loose_pick(m, x->s.nparts);
    int old = x->parts[k].p.wire, now = 1 + (int)loose_pick(m, DTYPE_COUNT);
    bool both = loose_pick(m, 4) && loose_other_end(m, r, s, &b, &q);
    x->parts[k].p.wire = (uint8_t)now;
    loose_lay_out(m->loose[r], x);
    if (both) {
        struct loose_step *y = &loose_plan(m, b)->steps[q];
        y->parts[k].p.wire = (uint8_t)now;
        loose_lay_out(m->loose[b], y);
    }
    return now != old && loose_say(m, "rank %zu: message %zu has part %u as %s instead of %s%s", r, s, (unsigned)k,
                                   weft_dtype_name(now), weft_dtype_name(old), both ? ", on both ends" : "");
}

static bool mutate_offset(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_MESSAGE, &r, &s);
    if (!x)
        return false;
    uint32_t k = (uint32_t)loose_pick(m, x->s.nparts);
    int64_t size = (int64_t)weft_dtype_size(x->parts[k].p.wire), by = loose_pick(m, 2) ? size : -size;
    x->parts[k].p.offset += by;
    if (k + 1 == x->s.nparts && loose_pick(m, 2))
        x->s.bytes += by;
    return loose_say(m, "rank %zu: message %zu has part %u %lld bytes further", r, s, (unsigned)k, (long long)by);
}

/* Two parts of a message change places at one end. */
static bool mutate_swap_parts(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_MESSAGE, &r, &s);
    if (!x || x->s.nparts < 2)
        return false;
    size_t i = loose_pick(m, x->s.nparts - 1), j = i + 1 + loose_pick(m, x->s.nparts - 1 - i);
    struct loose_part p = x->parts[i];
    x->parts[i] = x->parts[j];
    x->parts[j] = p;
    loose_lay_out(m->loose[r], x);
    return loose_say(m, "rank %zu: message %zu has parts %zu and %zu swapped", r, s, i, j);
}

static bool mutate_spot(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_STEP, &r, &s);
    if (!x)
        return false;
    uint32_t k = (uint32_t)loose_pick(m, x->s.nparts);
    struct loose_part *p = &x->parts[k];
    int ndim = loose_ndim(m->loose[r], p);
    if (!ndim)
        return false;
    int d = (int)loose_pick(m, (size_t)ndim);
    int64_t by[] = {1, -1, p->run[d].len, -p->run[d].len}, shift = by[loose_pick(m, 4)];
    if (p->run[d].n > 1 && loose_pick(m, 2)) {
        p->spot[d].tostep += shift;
        return loose_say(m, "rank %zu step %zu part %u: steps in dim %d %lld longer", r, s, (unsigned)k, d,
                         (long long)shift);
    }
    p->spot[d].to += shift;
    return loose_say(m, "rank %zu step %zu part %u: its place in dim %d shifted by %lld", r, s, (unsigned)k, d,
                     (long long)shift);
}

static void change_run(struct plan_run *q, int how, int64_t by)
{
    if (how == 0)
        q->at += by;
    else if (how == 1)
        q->len += by;
    else if (q->n > 1)
        q->step += by;
}

/* A box shifts or grows: in all parts of a local step, in one part of a message, mostly at both ends. */
static bool mutate_box(struct mutation *m)
{
    size_t r, s, b = 0, q = 0;
    struct loose_step *x = loose_pick_step(m, ANY_STEP, &r, &s);
    if (!x)
        return false;
    uint32_t k = (uint32_t)loose_pick(m, x->s.nparts);
    int ndim = loose_ndim(m->loose[r], &x->parts[k]), how = (int)loose_pick(m, 3);
    if (!ndim || (how == 2 && x->parts[k].run[0].n < 2))
        return false;
    int d = (int)loose_pick(m, (size_t)ndim);
    int64_t by = loose_pick(m, 2) ? 1 : -1;
    if (how == 1 && x->parts[k].run[d].len + by < 1)
        return false;
    bool both = loose_is_message(&x->s) && loose_pick(m, 4) && loose_other_end(m, r, s, &b, &q);
    for (uint32_t i = 0; i < x->s.nparts; i++)
        if (i == k || !loose_is_message(&x->s))
            change_run(&x->parts[i].run[d], how, by);
    loose_lay_out(m->loose[r], x);
    if (both) {
        struct loose_step *y = &loose_plan(m, b)->steps[q];
        change_run(&y->parts[k].run[d], how, by);
        loose_lay_out(m->loose[b], y);
    }
    return loose_say(m, "rank %zu step %zu part %u: its box in dim %d %s by %lld%s", r, s, (unsigned)k, d,
                     how == 0   ? "shifted"
                     : how == 1 ? "longer"
                                : "steps further",
                     (long long)by, both ? ", on both ends" : "");
}

/* Another buffer for a part. */
static bool mutate_buf(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_STEP, &r, &s);
    if (!x)
        return false;
    struct loose *l = m->loose[r];
    uint32_t k = (uint32_t)loose_pick(m, x->s.nparts), old = x->parts[k].p.buf,
             now = (uint32_t)loose_pick(m, l->of->nbufs);
    int ndim = loose_ndim(l, &x->parts[k]);
    if (now == old || l->of->tensors[l->bufs[now].tensor].ndim != ndim)
        return false;
    x->parts[k].p.buf = now;
    for (int d = 0; d < ndim && loose_pick(m, 2); d++)
        x->parts[k].spot[d].to = 0;
    return loose_say(m, "rank %zu step %zu part %u: buffer %u instead of %u", r, s, (unsigned)k, (unsigned)now,
                     (unsigned)old);
}

static bool mutate_inputs(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_REDUCE, &r, &s);
    if (!x || x->s.nparts < 2)
        return false;
    uint32_t n = x->s.nparts - 1, i = 1 + (uint32_t)loose_pick(m, n), j = 1 + (uint32_t)loose_pick(m, n);
    switch (loose_pick(m, 4)) {
    case 0: /* one instead of the other */
        if (i == j)
            return false;
        x->parts[i] = x->parts[j];
        return loose_say(m, "rank %zu: step %zu has input %u twice and not %u", r, s, (unsigned)j, (unsigned)i);
    case 1: /* one less */
        memmove(&x->parts[i], &x->parts[i + 1], (n - i) * sizeof *x->parts);
        x->s.nparts--;
        return loose_say(m, "rank %zu: step %zu lacks input %u", r, s, (unsigned)i);
    case 2: /* one twice */
        x->parts = realloc(x->parts, (n + 2) * sizeof *x->parts);
        if (!x->parts)
            abort();
        x->parts[n + 1] = x->parts[i];
        x->s.nparts++;
        return loose_say(m, "rank %zu: step %zu has input %u once more", r, s, (unsigned)i);
    default: /* none at all */
        x->s.nparts = 1;
        x->s.div = 0;
        x->s.via = 0;
        return loose_say(m, "rank %zu: step %zu has no inputs", r, s);
    }
}

/* Two parts of different steps swap what they stand for. */
static bool mutate_swap_between(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_STEP, &r, &s);
    if (!x || m->loose[r]->nsteps < 2)
        return false;
    struct loose *l = m->loose[r];
    size_t o = loose_pick(m, l->nsteps);
    struct loose_step *y = &l->steps[o];
    if (o == s || y->s.kind != x->s.kind)
        return false;
    size_t i = loose_pick(m, x->s.nparts), j = x->s.kind == PLAN_COPY ? i : loose_pick(m, y->s.nparts);
    bool whole = loose_pick(m, 2);
    struct loose_part p = x->parts[i], q = y->parts[j];
    if (whole) {
        x->parts[i] = q;
        y->parts[j] = p;
    } else { /* places only */
        memcpy(x->parts[i].spot, q.spot, sizeof q.spot);
        memcpy(y->parts[j].spot, p.spot, sizeof p.spot);
    }
    loose_lay_out(l, x);
    loose_lay_out(l, y);
    return loose_say(m, "rank %zu: step %zu part %zu and step %zu part %zu swap %s", r, s, i, o, j,
                     whole ? "all" : "places");
}

static bool mutate_temp(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_STEP, &r, &s);
    if (!x)
        return false;
    struct loose *l = m->loose[r];
    size_t b = x->parts[loose_pick(m, x->s.nparts)].p.buf;
    if (l->bufs[b].space != PLAN_TEMP)
        return false;
    if (loose_pick(m, 3)) {
        int old = l->bufs[b].dtype, now = 1 + (int)loose_pick(m, DTYPE_COUNT);
        if (weft_dtype_size(now) > weft_dtype_size(old))
            return false;
        l->bufs[b].dtype = (uint8_t)now;
        return now != old && loose_say(m, "rank %zu: scratch buffer %zu is %s instead of %s", r, b,
                                       weft_dtype_name(now), weft_dtype_name(old));
    }
    l->bufs[b].offset += loose_pick(m, 2) ? 64 : -64;
    return loose_say(m, "rank %zu: scratch buffer %zu at %lld", r, b, (long long)l->bufs[b].offset);
}

static bool mutate_kind(struct mutation *m)
{
    size_t r, s;
    struct loose_step *x = loose_pick_step(m, ANY_STEP, &r, &s);
    if (!x)
        return false;
    if (loose_is_message(&x->s)) {
        x->s.kind = x->s.kind == PLAN_SEND ? PLAN_RECV : PLAN_SEND;
        return loose_say(m, "rank %zu: step %zu goes the other way", r, s);
    }
    if (x->s.nparts != 2)
        return false;
    struct loose_part p = x->parts[0]; /* part 0 is what a copy reads and a fold writes */
    x->parts[0] = x->parts[1];
    x->parts[1] = p;
    if (x->s.kind == PLAN_REDUCE && loose_pick(m, 2)) {
        x->s.kind = PLAN_COPY;
        x->s.op = x->s.via = 0;
        x->s.div = 0;
    }
    return loose_say(m, "rank %zu: step %zu reads what it wrote and writes what it read", r, s);
}

/* Sends of two ranks to each other wait for the receives of the other's. */
static bool mutate_cycle(struct mutation *m)
{
    size_t r, s, b = 0, q = 0;
    if (!loose_pick_step(m, ANY_SEND, &r, &s) || !loose_other_end(m, r, s, &b, &q))
        return false;
    struct loose *x = m->loose[r], *y = loose_plan(m, b);
    for (size_t i = 0; i < y->nsteps; i++) {
        size_t c, j;
        if (y->steps[i].s.kind != PLAN_SEND || y->steps[i].s.peer != (int32_t)r || !loose_other_end(m, b, i, &c, &j))
            continue;
        struct loose_step *send[2] = {&x->steps[s], &y->steps[i]};
        size_t wait[2] = {j, q};
        for (int k = 0; k < 2; k++) {
            struct loose *l = k ? y : x;
            size_t at = (size_t)(send[k] - l->steps), recv = wait[k];
            int32_t stage = l->steps[recv].s.stage;
            if (recv > at && l->steps[recv].s.ndeps) /* it would have to stand before what it waits for */
                return false;
            if (recv > at) {
                loose_move_step(l, recv, at);
                recv = at++;
            }
            loose_add_dep(&l->steps[at], recv);
            if (l->steps[at].s.stage <= stage)
                l->steps[at].s.stage = stage + 1;
        }
        return loose_say(m, "rank %zu step %zu and rank %zu step %zu wait for each other", r, s, b, i);
    }
    return false;
}

/* Plans for memory of their own are said to be for use in place. */
static bool mutate_in_place(struct mutation *m)
{
    for (size_t r = 0; r < m->ranks; r++) {
        if (m->all[r]->in_place)
            return false;
        loose_plan(m, r)->in_place = true;
    }
    return loose_say(m, "all ranks: in place");
}

const struct mutation_kind mutations[] = {
    {"drop", mutate_drop},
    {"drop-both", mutate_drop_both},
    {"repeat", mutate_repeat},
    {"repeat-both", mutate_repeat_both},
    {"move", mutate_move},
    {"swap-messages", mutate_swap_messages},
    {"drop-dep", mutate_drop_dep},
    {"other-dep", mutate_other_dep},
    {"peer", mutate_peer},
    {"swap-peers", mutate_swap_peers},
    {"op", mutate_op},
    {"div", mutate_div},
    {"via", mutate_via},
    {"wire", mutate_wire},
    {"offset", mutate_offset},
    {"swap-parts", mutate_swap_parts},
    {"spot", mutate_spot},
    {"box", mutate_box},
    {"buf", mutate_buf},
    {"inputs", mutate_inputs},
    {"swap-between", mutate_swap_between},
    {"temp", mutate_temp},
    {"kind", mutate_kind},
    {"cycle", mutate_cycle},
    {"in-place", mutate_in_place},
};

static int64_t bytes_sent(const weft_plan *p)
{
    int64_t sent = 0;
    for (size_t i = 0; i < p->nsteps; i++)
        for (uint32_t k = 0; k < p->steps[i].nparts && p->steps[i].kind == PLAN_SEND; k++) {
            const struct plan_part *part = &p->parts[p->steps[i].part + k];
            sent += part->count * (int64_t)weft_dtype_size(part->wire);
        }
    return sent;
}

bool mutate_plans(const weft_plan *const *all, size_t ranks, int kind, uint64_t seed, weft_plan **out, char text[256])
{
    struct mutation m = {.all = all, .ranks = ranks, .random = hash_u64(seed, (uint64_t)kind)};
    m.loose = loose_alloc(ranks, sizeof *m.loose);
    bool done = mutations[kind].mutate(&m);
    int64_t stated = 0;
    for (size_t r = 0; r < ranks; r++) {
        out[r] = done && m.loose[r] ? loose_close(m.loose[r]) : NULL;
        if (out[r])
            stated += bytes_sent(out[r]) - bytes_sent(all[r]);
        loose_free(m.loose[r]);
    }
    for (size_t r = 0; r < ranks && stated; r++) {
        if (!out[r] || (stated < 0 && out[r]->stated + stated < 0))
            continue;
        out[r]->stated += stated;
        stated = 0;
    }
    free(m.loose);
    memcpy(text, m.text, sizeof m.text);
    return done;
}
