/* Exchanges: opening, rounds, how a caller learns that one is complete, and the end. */
#define _GNU_SOURCE
#include "exchange/exchange.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/nvtx.h"
#include "base/sized.h"
#include "comm/lock.h"
#include "comm/mail.h"
#include "exchange/exchange_trace.h"

#define BUDGET (INT64_C(16) << 20)

static enum exchange_state state_of(const weft_exchange *x)
{
    return atomic_load_explicit(&x->state, memory_order_acquire);
}

static void set_state(weft_exchange *x, enum exchange_state state)
{
    atomic_store_explicit(&x->state, state, memory_order_release);
}

/* ---- opening ---- */

/* Half of the budget is for the pipes. 0: it is too small, and the error is set. */
static size_t pipe_bytes(int64_t budget, int nto)
{
    int64_t each = budget / 2 / (nto > 0 ? nto : 1);
    size_t bytes = PIPE_MOST;
    while (bytes > PIPE_LEAST && (int64_t)bytes > each)
        bytes /= 2;
    if ((int64_t)bytes <= each)
        return bytes;
    error_set(WEFT_ENOMEM, "weft_exchange_open: the budget of %lld bytes is too small: %d ranks to send to need %lld",
              (long long)budget, nto, 2 * (long long)PIPE_LEAST * (nto > 0 ? nto : 1));
    return 0;
}

static int make(weft_exchange *x, weft_comm *c, const weft_exchange_opts *o, int nfrom, int nto)
{
    size_t ins = (size_t)nfrom, outs = (size_t)nto;
    x->comm = c;
    x->buffer = o->buffer;
    x->buffer_arg = o->arg;
    x->budget = o->budget ? o->budget : BUDGET;
    x->outs = calloc(outs + 1, sizeof *x->outs);
    x->ins = calloc(ins + 1, sizeof *x->ins);
    x->pool = message_pool_new(x->budget);
    x->locks = !pthread_mutex_init(&x->lock, NULL);
    if (!x->outs || !x->ins || !x->pool || !x->locks)
        return error_nomem();
    x->pipes.memory = (int64_t)(sizeof *x + (outs + 1) * sizeof *x->outs + (ins + 1) * sizeof *x->ins);
    return exchange_trace_make(x, nfrom, nto);
}

static void unmake(weft_exchange *x)
{
    if (!x)
        return;
    if (x->fd >= 0)
        close(x->fd);
    if (x->locks)
        pthread_mutex_destroy(&x->lock);
    message_pool_leave(x->pool);
    exchange_trace_free(x);
    free(x->outs);
    free(x->ins);
    free(x);
}

static void fail(struct comm_task *t)
{
    weft_exchange *x = (weft_exchange *)t;
    exchange_complete(x, exchange_failure(x));
}

static const struct comm_task_ops exchange_task = {.pass = exchange_move_pass,
                                                   .lacking = exchange_watch_lacking,
                                                   .watch = exchange_watch,
                                                   .fail = fail,
                                                   .trace = exchange_trace_text};

static void begin(weft_exchange *x, size_t bytes)
{
    for (int i = 0; i < x->pipes.nouts; i++)
        x->outs[i] = (struct exchange_out){.pipe = &x->pipes.outs[i], .last = &x->outs[i].first};
    for (int i = 0; i < x->pipes.nins; i++) {
        x->ins[i].pipe = &x->pipes.ins[i];
        x->ins[i].last = &x->ins[i].first;
    }
    x->queue_limit = x->budget - (int64_t)bytes * x->pipes.nouts;
    atomic_flag_clear(&x->moving);
    x->task.ops = &exchange_task;
}

