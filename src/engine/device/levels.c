#include "engine/device/levels.h"

#include <stdlib.h>

#include "base/error.h"
#include "engine/device/symbol.h"
#include "memory/memory.h"

#define NOBODY UINT32_MAX

static uint32_t total(const struct levels *l)
{
    return l->first[l->n];
}

/* Of the messages from each rank to each other: where they begin in a list of all, and which is the next to be paired.
 */
struct channels {
    uint32_t *begin, *next;
    uint32_t *sends; /* the SEND steps, channel by channel */
};

static size_t channel_of(const struct levels *l, int rank, const struct published_step *st)
{
    size_t from = (size_t)(st->kind == PLAN_SEND ? rank : st->peer),
           to = (size_t)(st->kind == PLAN_SEND ? st->peer : rank);
    return from * (size_t)l->n + to;
}

/* Calls `each` for all steps of one kind, in the order of ranks and of their plans. */
static int walk(struct levels *l, struct channels *c, uint8_t kind,
                int (*each)(struct levels *l, struct channels *c, int rank, uint32_t self, size_t channel))
{
    int err = 0;
    for (int r = 0; r < l->n && !err; r++)
        for (uint32_t s = 0; s < l->of[r]->nsteps && !err; s++) {
            const struct published_step *st = &published_steps(l->of[r])[s];
            if (st->kind == kind)
                err = st->peer >= 0 && st->peer < l->n
                          ? each(l, c, r, l->first[r] + s, channel_of(l, r, st))
                          : error_set(WEFT_EMISMATCH, "a step of rank %d has rank %d as its peer", r, st->peer);
        }
    return err;
}

static int count_send(struct levels *l, struct channels *c, int rank, uint32_t self, size_t channel)
{
    (void)l, (void)rank, (void)self;
    c->begin[channel + 1]++;
    return 0;
}

static int list_send(struct levels *l, struct channels *c, int rank, uint32_t self, size_t channel)
{
    (void)l, (void)rank;
    c->sends[c->next[channel]++] = self;
    return 0;
}

static int take_recv(struct levels *l, struct channels *c, int rank, uint32_t self, size_t channel)
{
    if (c->next[channel] == c->begin[channel + 1])
        return error_set(WEFT_EMISMATCH, "rank %zu does not send all messages that rank %d expects",
                         channel / (size_t)l->n, rank);
    uint32_t send = c->sends[c->next[channel]++];
    l->mate[self] = send;
    l->mate[send] = self;
    return 0;
}

/* The k-th SEND from a to b is the k-th RECV of b from a. */
static int pair(struct levels *l)
{
    size_t n = (size_t)l->n * (size_t)l->n;
    struct channels c = {calloc(n + 1, sizeof *c.begin), calloc(n + 1, sizeof *c.next),
                         malloc((total(l) + 1) * sizeof *c.sends)};
    int err = c.begin && c.next && c.sends ? walk(l, &c, PLAN_SEND, count_send) : error_nomem();
    for (size_t i = 0; i < n && !err; i++) {
        c.begin[i + 1] += c.begin[i];
        c.next[i] = c.begin[i];
    }
    err = err ? err : walk(l, &c, PLAN_SEND, list_send);
    for (size_t i = 0; i < n && !err; i++)
        c.next[i] = c.begin[i];
    err = err ? err : walk(l, &c, PLAN_RECV, take_recv);
    for (size_t i = 0; i < n && !err; i++)
        if (c.next[i] < c.begin[i + 1])
            err = error_set(WEFT_EMISMATCH, "rank %zu does not expect all messages that rank %zu sends",
                            i % (size_t)l->n, i / (size_t)l->n);
    free(c.begin);
    free(c.next);
    free(c.sends);
    return err;
}

