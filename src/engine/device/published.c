#include "engine/device/published.h"

#include "base/dtype.h"
#include "base/error.h"

/* How many entries the tables have. */
static void count(const weft_exec *x, const struct program *p, struct published *n)
{
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const struct exec_step *step = &p->steps[s];
        n->ndeps += x->plan->steps[s].ndeps;
        if (step->kind == PLAN_REDUCE) {
            const struct exec_fold *f = &p->folds[step->work];
            n->ntasks++;
            n->nterms += (uint32_t)f->n;
            n->nints += (uint32_t)f->tile->loops * (2 + (uint32_t)f->n);
            continue;
        }
        for (uint32_t k = 0; k < step->nwork; k++) {
            const struct exec_move *m = &p->moves[step->work + k];
            n->ntasks++;
            n->nterms++;
            n->nints += 3 * (uint32_t)(m->tile ? m->tile->loops : 1);
        }
    }
}

struct writer {
    struct published *to;
    uint32_t task, term, at, dep;
};

static uint32_t put_ints(struct writer *w, const int64_t *v, int n)
{
    uint32_t at = w->at;
    for (int i = 0; i < n; i++)
        published_ints(w->to)[w->at++] = v[i];
    return at;
}

static void put_term(struct writer *w, const void *at, int dtype, const int64_t *stride, int loops)
{
    published_terms(w->to)[w->term++] =
        (struct published_term){(uint64_t)(uintptr_t)at, put_ints(w, stride, loops), (uint8_t)dtype};
}

static void put_move(struct writer *w, const struct exec_move *m)
{
    int64_t size[2] = {(int64_t)weft_dtype_size(m->to), (int64_t)weft_dtype_size(m->from)}, n = m->bytes / size[0];
    int loops = m->tile ? m->tile->loops : 1;
    struct published_task *t = &published_tasks(w->to)[w->task++];
    *t = (struct published_task){.dst = (uint64_t)(uintptr_t)m->dst,
                                 .loop = put_ints(w, m->tile ? m->tile->n : &n, loops),
                                 .term = w->term,
                                 .nterms = 1,
                                 .loops = (uint8_t)loops,
                                 .to = m->to,
                                 .via = m->via};
    put_ints(w, m->tile ? m->tile->stride[0] : &size[0], loops);
    put_term(w, m->src, m->from, m->tile ? m->tile->stride[1] : &size[1], loops);
}

static void put_fold(struct writer *w, const struct exec_fold *f)
{
    int loops = f->tile->loops;
    struct published_task *t = &published_tasks(w->to)[w->task++];
    *t = (struct published_task){.dst = (uint64_t)(uintptr_t)f->dst,
                                 .div = f->div,
                                 .loop = put_ints(w, f->tile->n, loops),
                                 .term = w->term,
                                 .nterms = (uint32_t)f->n,
                                 .loops = (uint8_t)loops,
                                 .to = f->to,
                                 .op = f->op,
                                 .acc = f->acc,
                                 .via = f->via};
    put_ints(w, f->tile->stride[0], loops);
    for (size_t k = 0; k < f->n; k++)
        put_term(w, f->terms[k].data, f->terms[k].dtype, f->terms[k].stride, loops);
}

static void put_step(struct writer *w, const weft_exec *x, const struct program *p, uint32_t s)
{
    const struct plan_step *st = &x->plan->steps[s];
    const struct exec_step *step = &p->steps[s];
    struct published_step *to = &published_steps(w->to)[s];
    *to =
        (struct published_step){.kind = st->kind, .peer = st->peer, .task = w->task, .dep = w->dep, .ndeps = st->ndeps};
    for (uint32_t k = 0; k < st->ndeps; k++)
        published_deps(w->to)[w->dep++] = x->plan->deps[st->dep + k];
    if (step->kind == PLAN_REDUCE)
        put_fold(w, &p->folds[step->work]);
    for (uint32_t k = 0; k < step->nwork && step->kind != PLAN_REDUCE; k++)
        put_move(w, &p->moves[step->work + k]);
    to->ntasks = w->task - to->task;
}

int published_make(weft_exec *x, struct program *p, uint64_t *place)
{
    struct program_device *d = p->device;
    struct published n = {.near = d->near, .nobjects = d->objects.n, .nsteps = p->nsteps};
    count(x, p, &n);
    size_t bytes = sizeof n + n.nobjects * sizeof(struct device_share) + n.nints * sizeof(int64_t) +
                   n.ntasks * sizeof(struct published_task) + n.nterms * sizeof(struct published_term) +
                   n.nsteps * sizeof(struct published_step) + n.ndeps * sizeof(uint32_t);
    d->published = x->comm->transport->alloc(x->comm->link, bytes, place);
    if (!d->published)
        return error_nomem();
    *d->published = n;
    for (uint32_t i = 0; i < n.nobjects; i++)
        published_objects(d->published)[i] = d->objects.v[i];
    struct writer w = {.to = d->published};
    for (uint32_t s = 0; s < p->nsteps; s++)
        put_step(&w, x, p, s);
    return 0;
}

void published_free(weft_exec *x, struct program *p)
{
    const char *text;
    if (p->device->published && !core_failure(x->comm->group, &text)) /* otherwise the launcher may still read it */
        x->comm->transport->release(x->comm->link, p->device->published);
    p->device->published = NULL;
}
