/* Making pipes and closing them. Each rank makes its head and its rings, and all meet. Then each rank finds its ends in
 * its peers' memory and compares lists, and all meet again: pipes exist on all ranks or on none. The lists must match:
 * if rank a reads from rank b, then b's list of ranks that it writes to has a. A rank looks only at the heads of its
 * peers, or asks them if they are on other hosts, so the cost grows with the number of peers and not with the size of
 * the comm. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "exchange/pipe.h"
#include "transport/hosts/hosts.h"

static int by_rank(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

const int32_t *pipes_from_list(const struct pipe_head *h)
{
    return h->lists;
}

const int32_t *pipes_to_list(const struct pipe_head *h)
{
    return h->lists + h->nfrom;
}

int pipes_find(const int32_t *list, int n, int rank)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (list[mid] < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && list[lo] == rank ? lo : -1;
}

/* What a rank does with the ranks of a list, for texts. */
#define FROM "receives from"
#define TO "sends to"

static int check_list(const weft_comm *c, const int *list, size_t n, const char *what)
{
    if (n && !list)
        return error_set(WEFT_EINVAL, "weft_exchange_open: it %s %zu ranks at NULL", what, n);
    if (n > (size_t)c->size) /* at least one rank is listed twice: refuse before allocating a table */
        return error_set(WEFT_EINVAL, "weft_exchange_open: it %s %zu ranks, the comm has %d", what, n, c->size);
    for (size_t i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= c->size)
            return error_set(WEFT_EINVAL, "weft_exchange_open: it %s rank %d, the comm has %d ranks", what, list[i],
                             c->size);
        if (list[i] == c->rank)
            return error_set(WEFT_EINVAL, "weft_exchange_open: it %s rank %d, which is itself", what, list[i]);
    }
    return 0;
}

int pipes_check(const weft_comm *c, const int *from, size_t nfrom, const int *to, size_t nto)
{
    int err = check_list(c, from, nfrom, FROM);
    return err ? err : check_list(c, to, nto, TO);
}

static int check_twice(const int32_t *sorted, int n, const char *what)
{
    for (int i = 1; i < n; i++)
        if (sorted[i] == sorted[i - 1])
            return error_set(WEFT_EINVAL, "weft_exchange_open: it %s rank %d, which is listed twice", what, sorted[i]);
    return 0;
}

static struct pipe_ring *ring_of(struct pipe_head *h, int i)
{
    size_t stride = sizeof(struct pipe_ring) + h->ring_bytes;
    return (struct pipe_ring *)(void *)((char *)h + h->first + (size_t)i * stride);
}

static uint32_t near_ones(const weft_comm *c, const int *ranks, int n)
{
    uint32_t near = 0;
    for (int i = 0; i < n; i++)
        near += ranks[i] >= 0 && ranks[i] < c->size && !transport_elsewhere(c->link, ranks[i]);
    return near;
}

/* References to a head: one for the owner, and one for each pipe from or to a peer on this host. */
static uint32_t count_references(const struct pipes *p, const int *from, int nfrom, const int *to, int nto)
{
    const weft_comm *c = p->comm;
    const int relatives[] = {c->rank ? (c->rank - 1) / 2 : -1, 2 * c->rank + 1, 2 * c->rank + 2};
    return 1 + near_ones(c, from, nfrom) + near_ones(c, to, nto) + (p->votes ? near_ones(c, relatives, 3) : 0);
}

