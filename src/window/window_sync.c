/* Calls of a window that wait: signals, and barriers of the group and of neighbours. All waits make progress in the
 * comm (comm_wait). No wait lasts for ever: the comm fails if a rank that others wait for is gone. */
#include "base/error.h"
#include "base/nvtx.h"
#include "comm/lock.h"
#include "window/remote.h"
#include "window/window_trace.h"

/* Returns 0 if a wait can still end, otherwise an error. Called when a beat has passed. */
typedef int lost_check(void *arg);

static int wait_locked(weft_window *w, bool (*met)(void *arg), lost_check *lost, void *arg, int64_t timeout_ns)
{
    weft_comm *c = w->comm;
    if (met(arg)) {
        if (c->tasks)
            comm_progress(c, false);
        return 0;
    }
    if (timeout_ns == 0) {
        bool seldom = ++w->polls % 64 == 0;
        comm_progress(c, seldom);
        if (met(arg))
            return 0;
        int err = comm_failure(c);
        if (!err && seldom)
            err = lost(arg);
        return err ? err : COMM_LATE;
    }
    int64_t now = core_now(), until = timeout_ns > 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1;
    for (;;) {
        int64_t next = now + c->beat_ns;
        struct comm_need need = {met, NULL, arg, until >= 0 && until < next ? until : next};
        c->polled += w->device != NULL; /* kernels that write signals do not ring */
        int err = comm_wait(c, &need);
        c->polled -= w->device != NULL;
        if (err == COMM_LATE) {
            int gone = lost(arg);
            err = gone ? gone : err;
        }
        now = core_now();
        if (err != COMM_LATE || (until >= 0 && now >= until))
            return err;
    }
}

/* Returns 0 when met(arg), COMM_LATE if the time runs out first, or the error that ends the wait. */
static int wait_until(weft_window *w, bool (*met)(void *arg), lost_check *lost, void *arg, int64_t timeout_ns)
{
    weft_comm *c = w->comm;
    bool held = false;
    if (!c->has_lock)
        return wait_locked(w, met, lost, arg, timeout_ns);
    int64_t now = core_now(), until = timeout_ns >= 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1;
    int err = lock_enter_unless(c->family, met, arg, until, &held);
    if (held) {
        err = wait_locked(w, met, lost, arg, timeout_ns);
        lock_leave(c->family);
    }
    return err;
}

static enum transport_fate fate_of(const weft_window *w, int rank)
{
    return rank == w->comm->rank ? TRANSPORT_HERE : w->comm->transport->gone(w->comm->link, rank);
}

/* The first rank of this host hears that a rank of another host has left. Mail that this rank of another host sent here
 * before may still be on its way: a signal, or a notice that it has freed its window. The wire reports the end of a
 * rank after its mail, but only for ranks that have sent anything here. For the others this rank waits for some time.
 * doubted_at: when that began, 0 at first. */
static enum transport_fate fate_for_sure(const weft_window *w, int rank, int64_t *doubted_at)
{
    const weft_comm *c = w->comm;
    enum transport_fate fate = fate_of(w, rank);
    if (fate != TRANSPORT_LEFT || !transport_elsewhere(c->link, rank))
        return fate;
    struct wire *wire = c->link->hosts->wire;
    if (wire->ops->gone(wire, rank) != TRANSPORT_HERE)
        return fate;
    int64_t now = core_now();
    *doubted_at = *doubted_at ? *doubted_at : now;
    return now - *doubted_at < c->deadline_ns ? TRANSPORT_HERE : fate;
}

static int fail_for(weft_window *w, int rank, bool died, const char *call)
{
    char who[NAMES_RANK];
    return comm_fail(w->comm, WEFT_EPEER, "%s %s, rank %d was waiting for it in %s", names_rank(w->comm, rank, who),
                     died ? names_gone(w->comm, rank) : "freed its window or closed its comm", w->comm->rank, call);
}

static bool has_freed(const weft_window *w, int rank)
{
    if (!w->heads[rank])
        return remote_freed(w, rank);
    return atomic_load_explicit(&w->heads[rank]->freed, memory_order_seq_cst);
}

static int check_signal(const weft_window *w, int signal, const char *call)
{
    if (!w)
        return error_set(WEFT_EINVAL, "%s: the window is NULL", call);
    if (signal < 0 || signal >= w->signals)
        return error_set(WEFT_EINVAL, "%s: there is no signal %d, the window has %d", call, signal, w->signals);
    return 0;
}

static int check_call(const weft_window *w, const char *call)
{
    if (!w)
        return error_set(WEFT_EINVAL, "%s: the window is NULL", call);
    if (lock_in_callback(w->comm))
        return error_set(WEFT_EBUSY, "%s: not inside a callback", call);
    return 0;
}

