/* The table of algorithms: what each states to send, what it costs, the rows, and the choice among them. */
#include "lower/rows/rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/math.h"
#include "plan/plan.h"

/* ---- stated volumes: formulas, not counts of the nodes that the lowering made ---- */

static int64_t local_count(const weft_layout *l, int64_t index)
{
    int64_t n = index < 0 ? 0 : 1;
    for (int d = 0; d < l->ndim && n; d++)
        n *= layout_piece_extent(l, d, layout_piece(l, index, d), NULL);
    return n;
}
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
    return j->si >= 0 && axes_number(j->src, r->axes, j->si) == 0 ? local_count(j->src, j->si) : 0;
}

static int64_t stated_one_phase(const struct job *j, const struct recognised *r)
{
    return local_count(j->dst, j->di) * (members(j, r) - 1) * term_size(j);
}
static int64_t stated_two_phase(const struct job *j, const struct recognised *r)
{
    return piece_once(j, r) * (members(j, r) - 1) * (term_size(j) + value_size(j));
}
static int64_t stated_gather(const struct job *j, const struct recognised *r)
{
    return local_count(j->src, j->si) * (members(j, r) - 1) * value_size(j);
}
static int64_t ring_hops(const struct job *j, const struct recognised *r)
{
    return term_size(j) + (members(j, r) - 2) * partial_size(j);
}
static int64_t stated_ring_scatter(const struct job *j, const struct recognised *r)
{
    return local_count(j->dst, j->di) * ring_hops(j, r);
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
    return local_count(j->dst, j->di) * halving_hops(j, r);
}
static int64_t stated_doubling_allreduce(const struct job *j, const struct recognised *r)
{
    return piece_once(j, r) * (halving_hops(j, r) + (members(j, r) - 1) * value_size(j));
}
static int64_t stated_broadcast(const struct job *j, const struct recognised *r)
{
    (void)r;
    return j->di >= 0 && j->si < 0 ? local_count(j->dst, j->di) * value_size(j) : 0;
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
    return local_count(j->src, j->si) * (me + high >= size ? term_size(j) : partial_size(j));
}
static int64_t stated_pairwise(const struct job *j, const struct recognised *r)
{
    struct group g;
    struct slice own;
    if (j->si < 0)
        return 0;
    slice_group_open(j, r, &g);
    int rc = slice_open(&g, g.me, g.me, 0, 1, &own);
    return rc ? rc : (local_count(j->src, j->si) - slice_count(&own)) * value_size(j);
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
    int64_t n = local_count(j->dst, j->di);
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

/* ---- costs ---- */

static int64_t log2_up(int64_t n)
{
    int64_t k = 0;
    while ((int64_t)1 << k < n)
        k++;
    return k;
}

static void cost_one_phase(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){1, p - 1, p * bytes}; /* and every rank folds all of it */
}
static void cost_collect(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){1, p - 1, bytes - bytes / p};
}
static void cost_two_phase(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){2, 2 * (p - 1), 2 * (bytes - bytes / p)};
}
static void cost_ring(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){p - 1, p - 1, bytes - bytes / p};
}
static void cost_ring_allreduce(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){2 * (p - 1), 2 * (p - 1), 2 * (bytes - bytes / p)};
}
static void cost_doubling(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){log2_up(p), log2_up(p), bytes - bytes / p};
}
static void cost_doubling_allreduce(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){2 * log2_up(p), 2 * log2_up(p), 2 * (bytes - bytes / p)};
}
static void cost_tree(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){log2_up(p), log2_up(p), log2_up(p) * bytes};
}
static void cost_pairwise(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){p - 1, p - 1, bytes - bytes / p};
}
static void cost_bruck(int64_t p, int64_t bytes, struct row_cost *c)
{
    *c = (struct row_cost){log2_up(p), log2_up(p), log2_up(p) * (bytes / 2)};
}

