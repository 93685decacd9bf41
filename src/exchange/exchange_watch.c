/* What a round waits for, and which rank is to blame if it will not come. */
#include "base/error.h"
#include "exchange/exchange.h"

#define LOOK_NS 1000000 /* threads that wait for room look for ranks that are gone at most once in this time */

static bool out_waits(const struct exchange_out *out)
{
    return out->first || out->ends || !pipe_offers_taken(out->pipe);
}

int exchange_watch_lacking(struct comm_task *t)
{
    weft_exchange *x = (weft_exchange *)t;
    int n = 0;
    if (atomic_load_explicit(&x->state, memory_order_acquire) != EXCHANGE_FLYING)
        return atomic_load_explicit(&x->putters, memory_order_relaxed) > 0 ? 1 : 0;
    /* A rank must pass on votes and send queued messages at once. */
    if (x->pipes.votes || atomic_load_explicit(&x->sends, memory_order_relaxed) ||
        atomic_flag_test_and_set_explicit(&x->moving, memory_order_acquire))
        return 1;
    uint64_t begun = atomic_load_explicit(&x->begun, memory_order_relaxed);
    for (int i = 0; i < x->pipes.nins; i++)
        n += exchange_in_ends(&x->ins[i]) < begun;
    for (int i = 0; i < x->pipes.nouts; i++)
        n += !pipe_offers_taken(x->outs[i].pipe);
    atomic_flag_clear_explicit(&x->moving, memory_order_release);
    return n > 0 ? n : 1;
}

/* The worst that is known of the ranks that the round waits for. */
struct blame {
    int left, died, stalled;
};

static void blame_fate(struct blame *b, int rank, enum transport_fate fate)
{
    if (fate)
        *(transport_failed(fate) ? &b->died : &b->left) = rank;
}

/* Once a peer is seen to be gone, all that it did before can be seen. So the pipe is checked again after that. */
static void watch_in(weft_exchange *x, struct exchange_in *in, int64_t now, struct blame *b)
{
    uint64_t begun = atomic_load_explicit(&x->begun, memory_order_relaxed);
    struct pipe_in *p = in->pipe;
    size_t bytes;
    if (exchange_in_ends(in) >= begun || pipe_read(p, &bytes)) {
        p->seen.at = 0;
        return;
    }
    enum transport_fate fate = pipe_fate(&x->pipes, p->peer, p->head);
    if (fate && !pipe_read(p, &bytes))
        blame_fate(b, p->peer, fate);
    else if (!fate && pipe_stalled(&x->pipes, p->peer, p->head, begun - 1, &p->seen, now))
        b->stalled = p->peer;
}

static void watch_out(weft_exchange *x, struct exchange_out *out, int64_t now, struct blame *b)
{
    uint64_t begun = atomic_load_explicit(&x->begun, memory_order_relaxed);
    struct pipe_out *p = out->pipe;
    if (!out_waits(out)) {
        p->seen.at = 0;
        return;
    }
    enum transport_fate fate = pipe_fate(&x->pipes, p->peer, p->head);
    if (fate && out_waits(out))
        blame_fate(b, p->peer, fate);
    else if (!fate && pipe_stalled(&x->pipes, p->peer, p->head, begun - 1, &p->seen, now))
        b->stalled = p->peer;
}

static bool lacks_vote(const weft_exchange *x, uint64_t round, int rank)
{
    int ranks[3], n = pipes_vote_lacks(&x->pipes, round, ranks);
    while (n > 0 && ranks[n - 1] != rank)
        n--;
    return n > 0;
}

/* A vote waits for all ranks. So this looks at the ranks whose votes come here next, and at one further rank in each
 * call. A rank that has closed its exchange or its comm after it voted is not missed. */
