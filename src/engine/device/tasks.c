#include "engine/device/tasks.h"

#include <stdlib.h>

#include "base/error.h"

static uint64_t address(const struct tasks *t, const char *at)
{
    return t->address ? t->address(t->arg, at) : (uint64_t)(uintptr_t)at;
}

struct exec_move tasks_addressed(const struct exec_move *m, const char *message)
{
    struct exec_move at = *m;
    if (!at.dst)
        at.dst = (char *)(uintptr_t)message + m->offset;
    if (!at.src)
        at.src = message + m->offset;
    return at;
}

int tasks_move(const struct tasks *t, uint32_t level, const struct exec_move *m)
{
    int64_t size[2] = {(int64_t)weft_dtype_size(m->to), (int64_t)weft_dtype_size(m->from)}, n = m->bytes / size[0];
    struct device_operand from = {address(t, m->src), m->tile ? m->tile->stride[1] : &size[1], m->from};
    struct device_task task = {.level = level,
                               .loops = m->tile ? m->tile->loops : 1,
                               .n = m->tile ? m->tile->n : &n,
                               .dst = {address(t, m->dst), m->tile ? m->tile->stride[0] : &size[0], m->to},
                               .terms = &from,
                               .nterms = 1};
    return device_queue_add(t->queue, &task);
}

int tasks_fold(const struct tasks *t, uint32_t level, const struct exec_fold *f)
{
    struct device_operand *terms = malloc((f->n + 1) * sizeof *terms);
    if (!terms)
        return error_nomem();
    for (size_t k = 0; k < f->n; k++)
        terms[k] = (struct device_operand){address(t, f->terms[k].data), f->terms[k].stride, f->terms[k].dtype};
    struct device_task task = {.level = level,
                               .loops = f->tile->loops,
                               .n = f->tile->n,
                               .dst = {address(t, f->dst), f->tile->stride[0], f->to},
                               .terms = terms,
                               .nterms = (uint32_t)f->n,
                               .op = f->op,
                               .acc = f->acc,
                               .via = f->via,
                               .div = f->div};
    int err = device_queue_add(t->queue, &task);
    free(terms);
    return err;
}
