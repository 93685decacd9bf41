/* The parts of a graph that have nothing to do with each other: no rank, link, channel or edge is of two of them. Each
 * can be simulated by itself. The parts of a large world often differ in the numbers of their ranks and links alone.
 * Then the simulation of one part tells how long each of them takes.
 *
 * Parts are in the order of their lowest ranks, and nodes, ranks and links of a part are numbered in their order in the
 * graph. So two parts are equal, and so is their simulation to the last bit, if all that the simulation looks at is
 * equal in these numbers. */
#ifndef WEFT_FORESEE_PARTS_H
#define WEFT_FORESEE_PARTS_H
#include "foresee/graph.h"

struct parts {
    const struct graph *g;
    const bool *slack; /* links that do not count */
    size_t n;
    size_t *first;         /* part i has nodes[first[i]] to nodes[first[i + 1] - 1]. NULL: one part, with all nodes, */
    uint32_t *nodes;       /* and its numbers are those of the graph */
    uint32_t *local;       /* of each node: its number in its part */
    uint32_t *rank, *link; /* of each rank, and of each link: its number in its part */
    uint32_t *ranks;       /* how many a part has */
    uint32_t *links;       /* part by part, in their order; those of part i start at first_link[i] */
    size_t *first_link;
    uint32_t *like; /* of each part: the first one that seems to be equal; itself if there is none */
};

/* whole: all is one part. 0, or -1 if there is no memory. parts_free in either case. */
int parts_open(struct parts *p, const struct graph *g, const bool *slack, bool whole);
void parts_free(struct parts *p);
/* Is part b equal to part a? */
bool parts_equal(const struct parts *p, size_t a, size_t b);

static inline size_t parts_size(const struct parts *p, size_t part)
{
    return p->first ? p->first[part + 1] - p->first[part] : p->g->nodes.n;
}
static inline uint32_t parts_node(const struct parts *p, size_t part, size_t k)
{
    return p->first ? p->nodes[p->first[part] + k] : (uint32_t)k;
}
static inline uint32_t parts_rank(const struct parts *p, int rank)
{
    return p->first ? p->rank[rank] : (uint32_t)rank;
}
static inline size_t parts_ranks(const struct parts *p, size_t part)
{
    return p->first ? p->ranks[part] : (size_t)p->g->links->world;
}
/* What one byte of a node's load takes of each link that counts. Returns how many links there are. */
int parts_uses(const struct parts *p, uint32_t node, struct fair_use *out);
#endif
