/* Lowering if one side is boxes, or both are. This rank's own boxes are taken one by one, and those of the other side
 * that meet each are looked up: in the index of the list, or, for a mesh, by arithmetic along each dim.
 *
 * Each end of a message finds out for itself which boxes of it are sent: pair_regions says for one box of the source
 * and one box of the destination what goes from the one to the other. If a rank has an element in several boxes of the
 * destination, it goes to the first of them, and is copied to the others. If several ranks have it in the source, the
 * destination itself comes first, then its host, and then they take turns. Of boxes of one region of the source only
 * the first in this order gives to a box of the destination. It is found by a search, so that many copies cost little.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lower/job.h"

/* A box of either side. */
struct item {
    struct box_region r;
    int rank;
    uint32_t number;           /* of a list: the box. Of a mesh: 0 */
    int64_t to[WEFT_MAX_DIMS]; /* its place in its buffer */
    uint32_t nth;              /* which of its rank's boxes it is, and so its buffer */
    int64_t index;             /* of a mesh: the position of the first replica */
};

/* A box of the source, or a replica, and its host. */
struct hosted {
    int host;
    uint32_t number;
};

struct pass {
    struct job j;
    struct arena work; /* reset for each own box */
    struct arena more; /* for what is known of the other boxes */
    bool as_src, hosts;
    const weft_layout *mine, *theirs;
    const struct item *own, *other; /* the pair that is being lowered */
    int64_t left;                   /* elements of the destination's own box that no pair has given yet */
    struct written {
        struct box_region r;
        uint32_t node, number, nth;
    } * written;                   /* what this rank gets, if `again` */
    const struct box_index *again; /* this rank's boxes of the destination, if they overlap */
    size_t nwritten, cap;
    struct item *found; /* candidates */
    size_t nfound, found_cap;
    struct hosted *hosted; /* if there are hosts: the copies of each region of the source, or this rank's replicas */
};

/* ---- boxes of a list and of a mesh ---- */

static struct item item_of(const weft_layout *l, uint32_t box)
{
    const struct box_list *b = l->boxes;
    struct item x = {.r = box_region_of(b, box), .rank = b->rank[box], .number = box};
    return x;
}

/* What a piece of a mesh has along one dim of a region. */
struct along {
    int64_t piece, at, len, to;
};
struct meshed {
    const weft_layout *l;
    struct arena *arena;
    struct runs q;
    struct run one;
    int dim;
    struct {
        struct along *v;
        size_t n, cap;
    } along[WEFT_MAX_DIMS];
};

static int along_piece(void *arg, int64_t piece)
{
    struct meshed *m = arg;
    struct runs inner = {.arena = m->arena};
    struct pair_runs both = {.arena = m->arena};
    int rc = layout_piece_interior(m->l, m->dim, piece, &inner);
    if (!rc)
        rc = runs_join(&inner, &m->q, &both);
    for (size_t i = 0; i < both.n && !rc; i++)
        for (int64_t k = 0; k < both.v[i].n; k++) {
            if (m->along[m->dim].n == m->along[m->dim].cap) {
                size_t cap = m->along[m->dim].cap ? 2 * m->along[m->dim].cap : 4;
                struct along *more = arena_alloc(m->arena, cap * sizeof *more);
                if (!more)
                    return error_nomem();
                if (m->along[m->dim].n)
                    memcpy(more, m->along[m->dim].v, m->along[m->dim].n * sizeof *more);
                m->along[m->dim].v = more;
                m->along[m->dim].cap = cap;
            }
            const struct pair_run *p = &both.v[i];
            m->along[m->dim].v[m->along[m->dim].n++] =
                (struct along){piece, p->at + k * p->step, p->len, p->a + k * p->astep};
        }
    return rc;
}

static int walk_mesh(const struct meshed *m, int dim, struct item *x, int (*visit)(void *, const struct item *),
                     void *arg)
{
    if (dim == m->l->ndim)
        return visit(arg, x);
    int64_t index = x->index;
    int rc = 0;
    for (size_t i = 0; i < m->along[dim].n && !rc; i++) {
        const struct along *a = &m->along[dim].v[i];
        x->r.at[dim] = a->at;
        x->r.len[dim] = a->len;
        x->to[dim] = a->to;
        x->index = index + layout_piece_offset(m->l, dim, a->piece);
        rc = walk_mesh(m, dim + 1, x, visit, arg);
    }
    x->index = index;
    return rc;
}

