/* The table of algorithms: what each states to send, what it costs, the rows, and the choice among them. */
#include "lower/rows/rows.h"

#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/math.h"
#include "plan/plan.h"

/* ---- stated volumes: formulas, not counts of the nodes that the lowering made ---- */

static int64_t term_size(const struct job *j)
{
    return (int64_t)weft_dtype_size(j->src->dtype);
}
static int64_t partial_size(const struct job *j)
{
    return (int64_t)weft_dtype_size(dtype_acc(j->src->dtype));
}
static int64_t value_size(const struct job *j)
{
    return (int64_t)weft_dtype_size(j->wire);
}
static int64_t members(const struct job *j, const struct recognised *r)
{
    return axes_count(j->src, r->axes);
}
/* An allreduce's slices add up to the piece; the first member of its group counts all of it. */
static int64_t piece_once(const struct job *j, const struct recognised *r)
{
    return j->si >= 0 && axes_number(j->src, r->axes, j->si) == 0 ? rows_count(j->src, j->si) : 0;
}

static int64_t stated_one_phase(const struct job *j, const struct recognised *r)
{
    return rows_count(j->dst, j->di) * (members(j, r) - 1) * term_size(j);
}
static int64_t stated_two_phase(const struct job *j, const struct recognised *r)
{
    return piece_once(j, r) * (members(j, r) - 1) * (term_size(j) + value_size(j));
}
static int64_t stated_gather(const struct job *j, const struct recognised *r)
{
    return rows_count(j->src, j->si) * (members(j, r) - 1) * value_size(j);
}
static int64_t ring_hops(const struct job *j, const struct recognised *r)
{
    return term_size(j) + (members(j, r) - 2) * partial_size(j);
}
static int64_t stated_ring_scatter(const struct job *j, const struct recognised *r)
{
    return rows_count(j->dst, j->di) * ring_hops(j, r);
}
static int64_t stated_ring_allreduce(const struct job *j, const struct recognised *r)
{
    return piece_once(j, r) * (ring_hops(j, r) + (members(j, r) - 1) * value_size(j));
}
static int64_t halving_hops(const struct job *j, const struct recognised *r)
{
    int64_t half = members(j, r) / 2;
    return half * term_size(j) + (half - 1) * partial_size(j);
}
static int64_t stated_halving(const struct job *j, const struct recognised *r)
{
    return rows_count(j->dst, j->di) * halving_hops(j, r);
}
static int64_t stated_doubling_allreduce(const struct job *j, const struct recognised *r)
{
    return piece_once(j, r) * (halving_hops(j, r) + (members(j, r) - 1) * value_size(j));
}
static int64_t stated_broadcast(const struct job *j, const struct recognised *r)
{
    (void)r;
    return j->di >= 0 && j->si < 0 ? rows_count(j->dst, j->di) * value_size(j) : 0;
}
/* In a binomial tree of m members, those numbered m/2 (rounded up to 2^k) and more have no children. */
static int64_t stated_tree_reduce(const struct job *j, const struct recognised *r)
{
    (void)r;
    if (j->si < 0 || j->di >= 0)
        return 0;
    int64_t root = mesh_index(j->src, mesh_rank(j->dst, 0)), me = j->si + (root < 0 || j->si < root);
    int64_t size = j->src->mesh + (root < 0), high = 1;
    while (high <= me)
        high *= 2;
    return rows_count(j->src, j->si) * (me + high >= size ? term_size(j) : partial_size(j));
}
static int64_t stated_pairwise(const struct job *j, const struct recognised *r)
{
    struct group g;
    struct slice own;
    if (j->si < 0)
        return 0;
    slice_group_open(j, r, &g);
    int rc = slice_open(&g, g.me, g.me, 0, 1, &own);
    return rc ? rc : (rows_count(j->src, j->si) - slice_count(&own)) * value_size(j);
}
static int64_t stated_bruck(const struct job *j, const struct recognised *r)
{
    struct group g;
    int64_t total = 0;
    slice_group_open(j, r, &g);
    for (int64_t d = 1; d < g.size && j->si >= 0; d++) {
        struct slice b;
        int rc = slice_open(&g, g.me, (g.me + d) % g.size, 0, 1, &b);
        if (rc)
            return rc;
        total += slice_count(&b) * __builtin_popcountll((unsigned long long)d) * value_size(j);
    }
    return total;
}

