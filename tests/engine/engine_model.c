#define _GNU_SOURCE
#include "engine_model.h"

#include <stdlib.h>
#include <string.h>

#include "support/ranks.h"
#include "support/values.h"

static int model_view(struct model *m, const weft_layout *l, bool ours, weft_view *v)
{
    weft_local at;
    int err = weft_layout_local(l, m->r->rank, &at);
    if (err)
        return err;
    *v = (weft_view){.data = NULL, .bytes = (size_t)at.bytes};
    if (ours)
        return weft_comm_alloc(m->r->comm, (size_t)at.bytes + 1, WEFT_MEMORY_HOST, 0, &v->data);
    v->data = calloc(1, (size_t)at.bytes + 1);
    return 0;
}

void model_unview(struct model *m, bool ours, weft_view *v)
{
    if (ours)
        weft_comm_free(m->r->comm, v->data);
    else
        free(v->data);
}

int model_views(struct model *m, int i, const struct pair *pair)
{
    m->ours[2 * i] = pair->ours >> m->r->rank & 1;
    m->ours[2 * i + 1] = pair->ours >> (16 + m->r->rank) & 1;
    int err = model_view(m, m->src[i], m->ours[2 * i], &m->in[i]);
    return err ? err : model_view(m, m->dst[i], m->ours[2 * i + 1], &m->out[i]);
}

int model_make(struct model *m, struct ranks_rank *r, const struct pair *pairs, int n, const weft_lower_opts *opts)
{
    weft_move moves[MOST];
    int err = 0;
    *m = (struct model){.n = n, .r = r};
    for (int i = 0; i < n && !err; i++) {
        err = weft_layout_parse(pairs[i].src, &m->src[i]);
        if (!err)
            err = weft_layout_parse(pairs[i].dst, &m->dst[i]);
        moves[i] = (weft_move){"t", m->src[i], m->dst[i]};
        if (!err)
            err = model_views(m, i, &pairs[i]);
    }
    weft_lower_opts o = *opts;
    o.size = sizeof o;
    o.world = r->size;
    if (!err)
        err = weft_lower(moves, (size_t)n, r->rank, &o, &m->plan);
    return err ? err : weft_bind(m->plan, r->comm, m->in, m->out, NULL, &m->exec);
}

void model_fill(struct model *m, int seed)
{
    for (int i = 0; i < m->n; i++) {
        if (m->in[i].bytes)
            tensors_fill(m->src[i], m->r->rank, m->in[i].data, seed + i);
        memset(m->out[i].data, 0x5a, m->out[i].bytes);
    }
}

int64_t model_wrong(struct model *m, int seed)
{
    values_begin();
    for (int i = 0; i < m->n; i++) {
        values_tensor(m->n > 1 ? i : -1);
        if (m->out[i].bytes)
            tensors_check(m->src[i], m->dst[i], m->r->rank, m->out[i].data, seed + i);
    }
    return values_wrong();
}

void model_free(struct model *m)
{
    weft_exec_close(m->exec);
    weft_plan_free(m->plan);
    for (int i = 0; i < m->n; i++) {
        weft_layout_free(m->src[i]);
        weft_layout_free(m->dst[i]);
        model_unview(m, m->ours[2 * i], &m->in[i]);
        model_unview(m, m->ours[2 * i + 1], &m->out[i]);
    }
}
