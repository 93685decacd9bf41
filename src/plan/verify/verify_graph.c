/* Which step waits for which. A step waits for its deps; a RECV waits for its SEND; the messages of a channel go and
 * come in the order of the plans. If some order of all steps respects all this, no run can hang, whatever order the
 * ranks take. A RECV has no deps: a message that was sent can be taken at once, so that messages in flight never fill
 * the room that others need. */
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "plan/verify/verify.h"

/* ---- messages ---- */

struct message {
    int32_t peer;
    uint32_t step;
};
struct mail { /* the messages of one rank in one direction, by peer and then in order of the plan */
    struct message *v;
    size_t n;
};

static int by_peer(const void *a, const void *b)
{
    const struct message *x = a, *y = b;
    return x->peer != y->peer ? (x->peer > y->peer) - (x->peer < y->peer) : (x->step > y->step) - (x->step < y->step);
}

static int collect(struct verify *v, size_t r, int kind, struct mail *out)
{
    const weft_plan *p = v->all[r];
    for (size_t s = 0; s < p->nsteps; s++)
        out->n += p->steps[s].kind == kind;
    out->v = verify_alloc(&v->arena, out->n, sizeof *out->v);
    if (!out->v)
        return WEFT_ENOMEM;
    size_t n = 0;
    for (size_t s = 0; s < p->nsteps; s++)
        if (p->steps[s].kind == kind)
            out->v[n++] = (struct message){p->steps[s].peer, (uint32_t)s};
    if (n)
        qsort(out->v, n, sizeof *out->v, by_peer);
    return 0;
}

/* The messages with one peer: how many, and where they start. */
static size_t with_peer(const struct mail *m, int32_t peer, size_t *first)
{
    size_t lo = 0, hi = m->n, n = 0;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (m->v[mid].peer < peer)
            lo = mid + 1;
        else
            hi = mid;
    }
    *first = lo;
    while (lo + n < m->n && m->v[lo + n].peer == peer)
        n++;
    return n;
}

static int match_part(struct verify *v, size_t a, size_t s, size_t b, size_t q, uint32_t k)
{
    const weft_plan *from = v->all[a], *to = v->all[b];
    const struct plan_part *x = &from->parts[from->steps[s].part + k], *y = &to->parts[to->steps[q].part + k];
    size_t ndim = (size_t)plan_ndim(from, x);
    char one[VERIFY_TEXT], two[VERIFY_TEXT], what[VERIFY_TEXT], other[VERIFY_TEXT];
    verify_text_step(v, a, s, one);
    verify_text_step(v, b, q, two);
    if (verify_buf(from, x)->tensor != verify_buf(to, y)->tensor ||
        (ndim && memcmp(&from->runs[x->runs], &to->runs[y->runs], ndim * sizeof *from->runs) != 0))
        return verify_refuse("%s packs %s where %s takes %s", one, verify_text_part(from, x, what), two,
                             verify_text_part(to, y, other));
    if (x->wire != y->wire)
        return verify_refuse("%s packs %s as %s, %s takes it as %s", one, verify_text_part(from, x, what),
                             weft_dtype_name(x->wire), two, weft_dtype_name(y->wire));
    if (x->offset != y->offset)
        return verify_refuse("%s packs %s at byte %lld, %s takes it from byte %lld", one,
                             verify_text_part(from, x, what), (long long)x->offset, two, (long long)y->offset);
    return 0;
}

static int match_pair(struct verify *v, size_t a, size_t s, size_t b, size_t q)
{
    const struct plan_step *x = verify_step(v, a, s), *y = verify_step(v, b, q);
    char text[VERIFY_TEXT];
    if (x->bytes != y->bytes)
        return verify_refuse("%s sends %lld B to rank %zu, which receives %lld B in step %zu",
                             verify_text_step(v, a, s, text), (long long)x->bytes, b, (long long)y->bytes, q);
    if (x->nparts != y->nparts)
        return verify_refuse("%s sends %lu parts to rank %zu, which receives %lu in step %zu",
                             verify_text_step(v, a, s, text), (unsigned long)x->nparts, b, (unsigned long)y->nparts, q);
    for (uint32_t k = 0; k < x->nparts; k++) {
        int rc = match_part(v, a, s, b, q, k);
        if (rc)
            return rc;
    }
    v->match[v->step0[a] + s] = v->step0[b] + q;
    v->match[v->step0[b] + q] = v->step0[a] + s;
    return 0;
}