/* Calls visit for each box of a mesh that meets a region, cut to the region, with the position of the first
 * replica. position: only for the piece of this position, with its rank; -1: for all. */
static int mesh_at(const weft_layout *l, const struct box_region *r, int64_t position, struct arena *arena,
                   int (*visit)(void *, const struct item *), void *arg)
{
    struct meshed m = {.l = l, .arena = arena};
    for (m.dim = 0; m.dim < l->ndim; m.dim++) {
        m.one = (struct run){.at = r->at[m.dim], .len = r->len[m.dim], .n = 1};
        m.q = (struct runs){.v = &m.one, .n = 1, .cap = 1};
        int rc = position >= 0 ? along_piece(&m, layout_piece(l, position, m.dim))
                               : layout_pieces_at(l, m.dim, &m.q, false, arena, along_piece, &m);
        if (rc)
            return rc;
    }
    struct item x = {.rank = position >= 0 ? mesh_rank(l, position) : -1};
    return walk_mesh(&m, 0, &x, visit, arg);
}

/* ---- who gives ---- */

/* Ranks of the source take turns, from this number of them on, with each box of the destination. */
static int64_t first_turn(const struct pass *p, const struct item *to, int64_t among)
{
    int64_t index = mesh_index(p->j.dst, to->rank);
    return (index + (int64_t)to->number + (int64_t)p->j.d->tensor) % among;
}

static bool same_host(const struct pass *p, int a, int b)
{
    return !p->hosts || machine_host(p->j.machine, a) == machine_host(p->j.machine, b);
}

/* Does source box a give to a box of the destination before source box b does? */
static bool gives_before(const struct pass *p, const struct item *to, const struct item *a, const struct item *b)
{
    const struct box_list *l = p->j.src->boxes;
    if (a->rank != b->rank) {
        if (a->rank == to->rank || b->rank == to->rank)
            return a->rank == to->rank;
        bool near = same_host(p, a->rank, to->rank);
        if (near != same_host(p, b->rank, to->rank))
            return near;
        int64_t n = (int64_t)l->holders, from = first_turn(p, to, n);
        int64_t x = mesh_index(p->j.src, a->rank), y = mesh_index(p->j.src, b->rank);
        return (x - from + n) % n < (y - from + n) % n;
    }
    return a->number < b->number;
}

static int by_host(const void *a, const void *b)
{
    const struct hosted *x = a, *y = b;
    return x->host != y->host ? (x->host < y->host ? -1 : 1) : (x->number > y->number) - (x->number < y->number);
}

/* Of v, in order, the first that is not below the host and the number. */
static size_t first_hosted(const struct hosted *v, size_t n, int host, int64_t number)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (v[mid].host < host || (v[mid].host == host && v[mid].number < number))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Of the numbers of a host, the first from `from` on, and then round; -1: the host has none. */
static int64_t next_hosted(const struct hosted *v, size_t n, int host, int64_t from)
{
    size_t i = first_hosted(v, n, host, from);
    if (i == n || v[i].host != host)
        i = first_hosted(v, n, host, 0);
    return i < n && v[i].host == host ? (int64_t)v[i].number : -1;
}

/* Sorts the copies of each region by their hosts. */
static int sort_copies(struct pass *p)
{
    const struct box_list *b = p->j.src->boxes;
    const struct box_copies *c = &b->copies;
    p->hosted = malloc(b->n * sizeof *p->hosted);
    if (!p->hosted)
        return error_nomem();
    for (size_t i = 0; i < b->n; i++)
        p->hosted[i] = (struct hosted){machine_host(p->j.machine, b->rank[c->member[i]]), c->member[i]};
    for (size_t k = 0; k < c->n; k++)
        qsort(p->hosted + c->first[k], c->first[k + 1] - c->first[k], sizeof *p->hosted, by_host);
    return 0;
}

