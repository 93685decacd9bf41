/* Lowering with folds. Each box of elements is folded once, by a destination that holds the most terms. The other ranks
 * send it the terms that it lacks, and it sends the finished value to the other D - 1 destinations. If several
 * destinations could fold a box, they share it. A box of one term is not folded but copied. Terms of one box are folded
 * in a fixed order: owners before ghosts, then by rank, then by slot. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/math.h"
#include "lower/cells.h"

#define GRAIN 16384 /* bytes: a smaller stretch is not cut further for more senders */

struct term {
    bool ghost;
    int rank;                 /* the rank of the term's copy at coordinate 0 of the free axes */
    int64_t slot;             /* where the box starts in that rank's buffer */
    int64_t index;            /* mesh position of that copy */
    const int64_t *group;     /* coordinates on each fold, as one number */
    const int64_t *a, *astep; /* in each dim; terms that differ only in their coordinates on the folds share these */
    uint32_t buf, node;       /* at the folding rank: where it was received, by which node */
};

struct dest {
    int rank;
    size_t holds; /* terms */
    int64_t b[WEFT_MAX_DIMS], bstep[WEFT_MAX_DIMS];
};

struct box {
    const struct job *j;
    const struct slots *slots; /* as a destination */
    bool source;
    const struct cell *cell[WEFT_MAX_DIMS];
    struct span span[WEFT_MAX_DIMS];
    struct term *term;
    struct dest *dest;
    size_t nterms, ndests, nfolders; /* the first nfolders destinations fold */
    uint32_t *mine;                  /* terms that this rank holds, as a source */
    size_t nmine;
    const struct dest *me; /* this rank among the destinations */
};

