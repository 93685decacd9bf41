#define _GNU_SOURCE
#include "interp.h"

#include <stdlib.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "layout/layout.h"
#include "layout/runs.h"
#include "memory/memory.h"

enum { INTERP_WAITS, INTERP_SENT, INTERP_OVER };

struct interp_message {
    size_t from, step, recv; /* recv: once it is taken */
    int to;
    unsigned char *data; /* NULL: dealt with */
    int64_t bytes;
    bool taken;
    bool *moved; /* of its parts, when folds read it at the sender's */
};

struct interp {
    const weft_plan *const *all;
    struct interp_world *w;
    struct interp_schedule how;
    unsigned char **scratch;
    uint8_t **state;             /* of steps */
    struct interp_message *mail; /* in order of sending */
    size_t nmail;
    uint64_t random;
    bool broken;
};

/* One part with its bounds proven: where element k is. */
struct interp_part {
    unsigned char *data;
    int dtype, ndim;
    int64_t count, stride[WEFT_MAX_DIMS];
    struct run run[WEFT_MAX_DIMS];
};

static bool interp_part(struct interp *x, size_t r, uint64_t k, struct interp_part *out)
{
    const weft_plan *p = x->all[r];
    if (k >= p->nparts || p->parts[k].buf >= p->nbufs)
        return false;
    const struct plan_part *part = &p->parts[k];
    const struct plan_buf *b = &p->bufs[part->buf];
    if (b->tensor >= p->ntensors || !weft_dtype_size(b->dtype))
        return false;
    int ndim = p->tensors[b->tensor].ndim;
    struct interp_view temp = {0}, *v = &temp;
    if (b->space == PLAN_TEMP) {
        int64_t bytes = (int64_t)weft_dtype_size(b->dtype);
        for (int d = ndim - 1; d >= 0; d--) {
            temp.shape[d] = p->shapes[b->shape + (size_t)d];
            temp.stride[d] = bytes;
            bytes *= temp.shape[d];
        }
        if (b->offset < 0 || b->offset + bytes > p->scratch)
            return false;
        temp.data = x->scratch[r] + b->offset;
    } else {
        const struct plan_tensor *t = &p->tensors[b->tensor];
        v = &(b->space == PLAN_SRC ? x->w->src : x->w->dst)[r * x->w->ntensors + b->tensor];
        if (!v->data || b->dtype != (b->space == PLAN_SRC ? t->src : t->dst)->dtype)
            return false;
    }
    *out = (struct interp_part){.data = v->data, .dtype = b->dtype, .ndim = ndim, .count = 1};
    if (part->runs + (size_t)ndim > p->nruns || part->spots + (size_t)ndim > p->nspots)
        return false;
    for (int d = 0; d < ndim; d++) {
        const struct plan_run *q = &p->runs[part->runs + (size_t)d];
        const struct plan_spot *s = &p->spots[part->spots + (size_t)d];
        int64_t last = s->to + (q->n - 1) * s->tostep;
        if (q->n < 1 || q->len < 1 || s->to < 0 || last < 0 || s->to + q->len > v->shape[d] ||
            last + q->len > v->shape[d])
            return false;
        out->run[d] = (struct run){q->at, q->len, q->n, q->step, s->to, s->tostep};
        out->stride[d] = v->stride[d];
        out->count *= q->n * q->len;
    }
    return true;
}

static unsigned char *interp_at(const struct interp_part *p, int64_t k)
{
    unsigned char *at = p->data;
    for (int d = p->ndim - 1; d >= 0; d--) {
        int64_t n = p->run[d].n * p->run[d].len, i = k % n;
        k /= n;
        at += (p->run[d].to + i / p->run[d].len * p->run[d].tostep + i % p->run[d].len) * p->stride[d];
    }
    return at;
}

