/* Slabs: a fold of a destination whose pieces are short runs in the sources, such as columns of a matrix, or that few
 * ranks hold. Slabs of a source with replicas, and without a fold, are in row_shares.c.
 *
 * The general lowering folds each piece where it belongs. With short runs every rank then goes through the cache lines
 * of all sources. With few holders the other ranks are idle meanwhile. Here each rank of a mesh folds a slab instead,
 * whole rows that are long runs in the sources, in its own memory. Then it sends each holder the part of the slab that
 * belongs there. The sources are read once, in long runs, by all ranks of that mesh. For that the finished values are
 * written and read once more, and cross to another rank once more.
 *
 * The mesh is the destination's. It is the source's if that has at least twice as many ranks as hold elements of the
 * destination.
 *
 * The values are folded in the same order, and rounded in the same steps, as by the general lowering. */
#include "base/dtype.h"
#include "base/error.h"
#include "base/math.h"
#include "lower/rows/rows.h"

#define LEAST_BYTES (1 << 20) /* of the tensor: a smaller one is a matter of messages, of which slabs have more */
#define LEAST_RUN 1024        /* bytes of a row of a slab */
#define MOST_RANKS 512        /* of either mesh: each rank of the destination looks at the slabs of all */
#define UNIT 1024             /* of costs: what it takes one rank to go through the whole tensor once */

/* ---- what it costs ---- */

/* Bytes that lie side by side, in the buffer of the source's rank, of what the first piece of the source and the first
 * one of the other layout have in common; if they have nothing in common, as if they had. */
static int64_t run_of(const struct job *j, const weft_layout *other)
{
    int64_t run = (int64_t)weft_dtype_size(j->src->dtype);
    for (int d = j->ndim - 1; d >= 0; d--) {
        struct runs a = {.arena = j->arena}, b = {.arena = j->arena};
        if (layout_piece_interior(j->src, d, layout_piece(j->src, 0, d), &a) ||
            layout_piece_interior(other, d, layout_piece(other, 0, d), &b) || !a.n || !b.n)
            return run;
        int64_t len = min64(a.v[0].len, b.v[0].len);
        run *= len;
        if (len != layout_piece_extent(j->src, d, layout_piece(j->src, 0, d), NULL))
            break;
    }
    return run;
}

/* How many times as long a fold takes that reads such runs, in percent, by measurements on two x86-64 cores. */
static int64_t percent_of(int64_t run)
{
    return run >= 2048 ? 100 : run >= 512 ? 180 : run >= 64 ? 200 : run >= 32 ? 350 : run >= 16 ? 500 : 800;
}

/* How the destination is held. */
struct held {
    int64_t holders; /* positions that get any value */
    int64_t most;    /* values of the position that gets most */
};

static bool gets_values(const struct job *j, int64_t position)
{
    return position >= 0 && !axes_part(j->dst, j->d_fold, position);
}

static struct held held_of(const struct job *j)
{
    struct held h = {0};
    for (int64_t t = 0; t < j->dst->mesh; t++) {
        int64_t n = gets_values(j, t) ? rows_count(j->dst, t) : 0;
        h.holders += n > 0;
        h.most = max64(h.most, n);
    }
    return h;
}

static bool narrower(const struct job *j)
{
    return weft_dtype_size(j->wire) < weft_dtype_size(j->src->dtype);
}

/* The layout whose ranks fold. It is not the source if values are narrower than terms: they could then cross to fewer
 * bytes than the bound, which counts a term for each rank but the holder. */
static const weft_layout *folders(const struct job *j)
{
    bool few = !narrower(j) && j->dst->mesh <= MOST_RANKS && j->src->mesh >= 2 * held_of(j).holders;
    return few ? j->src : j->dst;
}

/* The dim along which slabs are cut: the first one that gives all ranks about the same. -1: there is none. */
static int slab_dim(const struct job *j, int64_t ranks)
{
    for (int d = 0; d < j->ndim; d++)
        if (j->src->dim[d].extent % ranks == 0 || j->src->dim[d].extent >= 8 * ranks)
            return d;
    return -1;
}

