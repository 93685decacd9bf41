/* Max-min fair rates of flows that share links. No flow can have more without another one, that has as much or less,
 * getting less. The rates of all flows grow together until a link is full, which settles the flows on it; then those of
 * the others grow on (progressive filling). Flows that take turns on a core grow together as fast as one other flow
 * does, since the core gives its time to one of them after the other. */
#ifndef WEFT_FORESEE_FAIR_H
#define WEFT_FORESEE_FAIR_H
#include <stddef.h>
#include <stdint.h>

#define FAIR_USES 12
#define FAIR_NONE UINT32_MAX

struct fair_use {
    uint32_t link;
    float each; /* how much of the link a rate of 1 takes; above 0 */
};
struct fair_flow {
    double rate;     /* out; infinite if it uses no link */
    uint32_t narrow; /* out: the link that limits it, or FAIR_NONE */
    int16_t uses;
    int16_t turns;                  /* which of these is a core whose flows take turns; -1: none */
    struct fair_use use[FAIR_USES]; /* no link twice; behind the rest, since most flows have few */
};

/* For a walk through n flows, at the i-th: fetches one that comes soon. Large worlds have more than caches hold. */
static inline void fair_ahead(struct fair_flow *const *flows, size_t i, size_t n)
{
    if (i + 16 < n)
        __builtin_prefetch(flows[i + 16]);
}

struct fair;                         /* memory for many calls */
struct fair *fair_new(size_t links); /* NULL: no memory */
void fair_free(struct fair *f);
/* Sets rate and narrow of n flows. cap has the capacity of each link, above 0. 0, or -1 if there is no memory. */
int fair_solve(struct fair *f, const double *cap, struct fair_flow *const *flows, size_t n);
/* Of the last call: how many flows a link had. */
uint32_t fair_sharers(const struct fair *f, uint32_t link);
#endif