static int release(weft_window *w, int rank, uint32_t kind, uint32_t signal, uint64_t value)
{
    struct comm_family *f = comm_enter(w->comm);
    int err = remote_out_release(w, rank, kind, signal, value);
    comm_leave(f);
    return err;
}

/* ---- signals ---- */

int weft_window_notify(weft_window *w, int rank, int signal, enum weft_notify how, uint64_t value)
{
    int err = check_signal(w, signal, "weft_window_notify");
    if (err)
        return err;
    weft_comm *c = w->comm;
    if (rank < 0 || rank >= c->size)
        return error_set(WEFT_EINVAL, "weft_window_notify: there is no rank %d, the comm has %d", rank, c->size);
    err = comm_failure(c);
    if (err)
        return err;
    if (how != WEFT_NOTIFY_SET && how != WEFT_NOTIFY_ADD)
        return error_set(WEFT_EINVAL, "weft_window_notify: there is no way %d to notify", (int)how);
    const int64_t begun = window_trace_begin(w);
    const bool later = w->remote && rank != c->rank;
    if (later)
        err = release(w, rank, how == WEFT_NOTIFY_SET ? REMOTE_SET : REMOTE_PLUS, (uint32_t)signal, value);
    else
        value = window_head_notify(w, rank, (uint32_t)signal, how, value);
    window_trace_notify(w, begun, rank, (uint32_t)signal, value, !later);
    return err;
}

static const char *const compare_names[] = {NULL, "==", "!=", ">=", ">", "<=", "<"};

struct signal_wait {
    weft_window *w;
    const _Atomic uint64_t *word;
    int signal;
    enum weft_compare compare;
    uint64_t value;
    int64_t doubted_at;
};

static bool compares(void *arg)
{
    const struct signal_wait *s = arg;
    uint64_t now = atomic_load_explicit(s->word, memory_order_seq_cst);
    switch (s->compare) {
    case WEFT_EQ: return now == s->value;
    case WEFT_NE: return now != s->value;
    case WEFT_GE: return now >= s->value;
    case WEFT_GT: return now > s->value;
    case WEFT_LE: return now <= s->value;
    default: return now < s->value;
    }
}

/* Any rank may notify, so the wait cannot end only if no other rank is left. A rank that is gone without freeing its
 * window has failed. Once a rank is seen to be gone, all that it did before can be seen. */
static int signal_lost(void *arg)
{
    struct signal_wait *s = arg;
    weft_window *w = s->w;
    int left = 0;
    for (int r = 0; r < w->comm->size; r++) {
        if (r == w->comm->rank || has_freed(w, r))
            continue;
        enum transport_fate fate = fate_for_sure(w, r, &s->doubted_at);
        if (fate != TRANSPORT_HERE && !has_freed(w, r))
            return compares(s) ? 0 : fail_for(w, r, transport_failed(fate), "weft_window_wait");
        left++;
    }
    if (left || comm_task_any_lacks(w->comm, NULL) || comm_task_sibling_lacks(w->comm) || compares(s))
        return 0;
    int err = comm_failure(w->comm); /* a failure may be why they are gone */
    return err ? err
               : error_set(WEFT_EPEER, "weft_window_wait: signal %d: no other rank is left that could notify",
                           s->signal);
}

int weft_window_wait(weft_window *w, int signal, enum weft_compare compare, uint64_t value, int64_t timeout_ns)
{
    int err = check_signal(w, signal, "weft_window_wait");
    if (!err)
        err = check_call(w, "weft_window_wait");
    if (err)
        return err;
    if (compare < WEFT_EQ || compare > WEFT_LT)
        return error_set(WEFT_EINVAL, "weft_window_wait: there is no comparison %d", (int)compare);
    err = comm_timeout(w->comm, "weft_window_wait", &timeout_ns);
    if (err)
        return err;
    struct window_head *mine = w->heads[w->comm->rank];
    struct signal_wait s = {w, &window_signals(mine)[signal].value, signal, compare, value, 0};
    const int64_t begun = window_trace_begin(w);
    if (w->comm->profiled)
        nvtx_push("weft_window_wait");
    err = wait_until(w, compares, signal_lost, &s, timeout_ns);
    if (w->comm->profiled)
        nvtx_pop();
    if (w->trace && (!err || timeout_ns)) /* a poll in vain is nothing that happened */
        window_trace_wait(w, begun, (uint32_t)signal, atomic_load_explicit(s.word, memory_order_seq_cst), err != 0);
    if (err != COMM_LATE)
        return err;
    err = error_set(WEFT_ETIMEOUT, "weft_window_wait: time ran out: signal %d is %llu, waiting for %s %llu", signal,
                    (unsigned long long)atomic_load_explicit(s.word, memory_order_relaxed), compare_names[compare],
                    (unsigned long long)value);
    if (timeout_ns)
        flight_late(w->comm);
    return err;
}