/* ---- the layout of the slabs ---- */

static int make_slabs(const struct job *j, weft_layout **out)
{
    weft_dim dims[WEFT_MAX_DIMS] = {{0}};
    const weft_layout *by = folders(j);
    const weft_axis axis = {"slab", by->mesh};
    int *ranks = arena_alloc(j->arena, (size_t)by->mesh * sizeof *ranks), cut = slab_dim(j, by->mesh);
    if (!ranks)
        return error_nomem();
    for (int64_t i = 0; i < by->mesh; i++)
        ranks[i] = mesh_rank(by, i);
    for (int d = 0; d < j->ndim; d++)
        dims[d].extent = j->src->dim[d].extent;
    dims[cut].nsplits = 1;
    dims[cut].splits[0].axis = axis.name;
    weft_layout_desc desc = WEFT_LAYOUT_DESC_INIT;
    desc.dtype = (enum weft_dtype)j->wire;
    desc.ndim = j->ndim;
    desc.naxes = 1;
    desc.dims = dims;
    desc.axes = &axis;
    desc.ranks = ranks;
    return weft_layout_create(&desc, out);
}

/* The draft keeps it, for tensors with the same layouts. */
static int slabs_of(const struct job *j, const weft_layout **out)
{
    struct draft_slabs *known = draft_slabs(j->d, j->src, j->dst);
    int rc = 0;
    if (!known->slabs)
        rc = j->fold ? make_slabs(j, &known->slabs) : row_shares_make(j, &known->slabs);
    *out = known->slabs;
    return rc;
}

/* ---- does it fit, and does it pay? ---- */

/* A rank of the destination that folds its own elements needs one term less if it holds one. If values are as wide as
 * terms, a slab can save no more than that, and costs a value. Narrower values are only for pairs in which slabs save
 * nothing: all ranks of the destination hold a term of every element, or none has any. */
static bool may_save(const struct job *j)
{
    bool all = layout_same_mesh(j->src, j->dst) && axes_count(j->src, j->s_split) == 1;
    return narrower(j) && !all && j->meet != JOB_APART;
}

const char *row_slabs_unfit(const struct job *j)
{
    if (!j->fold)
        return row_shares_unfit(j);
    bool ghosts = j->src->ghost_terms, dealt = false;
    for (int d = 0; d < j->ndim; d++) {
        ghosts |= j->dst->dim[d].lo || j->dst->dim[d].hi;
        for (int s = 0; s < j->src->dim[d].nsplits; s++)
            dealt |= j->src->dim[d].split[s].block > 0;
    }
    if (j->s_terms < 2)
        return "the source has no fold";
    if (ghosts)
        return "there are ghosts";
    if (dealt)
        return "the source deals blocks";
    const int64_t ranks = folders(j)->mesh;
    if (ranks < 2 || ranks > MOST_RANKS || j->dst->mesh > MOST_RANKS)
        return "one rank would fold, or more than 512";
    if (may_save(j))
        return "it may send less than the bound, because values are narrower than terms and some ranks hold terms";
    if (slab_dim(j, ranks) < 0)
        return "no dim is long enough for a slab on each rank";
    return NULL;
}

/* What all ranks together do cannot take less time than the cores of the host need for it. */
static int64_t shared(const struct job *j, int64_t busiest, int64_t all)
{
    return j->machine->cores ? max64(busiest, all / j->machine->cores) : busiest;
}

/* Does the general lowering take at least 15 % longer? Its busiest rank goes through all terms of what it folds. With
 * slabs each goes through those of a slab, and the busiest one also reads and writes what it holds. */