/* What a rank does alone, before the meetings. */
static int prepare(struct pipes *p, const int *from, int nfrom, const int *to, int nto)
{
    weft_comm *c = p->comm;
    size_t lists = ((size_t)nfrom + (size_t)nto) * sizeof(int32_t);
    size_t first = (sizeof(struct pipe_head) + lists + CORE_LINE - 1) / CORE_LINE * CORE_LINE;
    size_t bytes = first + (size_t)nto * (sizeof(struct pipe_ring) + p->ring_bytes);
    p->outs = calloc((size_t)nto + 1, sizeof *p->outs);
    p->ins = calloc((size_t)nfrom + 1, sizeof *p->ins);
    p->deferred = malloc(sizeof *p->deferred);
    if (!p->outs || !p->ins || !p->deferred)
        return error_nomem();
    struct pipe_head *h = p->head = c->transport->alloc(c->link, bytes, &p->place);
    if (!h)
        return error_set(WEFT_ENOMEM, "weft_exchange_open: no memory for %zu bytes that peers can reach", bytes);
    memset(h, 0, bytes); /* the first touch of a page is expensive, so it is done here */
    p->nins = h->nfrom = nfrom;
    p->nouts = h->nto = nto;
    p->memory += (int64_t)(bytes + ((size_t)nto + 1) * sizeof *p->outs + ((size_t)nfrom + 1) * sizeof *p->ins);
    h->ring_bytes = p->ring_bytes;
    h->first = first;
    h->votes = p->votes;
    atomic_store_explicit(&h->refcount, count_references(p, from, nfrom, to, nto),
                          memory_order_relaxed); /* published by the meeting */
    for (int i = 0; i < nfrom; i++)
        h->lists[i] = from[i];
    for (int i = 0; i < nto; i++)
        h->lists[nfrom + i] = to[i];
    qsort(h->lists, (size_t)nfrom, sizeof *h->lists, by_rank);
    qsort(h->lists + nfrom, (size_t)nto, sizeof *h->lists, by_rank);
    int err = check_twice(pipes_from_list(h), nfrom, FROM);
    if (!err)
        err = check_twice(pipes_to_list(h), nto, TO);
    return err || !p->wide ? err : pipe_wire_prepare(p);
}

static struct pipe_head *reach(const struct pipes *p, int rank, uint64_t meeting)
{
    weft_comm *c = p->comm;
    if (transport_elsewhere(c->link, rank))
        return pipe_wire_peer(p, rank)->head;
    return c->transport->reach(c->link, rank, core_vote_of(c->group, rank, meeting)->place);
}

static int unreachable(int rank)
{
    return error_set(WEFT_ETRANSPORT, "weft_exchange_open: the memory of rank %d cannot be reached", rank);
}

static int connect_in(struct pipes *p, int i, uint64_t meeting)
{
    struct pipe_in *in = &p->ins[i];
    in->peer = pipes_from_list(p->head)[i];
    in->head = reach(p, in->peer, meeting);
    if (!in->head)
        return unreachable(in->peer);
    const struct pipe_remote *remote = pipe_wire_peer(p, in->peer);
    int at = remote ? -1 : pipes_find(pipes_to_list(in->head), in->head->nto, p->comm->rank);
    if (remote ? !remote->sends : at < 0)
        return error_set(WEFT_EMISMATCH,
                         "weft_exchange_open: it receives from rank %d, but rank %d does not send to rank %d", in->peer,
                         in->peer, p->comm->rank);
    if (remote)
        return pipe_wire_connect_in(p, in);
    in->ring = ring_of(in->head, at);
    in->bytes = in->head->ring_bytes;
    return 0;
}

static int connect_out(struct pipes *p, int i, uint64_t meeting)
{
    struct pipe_out *o = &p->outs[i];
    o->peer = pipes_to_list(p->head)[i];
    o->head = reach(p, o->peer, meeting);
    if (!o->head)
        return unreachable(o->peer);
    const struct pipe_remote *remote = pipe_wire_peer(p, o->peer);
    if (remote ? !remote->receives : pipes_find(pipes_from_list(o->head), o->head->nfrom, p->comm->rank) < 0)
        return error_set(WEFT_EMISMATCH,
                         "weft_exchange_open: it sends to rank %d, but rank %d does not receive from rank %d", o->peer,
                         o->peer, p->comm->rank);
    o->ring = ring_of(p->head, i);
    o->bytes = p->ring_bytes;
    return remote ? pipe_wire_connect_out(p, o) : 0;
}