static void interp_copy(struct interp *x, size_t r, const struct plan_step *s)
{
    struct interp_part from, to;
    if (s->nparts != 2 || !interp_part(x, r, s->part, &from) || !interp_part(x, r, s->part + UINT64_C(1), &to) ||
        from.count != to.count || !dtype_castable(from.dtype, to.dtype)) {
        x->broken = true;
        return;
    }
    for (int64_t k = 0; k < to.count; k++)
        memory_cast_one(interp_at(&to, k), to.dtype, interp_at(&from, k), from.dtype);
}

static void interp_reduce(struct interp *x, size_t r, const struct plan_step *s)
{
    struct interp_part to, *in = interp_alloc((s->nparts + UINT64_C(1)) * sizeof *in);
    struct memory_term *term = interp_alloc((s->nparts + UINT64_C(1)) * sizeof *term);
    size_t n = s->nparts ? s->nparts - 1 : 0;
    bool ok = s->nparts && interp_part(x, r, s->part, &to) && (!s->via || weft_dtype_size(s->via)) && s->div >= 0 &&
              s->op != WEFT_AVG;
    int src = ok ? x->all[r]->tensors[x->all[r]->bufs[x->all[r]->parts[s->part].buf].tensor].src->dtype : 0;
    ok = ok && dtype_foldable(s->op, n ? src : to.dtype);
    for (size_t i = 0; i < n && ok; i++)
        ok = interp_part(x, r, s->part + 1 + i, &in[i]) && in[i].count == to.count &&
             (in[i].dtype == src || in[i].dtype == dtype_acc(src));
    int folded = n ? src : to.dtype, via = s->via ? s->via : folded;
    ok = ok && dtype_castable(folded, via) && dtype_castable(via, to.dtype);
    x->broken = x->broken || !ok;
    struct memory_tile one = {0};
    for (int64_t k = 0; ok && k < to.count; k++) {
        for (size_t i = 0; i < n; i++)
            term[i] = (struct memory_term){interp_at(&in[i], k), in[i].dtype, NULL};
        if (n)
            memory_fold(&one, interp_at(&to, k), to.dtype, s->via, dtype_acc(src), s->op, s->div, term, n);
        else
            memory_fill_identity(&one, interp_at(&to, k), to.dtype, s->op);
    }
    free(in);
    free(term);
}

/* Between a message's bytes and one part of a step; out: the step sends. */
static void interp_pack_part(struct interp *x, size_t r, const struct plan_step *s, uint64_t i, unsigned char *data,
                             int64_t bytes, bool out)
{
    struct interp_part p;
    if (i >= s->nparts || !interp_part(x, r, s->part + i, &p)) {
        x->broken = true;
        return;
    }
    const struct plan_part *part = &x->all[r]->parts[s->part + i];
    int64_t size = (int64_t)weft_dtype_size(part->wire);
    if (!size || !dtype_castable(out ? p.dtype : part->wire, out ? part->wire : p.dtype) || part->offset < 0 ||
        part->offset + p.count * size > bytes) {
        x->broken = true;
        return;
    }
    for (int64_t k = 0; k < p.count; k++) {
        unsigned char *wire = data + part->offset + k * size;
        if (out)
            memory_cast_one(wire, part->wire, interp_at(&p, k), p.dtype);
        else
            memory_cast_one(interp_at(&p, k), p.dtype, wire, part->wire);
    }
}

static void interp_pack(struct interp *x, size_t r, const struct plan_step *s, unsigned char *data, int64_t bytes,
                        bool out)
{
    for (uint64_t i = 0; i < s->nparts && !x->broken; i++)
        interp_pack_part(x, r, s, i, data, bytes, out);
}

static void interp_drop(struct interp_message *m)
{
    free(m->data);
    free(m->moved);
    m->data = NULL;
    m->moved = NULL;
}

/* May the message stay with its sender until folds read it? If nobody there waits to have it read, and folds alone
 * read what it brings. */