/* Of rows with the same cost the first is taken. So ring2, which costs as much as ring, runs only if it is forced. */
static const struct row table[] = {
    {"one_phase", "allreduce", ROW_SHARES_LINK, row_phases_one, stated_one_phase, cost_one_phase},
    {"one_phase", "reduce_scatter", ROW_IN_PLACE | ROW_SHARES_LINK, row_phases_one, stated_one_phase, cost_collect},
    {"two_phase", "allreduce", ROW_IN_PLACE | ROW_SHARES_LINK, row_phases_two, stated_two_phase, cost_two_phase},
    {"ring", "allgather", ROW_IN_PLACE, row_ring_allgather, stated_gather, cost_ring},
    {"ring", "reduce_scatter", ROW_IN_PLACE, row_ring_reduce_scatter, stated_ring_scatter, cost_ring},
    {"ring", "allreduce", ROW_IN_PLACE, row_ring_allreduce, stated_ring_allreduce, cost_ring_allreduce},
    {"ring2", "allgather", ROW_IN_PLACE, row_ring_both_allgather, stated_gather, cost_ring},
    {"ring2", "reduce_scatter", ROW_IN_PLACE, row_ring_both_reduce_scatter, stated_ring_scatter, cost_ring},
    {"ring2", "allreduce", ROW_IN_PLACE, row_ring_both_allreduce, stated_ring_allreduce, cost_ring_allreduce},
    {"doubling", "allgather", ROW_IN_PLACE | ROW_POWER_OF_TWO | ROW_SHARES_LINK, row_doubling_allgather, stated_gather,
     cost_doubling},
    {"doubling", "reduce_scatter", ROW_IN_PLACE | ROW_POWER_OF_TWO | ROW_SHARES_LINK, row_doubling_reduce_scatter,
     stated_halving, cost_doubling},
    {"doubling", "allreduce", ROW_IN_PLACE | ROW_POWER_OF_TWO | ROW_SHARES_LINK, row_doubling_allreduce,
     stated_doubling_allreduce, cost_doubling_allreduce},
    {"tree", "broadcast", ROW_IN_PLACE | ROW_SHARES_LINK, row_tree_broadcast, stated_broadcast, cost_tree},
    {"tree", "reduce", ROW_IN_PLACE | ROW_SHARES_LINK, row_tree_reduce, stated_tree_reduce, cost_tree},
    {"pairwise", "all_to_all", ROW_IN_PLACE | ROW_SHARES_LINK, row_alltoall_pairwise, stated_pairwise, cost_pairwise},
    {"bruck", "all_to_all", ROW_IN_PLACE | ROW_SHARES_LINK, row_alltoall_bruck, stated_bruck, cost_bruck},
    {"two_level", "allreduce", ROW_IN_PLACE | ROW_HOSTS, row_levels_allreduce, row_levels_stated_allreduce, NULL},
    {"two_level", "reduce_scatter", ROW_IN_PLACE | ROW_HOSTS, row_levels_reduce_scatter,
     row_levels_stated_reduce_scatter, NULL},
    {"two_level", "reduce", ROW_IN_PLACE | ROW_HOSTS, row_levels_reduce, row_levels_stated_reduce, NULL},
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

/* The general lowering, seen as a row. It also serves the replicas outside the group (m of each piece): terms are
 * folded once for all of them. Within a host all ranks read the root's memory at once. Over a network the root's link
 * carries a copy for each host, or a term of each rank; data that all ranks of a host gather enters the host once.
 * hosts: how many there are. */
static void cost_direct(const char *kind, int64_t hosts, int64_t p, int64_t m, int64_t bytes, struct row_cost *c)
{
    int64_t all = p * m;
    if (!strcmp(kind, "allreduce"))
        *c = (struct row_cost){2, p - 1 + all - 1, (bytes - bytes / p) / m + bytes - bytes / all};
    else if (!strcmp(kind, "reduce_scatter"))
        *c = (struct row_cost){m > 1 ? 2 : 1, p - 1 + m - 1, (bytes - bytes / p) / m + bytes / p - bytes / all};
    else if (!strcmp(kind, "broadcast"))
        *c = (struct row_cost){hosts > 1 ? 2 : 1, p - 1, hosts * bytes};
    else if (!strcmp(kind, "reduce"))
        *c = (struct row_cost){1, p - 1, p * bytes}; /* and the root folds all of it */
    else if (!strcmp(kind, "allgather") && hosts > 1)
        *c = (struct row_cost){2, p - 1, bytes - bytes / hosts};
    else
        *c = (struct row_cost){1, p - 1, bytes - bytes / p};
}

/* How a set of ranks is placed on hosts, and how many sets with the same placement share the link of one host. */
struct placement {
    int64_t ranks, hosts, sets;
};

static int64_t cap(wide bytes)
{
    return bytes > INT64_MAX / 4096 ? INT64_MAX / 4096 : (int64_t)bytes;
}

/* The bytes on a host's link when all its ranks send to all others at once; `bytes` is what one rank sends. */
static int64_t on_link(const struct placement *l, int64_t bytes)
{
    int64_t n = ceil_div(l->ranks, l->hosts);
    return cap((wide)bytes * (n * (l->ranks - n)) / (l->ranks - 1));
}

/* The same when the general lowering folds p terms of each element once, on any of these ranks, and spreads the value
 * to `values` of them. */
static int64_t on_link_folded(const struct placement *l, int64_t p, int64_t values, int64_t bytes)
{
    int64_t n = ceil_div(l->ranks, l->hosts);
    return cap(wide_mul((wide)bytes * (p + values - 2), l->ranks - n) / (l->ranks - 1) / l->hosts);
}

/* Nanoseconds by the machine's figures. Within one host: a flag, a bucket's set-up, memory. */
static int64_t price(const struct job *j, bool hosts, const struct row_cost *c)
{
    int64_t latency = hosts ? j->machine->latency_ns : 2000, each = hosts ? 500 : 100;
    int64_t rate = hosts ? j->machine->bytes_per_us : 10000;
    wide ns = (wide)c->depth * latency + c->messages * each + (wide)c->bytes * 1000 / rate;
    /* Bounded, so that costs can be added without overflow. */
    return ns > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)ns;
}