static void chain(struct verify *v, size_t r, const struct message *m, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++) {
        v->next[v->step0[r] + m[i].step] = v->step0[r] + m[i + 1].step;
        v->prev[v->step0[r] + m[i + 1].step] = v->step0[r] + m[i].step;
    }
}

static int match_channel(struct verify *v, size_t a, const struct mail *sends, size_t b, const struct mail *recvs)
{
    size_t i, j, ns = with_peer(sends, (int32_t)b, &i), nr = with_peer(recvs, (int32_t)a, &j);
    char text[VERIFY_TEXT];
    chain(v, a, sends->v + i, ns);
    chain(v, b, recvs->v + j, nr);
    for (size_t k = 0; k < nr; k++)
        if (verify_step(v, b, recvs->v[j + k].step)->ndeps)
            return verify_refuse("%s waits for steps of its own: a receive may wait for its message only",
                                 verify_text_step(v, b, recvs->v[j + k].step, text));
    for (size_t k = 0; k < ns && k < nr; k++) {
        int rc = match_pair(v, a, sends->v[i + k].step, b, recvs->v[j + k].step);
        if (rc)
            return rc;
    }
    if (ns > nr)
        return verify_refuse("%s has no receive: rank %zu sends %zu messages to rank %zu, which receives %zu",
                             verify_text_step(v, a, sends->v[i + nr].step, text), a, ns, b, nr);
    if (nr > ns)
        return verify_refuse("%s waits for ever: rank %zu sends %zu messages to rank %zu, which receives %zu",
                             verify_text_step(v, b, recvs->v[j + ns].step, text), a, ns, b, nr);
    return 0;
}

/* Checks that all messages together have the bytes that the algorithm states. */
static int check_volume(const struct verify *v)
{
    wide sent = 0, stated = 0; /* wide: only the sum of one rank is known to fit into 64 bits */
    for (size_t r = 0; r < v->ranks; r++) {
        const weft_plan *p = v->all[r];
        stated += p->stated;
        for (size_t s = 0; s < p->nsteps; s++)
            for (uint32_t k = 0; k < p->steps[s].nparts && p->steps[s].kind == PLAN_SEND; k++) {
                const struct plan_part *part = &p->parts[p->steps[s].part + k];
                sent += part->count * (int64_t)weft_dtype_size(part->wire);
            }
    }
    if (sent != stated)
        return verify_refuse("%.0f B are sent in all, the plans state %.0f B", (double)sent, (double)stated);
    return 0;
}

int verify_graph_match(struct verify *v)
{
    struct mail *sends = verify_alloc(&v->arena, v->ranks, sizeof *sends);
    struct mail *recvs = verify_alloc(&v->arena, v->ranks, sizeof *recvs);
    int rc = sends && recvs ? 0 : WEFT_ENOMEM;
    for (size_t r = 0; r < v->ranks && !rc; r++) {
        rc = collect(v, r, PLAN_SEND, &sends[r]);
        if (!rc)
            rc = collect(v, r, PLAN_RECV, &recvs[r]);
    }
    for (size_t r = 0; r < v->ranks && !rc; r++) {
        for (size_t i = 0; i < sends[r].n && !rc; i++)
            if (i == 0 || sends[r].v[i].peer != sends[r].v[i - 1].peer)
                rc = match_channel(v, r, &sends[r], (size_t)sends[r].v[i].peer, &recvs[sends[r].v[i].peer]);
        for (size_t i = 0, first; i < recvs[r].n && !rc; i++) /* channels that nothing is sent on */
            if ((i == 0 || recvs[r].v[i].peer != recvs[r].v[i - 1].peer) &&
                with_peer(&sends[recvs[r].v[i].peer], (int32_t)r, &first) == 0)
                rc = match_channel(v, (size_t)recvs[r].v[i].peer, &sends[recvs[r].v[i].peer], r, &recvs[r]);
    }
    return rc ? rc : check_volume(v);
}