/* A caller that only polls a signal must see notifies of other hosts, too. If the progress lock is taken, another
 * thread makes progress. */
static void poll(weft_comm *c)
{
    if (c->has_lock && !lock_try(c->family))
        return;
    bool moved = comm_progress(c, false);
    if (!c->has_lock)
        return;
    if (moved)
        lock_disturb(c->family);
    lock_leave(c->family);
}

int weft_window_signal(const weft_window *w, int signal, uint64_t *value)
{
    int err = check_signal(w, signal, "weft_window_signal");
    if (err)
        return err;
    if (!value)
        return error_set(WEFT_EINVAL, "weft_window_signal: value must not be NULL");
    if (w->remote && !lock_in_callback(w->comm))
        poll(w->comm);
    /* seq_cst: a caller that polls acquires the same as one that waits. */
    *value = atomic_load_explicit(&window_signals(w->heads[w->comm->rank])[signal].value, memory_order_seq_cst);
    return 0;
}

/* ---- barriers ---- */

/* A barrier that this rank has entered: of the group, or with the ranks of w->with. */
struct barrier {
    weft_window *w;
    const char *call;
    bool group;
    int64_t doubted_at;
};

/* Has the rank, which is in the barrier, not entered it yet? */
static bool is_missing(const struct barrier *b, int rank)
{
    weft_window *w = b->w;
    if (b->group && w->remote)
        return remote_entered(w, rank) < w->generation;
    if (b->group) /* relaxed: only for texts, and after a load of `freed` that orders it */
        return atomic_load_explicit(&w->heads[rank]->entered, memory_order_relaxed) < w->generation;
    return atomic_load_explicit(&window_turns(w->heads[w->comm->rank])[rank].value, memory_order_seq_cst) <
           w->turns[rank];
}

/* Is the arrival of this rank itself delayed, because its puts were not acknowledged yet? */
static bool waits_itself(const weft_window *w)
{
    return atomic_load_explicit(&w->comm->remote->releases, memory_order_seq_cst) > 0;
}

static bool all_came(void *arg)
{
    const struct barrier *b = arg;
    weft_window *w = b->w;
    if (b->group) /* pairs with the store in enter_group */
        return atomic_load_explicit(&w->heads[w->chair]->met, memory_order_seq_cst) >= w->generation;
    for (int i = 0; i < w->nwith; i++)
        if (is_missing(b, w->with[i]))
            return false;
    return !w->remote || !waits_itself(w);
}

/* A rank that has died may have been halfway into the barrier, or about to tell the group that it is complete. It is to
 * blame if the barrier is not complete after its death. */
static int barrier_lost(void *arg)
{
    struct barrier *b = arg;
    weft_window *w = b->w;
    int n = b->group ? w->comm->size : w->nwith;
    for (int i = 0; i < n; i++) {
        int r = b->group ? i : w->with[i];
        enum transport_fate fate = fate_for_sure(w, r, &b->doubted_at);
        bool died = transport_failed(fate) && !all_came(arg);
        if ((died && b->group) || ((fate != TRANSPORT_HERE || has_freed(w, r)) && is_missing(b, r)))
            return fail_for(w, r, died, b->call);
    }
    return 0;
}

static int barrier_late(const struct barrier *b)
{
    weft_window *w = b->w;
    struct comm_names names = {0};
    int n = b->group ? w->comm->size : w->nwith;
    if (w->remote && waits_itself(w)) {
        struct comm_family *f = comm_enter(w->comm);
        int err = remote_peer_late(w->comm->remote, b->call);
        comm_leave(f);
        return err;
    }
    for (int i = 0; i < n; i++) {
        int r = b->group ? i : w->with[i];
        if (is_missing(b, r))
            names_add(&names, w->comm, r, "");
    }
    if (!names.n) /* the last one came between two looks */
        return error_set(WEFT_ETIMEOUT, "%s: time ran out", b->call);
    return error_set(WEFT_ETIMEOUT, "%s: time ran out, %s not there yet", b->call, names_text(&names));
}

static void flush(weft_comm *c)
{
    struct comm_family *f = comm_enter(c);
    mail_flush(c, c->deadline_ns);
    comm_leave(f);
}