static void watch_vote(weft_exchange *x, int64_t now, struct blame *b)
{
    weft_comm *c = x->comm;
    uint64_t round = atomic_load_explicit(&x->begun, memory_order_relaxed) - 1;
    int ranks[3], n = pipes_vote_lacks(&x->pipes, round, ranks);
    if (!n)
        return;
    for (int i = 0; i < n; i++) {
        struct pipe_seen *seen;
        const struct pipe_head *head = pipes_vote_peer(&x->pipes, ranks[i], &seen);
        enum transport_fate fate = pipe_fate(&x->pipes, ranks[i], head);
        if (fate && lacks_vote(x, round, ranks[i]))
            blame_fate(b, ranks[i], fate);
        else if (!fate && pipe_stalled(&x->pipes, ranks[i], head, round, seen, now))
            b->stalled = ranks[i];
    }
    x->looked_at = (x->looked_at + 1) % c->size;
    if (x->looked_at != c->rank && transport_failed(c->transport->gone(c->link, x->looked_at)))
        b->died = x->looked_at;
}

static void tell(weft_exchange *x, const struct blame *b)
{
    weft_comm *c = x->comm;
    char who[NAMES_RANK];
    if (b->died >= 0)
        comm_fail(c, WEFT_EPEER, "%s %s, rank %d was waiting for it in an exchange", names_rank(c, b->died, who),
                  names_gone(c, b->died), c->rank);
    else if (b->left >= 0)
        comm_fail(c, WEFT_EPEER, "%s closed its comm or freed its exchange, rank %d was waiting for it",
                  names_rank(c, b->left, who), c->rank);
    else if (b->stalled >= 0)
        comm_fail(c, WEFT_EPEER, "%s finished a round and made no progress for %lld ms, rank %d was waiting for it",
                  names_rank(c, b->stalled, who), (long long)(c->deadline_ns / 1000000), c->rank);
}

void exchange_watch(struct comm_task *t, int64_t now)
{
    weft_exchange *x = (weft_exchange *)t;
    struct blame b = {-1, -1, -1};
    bool flying = atomic_load_explicit(&x->state, memory_order_acquire) == EXCHANGE_FLYING;
    if (!flying && !atomic_load_explicit(&x->putters, memory_order_relaxed))
        return;
    if (atomic_flag_test_and_set_explicit(&x->moving, memory_order_acquire))
        return;
    pthread_mutex_lock(&x->lock);
    for (int i = 0; i < x->pipes.nins && flying; i++)
        watch_in(x, &x->ins[i], now, &b);
    for (int i = 0; i < x->pipes.nouts; i++)
        watch_out(x, &x->outs[i], now, &b);
    if (flying)
        watch_vote(x, now, &b);
    pthread_mutex_unlock(&x->lock);
    tell(x, &b);
    atomic_flag_clear_explicit(&x->moving, memory_order_release);
}

void exchange_watch_putter(weft_exchange *x)
{
    int64_t now = core_now(), last = atomic_load_explicit(&x->watched_at, memory_order_relaxed);
    if (now - last < LOOK_NS || !atomic_compare_exchange_strong_explicit(&x->watched_at, &last, now,
                                                                         memory_order_relaxed, memory_order_relaxed))
        return;
    liveness_look(x->comm, now);
    exchange_watch(&x->task, now);
}

int exchange_watch_timeout(weft_exchange *x)
{
    struct comm_names names = {0};
    int votes[3], n = 0;
    pthread_mutex_lock(&x->lock);
    uint64_t begun = atomic_load_explicit(&x->begun, memory_order_relaxed);
    for (int i = 0; i < x->pipes.nins; i++)
        if (exchange_in_ends(&x->ins[i]) < begun)
            names_add(&names, x->comm, x->ins[i].pipe->peer,
                      pipe_finished(x->ins[i].pipe->head, begun - 1) ? "" : " (has not finished)");
    for (int i = 0, named = names.n; i < x->pipes.nouts && !named; i++)
        if (out_waits(&x->outs[i]))
            names_add(&names, x->comm, x->outs[i].pipe->peer, "");
    if (!names.n)
        n = pipes_vote_lacks(&x->pipes, begun - 1, votes);
    pthread_mutex_unlock(&x->lock);
    for (int i = 0; i < n; i++)
        names_add(&names, x->comm, votes[i], " (for its vote)");
    if (!names.n)
        return error_set(WEFT_ETIMEOUT, "time ran out: this rank has work of its own left");
    return error_set(WEFT_ETIMEOUT, "time ran out: waiting for %s", names_text(&names));
}