/* ---- an order of all steps ---- */

struct graph {
    size_t *after, *first; /* steps that have step i among their deps: after[first[i] .. first[i+1]) */
    uint32_t *waits;       /* for how many steps each step still waits */
};

static int graph_init(struct verify *v, struct graph *g)
{
    size_t n = v->step0[v->ranks], ndeps = 0;
    for (size_t r = 0; r < v->ranks; r++)
        ndeps += v->all[r]->ndeps;
    g->first = verify_alloc(&v->work, n + 2, sizeof *g->first);
    g->after = verify_alloc(&v->work, ndeps, sizeof *g->after);
    g->waits = verify_alloc(&v->work, n, sizeof *g->waits);
    if (!g->first || !g->after || !g->waits)
        return WEFT_ENOMEM;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t r = 0, i = 0; r < v->ranks; r++)
            for (size_t s = 0; s < v->all[r]->nsteps; s++, i++) {
                const struct plan_step *x = verify_step(v, r, s);
                for (uint32_t k = 0; k < x->ndeps; k++) {
                    size_t dep = v->step0[r] + v->all[r]->deps[x->dep + k];
                    if (pass == 0)
                        g->first[dep + 2]++; /* two on: after the sums first[dep + 1] is where dep's list starts */
                    else
                        g->after[g->first[dep + 1]++] = i; /* and moves to its end */
                }
                g->waits[i] = x->ndeps + (x->kind == PLAN_RECV) + (v->prev[i] != SIZE_MAX);
            }
        for (size_t i = 2; i < n + 2 && pass == 0; i++)
            g->first[i] += g->first[i - 1];
    }
    return 0;
}

/* A step that step i waits for and that never ran. */
static size_t stuck_on(const struct verify *v, const struct graph *g, size_t i)
{
    size_t r = verify_rank_of(v, i);
    const weft_plan *p = v->all[r];
    const struct plan_step *x = &p->steps[i - v->step0[r]];
    for (uint32_t k = 0; k < x->ndeps; k++)
        if (g->waits[v->step0[r] + p->deps[x->dep + k]])
            return v->step0[r] + p->deps[x->dep + k];
    if (x->kind == PLAN_RECV && g->waits[v->match[i]])
        return v->match[i];
    return v->prev[i];
}

static int refuse_cycle(struct verify *v, const struct graph *g)
{
    size_t i = 0, n = v->step0[v->ranks];
    char one[VERIFY_TEXT], two[VERIFY_TEXT];
    while (!g->waits[i])
        i++;
    for (size_t k = 0; k < n; k++) /* after n steps back it is in the cycle */
        i = stuck_on(v, g, i);
    size_t a = verify_rank_of(v, i), j = i;
    do
        j = stuck_on(v, g, j);
    /* A cycle goes through at least two ranks: inside one rank, steps wait only for earlier ones. */
    while (verify_rank_of(v, j) == a);
    size_t b = verify_rank_of(v, j);
    return verify_refuse("a cycle of waits: %s and %s wait for each other",
                         verify_text_step(v, a, i - v->step0[a], one), verify_text_step(v, b, j - v->step0[b], two));
}

int verify_graph_sort(struct verify *v)
{
    struct graph g;
    size_t n = v->step0[v->ranks], done = 0, ready = 0;
    int rc = graph_init(v, &g);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        if (!g.waits[i])
            v->order[ready++] = i;
    while (done < ready) {
        size_t i = v->order[done], r = verify_rank_of(v, i);
        v->at[i] = done++;
        for (size_t k = g.first[i]; k < g.first[i + 1]; k++)
            if (--g.waits[g.after[k]] == 0)
                v->order[ready++] = g.after[k];
        if (v->all[r]->steps[i - v->step0[r]].kind == PLAN_SEND && --g.waits[v->match[i]] == 0)
            v->order[ready++] = v->match[i];
        if (v->next[i] != SIZE_MAX && --g.waits[v->next[i]] == 0)
            v->order[ready++] = v->next[i];
    }
    rc = done < n ? refuse_cycle(v, &g) : 0;
    arena_reset(&v->work);
    return rc;
}