static bool faster(const struct job *j, int64_t elements, int64_t ranks, int64_t run)
{
    const struct held h = held_of(j);
    const int64_t share = max64(1, h.most / (elements / UNIT)), terms = j->s_terms, copies = j->d_replicas;
    const int64_t work = terms * percent_of(run) + 100; /* of a fold of the whole tensor, in hundredths */
    const int64_t direct = shared(j, share * work / copies / 100 + 2 * share * (copies - 1) / copies,
                                  UNIT * work / 100 + 2 * UNIT * (copies - 1));
    const int64_t slabs = shared(j, UNIT * (terms + 1) / ranks + 2 * share, UNIT * (terms + 1) + 2 * UNIT * copies);
    return direct * 100 > slabs * 115;
}

bool row_slabs_pays(const struct job *j)
{
    const weft_machine *m = j->machine;
    if (machine_hosts(m, j->d->world) || m->inside_bytes_per_us || m->launch_ns || j->d->in_place || row_slabs_unfit(j))
        return false;
    int64_t elements = 1, row = (int64_t)weft_dtype_size(j->src->dtype);
    const int64_t size = row;
    for (int d = 0; d < j->ndim; d++)
        elements *= j->src->dim[d].extent;
    if (!j->fold)
        return elements * size >= LEAST_BYTES && row_shares_pays(j, run_of(j, j->dst));
    const weft_layout *by = folders(j);
    const int cut = slab_dim(j, by->mesh);
    for (int d = cut + 1; d < j->ndim; d++)
        row *= layout_piece_extent(j->src, d, layout_piece(j->src, 0, d), NULL);
    row *= layout_piece_share(j->src->dim[cut].extent, by->mesh, 0, 0);
    int64_t run = run_of(j, j->dst);
    return elements * size >= LEAST_BYTES && row >= LEAST_RUN && (by != j->dst || row >= 4 * run) &&
           faster(j, elements, by->mesh, run);
}

/* ---- the plan ---- */

struct slabs {
    const struct job *j; /* of the whole move */
    int64_t slab;        /* whose boxes are handed over */
    int rank;            /* that folds it */
};

/* Calls put for each box that a box of a slab, dense in a temp, and a piece of the destination have in common. */
static int each_common(const struct job *j, const struct span *box, int64_t t,
                       int (*put)(void *arg, const struct span *common), void *arg)
{
    struct pair_runs runs[WEFT_MAX_DIMS];
    size_t n = 1;
    for (int d = 0; d < j->ndim; d++) {
        struct run one = {.at = box[d].at, .len = box[d].len, .n = box[d].n, .step = box[d].step};
        struct runs a = {.arena = j->arena}, b = {.arena = j->arena};
        one.tostep = one.n > 1 ? one.len : 0;
        runs[d] = (struct pair_runs){.arena = j->arena};
        int rc = runs_add(&a, one);
        if (!rc)
            rc = layout_piece_interior(j->dst, d, layout_piece(j->dst, t, d), &b);
        if (!rc)
            rc = runs_join(&a, &b, &runs[d]);
        if (rc)
            return rc;
        n *= runs[d].n;
    }
    for (size_t x = 0; x < n; x++) {
        struct span common[WEFT_MAX_DIMS];
        size_t rest = x;
        for (int d = j->ndim - 1; d >= 0; d--) {
            emit_span_of(&runs[d].v[rest % runs[d].n], &common[d]);
            rest /= runs[d].n;
        }
        int rc = put(arg, common);
        if (rc)
            return rc;
    }
    return 0;
}

/* To one position of the destination. */
struct goal {
    const struct job *j;
    uint32_t buf, node; /* the folded box */
    int64_t to;
    int rank;
};

static int give(void *arg, const struct span *box)
{
    const struct goal *g = arg;
    const struct job *j = g->j;
    int rc = emit_part_in(j, g->buf, box);
    if (rc || g->rank != j->d->rank)
        return rc ? rc : draft_send(j->d, 1, g->rank, j->wire, 0, g->node, NULL);
    rc = emit_part_dst(j, box);
    return rc ? rc : draft_copy(j->d, 0, &g->node, 1, NULL);
}

