/* The moves and folds of steps. */
#include "engine/work.h"

#include <string.h>

#include "engine/ways/eager.h"

void work_bytes(const struct exec_move *m, char *dst, const char *src, size_t bytes)
{
    if (m->nontemporal)
        memory_past_copy(dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

void work_tile(const struct exec_move *m, const struct memory_tile *t, char *dst, const char *src)
{
    if (!m->nontemporal || !memory_past_tile(t, dst, m->to, src, m->from))
        memory_copy(t, dst, m->to, src, m->from);
}

void work_move(const struct exec_move *m, char *dst, const char *src)
{
    if (m->tile)
        work_tile(m, m->tile, dst, src);
    else if (m->nontemporal)
        memory_past_copy(dst, src, (size_t)m->bytes);
    else
        eager_copy(dst, src, m->bytes);
}

void work_pack(const struct program *p, const struct exec_step *step, char *message)
{
    for (uint32_t k = 0; k < step->nwork; k++) {
        const struct exec_move *m = &p->moves[step->work + k];
        work_move(m, message + m->offset, m->src);
    }
}

void work_unpack(const struct program *p, const struct exec_step *step, const char *message)
{
    for (uint32_t k = 0; k < step->nwork; k++) {
        const struct exec_move *m = &p->moves[step->work + k];
        work_move(m, m->dst, message ? message + m->offset : m->src);
    }
}

static void fold(const weft_exec *x, const struct exec_fold *f)
{
    for (uint32_t k = 0; k < f->neager_terms; k++) {
        const struct exec_eager_term *e = &f->eager_terms[k];
        const void *at = e->at + eager_offset(x->run, e->slots, e->slot_bytes);
        if (f->in)
            f->in[e->term] = at;
        else
            f->terms[e->term].data = at;
    }
    if (f->in)
        memory_runs_fold(&f->runs, f->dst, f->in, (int)f->n, f->count);
    else if (f->n)
        memory_fold(f->tile, f->dst, f->to, f->via, f->acc, f->op, f->div, f->terms, f->n);
    else
        memory_fill_identity(f->tile, f->dst, f->to, f->op);
}

void work_local(const weft_exec *x, const struct exec_step *step)
{
    if (step->kind == PLAN_REDUCE)
        fold(x, &x->program->folds[step->work]);
    else
        work_unpack(x->program, step, NULL);
}
