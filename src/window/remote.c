/* What the windows of a comm on several hosts have in common, barriers of the group, and the end of windows.
 *
 * Barriers of the group: a rank arrives when all its puts were acknowledged, so all puts before a barrier are in place
 * when the last rank has arrived. The first rank of a host tells the first ranks of the other hosts which of its ranks
 * have arrived, and counts the arrivals of all hosts. When all have arrived it says so in its head, where the ranks of
 * its host look.
 *
 * The end of a window: a rank that has closed its window tells all ranks of other hosts. It keeps its memory until all
 * of them have told it the same, so that their puts find the memory. */
#define _GNU_SOURCE
#include "window/remote.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/lock.h"

#define CLOSE_NS INT64_C(5000000000)       /* time for puts to be sent */
#define LEAST ((int64_t)(2 * REMOTE_COPY)) /* least bytes of the budget */

int remote_tags(weft_comm *c)
{
    struct remote *r = c->remote;
    struct transport_hosts *hosts = c->link->hosts;
    if (r->tags_out)
        return 0;
    r->tags_out = r->tags_in + c->size;
    for (int i = 0; i < c->size; i++) {
        if (!transport_elsewhere(c->link, i))
            continue;
        r->tags_in[i] = hosts->tags_in[i];
        r->tags_out[i] = hosts->tags_out[i];
        hosts->tags_in[i] += REMOTE_TAGS;
        hosts->tags_out[i] += REMOTE_TAGS;
        if (hosts->tags_in[i] > hosts->wire->tags || hosts->tags_out[i] > hosts->wire->tags)
            return error_set(
                WEFT_EUNSUPPORTED,
                "%s has %llu tags for messages between two ranks, and those with rank %d are used up: open "
                "the comm again",
                hosts->wire->ops->name, (unsigned long long)hosts->wire->tags, i);
    }
    return 0;
}

/* ---- mail ---- */

static void take_entered(struct remote *r, const struct remote_mail *m, size_t n)
{
    weft_window *w = remote_window(r, m);
    struct remote_entry e;
    for (size_t at = 0; w && at + sizeof e <= n; at += sizeof e) {
        memcpy(&e, m->bytes + at, sizeof e);
        if (e.rank < (uint64_t)r->comm->size)
            atomic_store_explicit(&window_came(w->heads[r->comm->rank])[e.rank], e.generation, memory_order_seq_cst);
    }
}

static void take_freed(struct remote *r, int rank, const struct remote_mail *m)
{
    weft_window *w = remote_window(r, m);
    if (!w || remote_freed(w, rank))
        return;
    atomic_store_explicit(&w->remote->freed[rank], m->value + 1, memory_order_seq_cst);
    w->remote->nfreed++;
}

static void take(weft_comm *c, int rank, const void *bytes, size_t n)
{
    struct remote *r = c->remote;
    struct remote_mail m;
    if (!r || core_failed(c->group) || n < REMOTE_HEAD || n > sizeof m)
        return;
    memcpy(&m, bytes, n);
    struct remote_peer *p = remote_peer(r, rank);
    if (!p) {
        comm_fail(c, WEFT_ENOMEM, "rank %d has no memory for the puts of rank %d", c->rank, rank);
        return;
    }
    p->heard_at = core_now();
    n -= REMOTE_HEAD;
    switch (m.kind) {
    case REMOTE_ACK: remote_out_acked(p, m.value); break;
    case REMOTE_ENTERED: take_entered(r, &m, n); break;
    case REMOTE_FREED: take_freed(r, rank, &m); break;
    default: remote_in_take(r, p, &m, n); break;
    }
}

/* ---- barriers of the group ---- */

/* A rank that has closed its window says so itself. That mail may be here before the first rank of this host has heard
 * of the rank's last barrier. */