int exchange_open(weft_comm *c, const int *from, size_t nfrom, const int *to, size_t nto,
                  const weft_exchange_opts *opts, int err, weft_exchange **out)
{
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_exchange_open: not inside a callback");
    weft_exchange_opts o = {0};
    size_t bytes = 0;
    if (!err)
        err = sized_read("weft_exchange_open", "weft_exchange_opts", &o, sizeof o, opts);
    if (!err && o.budget < 0)
        err = error_set(WEFT_EINVAL, "weft_exchange_open: the budget is %lld bytes", (long long)o.budget);
    if (!err)
        err = pipes_check(c, from, nfrom, to, nto);
    int ins = err ? 0 : (int)nfrom, outs = err ? 0 : (int)nto;
    weft_exchange *x = calloc(1, sizeof *x);
    if (x)
        x->fd = -1;
    if (!err)
        err = x ? make(x, c, &o, ins, outs) : error_nomem();
    if (!err && !(bytes = pipe_bytes(x->budget, outs)))
        err = WEFT_ENOMEM;
    struct pipes none = {0}, *p = x ? &x->pipes : &none;
    err = pipes_open(p, c, from, ins, to, outs, bytes, o.vote, err);
    if (err) {
        unmake(x);
        return err;
    }
    begin(x, bytes);
    exchange_trace_open(x);
    exchange_put_join(x);
    comm_task_add(c, &x->task);
    comm_hold(c);
    *out = x;
    return 0;
}

int weft_exchange_open(weft_comm *c, const int *from, size_t nfrom, const int *to, size_t nto,
                       const weft_exchange_opts *opts, weft_exchange **out)
{
    if (!c || !out)
        return error_set(WEFT_EINVAL, "weft_exchange_open: the comm and out must not be NULL");
    struct comm_family *f = comm_enter(c);
    int err = exchange_open(c, from, nfrom, to, nto, opts, 0, out);
    comm_leave(f);
    return err;
}

/* ---- rounds ---- */

int exchange_failure(weft_exchange *x)
{
    int err = exchange_has_failed(x) ? comm_failure(x->comm) : 0;
    if (!err)
        return 0;
    pthread_mutex_lock(&x->lock);
    if (!x->failed)
        exchange_put_drop(x);
    x->failed = true;
    pthread_mutex_unlock(&x->lock);
    pipe_fence(&x->pipes);
    return err;
}

int exchange_begin(weft_exchange *x, const char *call)
{
    uint64_t begun = atomic_load_explicit(&x->begun, memory_order_relaxed);
    if (state_of(x) != EXCHANGE_OPEN)
        return error_set(WEFT_EINVAL,
                         "%s: this rank has finished the round; the next one begins when test, wait or the "
                         "callback have seen that it is complete",
                         call);
    if (begun == atomic_load_explicit(&x->rounds, memory_order_relaxed)) {
        atomic_store_explicit(&x->begun, begun + 1, memory_order_release);
        if (x->trace)
            exchange_trace_begun(x);
    }
    return 0;
}

int weft_exchange_put(weft_exchange *x, int to, const void *meta, size_t meta_bytes, const void *payload, size_t bytes)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exchange_put: the exchange is NULL");
    weft_message m = {.meta = meta, .meta_bytes = meta_bytes, .payload = (void *)(uintptr_t)payload, .bytes = bytes};
    return exchange_put(x, to, 0, &m, "weft_exchange_put");
}

int weft_exchange_finish(weft_exchange *x, bool done)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exchange_finish: the exchange is NULL");
    int err = exchange_failure(x);
    if (err)
        return err;
    pthread_mutex_lock(&x->lock);
    err = exchange_begin(x, "weft_exchange_finish");
    if (!err) {
        pipes_vote_round(&x->pipes, atomic_load_explicit(&x->begun, memory_order_relaxed), done);
        exchange_put_end(x);
        set_state(x, EXCHANGE_FLYING);
    }
    pthread_mutex_unlock(&x->lock);
    if (!err)
        exchange_move_post(x);
    if (!err && x->comm->has_lock)
        comm_task_nudge(x->comm);
    return err;
}

/* With the lock: the caller has seen that the round is complete. */
static void acknowledge(weft_exchange *x)
{
    uint64_t count;
    if (state_of(x) != EXCHANGE_COMPLETE)
        return;
    set_state(x, EXCHANGE_OPEN);
    if (x->polls && read(x->fd, &count, sizeof count) == (ssize_t)sizeof count)
        x->polls = false;
}

static void poll_readable(weft_exchange *x)
{
    uint64_t one = 1;
    x->polls = x->polls || (x->fd >= 0 && write(x->fd, &one, sizeof one) == (ssize_t)sizeof one);
}