/* Sorts this rank's replicas in a mesh of the source by their hosts. */
static int sort_replicas(struct pass *p)
{
    const weft_layout *l = p->j.src;
    int64_t own = mesh_index(l, p->j.d->rank), n = p->j.s_replicas;
    int64_t index = own < 0 ? 0 : own - axes_part(l, p->j.s_free, own);
    if (own < 0)
        return 0;
    p->hosted = malloc((size_t)n * sizeof *p->hosted);
    if (!p->hosted)
        return error_nomem();
    for (int64_t i = 0; i < n; i++) {
        int rank = mesh_rank(l, index + axes_offset(l, p->j.s_free, i));
        p->hosted[i] = (struct hosted){machine_host(p->j.machine, rank), (uint32_t)i};
    }
    qsort(p->hosted, (size_t)n, sizeof *p->hosted, by_host);
    return 0;
}

/* The first of the boxes v, in ascending order, of this rank or a later one. */
static size_t first_of_rank(const struct box_list *b, const uint32_t *v, size_t n, int rank)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (b->rank[v[mid]] < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Which box of a region of the source gives to a box of the destination. */
static uint32_t first_copy(const struct pass *p, uint32_t region, const struct item *to)
{
    const struct box_list *b = p->j.src->boxes;
    const uint32_t *v = b->copies.member + b->copies.first[region];
    size_t n = b->copies.first[region + 1] - b->copies.first[region], i = first_of_rank(b, v, n, to->rank);
    if (n == 1 || (i < n && b->rank[v[i]] == to->rank))
        return v[n == 1 ? 0 : i];
    int64_t turn = first_turn(p, to, (int64_t)b->holders);
    if (p->hosts) {
        const struct hosted *h = p->hosted + b->copies.first[region];
        int64_t near = next_hosted(h, n, machine_host(p->j.machine, to->rank), (int64_t)b->first[turn]);
        if (near >= 0)
            return (uint32_t)near;
    }
    i = first_of_rank(b, v, n, b->rank[b->first[turn]]);
    return v[i < n ? i : 0];
}

/* The rank that gives a piece of a mesh: the piece of position `index`, and its replicas. */
static int mesh_giver(const struct pass *p, int64_t index, const struct item *to)
{
    const weft_layout *l = p->j.src;
    uint32_t free = p->j.s_free;
    int64_t n = p->j.s_replicas, from = first_turn(p, to, n);
    int64_t own = mesh_index(l, to->rank);
    if (own >= 0 && own - axes_part(l, free, own) == index)
        return to->rank;
    int64_t given = -1;
    if (p->hosts && p->as_src) { /* they are this rank's own replicas */
        given = next_hosted(p->hosted, (size_t)n, machine_host(p->j.machine, to->rank), from);
    } else if (p->hosts) {
        for (int64_t i = 0; i < n && given < 0; i++)
            if (same_host(p, mesh_rank(l, index + axes_offset(l, free, (from + i) % n)), to->rank))
                given = (from + i) % n;
    }
    return mesh_rank(l, index + axes_offset(l, free, given < 0 ? from : given));
}

/* ---- what one box gives to another ---- */

struct rivals {
    struct pass *p;
    const struct item *from, *to;
    const struct box_region *r;
    struct item *v;
    size_t n, cap;
    struct arena *arena;
};

static bool contains(int ndim, const struct box_region *a, const struct box_region *b)
{
    for (int d = 0; d < ndim; d++)
        if (b->at[d] < a->at[d] || b->at[d] + b->len[d] > a->at[d] + a->len[d])
            return false;
    return true;
}

static int add_rival(struct rivals *x, const struct item *i)
{
    if (contains(x->p->j.ndim, &i->r, x->r))
        return 1; /* it gives all of it */
    if (x->n == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 8;
        struct item *more = arena_alloc(x->arena, cap * sizeof *more);
        if (!more)
            return error_nomem();
        if (x->n)
            memcpy(more, x->v, x->n * sizeof *more);
        x->v = more;
        x->cap = cap;
    }
    size_t k = x->n++; /* in order, so that both ends cut in one order */
    for (; k && x->v[k - 1].number > i->number; k--)
        x->v[k] = x->v[k - 1];
    x->v[k] = *i;
    return 0;
}

/* box: the first of a region. */
static int source_rival(void *arg, uint32_t box)
{
    struct rivals *x = arg;
    const uint32_t *region = x->p->j.src->boxes->copies.region;
    if (region[box] == region[x->from->number])
        return 0;
    struct item i = item_of(x->p->j.src, first_copy(x->p, region[box], x->to));
    return gives_before(x->p, x->to, &i, x->from) ? add_rival(x, &i) : 0;
}

static int earlier_box(void *arg, uint32_t box)
{
    struct rivals *x = arg;
    if (box >= x->to->number)
        return 0;
    struct item i = item_of(x->p->j.dst, box);
    return add_rival(x, &i);
}

/* The index of a rank's own boxes; NULL: none of its elements is in several of them. */
static const struct box_index *own_index(const weft_layout *l, int rank)
{
    const struct box_index *own = l->boxes ? l->boxes->copies.own : NULL;
    const int64_t position = own ? mesh_index(l, rank) : -1;
    return position >= 0 && own[position].n ? &own[position] : NULL;
}

/* The regions that box `from` gives to box `to`. */
static int pair_regions(struct pass *p, const struct item *from, const struct item *to, struct box_regions *out)
{
    const struct job *j = &p->j;
    struct box_region r;
    out->n = 0;
    if (!box_region_meet(j->ndim, &from->r, &to->r, &r))
        return 0;
    int rc = box_region_add(out, &r);
    const struct box_list *b = j->src->boxes;
    const bool shared = b && b->shared;
    if (!rc && shared && first_copy(p, b->copies.region[from->number], to) != from->number)
        rc = 1;
    const struct box_index *index[2] = {own_index(j->dst, to->rank), shared ? &b->copies.index : NULL};
    for (int side = 0; side < 2 && !rc; side++) {
        if (!index[side])
            continue;
        struct rivals x = {.p = p, .from = from, .to = to, .r = &r, .arena = out->arena};
        rc = side ? box_index_at(b, index[side], &r, source_rival, &x)
                  : box_index_at(j->dst->boxes, index[side], &r, earlier_box, &x);
        for (size_t i = 0; i < x.n && !rc; i++)
            rc = box_region_without(j->ndim, out, &x.v[i].r);
    }
    if (rc == 1) {
        out->n = 0;
        rc = 0;
    }
    if (rc || b || !out->n)
        return rc;
    if (mesh_giver(p, from->index, to) != from->rank)
        out->n = 0;
    return 0;
}

/* ---- steps ---- */

static int note_written(struct pass *p, const struct span *box, uint32_t node)
{
    if (!p->again)
        return 0;
    if (p->nwritten == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        struct written *more = realloc(p->written, cap * sizeof *more);
        if (!more)
            return error_nomem();
        p->written = more;
        p->cap = cap;
    }
    struct written *w = &p->written[p->nwritten++];
    *w = (struct written){.node = node, .number = p->own->number, .nth = p->own->nth};
    for (int d = 0; d < p->j.ndim; d++) {
        w->r.at[d] = box[d].at;
        w->r.len[d] = box[d].len;
    }
    return 0;
}

static int put_part(void *arg, const struct span *box)
{
    struct pass *p = arg;
    const struct job *j = &p->j;
    uint32_t node;
    int rc = p->as_src ? emit_part_src(j, box) : emit_part_dst(j, box);
    if (!rc && p->as_src)
        return draft_send(j->d, 0, p->other->rank, j->wire, 0, DRAFT_NONE, NULL);
    if (!rc)
        rc = draft_recv(j->d, 0, p->other->rank, j->wire, 0, &node);
    return rc ? rc : note_written(p, box, node);
}

static int put_local(struct pass *p, const struct span *box)
{
    uint32_t node;
    int rc = emit_part_src(&p->j, box);
    if (!rc)
        rc = emit_part_dst(&p->j, box);
    if (!rc)
        rc = draft_copy(p->j.d, 0, NULL, 0, &node);
    return rc ? rc : note_written(p, box, node);
}

/* Lowers the pair of p->own and p->other. */
static int put_pair(struct pass *p)
{
    const struct item *from = p->as_src ? p->own : p->other, *to = p->as_src ? p->other : p->own;
    struct box_regions regions = {.arena = &p->more};
    int rc = pair_regions(p, from, to, &regions);
    p->j.s_box = from->nth;
    p->j.d_box = to->nth;
    for (size_t i = 0; i < regions.n && !rc; i++) {
        struct span box[WEFT_MAX_DIMS];
        const struct box_region *r = &regions.v[i];
        for (int d = 0; d < p->j.ndim; d++)
            box[d] = (struct span){.at = r->at[d],
                                   .len = r->len[d],
                                   .n = 1,
                                   .a = r->at[d] - from->r.at[d] + from->to[d],
                                   .b = r->at[d] - to->r.at[d] + to->to[d]};
        p->left -= box_region_count(p->j.ndim, r);
        rc = from->rank == to->rank ? put_local(p, box) : emit_cut(&p->j, box, put_part, p);
    }
    return rc;
}

/* ---- the other side's boxes ---- */

static int add_found(struct pass *p, const struct item *x)
{
    if (p->nfound == p->found_cap) {
        size_t cap = p->found_cap ? 2 * p->found_cap : 16;
        struct item *more = realloc(p->found, cap * sizeof *more);
        if (!more)
            return error_nomem();
        p->found = more;
        p->found_cap = cap;
    }
    p->found[p->nfound++] = *x;
    return 0;
}

static int found_box(void *arg, uint32_t box)
{
    struct pass *p = arg;
    struct item x = item_of(p->theirs, box);
    if (x.rank == p->j.d->rank) {
        if (p->as_src) /* what this rank has already is copied as the destination's */
            return 0;
        x.nth = box - (uint32_t)p->theirs->boxes->first[mesh_index(p->theirs, x.rank)];
    }
    return add_found(p, &x);
}

/* box: the first of a region of the source. */
static int found_region(void *arg, uint32_t box)
{
    struct pass *p = arg;
    return found_box(arg, first_copy(p, p->theirs->boxes->copies.region[box], p->own));
}

/* A piece of a mesh: of a source the replica that gives, of a destination all replicas. */
static int found_piece(void *arg, const struct item *piece)
{
    struct pass *p = arg;
    struct item x = *piece;
    if (!p->as_src) {
        x.rank = mesh_giver(p, x.index, p->own);
        return add_found(p, &x);
    }
    int rc = 0;
    for (int64_t i = 0; i < p->j.d_replicas && !rc; i++) {
        x.rank = mesh_rank(p->theirs, piece->index + axes_offset(p->theirs, p->j.d_free, i));
        rc = x.rank == p->j.d->rank ? 0 : add_found(p, &x);
    }
    return rc;
}

/* Merge sort by who gives first. */
static void sort_found(const struct pass *p, struct item *v, struct item *tmp, size_t n)
{
    if (n < 2)
        return;
    size_t h = n / 2, i = 0, j = h, k = 0;
    sort_found(p, v, tmp, h);
    sort_found(p, v + h, tmp, n - h);
    memcpy(tmp, v, h * sizeof *v);
    while (i < h)
        v[k++] = j < n && gives_before(p, p->own, &v[j], &tmp[i]) ? v[j++] : tmp[i++];
}

static int own_box(void *arg, const struct item *own)
{
    struct pass *p = arg;
    arena_reset(&p->work);
    p->own = own;
    p->nfound = 0;
    p->left = box_region_count(p->j.ndim, &own->r);
    const struct box_list *b = p->theirs->boxes;
    const bool regions = b && b->shared && !p->as_src;
    int rc = regions ? box_index_at(b, &b->copies.index, &own->r, found_region, p)
             : b     ? box_index_at(b, &b->index, &own->r, found_box, p)
                     : mesh_at(p->theirs, &own->r, -1, &p->work, found_piece, p);
    if (!rc && regions && p->nfound > 1) {
        struct item *tmp = arena_alloc(&p->work, p->nfound * sizeof *tmp);
        if (!tmp)
            return error_nomem();
        sort_found(p, p->found, tmp, p->nfound);
    }
    for (size_t i = 0; i < p->nfound && !rc && (p->as_src || p->left); i++) {
        arena_reset(&p->more);
        p->other = &p->found[i];
        rc = put_pair(p);
    }
    return rc;
}

/* Takes this rank's boxes on its own side one by one. */
static int each_own(struct pass *p)
{
    const weft_layout *l = p->mine;
    int rank = p->j.d->rank;
    int64_t position = mesh_index(l, rank);
    if (position < 0)
        return 0;
    if (l->boxes) {
        int rc = 0;
        size_t first = l->boxes->first[position];
        for (size_t i = first; i < l->boxes->first[position + 1] && !rc; i++) {
            struct item x = item_of(l, (uint32_t)i);
            x.nth = (uint32_t)(i - first);
            rc = own_box(p, &x);
        }
        return rc;
    }
    struct box_region all;
    for (int d = 0; d < l->ndim; d++) {
        all.at[d] = 0;
        all.len[d] = l->dim[d].extent;
    }
    return mesh_at(l, &all, position, p->j.arena, own_box, p);
}

/* ---- one element in several boxes of this rank ---- */

struct again {
    struct pass *p;
    uint32_t box, nth;
    struct box_region to;
};

/* Copies what this rank got into box `number`, as far as the later box has it, too. */
static int copy_part(struct again *a, const struct written *w)
{
    struct pass *p = a->p;
    struct box_region r, first = box_region_of(p->j.dst->boxes, w->number);
    struct span from[WEFT_MAX_DIMS], into[WEFT_MAX_DIMS];
    if (!box_region_meet(p->j.ndim, &w->r, &a->to, &r))
        return 0;
    for (int d = 0; d < p->j.ndim; d++) {
        from[d] = (struct span){.at = r.at[d], .len = r.len[d], .n = 1, .b = r.at[d] - first.at[d]};
        into[d] = from[d];
        into[d].b = r.at[d] - a->to.at[d];
    }
    p->j.d_box = w->nth;
    int rc = emit_part_dst(&p->j, from);
    p->j.d_box = a->nth;
    if (!rc)
        rc = emit_part_dst(&p->j, into);
    return rc ? rc : draft_copy(p->j.d, 0, &w->node, 1, NULL);
}

static int copy_again(void *arg, uint32_t box)
{
    struct again *a = arg;
    struct pass *p = a->p;
    if (box >= a->box)
        return 0;
    size_t lo = 0, hi = p->nwritten; /* what was written is in order of boxes */
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (p->written[mid].number < box)
            lo = mid + 1;
        else
            hi = mid;
    }
    int rc = 0;
    for (; lo < p->nwritten && p->written[lo].number == box && !rc; lo++)
        rc = copy_part(a, &p->written[lo]);
    return rc;
}