int64_t rows_bound(const struct job *j, const struct recognised *r)
{
    int64_t n = rows_count(j->dst, j->di);
    if (!strcmp(r->kind, "reshard") || !strcmp(r->kind, "slice"))
        return row_slabs_bound(j);
    if (!n)
        return 0;
    if (!strcmp(r->kind, "reduce"))
        return n * (j->s_terms - (j->si >= 0)) * term_size(j);
    if (j->fold) /* all destinations hold a term; the first of each piece counts it */
        return axes_number(j->dst, j->d_free, j->di)
                   ? 0
                   : n * ((j->s_terms - 1) * term_size(j) + (j->d_replicas - 1) * value_size(j));
    int64_t have = j->si >= 0 ? n : 0;
    struct group g;
    struct slice own;
    if (have && r->axes) {
        slice_group_open(j, r, &g);
        int rc = slice_open(&g, g.me, g.me, 0, 1, &own);
        if (rc)
            return rc;
        have = slice_count(&own);
    }
    return (n - have) * value_size(j);
}

/* Of rows with the same cost the first is taken. So ring2, which costs as much as ring, runs only if it is forced. */
static const struct row table[] = {
    {"one_phase", "allreduce", 0, row_phases_one, stated_one_phase, play_one_phase},
    {"one_phase", "reduce_scatter", ROW_IN_PLACE, row_phases_one, stated_one_phase, play_one_phase},
    {"two_phase", "allreduce", ROW_IN_PLACE, row_phases_two, stated_two_phase, play_two_phase},
    {"ring", "allgather", ROW_IN_PLACE, row_ring_allgather, stated_gather, play_ring},
    {"ring", "reduce_scatter", ROW_IN_PLACE, row_ring_reduce_scatter, stated_ring_scatter, play_ring},
    {"ring", "allreduce", ROW_IN_PLACE, row_ring_allreduce, stated_ring_allreduce, play_ring},
    {"ring2", "allgather", ROW_IN_PLACE, row_ring_both_allgather, stated_gather, play_ring_both},
    {"ring2", "reduce_scatter", ROW_IN_PLACE, row_ring_both_reduce_scatter, stated_ring_scatter, play_ring_both},
    {"ring2", "allreduce", ROW_IN_PLACE, row_ring_both_allreduce, stated_ring_allreduce, play_ring_both},
    {"doubling", "allgather", ROW_IN_PLACE | ROW_POWER_OF_TWO, row_doubling_allgather, stated_gather, play_doubling},
    {"doubling", "reduce_scatter", ROW_IN_PLACE | ROW_POWER_OF_TWO, row_doubling_reduce_scatter, stated_halving,
     play_doubling},
    {"doubling", "allreduce", ROW_IN_PLACE | ROW_POWER_OF_TWO, row_doubling_allreduce, stated_doubling_allreduce,
     play_doubling},
    {"tree", "broadcast", ROW_IN_PLACE, row_tree_broadcast, stated_broadcast, play_tree},
    {"tree", "reduce", ROW_IN_PLACE, row_tree_reduce, stated_tree_reduce, play_tree},
    {"pairwise", "all_to_all", ROW_IN_PLACE, row_alltoall_pairwise, stated_pairwise, play_direct},
    {"bruck", "all_to_all", ROW_IN_PLACE, row_alltoall_bruck, stated_bruck, play_bruck},
    {"two_level", "allreduce", ROW_IN_PLACE | ROW_HOSTS, row_levels_allreduce, row_levels_stated_allreduce,
     play_two_level},
    {"two_level", "reduce_scatter", ROW_IN_PLACE | ROW_HOSTS, row_levels_reduce_scatter,
     row_levels_stated_reduce_scatter, play_two_level},
    {"two_level", "reduce", ROW_IN_PLACE | ROW_HOSTS, row_levels_reduce, row_levels_stated_reduce, play_two_level},
    {"slabs", "reduce", ROW_SLABS | ROW_PARTS, row_slabs, row_slabs_stated, play_slabs},
    {"slabs", "reduce_scatter", ROW_SLABS, row_slabs, row_slabs_stated, NULL},
    {"slabs", "slice", ROW_SLABS, row_slabs, row_slabs_stated, NULL},
    {"slabs", "reshard", ROW_SLABS, row_slabs, row_slabs_stated, NULL},
};
#define ROWS (sizeof table / sizeof *table)