uint64_t remote_entered(const weft_window *w, int rank)
{
    if (w->heads[rank])
        return atomic_load_explicit(&w->heads[rank]->entered, memory_order_seq_cst);
    uint64_t came = atomic_load_explicit(&window_came(w->heads[w->chair])[rank], memory_order_seq_cst);
    uint64_t freed = atomic_load_explicit(&w->remote->freed[rank], memory_order_seq_cst);
    return freed > came + 1 ? freed - 1 : came;
}

static void post_entries(struct remote *r, struct remote_mail *m, size_t bytes)
{
    const struct transport_hosts *hosts = r->comm->link->hosts;
    for (int h = 0; bytes && h < hosts->nhosts; h++)
        if (hosts->firsts[h] != r->comm->rank)
            remote_peer_post(r, hosts->firsts[h], m, bytes);
}

/* Called by the first rank of a host: tells the other hosts which of its ranks have newly entered. */
static bool tell_entries(struct remote *r, weft_window *w)
{
    struct remote_mail m = {.kind = REMOTE_ENTERED, .window = w->remote->id};
    size_t bytes = 0;
    bool moved = false;
    for (int i = 0; i < r->comm->size; i++) {
        if (!w->heads[i])
            continue;
        /* seq_cst: together with the ring of the rank that enters, so that no entry is missed in a sleep. Acquires what
         * that rank has stored. */
        struct remote_entry e = {(uint64_t)i, atomic_load_explicit(&w->heads[i]->entered, memory_order_seq_cst)};
        if (e.generation <= w->remote->told[i])
            continue;
        if (bytes + sizeof e > REMOTE_INLINE) {
            post_entries(r, &m, bytes);
            bytes = 0;
        }
        memcpy(m.bytes + bytes, &e, sizeof e);
        bytes += sizeof e;
        w->remote->told[i] = e.generation;
        moved = true;
    }
    post_entries(r, &m, bytes);
    return moved;
}

static bool move_barrier(struct remote *r, weft_window *w)
{
    struct window_head *mine = w->heads[r->comm->rank];
    bool moved = tell_entries(r, w);
    uint64_t next = atomic_load_explicit(&mine->met, memory_order_relaxed) + 1;
    while (w->remote->entered < r->comm->size && remote_entered(w, w->remote->entered) >= next)
        w->remote->entered++;
    if (w->remote->entered < r->comm->size)
        return moved;
    w->remote->entered = 0;
    /* Passes on what all ranks have stored, each of which was acquired above; pairs with the load in all_came. */
    atomic_store_explicit(&mine->met, next, memory_order_seq_cst);
    core_ring_all(r->comm->group);
    return true;
}

/* ---- windows ---- */

void remote_add(weft_window *w)
{
    struct remote *r = w->comm->remote;
    w->remote->next = r->windows;
    r->windows = w;
}

void remote_remove(weft_window *w)
{
    for (weft_window **at = &w->comm->remote->windows; *at; at = &(*at)->remote->next)
        if (*at == w) {
            *at = w->remote->next;
            return;
        }
}

static bool end_windows(struct remote *r)
{
    bool moved = false;
    for (weft_window *w = r->windows, *next; w; w = next) {
        next = w->remote->next;
        if (!w->remote->parted || w->remote->nfreed < r->nremote)
            continue;
        remote_remove(w);
        window_head_end(w);
        moved = true;
    }
    return moved;
}

static bool move(struct remote *r)
{
    weft_comm *c = r->comm;
    if (core_failed(c->group))
        return false;
    bool moved = remote_in_move(r);
    moved |= remote_out_move(r);
    for (weft_window *w = r->windows; w; w = w->remote->next)
        if (w->chair == c->rank)
            moved |= move_barrier(r, w);
    return end_windows(r) || moved;
}

void remote_free(weft_window *w)
{
    w->remote->gone = true;
    remote_out_part(w);
    move(w->comm->remote);
}

/* ---- the task ---- */

static bool pass(struct comm_task *t, bool idle)
{
    (void)idle;
    return move((struct remote *)t);
}