static int copies(struct pass *p)
{
    const struct box_list *b = p->j.dst->boxes;
    int64_t position = mesh_index(p->j.dst, p->j.d->rank);
    int rc = 0;
    if (!p->again)
        return 0;
    for (size_t i = b->first[position]; i < b->first[position + 1] && !rc; i++) {
        struct again a = {.p = p, .box = (uint32_t)i, .to = box_region_of(b, i)};
        a.nth = (uint32_t)(i - b->first[position]);
        rc = box_index_at(b, p->again, &a.to, copy_again, &a);
    }
    return rc;
}

int lower_boxed(const struct job *j)
{
    struct pass p = {.j = *j, .as_src = true, .mine = j->src, .theirs = j->dst};
    p.hosts = machine_hosts(j->machine, j->d->world);
    p.again = own_index(j->dst, j->d->rank);
    int rc = 0;
    if (p.hosts && (!j->src->boxes || j->src->boxes->shared))
        rc = j->src->boxes ? sort_copies(&p) : sort_replicas(&p);
    if (!rc)
        rc = each_own(&p);
    p.as_src = false;
    p.mine = j->dst;
    p.theirs = j->src;
    if (!rc)
        rc = each_own(&p);
    if (!rc)
        rc = copies(&p);
    arena_free(&p.work);
    arena_free(&p.more);
    free(p.written);
    free(p.found);
    free(p.hosted);
    return rc;
}
