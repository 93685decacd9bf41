#include "lower/job.h"

#include "base/dtype.h"
#include "base/math.h"
#include "lower/feed.h"

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

#define RUN 512 /* bytes: two ranks that write shorter runs side by side write parts of the same cache lines */

/* The dim along which replicas share the work: the one in which the destination has most pieces, so that a share is a
 * whole piece of some rank as often as possible; among equals the longest. Dims whose shares have short runs in memory
 * come last. */
static int choose_cut(const struct job *j)
{
    int best = -1;
    int64_t pieces = 0, extent = 0, inner = (int64_t)weft_dtype_size(j->dst->dtype);
    bool long_runs = false;
    for (int i = j->ndim - 1; i >= 0; i--) {
        int64_t n = j->dst->dim[i].extent, p = j->dst->dim[i].pieces < n ? j->dst->dim[i].pieces : n;
        int64_t each = p ? n / p : 0;
        each = each < RUN * j->s_replicas ? each : RUN * j->s_replicas;
        bool runs = each / j->s_replicas * inner >= RUN || j->s_replicas == 1;
        if (best < 0 || runs > long_runs || (runs == long_runs && (p > pieces || (p == pieces && n >= extent)))) {
            best = i;
            pieces = p;
            extent = n;
            long_runs = runs;
        }
        inner = inner < RUN ? inner * each : inner;
    }
    return best;
}

/* The largest piece of a dim, if all its splits are by chunk; 0 otherwise. */
static int64_t chunk_size(const weft_layout *l, int dim)
{
    int64_t n = l->dim[dim].extent;
    for (int s = 0; s < l->dim[dim].nsplits; s++) {
        if (l->dim[dim].split[s].block)
            return 0;
        n = ceil_div(n, l->axis[l->dim[dim].split[s].axis].size);
    }
    return n;
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
    j->s_mine = j->si < 0 ? -1 : axes_part(m->src, j->s_split, j->si);
    j->d_mine = j->di < 0 ? -1 : axes_part(m->dst, j->d_split, j->di);
    j->s_replica = j->si < 0 ? -1 : axes_number(m->src, j->s_free, j->si);
    j->d_replica = j->di < 0 ? -1 : axes_number(m->dst, j->d_free, j->di);
    if (m->src->boxes || m->dst->boxes)
        return 0;
    bool hosts = machine_hosts(machine, d->world);
    if (apart(m->src, m->dst) && !hosts)
        j->meet = JOB_APART;
    else if (layout_same_mesh(m->src, m->dst) && layout_same_sizes(m->src, m->dst) && !hosts)
        j->meet = JOB_SAME;
    else
        j->meet = JOB_WALK;
    if (j->meet == JOB_APART && j->cut >= 0)
        j->chunk = chunk_size(m->dst, j->cut);
    return j->meet == JOB_WALK ? feed_walk_open(j) : 0;
}

int job_fold_op(const struct job *j)
{
    int op = 0;
    for (int f = 0; f < j->src->nfolds; f++)
        if (axes_count(j->src, j->src->fold[f].axes) > 1) {
            if (op)
                return 0;
            op = j->src->fold[f].op;
        }
    return op;
}