void exchange_complete(weft_exchange *x, int err)
{
    weft_comm *c = x->comm;
    pthread_mutex_lock(&x->lock);
    bool flew = atomic_load_explicit(&x->state, memory_order_relaxed) == EXCHANGE_FLYING;
    if (flew) {
        if (!err)
            atomic_store_explicit(&x->rounds, atomic_load_explicit(&x->begun, memory_order_relaxed),
                                  memory_order_relaxed);
        atomic_store_explicit(&x->over, !err && x->pipes.all, memory_order_relaxed);
        if (x->trace)
            exchange_trace_complete(x, err != 0);
        set_state(x, EXCHANGE_COMPLETE);
        poll_readable(x);
    }
    void (*done)(void *, int) = flew ? x->done : NULL;
    void *arg = x->done_arg;
    bool orphan = x->orphan;
    if (done)
        acknowledge(x);
    pthread_mutex_unlock(&x->lock);
    if (flew && c->has_lock)
        lock_ended(c->family);
    if (done) {
        comm_callback(c, true);
        done(arg, err);
        comm_callback(c, false);
    }
    if (flew && orphan)
        weft_exchange_close(x);
}

/* ---- completion ---- */

/* The result of a round that is no longer in flight. */
static int result(weft_exchange *x)
{
    int err = exchange_failure(x);
    if (state_of(x) != EXCHANGE_COMPLETE)
        return err;
    if (x->fd < 0) { /* no other thread touches the round from here on */
        set_state(x, EXCHANGE_OPEN);
        return err;
    }
    pthread_mutex_lock(&x->lock);
    acknowledge(x);
    pthread_mutex_unlock(&x->lock);
    return err;
}

/* True: something moved. */
static bool test_locked(weft_exchange *x)
{
    weft_comm *c = x->comm;
    if (c->in_callback)
        return false;
    bool moved = comm_progress(c, x->tests % 64 == 63);
    if (state_of(x) == EXCHANGE_FLYING && ++x->tests % 64 == 0)
        liveness_watch(c, core_now(), false);
    return moved;
}

int weft_exchange_test(weft_exchange *x, bool *complete)
{
    if (!x || !complete)
        return error_set(WEFT_EINVAL, "weft_exchange_test: arguments must not be NULL");
    struct comm_family *f = x->comm->family;
    if (!x->comm->has_lock) {
        test_locked(x);
    } else if (lock_try(f)) {
        if (test_locked(x))
            lock_disturb(f);
        lock_leave(f);
    }
    bool flying = state_of(x) == EXCHANGE_FLYING;
    int err = flying ? 0 : result(x);
    if (!err)
        *complete = !flying;
    return err;
}

static bool landed(void *arg)
{
    return state_of(arg) != EXCHANGE_FLYING;
}

/* If other tasks are in flight every signal may be of use. */
static int lacking(void *arg)
{
    weft_exchange *x = arg;
    return comm_task_any_lacks(x->comm, &x->task) ? 1 : exchange_watch_lacking(&x->task);
}

static int wait_locked(weft_exchange *x, int64_t timeout_ns)
{
    weft_comm *c = x->comm;
    int err = 0;
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_exchange_wait: not inside a callback");
    if (landed(x))
        return result(x);
    if (timeout_ns == 0) {
        comm_progress(c, true);
        err = landed(x) ? 0 : COMM_LATE;
        if (err) /* a caller that only polls must notice dead peers, too */
            liveness_watch(c, core_now(), false);
    } else {
        int64_t now = timeout_ns > 0 ? core_now() : 0;
        struct comm_need need = {landed, lacking, x,
                                 timeout_ns > 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1};
        err = comm_wait(c, &need);
    }
    if (err != COMM_LATE)
        return result(x);
    err = exchange_watch_timeout(x);
    if (timeout_ns)
        flight_late(c);
    return err;
}