static void watch(struct comm_task *t, int64_t now)
{
    struct remote *r = (struct remote *)t;
    weft_comm *c = r->comm;
    char who[NAMES_RANK];
    (void)now;
    for (struct remote_peer *p = r->used; p && !core_failed(c->group); p = p->next) {
        bool sends = p->acked < p->sent;
        if (!sends && !p->first)
            continue;
        enum transport_fate fate = c->transport->gone(c->link, p->rank);
        if (fate == TRANSPORT_LEFT && sends) /* a rank that has left will not look at what it gets, as within a host */
            remote_out_forget(r, p);
        else if (transport_failed(fate))
            comm_fail(c, WEFT_EPEER, "%s %s, rank %d was %s", names_rank(c, p->rank, who), names_gone(c, p->rank),
                      c->rank, sends ? "putting to it" : "waiting for its puts");
    }
}

static void fail(struct comm_task *t)
{
    struct remote *r = (struct remote *)t;
    r->comm->link->hosts->wire->failed = true;
    remote_out_end(r);
    remote_in_end(r);
}

static bool quiet(void *arg)
{
    return remote_out_quiet(arg);
}

/* Waits until all puts so far were acknowledged and no release waits. */
static int drain(struct comm_task *t, int64_t timeout_ns, const char *call)
{
    struct remote *r = (struct remote *)t;
    int64_t now = core_now();
    struct comm_need need = {quiet, NULL, r, timeout_ns >= 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1};
    int err = remote_out_quiet(r) ? 0 : comm_wait(r->comm, &need);
    return err == COMM_LATE ? remote_peer_late(r, call) : err;
}

static void end(struct comm_task *t)
{
    struct remote *r = (struct remote *)t;
    weft_comm *c = r->comm;
    int64_t until = core_now() + (c->deadline_ns < CLOSE_NS ? c->deadline_ns : CLOSE_NS);
    while (!remote_out_sent(r) && !core_failed(c->group) && core_now() < until) {
        watch(t, 0);
        if (!mail_move(c))
            sched_yield();
    }
    c->link->hosts->wire->failed = core_failed(c->group);
    remote_out_end(r);
    remote_in_end(r);
    for (weft_window *w = r->windows, *next; w; w = next) {
        next = w->remote->next;
        window_head_end(w);
    }
    for (struct remote_peer *p = r->used, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    staging_uncharge(&c->staging, r->budget);
    comm_task_remove(c, t);
    free(r->peers);
    free(r->tags_in);
    free(r);
    c->remote = NULL;
}

static const struct comm_task_ops remote_task = {
    .pass = pass, .wire = true, .watch = watch, .fail = fail, .drain = drain, .close = end};

int remote_open(weft_comm *c)
{
    if (c->remote)
        return 0;
    size_t n = (size_t)c->size;
    struct remote *r = calloc(1, sizeof *r);
    if (!r)
        return error_nomem();
    r->comm = c;
    r->last = &r->first;
    r->peers = calloc(n, sizeof *r->peers);
    r->tags_in = calloc(2 * n, sizeof *r->tags_in);
    r->budget = c->staging.limit / 8 < REMOTE_BUDGET ? c->staging.limit / 8 : REMOTE_BUDGET;
    r->budget = r->budget < LEAST ? LEAST : r->budget;
    for (int i = 0; i < c->size; i++)
        r->nremote += transport_elsewhere(c->link, i);
    int err = r->peers && r->tags_in ? 0 : error_nomem();
    if (!err && !staging_charge(&c->staging, r->budget))
        err = error_set(WEFT_ENOMEM,
                        "weft_window_open: windows on several hosts need %lld bytes of staging, %lld of %lld are left: "
                        "raise inflight_bytes",
                        (long long)r->budget, (long long)(c->staging.limit - c->staging.taken),
                        (long long)c->staging.limit);
    if (err) {
        free(r->peers);
        free(r->tags_in);
        free(r);
        return err;
    }
    c->remote = r;
    r->task.ops = &remote_task;
    mail_handle(c, MAIL_WINDOW, take);
    comm_task_add(c, &r->task);
    return 0;
}
