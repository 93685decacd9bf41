#define _GNU_SOURCE
#include "loose.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "layout/layout.h"

void *loose_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p)
        abort();
    return p;
}

/* ---- apart and together ---- */

static struct loose *loose_open(const weft_plan *p)
{
    struct loose *l = loose_alloc(1, sizeof *l);
    l->of = p;
    l->in_place = p->in_place;
    l->bufs = loose_alloc(p->nbufs, sizeof *l->bufs);
    if (p->nbufs)
        memcpy(l->bufs, p->bufs, p->nbufs * sizeof *l->bufs);
    l->nsteps = p->nsteps;
    l->steps = loose_alloc(p->nsteps, sizeof *l->steps);
    for (size_t i = 0; i < p->nsteps; i++) {
        struct loose_step *s = &l->steps[i];
        s->s = p->steps[i];
        s->parts = loose_alloc(s->s.nparts, sizeof *s->parts);
        s->deps = loose_alloc(s->s.ndeps, sizeof *s->deps);
        for (uint32_t k = 0; k < s->s.ndeps; k++)
            s->deps[k] = p->deps[s->s.dep + k];
        for (uint32_t k = 0; k < s->s.nparts; k++) {
            struct loose_part *q = &s->parts[k];
            q->p = p->parts[s->s.part + k];
            for (int d = 0; d < plan_ndim(p, &q->p); d++) {
                q->run[d] = p->runs[q->p.runs + (size_t)d];
                q->spot[d] = p->spots[q->p.spots + (size_t)d];
            }
        }
    }
    return l;
}

void loose_free(struct loose *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->nsteps; i++) {
        free(l->steps[i].parts);
        free(l->steps[i].deps);
    }
    free(l->steps);
    free(l->bufs);
    free(l);
}

static void *loose_copy(const void *from, size_t n, size_t size)
{
    void *p = loose_alloc(n, size);
    if (n)
        memcpy(p, from, n * size);
    return p;
}

weft_plan *loose_close(const struct loose *l)
{
    weft_plan *p = loose_copy(l->of, 1, sizeof *p);
    size_t dims = 0;
    p->tensors = loose_copy(p->tensors, p->ntensors, sizeof *p->tensors);
    for (size_t i = 0; i < p->ntensors; i++) {
        layout_hold(p->tensors[i].src);
        layout_hold(p->tensors[i].dst);
    }
    p->bufs = loose_copy(l->bufs, p->nbufs, sizeof *p->bufs);
    p->shapes = loose_copy(p->shapes, p->nshapes, sizeof *p->shapes);
    p->names = loose_copy(p->names, p->nnames, 1);
    p->nsteps = l->nsteps;
    p->in_place = l->in_place;
    p->nparts = p->ndeps = p->nruns = p->nspots = 0;
    for (size_t i = 0; i < l->nsteps; i++) {
        p->nparts += l->steps[i].s.nparts;
        p->ndeps += l->steps[i].s.ndeps;
    }
    dims = p->nparts * WEFT_MAX_DIMS;
    p->steps = loose_alloc(p->nsteps, sizeof *p->steps);
    p->parts = loose_alloc(p->nparts, sizeof *p->parts);
    p->deps = loose_alloc(p->ndeps, sizeof *p->deps);
    p->runs = loose_alloc(dims, sizeof *p->runs);
    p->spots = loose_alloc(dims, sizeof *p->spots);
    p->nparts = p->ndeps = 0;
    for (size_t i = 0; i < l->nsteps; i++) {
        const struct loose_step *s = &l->steps[i];
        p->steps[i] = s->s;
        p->steps[i].part = (uint32_t)p->nparts;
        p->steps[i].dep = (uint32_t)p->ndeps;
        for (uint32_t k = 0; k < s->s.ndeps; k++)
            p->deps[p->ndeps++] = (uint32_t)s->deps[k];
        for (uint32_t k = 0; k < s->s.nparts; k++) {
            struct plan_part part = s->parts[k].p;
            part.runs = (uint32_t)p->nruns;
            part.spots = (uint32_t)p->nspots;
            for (int d = 0; d < plan_ndim(p, &part); d++) {
                p->runs[p->nruns++] = s->parts[k].run[d];
                p->spots[p->nspots++] = s->parts[k].spot[d];
            }
            p->parts[p->nparts++] = part;
        }
    }
    return p;
}

/* ---- tools ---- */

size_t loose_pick(struct mutation *m, size_t n)
{
    m->random = hash_u64(m->random, 1);
    return n ? (size_t)(m->random >> 16) % n : 0;
}

bool loose_say(struct mutation *m, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(m->text, sizeof m->text, fmt, ap);
    va_end(ap);
    return true;
}

struct loose *loose_plan(struct mutation *m, size_t r)
{
    if (!m->loose[r])
        m->loose[r] = loose_open(m->all[r]);
    return m->loose[r];
}

int loose_ndim(const struct loose *l, const struct loose_part *p)
{
    return plan_ndim(l->of, &p->p);
}