/* For a family with a progress lock: takes it, unless another thread ends the round first. */
static int wait_shared(weft_exchange *x, int64_t timeout_ns)
{
    struct comm_family *f = x->comm->family;
    bool held = false;
    int64_t now = timeout_ns >= 0 ? core_now() : 0;
    int64_t until = timeout_ns >= 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1;
    int err = !landed(x) || lock_held(f) ? lock_enter_unless(f, landed, x, until, &held) : 0;
    if (held) {
        err = wait_locked(x, timeout_ns);
        lock_leave(f);
        return err;
    }
    return err == COMM_LATE ? exchange_watch_timeout(x) : result(x);
}

int weft_exchange_wait(weft_exchange *x, int64_t timeout_ns)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exchange_wait: the exchange is NULL");
    int err = comm_timeout(x->comm, "weft_exchange_wait", &timeout_ns);
    if (err)
        return err;
    const bool waits = x->trace && timeout_ns && !landed(x);
    const int64_t begun = exchange_trace_now(x);
    const int on = waits ? exchange_trace_missing(x) : TRACE_NOBODY;
    weft_comm *c = x->comm;
    if (c->profiled)
        nvtx_push("weft_exchange_wait");
    err = c->has_lock ? wait_shared(x, timeout_ns) : wait_locked(x, timeout_ns);
    if (c->profiled)
        nvtx_pop();
    if (waits)
        exchange_trace_waited(x, begun, on, false);
    return err;
}

bool weft_exchange_over(const weft_exchange *x)
{
    return x && atomic_load_explicit(&x->over, memory_order_relaxed);
}

int weft_exchange_on_done(weft_exchange *x, void (*done)(void *arg, int err), void *arg)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exchange_on_done: the exchange is NULL");
    pthread_mutex_lock(&x->lock);
    x->done = done;
    x->done_arg = arg;
    pthread_mutex_unlock(&x->lock);
    return 0;
}

int weft_exchange_fd(weft_exchange *x, int *fd)
{
    if (!x || !fd)
        return error_set(WEFT_EINVAL, "weft_exchange_fd: arguments must not be NULL");
    pthread_mutex_lock(&x->lock);
    if (x->fd < 0) {
        x->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (state_of(x) == EXCHANGE_COMPLETE)
            poll_readable(x);
    }
    *fd = x->fd;
    pthread_mutex_unlock(&x->lock);
    return *fd < 0 ? error_set(WEFT_EIO, "weft_exchange_fd: no file descriptor can be made") : 0;
}

/* ---- taking ---- */

/* With the lock. */
static struct message *take_from(weft_exchange *x, struct exchange_in *in)
{
    struct message *m = in->first;
    if (!m)
        return NULL;
    in->first = m->next;
    if (!in->first)
        in->last = &in->first;
    int64_t untaken = atomic_load_explicit(&x->untaken, memory_order_relaxed);
    /* For other threads it is a hint. */
    atomic_store_explicit(&x->untaken, untaken - (int64_t)m->held, memory_order_relaxed);
    return m;
}

int weft_exchange_take(weft_exchange *x, int from, weft_message **out)
{
    if (!x || !out)
        return error_set(WEFT_EINVAL, "weft_exchange_take: arguments must not be NULL");
    const struct pipe_in *in = from == -1 ? NULL : pipes_in(&x->pipes, from);
    if (from != -1 && !in)
        return error_set(WEFT_EINVAL,
                         "weft_exchange_take: rank %d is not among the %d ranks that this exchange receives from", from,
                         x->pipes.nins);
    struct message *m = NULL;
    pthread_mutex_lock(&x->lock);
    if (in)
        m = take_from(x, &x->ins[in - x->pipes.ins]);
    for (int i = 0; i < x->pipes.nins && !in && !m; i++) {
        m = take_from(x, &x->ins[x->take_at]);
        if (!m)
            x->take_at = (x->take_at + 1) % x->pipes.nins;
    }
    pthread_mutex_unlock(&x->lock);
    *out = m ? &m->is : NULL;
    return 0;
}