static bool first_of_its_name(size_t row)
{
    size_t k = 0;
    while (strcmp(table[k].name, table[row].name))
        k++;
    return k == row;
}

const char *weft_algorithm_name(size_t i)
{
    if (i == 0)
        return "direct";
    for (size_t k = 0; k < ROWS; k++)
        if (first_of_its_name(k) && --i == 0)
            return table[k].name;
    return NULL;
}

/* Do the volumes and costs of a group of p, which are products of these numbers, fit into 64 bits with room to
 * spare? */
static bool countable(const struct job *j, int64_t p)
{
    int64_t all, ranks = max64(p, j->d_replicas);
    return !__builtin_mul_overflow(max64(rows_count(j->src, 0), rows_count(j->dst, 0)), ranks, &all) &&
           all <= INT64_MAX / 32;
}

/* alike: see row_levels_alike. */
static const char *unfit(const struct row *row, const struct job *j, int64_t p, bool in_place, bool alike)
{
    if (!countable(j, p))
        return "the group would move more bytes than can be counted";
    if ((row->is & ROW_POWER_OF_TWO) && (p & (p - 1)))
        return "the group's size is not a power of two";
    if (in_place && !(row->is & ROW_IN_PLACE))
        return "it cannot run in place";
    if ((row->is & ROW_HOSTS) && !machine_hosts(j->machine, j->d->world))
        return "all ranks are on one host";
    if (row->is & ROW_SLABS)
        return row_slabs_unfit(j);
    if ((row->is & ROW_HOSTS) && !alike)
        return "groups that hold replicas lie on hosts in different ways";
    if (j->fold && !job_fold_op(j))
        return "it takes one fold, and the source has several";
    return NULL;
}

static int64_t group_size(const struct job *j, const struct recognised *r)
{
    if (r->axes)
        return members(j, r);
    const weft_layout *many = j->src->mesh == 1 ? j->dst : j->src, *one = many == j->src ? j->dst : j->src;
    return many->mesh + (mesh_index(many, mesh_rank(one, 0)) < 0);
}

static bool is_known(const char *algorithm)
{
    size_t i = 0;
    while (weft_algorithm_name(i) && strcmp(weft_algorithm_name(i), algorithm))
        i++;
    return weft_algorithm_name(i);
}

static int force(const struct job *j, const struct recognised *r, const weft_lower_opts *o, const struct row **row)
{
    if (!is_known(o->algorithm))
        return error_set(WEFT_EINVAL, "lower: there is no algorithm '%.40s': see weft info", o->algorithm);
    for (size_t k = 0; k < ROWS; k++) {
        if (strcmp(table[k].name, o->algorithm) || strcmp(table[k].kind, r->kind))
            continue;
        bool alike = true;
        int rc = (table[k].is & ROW_HOSTS) ? row_levels_alike(j, r, &alike) : 0;
        if (rc)
            return rc;
        const char *why = unfit(&table[k], j, group_size(j, r), o->in_place, alike);
        if (why)
            return error_set(WEFT_EINVAL, "lower: '%s' does not fit this %s: %s", o->algorithm, r->kind, why);
        *row = &table[k];
        return 0;
    }
    return error_set(WEFT_EINVAL, "lower: '%s' is not an algorithm for this pair of layouts, which is of the kind '%s'",
                     o->algorithm, r->kind);
}

/* ---- the choice ---- */

/* Bytes that lie side by side of a slice of a piece of this layout, which is cut along `dim`. */
static int64_t run_of(const struct job *j, const weft_layout *l, int dim, int64_t members)
{
    int64_t run = value_size(j), rows = 1;
    for (int d = 0; d < l->ndim; d++)
        *(d < dim ? &rows : &run) *= layout_piece_extent(l, d, layout_piece(l, 0, d), NULL);
    return dim < 0 || rows == 1 ? INT64_MAX : run / members;
}

/* How many hosts a group has, by the ranks that are looked at. */
static int64_t hosts_of(const struct stages *s, int64_t members)
{
    int64_t hosts = 0, n = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->rank[i].group)
            continue;
        bool first = true;
        for (int k = 0; k < i && first; k++)
            first = s->rank[k].group || s->rank[k].host != s->rank[i].host;
        hosts += first;
        n++;
    }
    return max64(1, hosts * members / n);
}