static int rank_of(const struct levels *l, uint32_t step)
{
    int low = 0, high = l->n;
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        if (l->first[mid] <= step)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* The first level at which what the step has done can be used. */
static uint32_t after(const struct levels *l, uint32_t step)
{
    int r = rank_of(l, step);
    return l->level[step] + (published_steps(l->of[r])[step - l->first[r]].ntasks > 0);
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Until nothing changes: plans whose ranks wait in a circle never come to an end, so turns are bounded. */
static int settle(struct levels *l)
{
    bool changed = true;
    for (uint32_t turn = 0; changed; turn++) {
        changed = false;
        if (turn > total(l) + 1)
            return error_set(WEFT_EMISMATCH, "the steps of the ranks wait for each other in a circle");
        for (int r = 0; r < l->n; r++)
            for (uint32_t s = 0; s < l->of[r]->nsteps; s++) {
                const struct published_step *st = &published_steps(l->of[r])[s];
                uint32_t self = l->first[r] + s, level = st->kind == PLAN_RECV ? after(l, l->mate[self]) : 0;
                for (uint32_t k = 0; k < st->ndeps; k++) {
                    uint32_t dep = published_deps(l->of[r])[st->dep + k];
                    bool sent = published_steps(l->of[r])[dep].kind == PLAN_SEND;
                    level = most(level, after(l, l->first[r] + dep));
                    if (sent)
                        level = most(level, after(l, l->mate[l->first[r] + dep]));
                }
                changed |= level != l->level[self];
                l->level[self] = level;
            }
    }
    return 0;
}

static int map_all(struct levels *l, struct device *d)
{
    l->bases = calloc(l->base[l->n] + 1, sizeof *l->bases);
    if (!l->bases)
        return error_nomem();
    int err = 0;
    for (int r = 0; r < l->n && !err; r++)
        for (uint32_t i = 0; i < l->of[r]->nobjects && !err; i++) {
            err = d->ops->map(d, &published_objects(l->of[r])[i], &l->bases[l->base[r] + i]);
            l->mapped += !err;
        }
    return err;
}

int levels_make(struct levels *l, struct device *d, const struct published *const *of, int n)
{
    *l = (struct levels){.of = of, .n = n};
    l->first = calloc((size_t)n + 1, sizeof *l->first);
    l->base = calloc((size_t)n + 1, sizeof *l->base);
    if (!l->first || !l->base)
        return error_nomem();
    for (int r = 0; r < n; r++) {
        l->first[r + 1] = l->first[r] + of[r]->nsteps;
        l->base[r + 1] = l->base[r] + of[r]->nobjects;
    }
    l->mate = malloc((total(l) + 1) * sizeof *l->mate);
    l->level = calloc(total(l) + 1, sizeof *l->level);
    if (!l->mate || !l->level)
        return error_nomem();
    for (uint32_t i = 0; i < total(l); i++)
        l->mate[i] = NOBODY;
    int err = pair(l);
    err = err ? err : settle(l);
    return err ? err : map_all(l, d);
}

static uint64_t address(const struct levels *l, uint64_t symbol)
{
    void *base = l->bases[l->base[symbol_rank(symbol)] + symbol_object(symbol)];
    return (uint64_t)(uintptr_t)base + symbol_offset(symbol);
}

static int queue_task(const struct levels *l, const struct published *of, const struct published_task *t,
                      uint32_t level, struct device_operand *terms, struct device_queue *q)
{
    const int64_t *ints = published_ints(of);
    for (uint32_t k = 0; k < t->nterms; k++) {
        const struct published_term *term = &published_terms(of)[t->term + k];
        terms[k] = (struct device_operand){address(l, term->at), ints + term->stride, term->dtype};
    }
    struct device_task task = {.level = level,
                               .loops = t->loops,
                               .n = ints + t->loop,
                               .dst = {address(l, t->dst), ints + t->loop + t->loops, t->to},
                               .terms = terms,
                               .nterms = t->nterms,
                               .op = t->op,
                               .acc = t->acc,
                               .via = t->via,
                               .div = t->div};
    return device_queue_add(q, &task);
}

int levels_queue(const struct levels *l, struct device_queue *q)
{
    uint32_t widest = 1;
    for (int r = 0; r < l->n; r++)
        for (uint32_t i = 0; i < l->of[r]->ntasks; i++)
            widest = most(widest, published_tasks(l->of[r])[i].nterms);
    struct device_operand *terms = malloc(widest * sizeof *terms);
    int err = terms ? 0 : error_nomem();
    for (int r = 0; r < l->n && !err; r++)
        for (uint32_t s = 0; s < l->of[r]->nsteps && !err; s++) {
            const struct published_step *st = &published_steps(l->of[r])[s];
            for (uint32_t k = 0; k < st->ntasks && !err; k++)
                err = queue_task(l, l->of[r], &published_tasks(l->of[r])[st->task + k], l->level[l->first[r] + s],
                                 terms, q);
        }
    free(terms);
    return err;
}

void levels_near(const struct levels *l, uint64_t *out)
{
    for (int r = 0; r < l->n; r++)
        out[r] = address(l, l->of[r]->near);
}

void levels_free(struct levels *l, struct device *d)
{
    for (uint32_t i = 0; i < l->mapped; i++)
        d->ops->unmap(d, l->bases[i]);
    free(l->bases);
    free(l->base);
    free(l->first);
    free(l->mate);
    free(l->level);
}