static int order_terms(const void *a, const void *b)
{
    const struct term *x = a, *y = b;
    if (x->ghost != y->ghost)
        return x->ghost ? 1 : -1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static bool in_order(const void *v, size_t n, size_t size, int (*order)(const void *, const void *))
{
    for (size_t i = 1; i < n; i++)
        if (order((const char *)v + (i - 1) * size, (const char *)v + i * size) > 0)
            return false;
    return true;
}

/* Mostly they are in order already. */
static void sort(void *v, size_t n, size_t size, int (*order)(const void *, const void *))
{
    if (!in_order(v, n, size, order))
        qsort(v, n, size, order);
}

static int order_dests(const void *a, const void *b)
{
    const struct dest *x = a, *y = b;
    if (x->holds != y->holds)
        return x->holds > y->holds ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The k-th way to pick one entry in each dim: the digits of k. False: the side has no corners, and this is one. */
static bool pick(const struct box *x, bool terms, size_t k, size_t *digit)
{
    int ghosts = 0;
    for (int d = x->j->ndim - 1; d >= 0; d--) {
        const struct cell *c = x->cell[d];
        size_t n = terms ? c->nterms : c->ndests;
        digit[d] = k % n;
        k /= n;
        ghosts += terms ? c->term[digit[d]].ghost : c->dest[digit[d]].ghost;
    }
    return ghosts < 2 || !(terms ? x->j->src : x->j->dst)->faces;
}

static int fill_terms(struct box *x)
{
    const struct job *j = x->j;
    const weft_layout *l = j->src;
    size_t slots = 1;
    for (int d = 0; d < j->ndim; d++)
        slots *= x->cell[d]->nterms;
    size_t n = 0, digit[WEFT_MAX_DIMS], most = slots * (size_t)j->s_terms;
    x->term = arena_alloc(j->arena, most * sizeof *x->term);
    int64_t *group = arena_alloc(j->arena, most * (size_t)l->nfolds * sizeof *group);
    int64_t *place = arena_alloc(j->arena, 2 * slots * (size_t)j->ndim * sizeof *place);
    if (!x->term || !group || !place)
        return error_nomem();
    for (size_t k = 0; k < slots; k++) {
        int64_t index = 0, *a = place, *astep = place + j->ndim;
        struct term t = {.a = a, .astep = astep, .buf = PLAN_NONE, .node = DRAFT_NONE};
        if (!pick(x, true, k, digit))
            continue;
        place += 2 * j->ndim;
        for (int d = 0; d < j->ndim; d++) {
            const struct cell_term *c = &x->cell[d]->term[digit[d]];
            int64_t extent = d ? layout_piece_extent(l, d, c->piece, NULL) : 0;
            index += layout_piece_offset(l, d, c->piece);
            t.ghost = t.ghost || c->ghost;
            t.slot = t.slot * extent + c->a;
            a[d] = c->a;
            astep[d] = c->astep;
        }
        for (int64_t f = 0; f < j->s_terms; f++) {
            t.index = index + axes_offset(l, j->s_fold, f);
            t.rank = mesh_rank(l, t.index);
            t.group = group;
            for (int i = 0; i < l->nfolds; i++)
                *group++ = axes_number(l, l->fold[i].axes, t.index) + (l->fold[i].ghosts ? (int64_t)k * l->mesh : 0);
            x->term[n++] = t;
        }
    }
    x->nterms = n;
    sort(x->term, n, sizeof *x->term, order_terms);
    return 0;
}

static bool holds_term(const struct box *x, int rank, const struct term *t)
{
    const struct job *j = x->j;
    int64_t index = mesh_index(j->src, rank);
    return index >= 0 && axes_part(j->src, j->s_split | j->s_fold, index) == t->index;
}

static int find_mine(struct box *x)
{
    x->mine = arena_alloc(x->j->arena, x->nterms * sizeof *x->mine);
    if (!x->mine)
        return error_nomem();
    x->nmine = 0;
    for (size_t i = 0; i < x->nterms; i++)
        if (holds_term(x, x->j->d->rank, &x->term[i]))
            x->mine[x->nmine++] = (uint32_t)i;
    return 0;
}

static int order_index(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* How many terms of the box a rank holds; `at` has the terms' mesh positions, sorted. */
static size_t count_held(const struct job *j, int rank, const int64_t *at, size_t n)
{
    int64_t index = mesh_index(j->src, rank);
    if (index < 0)
        return 0;
    int64_t key = axes_part(j->src, j->s_split | j->s_fold, index);
    const int64_t *one = bsearch(&key, at, n, sizeof *at, order_index), *end = one;
    if (!one)
        return 0;
    while (one > at && one[-1] == key)
        one--;
    while (end < at + n && *end == key)
        end++;
    return (size_t)(end - one);
}

static int fill_dests(struct box *x)
{
    const struct job *j = x->j;
    const weft_layout *l = j->dst;
    size_t pieces = 1, n = 0, digit[WEFT_MAX_DIMS];
    for (int d = 0; d < j->ndim; d++)
        pieces *= x->cell[d]->ndests;
    x->dest = arena_alloc(j->arena, pieces * (size_t)j->d_replicas * sizeof *x->dest);
    int64_t *at = arena_alloc(j->arena, x->nterms * sizeof *at);
    if (!x->dest || !at)
        return error_nomem();
    for (size_t i = 0; i < x->nterms; i++)
        at[i] = x->term[i].index;
    sort(at, x->nterms, sizeof *at, order_index);
    for (size_t k = 0; k < pieces; k++) {
        struct dest t = {0};
        int64_t index = 0;
        if (!pick(x, false, k, digit))
            continue;
        for (int d = 0; d < j->ndim; d++) {
            const struct cell_dest *c = &x->cell[d]->dest[digit[d]];
            index += layout_piece_offset(l, d, c->piece);
            t.b[d] = c->b;
            t.bstep[d] = c->bstep;
        }
        for (int64_t r = 0; r < j->d_replicas; r++) {
            t.rank = mesh_rank(l, index + axes_offset(l, j->d_free, r));
            t.holds = count_held(j, t.rank, at, x->nterms);
            x->dest[n++] = t;
        }
    }
    sort(x->dest, n, sizeof *x->dest, order_dests);
    x->ndests = n;
    for (x->nfolders = 1; x->nfolders < n && x->dest[x->nfolders].holds == x->dest[0].holds; x->nfolders++)
        ;
    x->me = j->taker && !x->source ? x->dest : NULL;
    for (size_t i = 0; i < n && !x->source; i++)
        if (x->dest[i].rank == j->d->rank)
            x->me = &x->dest[i];
    return 0;
}

/* ---- one stretch of the box, folded by one destination ---- */

struct stretch {
    struct box *x;
    struct span span[WEFT_MAX_DIMS]; /* a and b are set when a part is added */
    int64_t shift[WEFT_MAX_DIMS];    /* how far into the box it starts, in positions of each dim */
    const struct dest *folder;
    int64_t giver; /* which replica of the source sends */
};

static int part_of_term(const struct stretch *s, const struct term *t)
{
    struct span v[WEFT_MAX_DIMS];
    for (int d = 0; d < s->x->j->ndim; d++) {
        v[d] = s->span[d];
        /* In a run that repeats a stretch starts after some repetitions, otherwise after some positions. */
        int64_t len = s->x->span[d].len;
        v[d].a = t->a[d] + s->shift[d] / len * t->astep[d] + s->shift[d] % len;
        v[d].astep = t->astep[d];
    }
    return emit_part_src(s->x->j, v);
}

static void place_dest(const struct stretch *s, const struct dest *t, struct span *v)
{
    for (int d = 0; d < s->x->j->ndim; d++) {
        v[d] = s->span[d];
        int64_t len = s->x->span[d].len;
        v[d].b = t->b[d] + s->shift[d] / len * t->bstep[d] + s->shift[d] % len;
        v[d].bstep = t->bstep[d];
    }
}

/* The result of a fold: a part in some buffer. */
struct value {
    bool src;      /* a term on this rank */
    uint32_t term; /* src: which term */
    uint32_t buf, node;
};

static int part_of_value(const struct stretch *s, const struct value *v)
{
    return v->src ? part_of_term(s, &s->x->term[v->term]) : emit_part_temp(s->x->j, v->buf, s->span);
}

/* Where the finished value goes: into the destination, and also into a temp if it is sent on in another dtype. */
struct goal {
    bool temp;
    uint32_t buf;
    struct span dst[WEFT_MAX_DIMS];
};

static int part_of_goal(const struct stretch *s, const struct goal *g)
{
    return g->temp ? emit_part_temp(s->x->j, g->buf, s->span) : emit_part_dst(s->x->j, g->dst);
}

/* Folds terms[0..n) by the layout's folds 0 .. level; `last` is the level whose result is the finished value. */
static int fold_level(const struct stretch *s, const uint32_t *terms, size_t n, int level, int last,
                      const struct goal *g, struct value *out)
{
    const struct job *j = s->x->j;
    const struct term *t = s->x->term;
    if (level < 0) {
        const struct term *only = &t[terms[0]];
        *out = (struct value){.src = only->buf == PLAN_NONE, .term = terms[0], .buf = only->buf, .node = only->node};
        return 0;
    }
    /* Groups by the coordinates on this fold, in order of their first terms. */
    uint32_t *rest = arena_alloc(j->arena, 2 * n * sizeof *rest), *group = rest ? rest + n : NULL;
    struct value *v = arena_alloc(j->arena, n * sizeof *v);
    uint32_t *deps = arena_alloc(j->arena, n * sizeof *deps);
    if (!rest || !v || !deps)
        return error_nomem();
    memcpy(rest, terms, n * sizeof *rest);
    size_t groups = 0;
    while (n) {
        int64_t key = t[rest[0]].group[level];
        size_t k = 0, left = 0;
        if (level == 0) { /* nothing else distinguishes these terms, so each is a group */
            group = rest++;
            k = 1;
            left = n - 1;
        }
        for (size_t i = 0; i < n && level > 0; i++) {
            if (t[rest[i]].group[level] == key)
                group[k++] = rest[i];
            else
                rest[left++] = rest[i];
        }
        n = left;
        int rc = fold_level(s, group, k, level - 1, last, g, &v[groups]);
        if (rc)
            return rc;
        deps[groups] = v[groups].node;
        groups++;
    }
    if (level != last && groups == 1) {
        *out = v[0];
        return 0;
    }
    int op = j->src->fold[level].op, rc = 0;
    int64_t div = op == WEFT_AVG && groups > 1 ? (int64_t)groups : 0;
    op = op == WEFT_AVG ? WEFT_SUM : op;
    *out = (struct value){.buf = PLAN_NONE};
    if (level == last)
        rc = part_of_goal(s, g);
    else if (!(rc = emit_temp(j, dtype_acc(j->src->dtype), s->span, &out->buf)))
        rc = emit_part_temp(j, out->buf, s->span);
    for (size_t i = 0; i < groups && !rc; i++)
        rc = part_of_value(s, &v[i]);
    if (rc)
        return rc;
    int to = level != last ? dtype_acc(j->src->dtype) : g->temp ? j->wire : j->dst->dtype;
    int via = level == last && j->wire != to ? j->wire : 0;
    return draft_reduce(j->d, 0, op, div, via, deps, groups, &out->node);
}

static int sender_of(const struct stretch *s, const struct term *t)
{
    const struct job *j = s->x->j;
    return mesh_rank(j->src, t->index + axes_offset(j->src, j->s_free, s->giver));
}

/* This rank folds the stretch: it collects the terms, folds them and sends the value on. */
static int fold_here(struct stretch *s)
{
    struct box *x = s->x;
    const struct job *j = x->j;
    int rc = 0;
    for (size_t i = 0; i < x->nterms && !rc; i++) {
        struct term *t = &x->term[i];
        t->buf = PLAN_NONE;
        t->node = DRAFT_NONE;
        if (holds_term(x, j->d->rank, t))
            continue;
        if (!(rc = emit_temp(j, j->src->dtype, s->span, &t->buf)) && !(rc = emit_part_temp(j, t->buf, s->span)))
            rc = draft_recv(j->d, 0, sender_of(s, t), j->src->dtype, (int64_t)i, &t->node);
    }
    struct goal g = {.temp = j->taker || (x->ndests > 1 && j->wire != j->dst->dtype)};
    place_dest(s, x->me, g.dst);
    if (!rc && g.temp)
        rc = emit_temp(j, j->wire, s->span, &g.buf);
    uint32_t *all = arena_alloc(j->arena, x->nterms * sizeof *all);
    if (!rc && !all)
        rc = error_nomem();
    for (size_t i = 0; i < x->nterms && !rc; i++)
        all[i] = (uint32_t)i;
    int last = -1; /* the outermost fold that has more than one term here */
    for (int k = 0; k < j->src->nfolds; k++)
        for (size_t i = 1; i < x->nterms; i++)
            if (x->term[i].group[k] != x->term[0].group[k])
                last = k;
    struct value v = {.node = DRAFT_NONE};
    if (!rc)
        rc = fold_level(s, all, x->nterms, last, last, &g, &v);
    if (j->taker)
        return rc ? rc : j->taker->take(j->taker->arg, s->span, g.buf, v.node);
    uint32_t filled = v.node;
    if (!rc && g.temp) {
        rc = emit_part_temp(j, g.buf, s->span);
        if (!rc)
            rc = emit_part_dst(j, g.dst);
        if (!rc)
            rc = draft_copy(j->d, 0, &v.node, 1, &filled);
    }
    if (!rc)
        rc = emit_dups(j, x->slots, g.dst, false, filled, 0);
    for (size_t i = 0; i < x->ndests && !rc; i++) {
        if (x->dest[i].rank == j->d->rank)
            continue;
        rc = part_of_goal(s, &g);
        if (!rc)
            rc = draft_send(j->d, 1, x->dest[i].rank, j->wire, 0, v.node, NULL);
    }
    return rc;
}

static int send_terms(const struct stretch *s)
{
    const struct box *x = s->x;
    const struct job *j = x->j;
    if (s->folder->rank == j->d->rank)
        return 0;
    for (size_t i = 0; i < x->nmine; i++) {
        const struct term *t = &x->term[x->mine[i]];
        if (holds_term(x, s->folder->rank, t) || sender_of(s, t) != j->d->rank)
            continue;
        int rc = part_of_term(s, t);
        if (!rc)
            rc = draft_send(j->d, 0, s->folder->rank, j->src->dtype, x->mine[i], DRAFT_NONE, NULL);
        if (rc)
            return rc;
    }
    return 0;
}

static int do_stretch(struct stretch *s)
{
    struct box *x = s->x;
    const struct job *j = x->j;
    if (x->source)
        return send_terms(s);
    if (x->me == s->folder && s->folder->rank != j->d->rank) /* this rank is there for another one */
        return j->taker->take(j->taker->arg, s->span, PLAN_NONE, DRAFT_NONE);
    if (x->me == s->folder)
        return fold_here(s);
    struct span v[WEFT_MAX_DIMS];
    uint32_t node;
    place_dest(s, x->me, v);
    int rc = emit_part_dst(j, v);
    if (!rc)
        rc = draft_recv(j->d, 1, s->folder->rank, j->wire, 0, &node);
    return rc ? rc : emit_dups(j, x->slots, v, false, node, 1);
}

/* ---- cutting the box ---- */

/* A piece of a stretch: in the spans that are cut, a counts positions of the box. */
static int do_piece(void *arg, const struct span *piece)
{
    struct stretch *s = arg;
    for (int d = 0; d < s->x->j->ndim; d++) {
        s->span[d] = piece[d];
        s->shift[d] = piece[d].a;
    }
    return do_stretch(s);
}

/* Handles positions [lo, hi) of the box along dim d, numbered repetition by repetition, in pieces that fit into a part
 * of a message. */
static int cut_stretch(struct stretch *s, int d, int64_t lo, int64_t hi)
{
    struct span v[WEFT_MAX_DIMS];
    int rc = 0;
    for (int k = 0; k < s->x->j->ndim; k++) {
        v[k] = s->x->span[k];
        v[k].a = 0;
        v[k].astep = v[k].len;
    }
    struct span whole = v[d];
    for (int64_t p = lo; p < hi && !rc;) {
        v[d] = emit_span_from(&whole, p, hi);
        p += v[d].len * v[d].n;
        rc = emit_cut(s->x->j, v, do_piece, s);
    }
    return rc;
}

static int64_t box_extent(const struct box *x, int d)
{
    return x->span[d].len * x->span[d].n;
}

/* The dim to cut into k: the first that can be cut evenly, or nearly so, otherwise the longest. */
static int cut_dim(const struct box *x, int64_t k)
{
    int best = 0;
    for (int d = 0; d < x->j->ndim; d++) {
        if (box_extent(x, d) % k == 0 || box_extent(x, d) >= 32 * k)
            return d;
        if (box_extent(x, d) > box_extent(x, best))
            best = d;
    }
    return best;
}

/* Number of the destination piece's share of the source piece, so that givers take turns over pieces. */
static int64_t turn_of(const struct box *x)
{
    int64_t turn = x->j->d->tensor;
    for (int d = 0; d < x->j->ndim; d++)
        turn += x->cell[d]->dest[0].piece;
    return turn;
}

/* A box of one term, the owner's: lowers the pairs with all destinations if this rank is the source, otherwise the pair
 * with this rank. */
static int copy_box(const struct box *x)
{
    const struct job *j = x->j;
    const struct term *owner = &x->term[0];
    if (x->source && !holds_term(x, j->d->rank, owner))
        return 0; /* this rank has the box as a corner that is no term */
    struct pair_run run[WEFT_MAX_DIMS];
    struct pair_runs one[WEFT_MAX_DIMS];
    const struct pair_runs *runs[WEFT_MAX_DIMS];
    size_t pieces = 1, digit[WEFT_MAX_DIMS];
    int64_t s_piece = j->cut < 0 ? 0 : layout_piece(j->src, owner->index, j->cut);
    for (int d = 0; d < j->ndim; d++)
        pieces *= x->cell[d]->ndests;
    for (size_t k = 0; k < pieces; k++) {
        int64_t t = 0;
        if (!pick(x, false, k, digit))
            continue;
        for (int d = 0; d < j->ndim; d++) {
            const struct cell_dest *c = &x->cell[d]->dest[digit[d]];
            const struct span *v = &x->span[d];
            t += layout_piece_offset(j->dst, d, c->piece);
            run[d] = (struct pair_run){v->at, v->len, v->n, v->step, owner->a[d], owner->astep[d], c->b, c->bstep};
            one[d] = (struct pair_runs){.v = &run[d], .n = 1, .cap = 1};
            runs[d] = &one[d];
        }
        if (!x->source && t != axes_part(j->dst, j->d_split, j->di))
            continue;
        int rc = lower_direct_pair(j, x->slots, runs, owner->index, t, s_piece);
        if (rc)
            return rc;
    }
    return 0;
}

static int do_box(struct box *x)
{
    const struct job *j = x->j;
    int rc = fill_terms(x);
    if (!rc && x->nterms == 1)
        return copy_box(x);
    if (!rc)
        rc = fill_dests(x);
    if (!rc && x->source)
        rc = find_mine(x);
    if (rc || (x->source ? !x->nmine : !x->me))
        return rc; /* a rank that has the box as a corner takes no part */
    int64_t k = (int64_t)x->nfolders, replicas = j->s_replicas, bytes = (int64_t)weft_dtype_size(j->src->dtype);
    for (int d = 0; d < j->ndim; d++)
        bytes *= box_extent(x, d);
    /* Each folder's stretch is cut further if the source has more replicas than there are folders. */
    int64_t per = (replicas + k - 1) / k, most = bytes / k / GRAIN;
    per = per > most ? most : per;
    per = per < 1 ? 1 : per;
    int64_t cuts = k * per, turn = turn_of(x);
    struct stretch s = {.x = x};
    int d = j->ndim ? cut_dim(x, cuts) : 0;
    int64_t length = j->ndim ? box_extent(x, d) : 1;
    if (cuts > length) { /* not enough to share: one position each; other folders get their turn with other boxes */
        per = 1;
        cuts = k < length ? k : length;
    }
    for (int64_t c = 0; c < cuts && !rc; c++) {
        int64_t lo = mul_div(c, length, cuts), hi = mul_div(c + 1, length, cuts);
        s.folder = &x->dest[cuts < k ? (c + turn) % k : c / per];
        s.giver = cuts >= replicas ? c * replicas / cuts : (c + turn * cuts) % replicas;
        rc = j->ndim ? cut_stretch(&s, d, lo, hi) : do_stretch(&s);
    }
    return rc;
}

static int walk_cells(struct box *x, const struct cells *cells, int dim)
{
    if (dim == x->j->ndim)
        return do_box(x);
    for (size_t i = 0; i < cells[dim].n; i++) {
        const struct cell *c = x->cell[dim] = &cells[dim].v[i];
        x->span[dim] = (struct span){.at = c->at, .len = c->len, .n = c->n, .step = c->step};
        int rc = walk_cells(x, cells, dim + 1);
        if (rc)
            return rc;
    }
    return 0;
}

int lower_fold_send(const struct job *j)
{
    struct cells cells[WEFT_MAX_DIMS];
    struct box x = {.j = j, .source = true};
    int rc = 0;
    for (int d = 0; d < j->ndim && !rc; d++)
        rc = cells_src(j, d, &cells[d]);
    return rc ? rc : walk_cells(&x, cells, 0);
}

int lower_fold_receive(const struct job *j)
{
    struct cells cells[WEFT_MAX_DIMS];
    struct slots slots[WEFT_MAX_DIMS];
    struct box x = {.j = j, .slots = slots};
    int rc = 0;
    for (int d = 0; d < j->ndim && !rc; d++) {
        rc = cells_dst(j, d, &cells[d]);
        if (!rc)
            rc = intersect_slots(j, d, layout_piece(j->dst, j->di, d), &slots[d]);
    }
    return rc ? rc : walk_cells(&x, cells, 0);
}

int lower_fold(const struct job *j)
{
    int rc = j->si >= 0 ? lower_fold_send(j) : 0;
    return !rc && j->di >= 0 && !axes_part(j->dst, j->d_fold, j->di) ? lower_fold_receive(j) : rc;
}