/* Do the volumes and costs of a group of p, which are products of these numbers, fit into 64 bits with room to
 * spare? */
static bool countable(const struct job *j, int64_t p)
{
    int64_t all, ranks = max64(p, j->d_replicas);
    return !__builtin_mul_overflow(max64(local_count(j->src, 0), local_count(j->dst, 0)), ranks, &all) &&
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

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

/* How the ranks that differ from mesh position 0 on these axes are placed. Other sets of ranks that differ on these
 * axes are placed like them, or nearly. */
static int placement_of(const struct job *j, const weft_layout *l, uint32_t axes, struct placement *out)
{
    const weft_machine *m = j->machine;
    int64_t n = axes_count(l, axes), hosts = 1, world = 0;
    int *host = arena_alloc(j->arena, (size_t)n * sizeof *host);
    if (!host)
        return error_nomem();
    bool sorted = true;
    for (int64_t k = 0; k < n; k++) {
        host[k] = machine_host(m, mesh_rank(l, axes_offset(l, axes, k)));
        sorted = sorted && (!k || host[k - 1] <= host[k]);
    }
    if (!sorted)
        qsort(host, (size_t)n, sizeof *host, by_number);
    for (int64_t k = 1; k < n; k++)
        hosts += host[k] != host[k - 1];
    for (int r = 0; m->host && r < j->d->world; r++)
        world = max64(world, m->host[r] + 1);
    int64_t each =
        min64(l->mesh, m->host ? ceil_div(j->d->world, world) : m->ranks_per_host); /* of the mesh, on a host */
    *out = (struct placement){n, hosts, max64(1, each / ceil_div(n, hosts))};
    return 0;
}

/* Between hosts: what the link carries and what memory does, bucket by bucket, overlap; the slower counts. */
static int64_t price_hosts(const struct job *j, const struct row_cost *link, const struct row_cost *memory)
{
    int64_t a = price(j, true, link), b = price(j, false, memory);
    struct row_cost x = {link->depth, link->messages, 0}, y = {memory->depth, memory->messages, 0};
    int64_t begin = price(j, true, &x), end = price(j, false, &y);
    return begin + end + max64(a - begin, b - end);
}

/* When all ranks send at once, a host's link carries the messages of several ranks; inside a host, memory does. */
static int64_t price_flat(const struct job *j, const struct placement *l, const struct row_cost *c, bool shares)
{
    struct row_cost link = *c, memory = {0, 0, c->bytes};
    if (l->hosts == 1)
        return price(j, false, c);
    link.bytes = cap((wide)(shares ? on_link(l, c->bytes) : c->bytes) * l->sets);
    return price_hosts(j, &link, &memory);
}

/* placement: NULL on one host. */
static int64_t price_row(const struct job *j, const struct row *row, const struct placement *placement, int64_t p,
                         int64_t bytes)
{
    struct row_cost c, inside;
    if (!row->cost) {
        row_levels_cost(row->kind, placement->hosts, p, bytes, &c, &inside);
        c.bytes = cap((wide)c.bytes * placement->sets);
        return price_hosts(j, &c, &inside);
    }
    row->cost(p, bytes, &c);
    return placement ? price_flat(j, placement, &c, (row->is & ROW_SHARES_LINK)) : price(j, false, &c);
}

/* group: how the group's ranks are placed; all: these and those that hold replicas. Both are NULL on one host. */
static int64_t price_direct(const struct job *j, const struct recognised *r, const struct placement *group,
                            const struct placement *all, int64_t p, int64_t bytes)
{
    int64_t m = r->axes ? j->d_replicas / axes_count(j->dst, r->axes & j->d_free) : 1;
    struct row_cost c, memory;
    cost_direct(r->kind, group ? group->hosts : 1, p, m, bytes, &c);
    if (!group)
        return price(j, false, &c);
    if (!j->fold || !r->axes)
        return price_flat(j, group, &c, !strcmp(r->kind, "all_to_all"));
    if (all->hosts == 1)
        return price(j, false, &c);
    memory = (struct row_cost){0, 0, c.bytes};
    c.bytes = cap((wide)on_link_folded(all, p, !strcmp(r->kind, "allreduce") ? p * m : m, bytes) * all->sets);
    return price_hosts(j, &c, &memory);
}

/* How the group is placed on hosts, and how all ranks that hold the same pieces are. */
static int placements_of(const struct job *j, const struct recognised *r, struct placement *group,
                         struct placement *all)
{
    const weft_layout *many = r->axes || j->src->mesh > 1 ? j->src : j->dst;
    uint32_t every = (1u << many->naxes) - 1;
    int rc = placement_of(j, many, r->axes ? r->axes : every, group);
    *all = *group;
    return rc || !r->axes || !j->fold ? rc : placement_of(j, many, r->axes | j->s_free, all);
}

int rows_choose(const struct job *j, const struct recognised *r, const weft_lower_opts *o, const struct row **row)
{
    *row = NULL;
    if (o->algorithm)
        return strcmp(o->algorithm, "direct") ? force(j, r, o, row) : 0;
    bool any = false;
    for (size_t k = 0; k < ROWS && !any; k++)
        any = !strcmp(table[k].kind, r->kind);
    int64_t p = any ? group_size(j, r) : 1;
    if (p < 2 || !countable(j, p))
        return 0;
    bool hosts = machine_hosts(j->machine, j->d->world), alike = true;
    struct placement group, all;
    int rc = hosts ? row_levels_alike(j, r, &alike) : 0;
    if (!rc && hosts)
        rc = placements_of(j, r, &group, &all);
    if (rc)
        return rc;
    /* The largest piece of either side, by mesh position 0 of each: the same number on every rank. */
    int64_t a = local_count(j->src, 0) * term_size(j), b = local_count(j->dst, 0) * value_size(j), bytes = max64(a, b);
    int64_t best = price_direct(j, r, hosts ? &group : NULL, hosts ? &all : NULL, p, bytes);
    for (size_t k = 0; k < ROWS; k++) {
        if (strcmp(table[k].kind, r->kind) || unfit(&table[k], j, p, o->in_place, alike))
            continue;
        int64_t cost = price_row(j, &table[k], hosts ? &group : NULL, p, bytes);
        if (cost < best) {
            best = cost;
            *row = &table[k];
        }
    }
    return 0;
}
