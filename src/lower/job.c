#include "lower/job.h"

#include "base/dtype.h"
#include "base/math.h"
#include "lower/assign.h"

int64_t axes_count(const weft_layout *l, uint32_t set)
{
    int64_t n = 1;
    for (int a = 0; a < l->naxes; a++)
        if (set & 1u << a)
            n *= l->axis[a].size;
    return n;
}

int64_t axes_number(const weft_layout *l, uint32_t set, int64_t index)
{
    int64_t n = 0;
    for (int a = 0; a < l->naxes; a++)
        if (set & 1u << a)
            n = n * l->axis[a].size + layout_coord(l, index, a);
    return n;
}

int64_t axes_offset(const weft_layout *l, uint32_t set, int64_t number)
{
    int64_t off = 0;
    for (int a = l->naxes - 1; a >= 0; a--)
        if (set & 1u << a) {
            off += number % l->axis[a].size * l->axis[a].stride;
            number /= l->axis[a].size;
        }
    return off;
}

int64_t axes_part(const weft_layout *l, uint32_t set, int64_t index)
{
    int64_t off = 0;
    for (int a = 0; a < l->naxes; a++)
        if (set & 1u << a)
            off += layout_coord(l, index, a) * l->axis[a].stride;
    return off;
}

static void sort_axes(const weft_layout *l, uint32_t *split, uint32_t *replicate, uint32_t *fold)
{
    *split = *replicate = *fold = 0;
    for (int a = 0; a < l->naxes; a++)
        *(l->axis[a].role >= 0 ? split : l->axis[a].role == LAYOUT_FREE ? replicate : fold) |= 1u << a;
}

static bool apart(const weft_layout *a, const weft_layout *b)
{
    if (a->nranks <= b->minrank || b->nranks <= a->minrank)
        return true;
    size_t i = 0, k = 0;
    while (i < a->nsegs && k < b->nsegs) {
        const struct layout_seg *x = &a->by_rank[i], *y = &b->by_rank[k];
        if (x->rank + x->n <= y->rank)
            i++;
        else if (y->rank + y->n <= x->rank)
            k++;
        else
            return false;
    }
    return true;
}

/* The dim along which replicas share: where the destination has most pieces, so that a share is a whole piece of
 * somebody's as often as it can be; among equals the longest. */
static int choose_cut(const struct job *j)
{
    int best = -1;
    int64_t pieces = 0, extent = 0;
    for (int i = 0; i < j->ndim; i++) {
        int64_t n = j->dst->dim[i].extent, p = j->dst->dim[i].pieces < n ? j->dst->dim[i].pieces : n;
        if (best < 0 || p > pieces || (p == pieces && n > extent)) {
            best = i;
            pieces = p;
            extent = n;
        }
    }
    return best;
}

bool job_hosts(const weft_machine *m, int world)
{
    if (!m->host)
        return m->ranks_per_host > 0 && m->ranks_per_host < world;
    for (int r = 1; r < world; r++)
        if (m->host[r] != m->host[0])
            return true;
    return false;
}

int job_host(const weft_machine *m, int rank)
{
    return m->host ? m->host[rank] : m->ranks_per_host > 0 ? rank / m->ranks_per_host : 0;
}

int job_open(struct job *j, struct draft *d, const weft_move *m, const weft_machine *machine)
{
    *j = (struct job){
        .d = d, .arena = &d->arena, .src = m->src, .dst = m->dst, .machine = machine, .ndim = m->src->ndim};
    j->si = mesh_index(m->src, d->rank);
    j->di = mesh_index(m->dst, d->rank);
    sort_axes(m->src, &j->s_split, &j->s_free, &j->s_fold);
    sort_axes(m->dst, &j->d_split, &j->d_free, &j->d_fold);
    j->s_replicas = axes_count(m->src, j->s_free);
    j->s_terms = axes_count(m->src, j->s_fold);
    j->d_replicas = axes_count(m->dst, j->d_free);
    j->fold = j->s_terms > 1 || m->src->ghost_terms;
    j->wire = weft_dtype_size(m->dst->dtype) < weft_dtype_size(m->src->dtype) ? m->dst->dtype : m->src->dtype;
    int64_t widest = (int64_t)weft_dtype_size(j->fold ? dtype_acc(m->src->dtype) : j->wire);
    j->most = d->bucket == 1 ? INT64_MAX : max64(1, d->bucket / widest);
    j->cut = choose_cut(j);
    bool hosts = job_hosts(machine, d->world);
    if (apart(m->src, m->dst) && !hosts)
        j->meet = JOB_APART;
    else if (layout_same_mesh(m->src, m->dst) && layout_same_sizes(m->src, m->dst) && !hosts)
        j->meet = JOB_SAME;
    else
        j->meet = JOB_WALK;
    return j->meet == JOB_WALK ? feed_walk_open(j) : 0;
}
