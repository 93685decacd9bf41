/* The work of the plans of all ranks, as a graph: a node is a message, or work inside a rank (a copy, a fold), and an
 * edge says that one waits for the other. Plans are added one by one and are not needed afterwards.
 *
 * How a message travels follows the rules of the engine's ways (engine/way.c, engine/ways/way_wire.c), by what the
 * plans say: the peer's host, the bytes, the pieces at both ends, casts, and folds that read a message where it is.
 *
 * Messages of one channel that wait for nothing, and that nothing waits for, are one node: they follow each other
 * anyway. The same holds for such copies of a rank. Messages of a rank that only sends are joined as soon as their
 * receiver's plan says that nothing waits for them, so that the work of large worlds fits into memory. That is why the
 * plans of these ranks come last. */
#ifndef WEFT_FORESEE_GRAPH_H
#define WEFT_FORESEE_GRAPH_H
#include "base/vec.h"
#include "foresee/links.h"

#define GRAPH_NONE UINT32_MAX

struct graph_node {
    struct links_load load;
    uint32_t next;                /* of its channel, or GRAPH_NONE */
    uint32_t waits;               /* edges that lead to it */
    uint32_t channel;             /* GRAPH_NONE for work inside a rank */
    uint32_t joined;              /* further messages that were joined with it when they were added */
    float pieces_from, pieces_to; /* of a message inside a host: contiguous ones at each end */
    float rows_from, rows_to;     /* bytes that are in rows at each end, of more than one and not long (LINKS_LONG), */
    float short_from, short_to;   /* in pieces that are not long, and cast; of local work: at the first */
    float strided;                /* bytes of tensors that are in several pieces at the sender */
    uint8_t ends;                 /* GRAPH_SENT, GRAPH_RECEIVED: which plans had it */
    bool slots;                   /* it goes through one of the channel's staging slots */
    bool feeds;                   /* edges lead from it */
    bool held;                    /* its receiver keeps it in a buffer of the plan */
    bool flat;                    /* its receiver was first to have it, and nothing can wait for it */
};
enum { GRAPH_SENT = 1, GRAPH_RECEIVED = 2 };

/* All messages from one rank to another, in order. */
struct graph_channel {
    int from, to;
    uint32_t head, tail, sent, received; /* nodes: first, last, the last one that each end had */
    uint32_t sent_in;                    /* messages of node `sent` that the sender had, */
    double sent_bytes;                   /* and their bytes */
    int64_t bytes, messages;
    /* After graph_close, inside a host: its sender copies; even what both ends could copy. */
    bool pushes, gathers;
    bool whole; /* the receiver's plan says that nothing waits for any of them: each counts once, for all rounds */
};

struct graph_edge {
    uint32_t from, to;
};

struct graph {
    struct links *links; /* graph_close sets what they copy by what is in caches */
    VEC(struct graph_node) nodes;
    VEC(struct graph_channel) channels;
    VEC(struct graph_edge) edges;
    uint32_t *first; /* after graph_close: edges first[i] to first[i + 1] - 1 lead from node i */
    uint32_t *table; /* of channels, by their ends; until graph_close */
    size_t table_size;
    uint32_t *aside;  /* for each rank: the node of its copies that wait for nothing, or GRAPH_NONE */
    double *sources;  /* bytes of the tensors that each rank has at first */
    bool *only_sends; /* ranks whose messages are joined as they are received; all false at first */
    bool *feeds;      /* of the plan that is being added: ranks from which messages come that something waits for */
    bool clash;       /* such a rank waits for something before it sends: the graph is of no use */
    double *busy;     /* after graph_close: nanoseconds for which each link is busy, at least */
    int64_t bytes, messages, copied, folded;
    const char *kind, *algorithm;
};

int graph_open(struct graph *g, struct links *l, struct failure *why);
/* Adds a plan `rounds` times. times: how often each tensor of the plan counts in each round, round by round, and then
 * in all of them; or NULL for one round in which each counts once. */
int graph_add(struct graph *g, const weft_plan *p, const int *times, int rounds, struct failure *why);
int graph_close(struct graph *g, struct failure *why);
void graph_free(struct graph *g);
/* The lower bound: the time for which the busiest link is busy. *link: which; FAIR_NONE if none has a limit. */
double graph_bound(const struct graph *g, uint32_t *link);
#endif