static bool interp_stays(const struct interp *x, const struct interp_message *m, size_t r, const struct plan_step *s)
{
    const weft_plan *from = x->all[m->from], *p = x->all[r];
    for (size_t i = 0; i < from->ndeps; i++)
        if (from->deps[i] == m->step)
            return false;
    for (uint64_t k = s->part; k < (uint64_t)s->part + s->nparts && k < p->nparts; k++) {
        uint32_t buf = p->parts[k].buf;
        if (buf >= p->nbufs || p->bufs[buf].space != PLAN_TEMP)
            return false;
        for (size_t i = 0; i < p->nsteps; i++)
            for (uint64_t j = 0; j < p->steps[i].nparts && p->steps[i].part + j < p->nparts; j++)
                if (p->parts[p->steps[i].part + j].buf == buf && p->steps[i].kind != PLAN_REDUCE && &p->steps[i] != s)
                    return false;
    }
    return s->nparts > 0;
}

/* Before a fold reads them: the parts of messages that stayed. */
static void interp_fetch(struct interp *x, size_t r, const struct plan_step *s)
{
    const weft_plan *p = x->all[r];
    for (size_t i = 0; i < x->nmail && !x->broken; i++) {
        struct interp_message *m = &x->mail[i];
        if (!m->moved || m->to != (int)r)
            continue;
        const struct plan_step *recv = &p->steps[m->recv], *send = &x->all[m->from]->steps[m->step];
        bool all = true;
        for (uint64_t k = 0; k < recv->nparts && !x->broken; k++) {
            for (uint64_t j = 1; j < s->nparts && s->part + j < p->nparts; j++)
                if (!m->moved[k] && p->parts[s->part + j].buf == p->parts[recv->part + k].buf) {
                    interp_pack_part(x, m->from, send, k, m->data, m->bytes, true);
                    if (!x->broken)
                        interp_pack_part(x, r, recv, k, m->data, m->bytes, false);
                    m->moved[k] = true;
                }
            all = all && m->moved[k];
        }
        if (!all)
            continue;
        x->state[m->from][m->step] = INTERP_OVER;
        interp_drop(m);
    }
}

static struct interp_message *interp_head(struct interp *x, size_t from, size_t to)
{
    for (size_t i = 0; i < x->nmail; i++)
        if (x->mail[i].data && !x->mail[i].taken && x->mail[i].from == from && x->mail[i].to == (int)to)
            return &x->mail[i];
    return NULL;
}

/* Messages of a channel go in order of the plan, on either side. */
static bool interp_turn(const struct interp *x, size_t r, size_t s)
{
    const weft_plan *p = x->all[r];
    for (size_t i = 0; i < s; i++)
        if (p->steps[i].kind == p->steps[s].kind && p->steps[i].peer == p->steps[s].peer &&
            x->state[r][i] == INTERP_WAITS)
            return false;
    return true;
}

static bool interp_ready(struct interp *x, size_t r, size_t s)
{
    const weft_plan *p = x->all[r];
    const struct plan_step *q = &p->steps[s];
    if (x->state[r][s] != INTERP_WAITS)
        return false;
    for (uint64_t i = 0; i < q->ndeps; i++) {
        if (q->dep + i >= p->ndeps || p->deps[q->dep + i] >= p->nsteps) {
            x->broken = true;
            return false;
        }
        if (x->state[r][p->deps[q->dep + i]] != INTERP_OVER)
            return false;
    }
    if (q->kind != PLAN_SEND && q->kind != PLAN_RECV)
        return true;
    if (q->peer < 0 || (size_t)q->peer >= x->w->ranks) {
        x->broken = true;
        return false;
    }
    return interp_turn(x, r, s) && (q->kind == PLAN_SEND || interp_head(x, (size_t)q->peer, r));
}