static int barrier_wait(struct barrier *b, int64_t timeout_ns)
{
    weft_window *w = b->w;
    const int64_t begun = window_trace_begin(w);
    if (w->comm->profiled)
        nvtx_push(b->call);
    int err = wait_until(w, all_came, barrier_lost, b, timeout_ns);
    if (w->comm->profiled)
        nvtx_pop();
    if (!err || timeout_ns)
        window_trace_barrier(w, begun, b->group ? -1 : w->nwith, err != 0);
    if (err == COMM_LATE) {
        err = barrier_late(b);
        if (timeout_ns)
            flight_late(w->comm);
        return err;
    }
    if (w->remote && !err) /* the next call may come late, and others wait for what this rank passes on */
        flush(w->comm);
    if (b->group)
        w->open = false;
    else
        w->nwith = 0;
    return err;
}

static int enter_group(weft_window *w)
{
    weft_comm *c = w->comm;
    struct window_head *zero = w->heads[0];
    if (w->remote) {
        int err = release(w, -1, REMOTE_ARRIVE, 0, w->generation + 1);
        w->generation += !err;
        return err;
    }
    w->generation++;
    atomic_store_explicit(&w->heads[c->rank]->entered, w->generation, memory_order_relaxed);
    /* Releases to ranks that come later and acquires from ranks that came before: the last one passes on what all have
     * stored. */
    uint64_t n = atomic_fetch_add_explicit(&zero->arrivals, 1, memory_order_acq_rel) + 1;
    if (n == w->generation * (uint64_t)c->size) {
        atomic_store_explicit(&zero->met, w->generation, memory_order_seq_cst);
        core_ring_all(c->group);
    }
    return 0;
}

int weft_window_barrier(weft_window *w, int64_t timeout_ns)
{
    int err = check_call(w, "weft_window_barrier");
    if (!err)
        err = comm_timeout(w->comm, "weft_window_barrier", &timeout_ns);
    if (!err)
        err = comm_failure(w->comm);
    if (err)
        return err;
    if (!w->open && (err = enter_group(w)))
        return err;
    w->open = true;
    return barrier_wait(&(struct barrier){w, "weft_window_barrier", true, 0}, timeout_ns);
}

static int check_ranks(const weft_window *w, const int *ranks, size_t n)
{
    if (n > (size_t)w->comm->size || (n && !ranks))
        return error_set(WEFT_EINVAL, "weft_window_barrier_with: %zu ranks%s, the comm has %d", n,
                         n && !ranks ? " at NULL" : "", w->comm->size);
    for (size_t i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= w->comm->size)
            return error_set(WEFT_EINVAL, "weft_window_barrier_with: there is no rank %d, the comm has %d", ranks[i],
                             w->comm->size);
        for (size_t k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return error_set(WEFT_EINVAL, "weft_window_barrier_with: rank %d is listed twice", ranks[i]);
    }
    return 0;
}

/* Are these the ranks of the barrier that is not complete, in any order, with or without this rank? */
static bool same_ranks(const weft_window *w, const int *ranks, size_t n)
{
    int others = 0;
    for (size_t i = 0; i < n; i++) {
        if (ranks[i] == w->comm->rank)
            continue;
        int k = 0;
        while (k < w->nwith && w->with[k] != ranks[i])
            k++;
        if (k == w->nwith)
            return false;
        others++;
    }
    return others == w->nwith;
}

static int enter_with(weft_window *w, const int *ranks, size_t n)
{
    weft_comm *c = w->comm;
    int err = 0;
    for (size_t i = 0; i < n && !err; i++) {
        int r = ranks[i];
        if (r == c->rank)
            continue;
        if (w->remote)
            err = release(w, r, REMOTE_TURN, 0, w->turns[r] + 1);
        else
            window_head_turn(w, r, c->rank, w->turns[r] + 1);
        if (err && w->nwith) /* some ranks have been told already */
            return comm_fail(c, err, "rank %d has no memory to enter a barrier", c->rank);
        w->turns[r] += !err;
        w->with[w->nwith] = r;
        w->nwith += !err;
    }
    return err;
}

int weft_window_barrier_with(weft_window *w, const int *ranks, size_t n, int64_t timeout_ns)
{
    int err = check_call(w, "weft_window_barrier_with");
    if (!err)
        err = comm_timeout(w->comm, "weft_window_barrier_with", &timeout_ns);
    if (!err)
        err = check_ranks(w, ranks, n);
    if (!err)
        err = comm_failure(w->comm);
    if (err)
        return err;
    if (w->nwith && !same_ranks(w, ranks, n))
        return error_set(WEFT_EBUSY,
                         "weft_window_barrier_with: a barrier with other ranks ran out of time and is still "
                         "open: enter it again first");
    if (!w->nwith && (err = enter_with(w, ranks, n)))
        return err;
    return barrier_wait(&(struct barrier){w, "weft_window_barrier_with", false, 0}, timeout_ns);
}