static int get(void *arg, const struct span *box)
{
    const struct slabs *s = arg;
    int rc = emit_part_dst(s->j, box);
    return rc ? rc : draft_recv(s->j->d, 1, s->rank, s->j->wire, 0, NULL);
}

static int take(void *arg, const struct span *box, uint32_t buf, uint32_t node)
{
    struct slabs *s = arg;
    const struct job *j = s->j;
    int rc = 0;
    if (node == DRAFT_NONE)
        return each_common(j, box, j->di, get, s);
    for (int64_t t = 0; t < j->dst->mesh && !rc; t++) {
        struct goal g = {j, buf, node, t, mesh_rank(j->dst, t)};
        if (gets_values(j, t))
            rc = each_common(j, box, t, give, &g);
    }
    return rc;
}

int row_slabs(const struct job *j, const struct recognised *r)
{
    (void)r;
    const weft_layout *mid;
    struct job fold;
    struct slabs s = {.j = j};
    const struct job_taker taker = {take, &s};
    int rc = slabs_of(j, &mid);
    if (!rc && !j->fold)
        return row_shares(j, mid);
    if (!rc)
        rc = job_open(&fold, j->d, &(weft_move){NULL, j->src, mid}, j->machine);
    if (rc)
        return rc;
    if (fold.si >= 0)
        rc = lower_fold_send(&fold);
    fold.taker = &taker;
    for (int64_t k = 0; k < mid->mesh && !rc; k++) {
        s.rank = mesh_rank(mid, k);
        fold.di = k;
        if (s.rank == j->d->rank || gets_values(j, j->di))
            rc = lower_fold_receive(&fold);
    }
    return rc;
}

/* ---- bytes ---- */

/* How many elements two pieces have in common. Negative: an error. */
static int64_t common_count(const struct job *j, const weft_layout *x, int64_t i, const weft_layout *y, int64_t k)
{
    int64_t n = 1;
    for (int d = 0; d < j->ndim; d++) {
        struct runs a = {.arena = j->arena}, b = {.arena = j->arena};
        struct pair_runs both = {.arena = j->arena};
        int rc = layout_piece_interior(x, d, layout_piece(x, i, d), &a);
        if (!rc)
            rc = layout_piece_interior(y, d, layout_piece(y, k, d), &b);
        if (!rc)
            rc = runs_join(&a, &b, &both);
        if (rc)
            return rc;
        n *= runs_pair_count(&both);
    }
    return n;
}

int64_t row_slabs_stated(const struct job *j, const struct recognised *r)
{
    (void)r;
    const weft_layout *mid;
    int rc = slabs_of(j, &mid);
    if (rc)
        return rc;
    const int64_t k = mesh_index(mid, j->d->rank);
    int64_t mine = k < 0 ? 0 : common_count(j, mid, k, mid, k), own = 0, lacks = 0;
    if (j->si >= 0 && mine > 0)
        own = common_count(j, j->src, j->si, mid, k);
    if (gets_values(j, j->di)) {
        lacks = k < 0 ? 0 : common_count(j, j->dst, j->di, mid, k);
        lacks = lacks < 0 ? lacks : common_count(j, j->dst, j->di, j->dst, j->di) - lacks;
    }
    if (mine < 0 || own < 0 || lacks < 0)
        return min64(mine, min64(own, lacks));
    return (mine * j->s_terms - own) * (int64_t)weft_dtype_size(j->src->dtype) +
           lacks * (int64_t)weft_dtype_size(j->wire);
}

int64_t row_slabs_bound(const struct job *j)
{
    struct draft d = {.rank = j->d->rank, .world = j->d->world, .bucket = j->d->bucket};
    struct job direct;
    const weft_move m = {NULL, j->src, j->dst};
    int64_t rc = draft_tensor(&d, &m);
    if (!rc)
        rc = job_open(&direct, &d, &m, j->machine);
    if (!rc)
        rc = j->fold ? lower_fold(&direct) : lower_direct(&direct);
    if (!rc)
        rc = d.received;
    draft_drop(&d);
    return rc;
}