/* The largest piece of either side, by mesh position 0 of each, is the same number on every rank. */
static void describe(const struct job *j, const struct recognised *r, int64_t p, struct stages *s, struct play *x)
{
    int64_t a = rows_count(j->src, 0) * term_size(j), b = rows_count(j->dst, 0) * value_size(j), bytes = max64(a, b);
    const weft_layout *many = r->axes || j->src->mesh > 1 ? j->src : j->dst, *one = many == j->src ? j->dst : j->src;
    int64_t bucket = j->d->bucket == 1 ? INT64_MAX : j->d->bucket; /* 1: each chunk is one message */
    *x = (struct play){.kind = r->kind,
                       .members = p,
                       .bytes = min64(bytes, ((int64_t)1 << 50) / p),
                       .replicas = r->axes ? j->d_replicas / axes_count(j->dst, r->axes & j->d_free) : 1,
                       .elements = max64(1, rows_count(j->dst, 0)),
                       .hosts = 1,
                       .copies = j->s_free & ~r->axes,
                       .run_from = INT64_MAX,
                       .run_to = INT64_MAX};
    if (r->axes && !machine_hosts(j->machine, j->d->world) && play_alike(x, many->mesh)) {
        stages_open_alike(s, j->machine, bucket, many, r->axes, p);
    } else {
        stages_open(s, j->machine, bucket, many, r->axes, mesh_rank(one, 0));
        x->hosts = hosts_of(s, p);
    }
    if (!strcmp(r->kind, "all_to_all")) {
        x->run_from = run_of(j, j->src, r->dst_dim, p);
        x->run_to = run_of(j, j->dst, r->src_dim, p);
    }
}

/* row: NULL for the general lowering. */
static int64_t price(const struct row *row, struct stages *s, const struct play *x)
{
    stages_again(s);
    s->run_from = x->run_from;
    s->run_to = x->run_to;
    if (row)
        row->play(s, x);
    else
        play_direct(s, x);
    bool rooted = !strcmp(x->kind, "broadcast") || !strcmp(x->kind, "reduce"),
         parts = row ? row->is & ROW_PARTS : play_relayed(x);
    return stages_price(s, rooted && !parts ? x->bytes : x->bytes / x->members);
}

static int choose(const struct job *j, const struct recognised *r, bool in_place, const struct row **row)
{
    bool any = false, alike = true;
    for (size_t k = 0; k < ROWS; k++) {
        if (strcmp(table[k].kind, r->kind))
            continue;
        any |= table[k].play != NULL;
        if ((table[k].is & ROW_SLABS) && !table[k].play && !in_place && row_slabs_pays(j)) {
            *row = &table[k];
            return 0;
        }
    }
    int64_t p = any ? group_size(j, r) : 1;
    if (p < 2 || !countable(j, p))
        return 0;
    int rc = machine_hosts(j->machine, j->d->world) ? row_levels_alike(j, r, &alike) : 0;
    if (rc)
        return rc;
    struct stages s;
    struct play x;
    describe(j, r, p, &s, &x);
    /* A row has to be better by a part in 64 than the general lowering, which moves the fewest bytes. */
    int64_t best = price(NULL, &s, &x);
    best -= best / 64;
    for (size_t k = 0; k < ROWS; k++) {
        if (strcmp(table[k].kind, r->kind) || !table[k].play || unfit(&table[k], j, p, in_place, alike))
            continue;
        int64_t cost = price(&table[k], &s, &x);
        if (cost < best) {
            best = cost;
            *row = &table[k];
        }
    }
    return 0;
}

int rows_choose(const struct job *j, const struct recognised *r, const weft_lower_opts *o, const struct row **row)
{
    *row = NULL;
    if (o->algorithm)
        return strcmp(o->algorithm, "direct") ? force(j, r, o, row) : 0;
    struct draft_choice *known = &j->d->chosen[hash_u64(j->src->hash, j->dst->hash) % DRAFT_CHOICES];
    /* Hashes alone would not do: a row that does not fit would be taken for two pairs of one hash. */
    if (weft_layout_equal(known->src, j->src) && weft_layout_equal(known->dst, j->dst)) {
        *row = known->row;
        return 0;
    }
    int rc = choose(j, r, o->in_place, row);
    if (!rc)
        *known = (struct draft_choice){j->src, j->dst, *row};
    return rc;
}