bool loose_is_message(const struct plan_step *s)
{
    return s->kind == PLAN_SEND || s->kind == PLAN_RECV;
}

struct loose_step *loose_pick_step(struct mutation *m, unsigned kinds, size_t *r, size_t *s)
{
    size_t n = 0, found = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t want = pass ? loose_pick(m, n) : 0;
        for (size_t a = 0; a < m->ranks; a++)
            for (size_t i = 0; i < m->all[a]->nsteps; i++) {
                if (!(kinds >> m->all[a]->steps[i].kind & 1))
                    continue;
                if (!pass) {
                    n++;
                } else if (found++ == want) {
                    *r = a;
                    *s = i;
                    return &loose_plan(m, a)->steps[i];
                }
            }
        if (!n)
            return NULL;
    }
    return NULL;
}

bool loose_other_end(const struct mutation *m, size_t r, size_t s, size_t *peer, size_t *step)
{
    const struct plan_step *x = &m->all[r]->steps[s];
    int other = x->kind == PLAN_SEND ? PLAN_RECV : PLAN_SEND;
    size_t k = 0;
    for (size_t i = 0; i < s; i++)
        k += m->all[r]->steps[i].kind == x->kind && m->all[r]->steps[i].peer == x->peer;
    const weft_plan *p = m->all[x->peer];
    for (size_t i = 0; i < p->nsteps; i++)
        if (p->steps[i].kind == other && p->steps[i].peer == (int32_t)r && k-- == 0) {
            *peer = (size_t)x->peer;
            *step = i;
            return true;
        }
    return false;
}

void loose_drop_dep(struct loose_step *s, uint32_t k)
{
    memmove(&s->deps[k], &s->deps[k + 1], (s->s.ndeps - k - 1) * sizeof *s->deps);
    s->s.ndeps--;
}

void loose_add_dep(struct loose_step *s, size_t dep)
{
    s->deps = realloc(s->deps, (s->s.ndeps + 1) * sizeof *s->deps);
    if (!s->deps)
        abort();
    s->deps[s->s.ndeps++] = dep;
}

void loose_drop_step(struct loose *l, size_t s, bool inherit)
{
    struct loose_step gone = l->steps[s];
    memmove(&l->steps[s], &l->steps[s + 1], (l->nsteps - s - 1) * sizeof *l->steps);
    l->nsteps--;
    for (size_t i = 0; i < l->nsteps; i++)
        for (uint32_t k = 0; k < l->steps[i].s.ndeps; k++) {
            size_t *dep = &l->steps[i].deps[k];
            if (*dep != s) {
                *dep -= *dep > s;
                continue;
            }
            loose_drop_dep(&l->steps[i], k--);
            for (uint32_t j = 0; j < gone.s.ndeps && inherit; j++)
                loose_add_dep(&l->steps[i], gone.deps[j]); /* these stand before s */
        }
    free(gone.parts);
    free(gone.deps);
}

void loose_repeat_step(struct loose *l, size_t s, size_t at)
{
    l->steps = realloc(l->steps, (l->nsteps + 1) * sizeof *l->steps);
    if (!l->steps)
        abort();
    struct loose_step again = l->steps[s];
    again.parts = loose_copy(again.parts, again.s.nparts, sizeof *again.parts);
    again.deps = loose_copy(again.deps, again.s.ndeps, sizeof *again.deps);
    memmove(&l->steps[at + 1], &l->steps[at], (l->nsteps - at) * sizeof *l->steps);
    l->steps[at] = again;
    l->nsteps++;
    for (size_t i = at + 1; i < l->nsteps; i++)
        for (uint32_t k = 0; k < l->steps[i].s.ndeps; k++)
            l->steps[i].deps[k] += l->steps[i].deps[k] >= at;
}

void loose_move_step(struct loose *l, size_t from, size_t to)
{
    struct loose_step x = l->steps[from];
    if (from < to)
        memmove(&l->steps[from], &l->steps[from + 1], (to - from) * sizeof x);
    else
        memmove(&l->steps[to + 1], &l->steps[to], (from - to) * sizeof x);
    l->steps[to] = x;
    for (size_t i = 0; i < l->nsteps; i++)
        for (uint32_t k = 0; k < l->steps[i].s.ndeps; k++) {
            size_t *d = &l->steps[i].deps[k];
            if (*d == from)
                *d = to;
            else if (from<to && * d> from && *d <= to)
                --*d;
            else if (to < from && *d >= to && *d < from)
                ++*d;
        }
}

void loose_lay_out(struct loose *l, struct loose_step *s)
{
    int64_t end = 0;
    for (uint32_t k = 0; k < s->s.nparts; k++) {
        struct loose_part *p = &s->parts[k];
        p->p.count = 1;
        for (int d = 0; d < loose_ndim(l, p); d++)
            p->p.count *= p->run[d].n * p->run[d].len;
        if (!loose_is_message(&s->s))
            continue;
        int64_t size = (int64_t)weft_dtype_size(p->p.wire);
        p->p.offset = (end + size - 1) / size * size;
        end = p->p.offset + p->p.count * size;
    }
    s->s.bytes = end;
}