static int connect_ranks(struct pipes *p, uint64_t meeting)
{
    const weft_comm *c = p->comm;
    bool zero = core_tally(c->group, meeting).first;
    int err = p->wide ? pipe_wire_greet(p) : 0;
    if (!err && zero != p->votes)
        err = error_set(WEFT_EMISMATCH, "weft_exchange_open: its rounds end %s a vote, those of rank 0 %s one",
                        p->votes ? "with" : "without", zero ? "with" : "without");
    for (int i = 0; i < p->nins && !err; i++)
        err = connect_in(p, i, meeting);
    for (int i = 0; i < p->nouts && !err; i++)
        err = connect_out(p, i, meeting);
    if (err || !p->votes)
        return err;
    if (c->rank && !(p->up = reach(p, (c->rank - 1) / 2, meeting)))
        return unreachable((c->rank - 1) / 2);
    for (int k = 0; k < 2; k++) {
        int kid = 2 * c->rank + 1 + k;
        if (kid < c->size && !(p->kids[k] = reach(p, kid, meeting)))
            return unreachable(kid);
    }
    return 0;
}

static void free_parts(struct pipes *p)
{
    free(p->outs);
    free(p->ins);
    *p = (struct pipes){0};
}

/* After a refusal no rank looks at another's memory any more. After a failure of the comm some ranks may, so the group
 * keeps the memory. */
static void discard(struct pipes *p)
{
    const char *text;
    bool ours = !p->wide || pipe_wire_close(p, true);
    if (p->head && ours && !core_failure(p->comm->group, &text))
        p->comm->transport->release(p->comm->link, p->head);
    free(p->deferred);
    free_parts(p);
}

int pipes_open(struct pipes *p, weft_comm *c, const int *from, int nfrom, const int *to, int nto, size_t bytes,
               bool votes, int code)
{
    uint64_t meeting;
    p->comm = c;
    p->votes = votes;
    p->ring_bytes = bytes;
    p->frame = bytes / 4 - 64;
    p->wide = c->link->hosts != NULL;
    p->number = c->group->ranks[c->rank].meetings;
    int err = code;
    if (!err && !c->transport->can.loads)
        err = error_set(WEFT_EUNSUPPORTED, "weft_exchange_open: ranks of %s: cannot reach each other's memory",
                        c->transport->scheme);
    if (!err)
        err = prepare(p, from, nfrom, to, nto);
    struct core_vote vote = {.call = COMM_EXCHANGE, .place = p->place, .note = votes, .code = err};
    trace_clock_listen(c);
    err = meeting_agree(c, &vote, c->deadline_ns, &meeting);
    if (!err) {
        err = connect_ranks(p, meeting);
        trace_clock_align(c);
        vote = (struct core_vote){.call = COMM_EXCHANGE_DONE, .object = meeting, .code = err};
        err = meeting_agree(c, &vote, c->deadline_ns, &meeting);
    }
    if (err)
        discard(p);
    return err;
}

/* Drops the reference to the head of a rank on this host. Release: pairs with the owner's load before it frees the
 * memory. */
static void drop(const struct pipes *p, int rank, struct pipe_head *h)
{
    if (!h || pipe_wire_peer(p, rank))
        return;
    core_ring(p->comm->group, rank);
    atomic_fetch_sub_explicit(&h->refcount, 1, memory_order_release);
}

void pipes_close(struct pipes *p)
{
    weft_comm *c = p->comm;
    int rank = c->rank;
    /* All signals of this rank are ordered before this store; pairs with the load in pipe_fate. */
    atomic_store_explicit(&p->head->freed, 1, memory_order_seq_cst);
    for (int i = 0; i < p->nins; i++)
        drop(p, p->ins[i].peer, p->ins[i].head);
    for (int i = 0; i < p->nouts; i++)
        drop(p, p->outs[i].peer, p->outs[i].head);
    drop(p, (rank - 1) / 2, p->up);
    for (int k = 0; k < 2; k++)
        drop(p, 2 * rank + 1 + k, p->kids[k]);
    drop(p, rank, p->head);
    if (!p->wide || pipe_wire_close(p, core_failed(c->group)))
        comm_deferred_add(c, p->deferred, &p->head->refcount, p->head, NULL);
    else
        free(p->deferred); /* the rings are not freed */
    free_parts(p);
}

struct pipe_out *pipes_out(const struct pipes *p, int rank)
{
    int i = pipes_find(pipes_to_list(p->head), p->nouts, rank);
    return i < 0 ? NULL : &p->outs[i];
}

struct pipe_in *pipes_in(const struct pipes *p, int rank)
{
    int i = pipes_find(pipes_from_list(p->head), p->nins, rank);
    return i < 0 ? NULL : &p->ins[i];
}
