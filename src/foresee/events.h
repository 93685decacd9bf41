/* The simulation: the nodes of a graph run on the links of a machine, event by event. What runs at the same time shares
 * links by max-min fairness (fair.h). It is deterministic.
 *
 * A channel sends one message after the other, in order; the next one starts when the last byte of the one before has
 * left. A message is there one latency after that, and then the nodes that wait for it go on. At most `channel_buckets`
 * messages that go through staging slots are on their way in a channel. A rank does one copy or fold at a time, in the
 * order in which they can begin.
 *
 * Parts of the graph that share nothing are simulated one by one (parts.h), by several threads.
 *
 * While many flows of a part are under way, rates are not computed anew after each of them ends, but once for all that
 * end within a short window (EVENTS_GRAIN of the time so far, and at least EVENTS_LEAST of the lower bound). What the
 * ended ones leave stays unused until then, so the result is a schedule that the links can carry, at most that much
 * longer. */
#ifndef WEFT_FORESEE_EVENTS_H
#define WEFT_FORESEE_EVENTS_H
#include "foresee/graph.h"

#define EVENTS_EXACT 1024 /* flows under way from which on windows are used */
#define EVENTS_GRAIN (1.0 / 1024)
#define EVENTS_LEAST (1.0 / 2048)

struct events_span {
    double ready; /* all that it waits for was done */
    double start;
    double end;       /* the last byte has left; a message is there one latency later */
    uint32_t cause;   /* the node whose end started it; GRAPH_NONE: it started at once */
    uint32_t narrow;  /* the link that limited it last; FAIR_NONE: none */
    uint32_t sharers; /* flows on that link at the time */
};

struct events {
    struct events_span *span; /* of each node; end is negative for nodes that are part of another one */
    double total;             /* nanoseconds until everything is done */
    double moved;             /* bytes of all messages that were carried */
    uint32_t last;            /* the node that was done last, or GRAPH_NONE */
};

struct events_how {
    int workers; /* threads; 0: as many as can run at the same time here. The result is the same */
    bool whole;  /* parts of the graph that share nothing are simulated together: for tests */
};

int events_run(struct events *e, const struct graph *g, const struct events_how *how, struct failure *why);
void events_free(struct events *e);
/* The nodes that made it as long as it is, from first to last. Returns how many; `out` has room for `cap`, and gets the
 * last ones if there are more. */
size_t events_path(const struct events *e, uint32_t *out, size_t cap);
#endif