static void interp_step(struct interp *x, size_t r, size_t s)
{
    const struct plan_step *q = &x->all[r]->steps[s];
    struct interp_message *m;
    x->state[r][s] = INTERP_OVER;
    switch (q->kind) {
    case PLAN_COPY: interp_copy(x, r, q); return;
    case PLAN_REDUCE:
        interp_fetch(x, r, q);
        interp_reduce(x, r, q);
        return;
    case PLAN_SEND:
        if (q->bytes < 0 || q->bytes > 1 << 26) {
            x->broken = true;
            return;
        }
        m = &x->mail[x->nmail++];
        *m = (struct interp_message){
            .from = r, .step = s, .to = q->peer, .data = interp_alloc((size_t)q->bytes), .bytes = q->bytes};
        if (x->how.late)
            x->state[r][s] = INTERP_SENT;
        else
            interp_pack(x, r, q, m->data, m->bytes, true);
        return;
    case PLAN_RECV:
        m = interp_head(x, (size_t)q->peer, r);
        m->taken = true;
        m->recv = s;
        if (q->bytes != m->bytes) {
            x->broken = true;
            return;
        }
        if (x->how.late && interp_stays(x, m, r, q)) {
            m->moved = interp_alloc(q->nparts * sizeof *m->moved);
            return;
        }
        if (x->how.late) {
            interp_pack(x, m->from, &x->all[m->from]->steps[m->step], m->data, m->bytes, true);
            x->state[m->from][m->step] = INTERP_OVER;
        }
        interp_pack(x, r, q, m->data, m->bytes, false);
        interp_drop(m);
        return;
    default: x->broken = true;
    }
}

/* The next step by the schedule; false when none is ready. */
static bool interp_next(struct interp *x, size_t *r, size_t *s)
{
    size_t found = 0;
    for (size_t a = 0; a < x->w->ranks; a++)
        for (size_t i = 0; i < x->all[a]->nsteps && !x->broken; i++) {
            if (!interp_ready(x, a, i))
                continue;
            found++;
            x->random = hash_u64(x->random, found);
            if (found == 1 || x->how.order == INTERP_BACKWARD ||
                (x->how.order == INTERP_RANDOM && x->random % found == 0)) {
                *r = a;
                *s = i;
            }
            if (x->how.order == INTERP_FORWARD)
                return true;
        }
    return found > 0;
}

enum interp_result interp_run(const weft_plan *const *all, size_t ranks, struct interp_schedule how, uint64_t data,
                              unsigned char **out, size_t *bytes)
{
    struct interp x = {.all = all, .how = how, .random = how.seed, .w = interp_open(all, ranks, how.in_place, data)};
    size_t r = 0, s = 0, steps = 0, done = 0, sends = 0;
    x.scratch = interp_alloc(ranks * sizeof *x.scratch);
    x.state = interp_alloc(ranks * sizeof *x.state);
    for (size_t i = 0; i < ranks; i++) {
        if (all[i]->scratch < 0 || all[i]->scratch > 1 << 26)
            abort();
        x.scratch[i] = interp_alloc((size_t)all[i]->scratch);
        interp_fill(x.scratch[i], (size_t)all[i]->scratch, hash_u64(how.seed, i + 1000));
        x.state[i] = interp_alloc(all[i]->nsteps);
        steps += all[i]->nsteps;
        for (size_t k = 0; k < all[i]->nsteps; k++)
            sends += all[i]->steps[k].kind == PLAN_SEND;
    }
    x.mail = interp_alloc(sends * sizeof *x.mail);
    while (!x.broken && interp_next(&x, &r, &s)) {
        interp_step(&x, r, s);
        done++;
    }
    enum interp_result result = x.broken ? INTERP_BROKEN : done < steps ? INTERP_HANGS : INTERP_DONE;
    for (size_t i = 0; i < x.nmail; i++) {
        if (x.mail[i].data && !x.mail[i].taken && result == INTERP_DONE)
            result = INTERP_HANGS; /* sent and never taken */
        interp_drop(&x.mail[i]);
    }
    if (result == INTERP_DONE)
        *out = interp_result(x.w, all, bytes);
    for (size_t i = 0; i < ranks; i++) {
        free(x.scratch[i]);
        free(x.state[i]);
    }
    free(x.scratch);
    free(x.state);
    free(x.mail);
    interp_close(x.w);
    return result;
}
