#include "foresee/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

int parts_uses(const struct parts *p, uint32_t node, struct fair_use *out)
{
    int uses = links_uses(p->g->links, &p->g->nodes.v[node].load, out), n = 0;
    for (int k = 0; k < uses; k++)
        if (!p->slack[out[k].link])
            out[n++] = out[k];
    return n;
}

/* Messages that are part of another node do not count. */
static bool counts(const struct graph_node *n)
{
    return n->channel == GRAPH_NONE || n->ends;
}

/* ---- what belongs together: ranks, then links, as trees whose roots are the lowest ---- */

static uint32_t root_of(uint32_t *up, uint32_t x)
{
    while (up[x] != x)
        x = up[x] = up[up[x]];
    return x;
}

static void unite(uint32_t *up, uint32_t a, uint32_t b)
{
    a = root_of(up, a);
    b = root_of(up, b);
    up[a > b ? a : b] = a > b ? b : a;
}

/* works: ranks that have a node. */
static void unite_all(const struct parts *p, uint32_t *up, bool *works)
{
    const struct graph *g = p->g;
    uint32_t world = (uint32_t)g->links->world;
    for (uint32_t i = 0; i < world + links_count(g->links); i++)
        up[i] = i;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const struct graph_node *n = &g->nodes.v[i];
        struct fair_use use[FAIR_USES];
        if (!counts(n))
            continue;
        works[n->load.from] = works[n->load.to] = true;
        unite(up, (uint32_t)n->load.from, (uint32_t)n->load.to);
        int uses = parts_uses(p, (uint32_t)i, use);
        for (int k = 0; k < uses; k++)
            unite(up, (uint32_t)n->load.from, world + use[k].link);
    }
}

/* ---- numbers ---- */

/* Writes the part of each rank and of each link over the trees. Ranks without work, and links that nobody uses, are of
 * none. Returns how many parts there are. */
static size_t number_parts(const struct parts *p, uint32_t *up, const bool *works)
{
    uint32_t world = (uint32_t)p->g->links->world, all = world + links_count(p->g->links), n = 0;
    for (uint32_t i = 0; i < all; i++)
        up[i] = root_of(up, i);
    /* A root is lower than the rest of its tree. So its number is there before the others ask for it. */
    for (uint32_t i = 0; i < all; i++)
        if (up[i] >= world || !works[up[i]])
            up[i] = GRAPH_NONE;
        else
            up[i] = up[i] == i ? n++ : up[up[i]];
    return n;
}

static bool number_all(struct parts *p, const uint32_t *part)
{
    const struct graph *g = p->g;
    uint32_t world = (uint32_t)g->links->world, links = links_count(g->links);
    p->first = calloc(p->n + 2, sizeof *p->first);
    p->first_link = calloc(p->n + 2, sizeof *p->first_link);
    p->ranks = calloc(p->n + 1, sizeof *p->ranks);
    p->rank = malloc((world + 1) * sizeof *p->rank);
    p->link = malloc((links + 1) * sizeof *p->link);
    p->links = malloc((links + 1) * sizeof *p->links);
    p->nodes = malloc((g->nodes.n + 1) * sizeof *p->nodes);
    p->local = malloc((g->nodes.n + 1) * sizeof *p->local);
    if (!p->first || !p->first_link || !p->ranks || !p->rank || !p->link || !p->links || !p->nodes || !p->local)
        return false;
    for (uint32_t r = 0; r < world; r++)
        if (part[r] != GRAPH_NONE)
            p->rank[r] = p->ranks[part[r]]++;
    for (uint32_t l = 0; l < links; l++)
        if (part[world + l] != GRAPH_NONE)
            p->link[l] = (uint32_t)p->first_link[part[world + l] + 2]++;
    for (size_t i = 0; i < g->nodes.n; i++)
        if (counts(&g->nodes.v[i]))
            p->local[i] = (uint32_t)p->first[part[g->nodes.v[i].load.from] + 2]++;
    for (size_t i = 2; i < p->n + 2; i++) {
        p->first[i] += p->first[i - 1];
        p->first_link[i] += p->first_link[i - 1];
    }
    for (uint32_t l = 0; l < links; l++)
        if (part[world + l] != GRAPH_NONE)
            p->links[p->first_link[part[world + l] + 1]++] = l;
    for (size_t i = 0; i < g->nodes.n; i++)
        if (counts(&g->nodes.v[i]))
            p->nodes[p->first[part[g->nodes.v[i].load.from] + 1]++] = (uint32_t)i;
    return true;
}

/* ---- parts that are alike ---- */

