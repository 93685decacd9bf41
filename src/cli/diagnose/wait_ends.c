/* See wait_ends.h. Tarjan's strongly connected components, without recursion, since a chain may be as long as the job
 * is large; the ends are those that no wait leaves. */
#include "cli/diagnose/wait_ends.h"

#include <stdlib.h>

struct walk {
    const struct flight_files *fl;
    size_t *first;      /* of each rank, into the waits, which are sorted by rank */
    int *order, *low;   /* when a rank was first seen, from 1 on; the earliest rank that it reaches */
    bool *open;         /* its set is not known yet */
    size_t *at;         /* the next of its waits */
    int *path, npath;   /* ranks on the path of the walk */
    int *stack, nstack; /* ranks whose set is not known yet */
    int seen;
};

static void see(struct walk *w, int rank)
{
    w->order[rank] = w->low[rank] = ++w->seen;
    w->at[rank] = w->first[rank];
    w->open[rank] = true;
    w->stack[w->nstack++] = rank;
    w->path[w->npath++] = rank;
}

static void lower(struct walk *w, int rank, int to)
{
    if (to < w->low[rank])
        w->low[rank] = to;
}

/* Walks through a rank and all that it reaches. */
static void walk_from(struct walk *w, int start, struct wait_ends *e)
{
    see(w, start);
    while (w->npath) {
        int rank = w->path[w->npath - 1];
        if (w->at[rank] < w->first[rank + 1]) {
            int on = w->fl->waits[w->at[rank]++].on;
            if (!w->order[on])
                see(w, on);
            else if (w->open[on])
                lower(w, rank, w->order[on]);
            continue;
        }
        w->npath--;
        if (w->npath)
            lower(w, w->path[w->npath - 1], w->low[rank]);
        if (w->low[rank] != w->order[rank])
            continue;
        int member;
        do {
            member = w->stack[--w->nstack];
            w->open[member] = false;
            e->set[member] = e->sets;
            e->size[e->sets]++;
        } while (member != rank);
        e->sets++;
    }
}

static void find_ends(const struct flight_files *fl, struct wait_ends *e)
{
    for (size_t i = 0; i < fl->nwaits; i++) /* a rank waits for it */
        e->is_end[e->set[fl->waits[i].on]] = true;
    for (size_t i = 0; i < fl->nwaits; i++)
        if (e->set[fl->waits[i].rank] != e->set[fl->waits[i].on])
            e->is_end[e->set[fl->waits[i].rank]] = false;
}

int wait_ends_find(const struct flight_files *fl, struct wait_ends *out, struct failure *f)
{
    size_t n = (size_t)fl->ranks;
    struct walk w = {.fl = fl,
                     .first = calloc(n + 1, sizeof *w.first),
                     .order = calloc(n, sizeof *w.order),
                     .low = calloc(n, sizeof *w.low),
                     .open = calloc(n, sizeof *w.open),
                     .at = calloc(n, sizeof *w.at),
                     .path = calloc(n, sizeof *w.path),
                     .stack = calloc(n, sizeof *w.stack)};
    *out = (struct wait_ends){.set = calloc(n, sizeof *out->set),
                              .size = calloc(n, sizeof *out->size),
                              .is_end = calloc(n, sizeof *out->is_end)};
    int err = 0;
    if (!w.first || !w.order || !w.low || !w.open || !w.at || !w.path || !w.stack || !out->set || !out->size ||
        !out->is_end) {
        err = failure_set(f, CLI_WRONG, "memory is out");
        wait_ends_free(out);
    } else {
        for (size_t i = 0; i < fl->nwaits; i++)
            w.first[fl->waits[i].rank + 1]++;
        for (size_t r = 0; r < n; r++)
            w.first[r + 1] += w.first[r];
        for (int r = 0; r < fl->ranks; r++)
            if (!w.order[r])
                walk_from(&w, r, out);
        find_ends(fl, out);
    }
    free(w.first);
    free(w.order);
    free(w.low);
    free(w.open);
    free(w.at);
    free(w.path);
    free(w.stack);
    return err;
}

void wait_ends_free(struct wait_ends *e)
{
    free(e->set);
    free(e->size);
    free(e->is_end);
    *e = (struct wait_ends){.sets = 0};
}