int weft_exchange_stats(weft_exchange *x, weft_exchange_info *out)
{
    if (!x || !out)
        return error_set(WEFT_EINVAL, "weft_exchange_stats: arguments must not be NULL");
    int err = sized_check("weft_exchange_stats", "weft_exchange_info", out);
    if (err)
        return err;
    pthread_mutex_lock(&x->lock);
    weft_exchange_info info = {.size = sizeof info,
                               .rounds = atomic_load_explicit(&x->rounds, memory_order_relaxed),
                               .sent = x->sent,
                               .received = x->received,
                               .budget = x->budget,
                               .inflight = x->queued,
                               .inflight_peak = x->queued_peak,
                               .untaken = atomic_load_explicit(&x->untaken, memory_order_relaxed),
                               .untaken_peak = x->untaken_peak,
                               .memory = x->pipes.memory};
    for (int i = 0; i < x->pipes.nouts; i++) {
        info.inflight += pipe_held(&x->pipes.outs[i]);
        info.inflight_peak += (int64_t)x->pipes.outs[i].peak;
    }
    pthread_mutex_unlock(&x->lock);
    sized_write(out, &info, sizeof info);
    return 0;
}

/* ---- the end ---- */

static void free_messages(weft_exchange *x)
{
    for (int i = 0; i < x->pipes.nins; i++) {
        if (x->ins[i].building)
            weft_message_free(&x->ins[i].building->is);
        for (struct message *m; (m = take_from(x, &x->ins[i]));)
            weft_message_free(&m->is);
    }
}

static bool all_taken(const weft_exchange *x)
{
    for (int i = 0; i < x->pipes.nouts; i++)
        if (!pipe_offers_taken(&x->pipes.outs[i]))
            return false;
    return true;
}

static bool drained(void *arg)
{
    const weft_exchange *x = arg;
    int refuses;
    return pipe_wire_drained(&x->pipes, &refuses);
}

/* Waits until what this rank sent to other hosts in complete rounds has left its memory. */
static void drain(weft_exchange *x)
{
    weft_comm *c = x->comm;
    struct comm_need need = {drained, NULL, x, core_now() + c->deadline_ns};
    char who[NAMES_RANK];
    int refuses = -1;
    if (!x->pipes.wide || core_failed(c->group))
        return;
    if (!c->in_callback)
        comm_wait(c, &need);
    while (!drained(x) && !core_failed(c->group) && core_now() < need.until) { /* a callback must not wait for others */
        mail_move(c);
        exchange_move_pass(&x->task, true);
    }
    bool all = pipe_wire_drained(&x->pipes, &refuses);
    if (core_failed(c->group))
        return;
    if (refuses >= 0)
        comm_fail(c, WEFT_EPEER, "%s freed its exchange before it had received what rank %d sent to it",
                  names_rank(c, refuses, who), c->rank);
    else if (!all)
        comm_fail(c, WEFT_EPEER, "rank %d freed its exchange: what it had sent was not taken within %lld ms", c->rank,
                  (long long)(c->deadline_ns / 1000000));
}

static void free_locked(weft_exchange *x)
{
    weft_comm *c = x->comm;
    if (state_of(x) == EXCHANGE_FLYING && c->in_callback) {
        x->orphan = true;
        return;
    }
    struct comm_need need = {landed, lacking, x, core_now() + c->deadline_ns};
    int err = state_of(x) == EXCHANGE_FLYING ? comm_wait(c, &need) : 0;
    char who[NAMES_RANK];
    names_rank(c, c->rank, who);
    if (err == COMM_LATE)
        comm_fail(c, WEFT_EPEER, "%s gave up a round and freed its exchange: the round did not end within %lld ms", who,
                  (long long)(c->deadline_ns / 1000000));
    else if (!err && !all_taken(x)) /* peers that look later must not find memory that was freed */
        comm_fail(c, WEFT_EPEER, "%s freed its exchange in the middle of a round", who);
    else if (!err)
        drain(x);
    comm_task_remove(c, &x->task);
    exchange_trace_close(x);
    exchange_put_leave(x);
    exchange_failure(x);
    exchange_put_drop(x);
    free_messages(x);
    pipes_close(&x->pipes);
    unmake(x);
    comm_drop(c);
}

void weft_exchange_close(weft_exchange *x)
{
    if (!x || comm_inherited(x->comm))
        return;
    struct error_text kept;
    error_keep(&kept);
    struct comm_family *f = comm_enter(x->comm);
    free_locked(x);
    comm_leave(f);
    error_restore(&kept);
}