static uint64_t hash_part(const struct parts *p, size_t part)
{
    uint64_t h = hash_u64(parts_size(p, part), p->ranks[part]);
    for (size_t k = 0; k < parts_size(p, part); k++) {
        const struct graph_node *n = &p->g->nodes.v[parts_node(p, part, k)];
        h = hash_u64(h, (uint64_t)p->rank[n->load.from] << 32 | p->rank[n->load.to]);
        h = hash_bytes(h, &n->load.bytes, sizeof n->load.bytes);
    }
    return h;
}

static bool find_alike(struct parts *p)
{
    size_t size = 16;
    while (size < 2 * p->n)
        size *= 2;
    struct {
        uint64_t hash;
        uint32_t part;
    } *table = malloc(size * sizeof *table);
    p->like = malloc((p->n + 1) * sizeof *p->like);
    if (!table || !p->like) {
        free(table);
        return false;
    }
    for (size_t i = 0; i < size; i++)
        table[i].part = GRAPH_NONE;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t h = hash_part(p, i);
        size_t at = (size_t)h & (size - 1);
        while (table[at].part != GRAPH_NONE && table[at].hash != h)
            at = (at + 1) & (size - 1);
        if (table[at].part == GRAPH_NONE) {
            table[at].hash = h;
            table[at].part = (uint32_t)i;
        }
        p->like[i] = table[at].part;
    }
    free(table);
    return true;
}

static bool same_edges(const struct parts *p, uint32_t a, uint32_t b)
{
    const struct graph *g = p->g;
    uint32_t n = g->first[a + 1] - g->first[a];
    if (g->first[b + 1] - g->first[b] != n)
        return false;
    for (uint32_t k = 0; k < n; k++)
        if (p->local[g->edges.v[g->first[a] + k].to] != p->local[g->edges.v[g->first[b] + k].to])
            return false;
    return true;
}

static bool same_uses(const struct parts *p, uint32_t a, uint32_t b)
{
    struct fair_use x[FAIR_USES], y[FAIR_USES];
    int n = parts_uses(p, a, x);
    if (parts_uses(p, b, y) != n)
        return false;
    const double *cap = p->g->links->cap;
    for (int k = 0; k < n; k++)
        if (p->link[x[k].link] != p->link[y[k].link] || x[k].each != y[k].each || cap[x[k].link] != cap[y[k].link])
            return false;
    return true;
}

/* The ranks of `from` are in order, so nodes also start in the same order (events.c). */
static bool same_node(const struct parts *p, uint32_t a, uint32_t b)
{
    const struct graph_node *x = &p->g->nodes.v[a], *y = &p->g->nodes.v[b];
    const struct links *l = p->g->links;
    bool nexts =
        x->next == GRAPH_NONE || y->next == GRAPH_NONE ? x->next == y->next : p->local[x->next] == p->local[y->next];
    return nexts && p->rank[x->load.from] == p->rank[y->load.from] && p->rank[x->load.to] == p->rank[y->load.to] &&
           x->load.bytes == y->load.bytes && x->waits == y->waits && x->slots == y->slots &&
           (x->channel == GRAPH_NONE) == (y->channel == GRAPH_NONE) &&
           links_latency(l, x->load.from, x->load.to) == links_latency(l, y->load.from, y->load.to) &&
           same_uses(p, a, b) && same_edges(p, a, b);
}

bool parts_equal(const struct parts *p, size_t a, size_t b)
{
    size_t n = parts_size(p, a);
    bool same = parts_size(p, b) == n && p->ranks[a] == p->ranks[b];
    for (size_t k = 0; k < n && same; k++)
        same = same_node(p, parts_node(p, a, k), parts_node(p, b, k));
    return same;
}

/* ---- the whole ---- */

int parts_open(struct parts *p, const struct graph *g, const bool *slack, bool whole)
{
    *p = (struct parts){.g = g, .slack = slack, .n = 1};
    if (whole)
        return 0;
    size_t world = (size_t)g->links->world;
    uint32_t *up = malloc((world + links_count(g->links) + 1) * sizeof *up);
    bool *works = calloc(world + 1, sizeof *works), fits = up && works;
    if (fits) {
        unite_all(p, up, works);
        p->n = number_parts(p, up, works);
        if (p->n > 1)
            fits = number_all(p, up) && find_alike(p);
    }
    free(up);
    free(works);
    return fits ? 0 : -1;
}

void parts_free(struct parts *p)
{
    free(p->first);
    free(p->nodes);
    free(p->local);
    free(p->rank);
    free(p->link);
    free(p->ranks);
    free(p->links);
    free(p->first_link);
    free(p->like);
    *p = (struct parts){0};
}
