/* The calls around a run: start, test, wait, callbacks, and the end of an exec. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/sized.h"
#include "comm/lock.h"
#include "comm/mail.h"
#include "engine/block.h"
#include "engine/device/exec_device.h"
#include "engine/device/watcher.h"
#include "engine/driver.h"
#include "engine/exec_mail.h"
#include "engine/quantise.h"
#include "engine/tracer.h"
#include "engine/watch.h"
#include "engine/ways/pinned.h"

/* ---- in flight ---- */

/* Release: pairs with exec_in_flight. */
static void set_state(weft_exec *x, int state)
{
    atomic_store_explicit(&x->state, state, memory_order_release);
}

static int64_t count(const _Atomic int64_t *runs)
{
    return atomic_load_explicit(runs, memory_order_acquire);
}

/* Only the thread that holds the progress lock, or that calls start, counts. Release: pairs with count. */
static void count_some(_Atomic int64_t *runs, int64_t n)
{
    atomic_store_explicit(runs, atomic_load_explicit(runs, memory_order_relaxed) + n, memory_order_release);
}

static void count_one(_Atomic int64_t *runs)
{
    count_some(runs, 1);
}

static void link_in(weft_exec *x)
{
    comm_task_link(x->comm, &x->task);
    set_state(x, EXEC_IN_FLIGHT);
}

/* The device rings no bell: as long as runs are in flight there, waits look by themselves. */
static void link_in_device(weft_exec *x)
{
    x->device->polled = exec_device_form(x) || x->carried;
    x->comm->polled += x->device->polled;
}

/* Runs on a stream end together. */
__attribute__((noinline)) static void link_out_device(weft_exec *x)
{
    x->comm->polled -= x->device->polled;
    x->device->polled = false;
    x->on_stream = false;
    count_some(&x->ended, x->more);
    x->more = 0;
}

static void link_out(weft_exec *x, int err)
{
    comm_task_unlink(x->comm, &x->task);
    if (x->device)
        link_out_device(x);
    set_state(x, err);
}

/* Tells the threads that wait and the callback that a run has ended. The callback may start this exec again, or free
 * it, so the exec is not touched after it. */
static __attribute__((noinline)) void tell(weft_exec *x, int err, bool orphan)
{
    weft_comm *c = x->comm;
    if (c->has_lock)
        lock_ended(c->family);
    if (x->done) {
        comm_callback(c, true);
        x->done(x->arg, err);
        comm_callback(c, false);
    }
    if (orphan)
        weft_exec_close(x);
}

static inline void finish(weft_exec *x, int err)
{
    bool orphan = x->orphan;
    link_out(x, err);
    count_one(&x->ended);
    if (x->done || orphan || x->comm->has_lock)
        tell(x, err, orphan);
}

/* ---- the task ---- */

/* If the mirror cannot be emptied the comm fails, and the next pass ends the run. */
static bool end_device(weft_exec *x)
{
    if (exec_device_end(x))
        comm_fail(x->comm, WEFT_ETRANSPORT, "rank %d: %s", x->comm->rank, weft_errmsg());
    return !core_failed(x->comm->group);
}

/* Is there more to a run than the steps that its driver does? */
static inline bool more_than_steps(const weft_exec *x)
{
    return x->device || x->quantise;
}

__attribute__((noinline)) static bool end_more(weft_exec *x)
{
    if (x->device && !end_device(x))
        return false;
    if (x->quantise)
        quantise_up(x);
    return true;
}

static bool pass(struct comm_task *t, bool idle)
{
    weft_exec *x = (weft_exec *)t;
    bool moved = driver_pass(x, idle);
    if (x->program->left)
        return moved;
    if (x->comm->mail && mail_doubts(x->comm)) /* the comm has failed, and the next pass ends the run */
        return true;
    if (!more_than_steps(x) || end_more(x))
        finish(x, 0);
    return true;
}

static void fail(struct comm_task *t)
{
    weft_exec *x = (weft_exec *)t;
    const char *text;
    count_some(&x->failed, 1 + x->more);
    driver_release(x);
    if (x->carried)
        carry_rest(x); /* the device may be at work in the caller's memory */
    tracer_failed(x);
    finish(x, core_failure(x->comm->group, &text));
}

static int task_lacking(struct comm_task *t)
{
    const weft_exec *x = (const weft_exec *)t;
    return x->program->driver->lacking(x);
}

static int result(weft_exec *x)
{
    int state = atomic_load_explicit(&x->state, memory_order_acquire);
    return state && state != EXEC_IN_FLIGHT ? comm_failure(x->comm) : 0;
}

/* ---- the calls ---- */

static int check_start(weft_exec *x)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_start: the exec is NULL");
    if (exec_in_flight(x) || x->binding)
        return error_set(WEFT_EBUSY, "weft_exec_start: the exec is %s",
                         x->binding ? "being bound again" : "in flight; wait for the end of that run first");
    return comm_failure(x->comm);
}

static void begin(weft_exec *x)
{
    x->run++;
    if (x->arrivals)
        arrivals_reset(x->arrivals);
    atomic_store_explicit(&x->block->started, x->run, memory_order_relaxed); /* for watch.c of peers */
    link_in(x);
}

/* If the mirror cannot be filled the comm fails, and the next pass ends the run. */
static void start_device(weft_exec *x)
{
    link_in_device(x);
    if (!exec_device_begin(x))
        driver_start(x);
    else
        comm_fail(x->comm, WEFT_ETRANSPORT, "rank %d: %s", x->comm->rank, weft_errmsg());
}

/* ---- runs with scales ---- */

static void start_steps(weft_exec *x)
{
    quantise_down(x);
    begin(x);
    if (core_failed(x->comm->group)) /* the next pass ends the run */
        return;
    driver_start(x);
    driver_call(x);
}

/* The run in which maxima came has ended, and with an error the comm has failed. The steps begin. */
static void fold_done(void *arg, int err)
{
    weft_exec *x = arg;
    x->quantise->folding = false;
    if (!err) {
        start_steps(x);
        return;
    }
    bool orphan = x->orphan;
    set_state(x, err);
    count_one(&x->failed);
    count_one(&x->ended);
    tell(x, err, orphan);
}

void run_after(weft_exec *fold, weft_exec *x)
{
    fold->done = fold_done;
    fold->arg = x;
}

/* In flight from here on. While maxima are on their way the exec is no task of the comm: that of the maxima is. */
static void start_scaled(weft_exec *x)
{
    struct quantise *q = x->quantise;
    quantise_measure(x);
    if (!q->fold) {
        start_steps(x);
        return;
    }
    if (x->arrivals) /* a caller that polls must not see those of the last run */
        arrivals_reset(x->arrivals);
    set_state(x, EXEC_IN_FLIGHT);
    q->folding = true;
    begin(q->fold);
    if (core_failed(x->comm->group)) /* the next pass ends both */
        return;
    driver_start(q->fold);
    driver_call(q->fold);
}

__attribute__((noinline)) static void start_more(weft_exec *x)
{
    if (x->quantise) {
        start_scaled(x);
        return;
    }
    begin(x);
    start_device(x);
}

/* Wakes the ranks that wait for what start has sent. A run with scales does it when its steps begin. */
static inline void call(weft_exec *x)
{
    if (!x->quantise)
        driver_call(x);
}

static inline __attribute__((always_inline)) int start(weft_exec *x)
{
    int err = check_start(x);
    if (err)
        return err;
    if (more_than_steps(x)) {
        start_more(x);
    } else {
        begin(x);
        driver_start(x);
    }
    return 0;
}

/* Begins a run that was started while another thread held the progress lock. */
static void begin_submitted(struct comm_task *t)
{
    weft_exec *x = (weft_exec *)t;
    if (x->quantise) {
        start_scaled(x);
        return;
    }
    begin(x);
    if (core_failed(x->comm->group)) /* the next pass ends the run */
        return;
    if (x->device)
        start_device(x);
    else
        driver_start(x);
    driver_call(x);
}

const struct comm_task_ops run_task = {.pass = pass,
                                       .lacking = task_lacking,
                                       .watch = watch_exec,
                                       .fail = fail,
                                       .begin = begin_submitted,
                                       .describe = describe_exec,
                                       .trace = tracer_text,
                                       .count = traffic_count};

/* With a progress lock. If another thread holds it, that thread does the rest. */
__attribute__((noinline)) static int start_shared(weft_exec *x)
{
    struct comm_family *f = x->comm->family;
    int err = 0;
    if (lock_try(f)) {
        err = start(x);
        if (!err) {
            count_one(&x->asked);
            call(x);
            lock_disturb(f);
        }
        lock_leave(f);
    } else if (!(err = check_start(x))) {
        if (x->arrivals) /* a caller that polls must not see those of the last run */
            arrivals_reset(x->arrivals);
        count_one(&x->asked);
        set_state(x, EXEC_IN_FLIGHT);
        lock_submit(f, &x->task);
    }
    return err;
}

int weft_exec_start(weft_exec *x)
{
    if (x && x->comm->has_lock)
        return start_shared(x);
    int err = start(x);
    if (!err)
        call(x); /* the next call for this comm may be much later */
    return err;
}

/* Makes progress. Returns whether something moved. */
static inline __attribute__((always_inline)) bool test_locked(weft_exec *x)
{
    weft_comm *c = x->comm;
    if (c->in_callback)
        return false;
    bool moved = comm_progress(c, c->tests % 64 == 63);
    if (exec_in_flight(x) && ++c->tests % 64 == 0)
        liveness_watch(c, core_now(), false);
    return moved;
}

/* Does not wait for the lock: if it is taken, another thread makes progress. */
__attribute__((noinline)) static void test_shared(weft_exec *x)
{
    struct comm_family *f = x->comm->family;
    if (!lock_try(f))
        return;
    if (test_locked(x))
        lock_disturb(f);
    lock_leave(f);
}

int weft_exec_test(weft_exec *x, bool *done)
{
    if (!x || !done)
        return error_set(WEFT_EINVAL, "weft_exec_test: arguments must not be NULL");
    weft_comm *c = x->comm;
    if (exec_in_flight(x)) {
        if (!c->has_lock)
            test_locked(x);
        else
            test_shared(x);
    }
    int state = atomic_load_explicit(&x->state, memory_order_acquire);
    int err = state < 0 ? comm_failure(c) : 0;
    if (!err)
        *done = state != EXEC_IN_FLIGHT;
    return err;
}

struct waiting {
    const weft_exec *x;
    int64_t runs; /* that have ended when the one that is waited for has */
};

/* For the run in flight. If another thread ends runs, the one before may not be counted yet. */
static struct waiting wait_for(const weft_exec *x)
{
    return (struct waiting){x, x->comm->has_lock ? count(&x->asked) : count(&x->ended) + 1};
}

static bool over(void *arg)
{
    const struct waiting *w = arg;
    return count(&w->x->ended) >= w->runs;
}

/* If other tasks wait for signals, any signal may be of use. */
static int lacking(void *arg)
{
    const struct waiting *w = arg;
    const weft_comm *c = w->x->comm;
    return comm_task_any_lacks(c, &w->x->task) ? 1 : w->x->program->driver->lacking(w->x);
}

__attribute__((noinline)) static int late(weft_exec *x, int64_t timeout_ns)
{
    int err = watch_timeout(x->quantise && x->quantise->folding ? x->quantise->fold : x);
    if (timeout_ns)
        flight_late(x->comm);
    return err;
}

static int wait_locked(weft_exec *x, struct waiting *w, int64_t timeout_ns)
{
    weft_comm *c = x->comm;
    int err = 0;
    if (c->in_callback)
        return error_set(WEFT_EBUSY, "weft_exec_wait: not inside a callback");
    if (!exec_in_flight(x))
        return result(x);
    if (timeout_ns == 0) {
        comm_progress(c, true);
        err = over(w) ? 0 : COMM_LATE;
        if (err) /* a caller that only polls must also find out that a peer has died */
            liveness_watch(c, core_now(), false);
    } else {
        int64_t now = timeout_ns > 0 ? core_now() : 0;
        struct comm_need need = {over, lacking, w,
                                 timeout_ns > 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1};
        err = comm_wait(c, &need);
    }
    if (c->metrics.timed)
        metrics_tick(c);
    if (err == COMM_LATE)
        return late(x, timeout_ns);
    return err ? err : result(x);
}

/* With a progress lock: takes it, unless another thread ends the run before. */
static int wait_shared(weft_exec *x, struct waiting *w, int64_t timeout_ns)
{
    struct comm_family *f = x->comm->family;
    bool held = false;
    int64_t now = timeout_ns >= 0 ? core_now() : 0;
    int64_t until = timeout_ns >= 0 && timeout_ns < INT64_MAX - now ? now + timeout_ns : -1;
    int err = exec_in_flight(x) || lock_held(f) ? lock_enter_unless(f, over, w, until, &held) : 0;
    if (held) {
        err = wait_locked(x, w, timeout_ns);
        lock_leave(f);
        return err;
    }
    if (err == COMM_LATE)
        return error_set(WEFT_ETIMEOUT, "time ran out: the progress thread was at work all the time");
    return result(x);
}

int weft_exec_wait(weft_exec *x, int64_t timeout_ns)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_wait: the exec is NULL");
    int err = comm_timeout(x->comm, "weft_exec_wait", &timeout_ns);
    if (err)
        return err;
    struct waiting w = wait_for(x);
    return x->comm->has_lock ? wait_shared(x, &w, timeout_ns) : wait_locked(x, &w, timeout_ns);
}

/* Another run behind those that are on the caller's streams. */
static void begin_more(weft_exec *x)
{
    x->run++;
    x->more++;
    if (x->arrivals)
        arrivals_reset(x->arrivals);
    atomic_store_explicit(&x->block->started, x->run, memory_order_relaxed);
}

static int queue_on(weft_exec *x, void *stream)
{
    bool more = exec_in_flight(x) && x->on_stream;
    int err = more ? comm_failure(x->comm) : check_start(x);
    if (err)
        return err;
    if (more)
        begin_more(x);
    else
        begin(x);
    if (!more)
        link_in_device(x);
    x->on_stream = true;
    x->program->left = 1;
    err = watcher_add(x);
    if (!err)
        err = x->program->driver->enqueue(x, stream);
    return err ? comm_fail(x->comm, WEFT_ETRANSPORT, "rank %d: %s", x->comm->rank, weft_errmsg()) : 0;
}

/* The host carries the data: the stream waits for it, and so does the caller. */
static int run_between(weft_exec *x, void *stream)
{
    int err = x->device->device->ops->sync(x->device->device, stream);
    if (!err)
        err = start(x);
    return err ? err : wait_locked(x, &(struct waiting){x, count(&x->ended) + 1}, -1);
}

/* A run that is recorded is none that this exec has in flight: it takes place when the caller launches the graph. */
static int capture_on(weft_exec *x, void *stream)
{
    if (exec_device_form(x) == FORM_GROUPED)
        return error_set(WEFT_EUNSUPPORTED,
                         "weft_exec_start_on: the stream is being captured into a graph, and a death of a rank could "
                         "not be told by a graph whose messages NCCL sends: start runs of this exec outside of graphs");
    if (!x->program->driver->capture)
        return error_set(WEFT_EUNSUPPORTED,
                         "weft_exec_start_on: the stream is being captured into a graph, and the host carries the data "
                         "of this exec, which a graph cannot ask for: %s",
                         x->device->why);
    int err =
        x->binding ? error_set(WEFT_EBUSY, "weft_exec_start_on: the exec is being bound again") : comm_failure(x->comm);
    err = err ? err : watcher_add(x);
    return err ? err : x->program->driver->capture(x, stream);
}

static int start_on(weft_exec *x, void *stream, bool *captured)
{
    struct device *d = x->device ? x->device->device : NULL;
    bool capturing = false;
    if (!d)
        return error_set(WEFT_EUNSUPPORTED,
                         "weft_exec_start_on: all buffers of this exec are in host memory on this rank, which is not "
                         "ordered by a device's stream: synchronise the stream, then call weft_exec_start");
    int err = d->ops->capturing(d, stream, &capturing);
    if (err) /* the other ranks have to know if the device has failed */
        return d->ops->health(d) ? comm_fail(x->comm, WEFT_ETRANSPORT, "rank %d: %s", x->comm->rank, weft_errmsg())
                                 : err;
    *captured = capturing;
    if (capturing)
        return capture_on(x, stream);
    return x->program->driver->enqueue ? queue_on(x, stream) : run_between(x, stream);
}

int weft_exec_start_on(weft_exec *x, void *stream)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_start_on: the exec is NULL");
    struct comm_family *f = comm_enter(x->comm);
    bool captured = false;
    int err = x->comm->in_callback && x->device && !x->program->driver->enqueue
                  ? error_set(WEFT_EBUSY, "weft_exec_start_on: not inside a callback")
                  : start_on(x, stream, &captured);
    if (!err && f && !captured)
        count_one(&x->asked);
    comm_leave(f);
    return err;
}

int weft_exec_run(weft_exec *x)
{
    struct comm_family *f =
        x ? comm_enter(x->comm) : NULL; /* the progress thread is not woken: this thread waits itself */
    int err = x && x->comm->in_callback ? error_set(WEFT_EBUSY, "weft_exec_run: not inside a callback") : start(x);
    if (!err && f)
        count_one(&x->asked);
    if (!err)
        err = wait_locked(x, &(struct waiting){x, count(&x->ended) + 1}, -1);
    comm_leave(f);
    return err;
}

int weft_exec_on_done(weft_exec *x, void (*done)(void *arg, int err), void *arg)
{
    if (!x)
        return error_set(WEFT_EINVAL, "weft_exec_on_done: the exec is NULL");
    struct comm_family *f = comm_enter(x->comm);
    x->done = done;
    x->arg = arg;
    comm_leave(f);
    return 0;
}

int weft_exec_stats(const weft_exec *x, weft_exec_info *out)
{
    if (!x || !out)
        return error_set(WEFT_EINVAL, "weft_exec_stats: arguments must not be NULL");
    int err = sized_check("weft_exec_stats", "weft_exec_info", out);
    if (err)
        return err;
    struct comm_family *f = comm_enter(x->comm);
    weft_exec_info info = {.size = sizeof info,
                           .runs = count(&x->ended) - count(&x->failed),
                           .staging_peak = x->comm->staging.peak,
                           .staging_limit = x->comm->staging.limit,
                           .checked = x->checked};
    comm_leave(f);
    sized_write(out, &info, sizeof info);
    return 0;
}

/* ---- the end ---- */

/* Tells the peers that this exec is freed, and lets go of their blocks. */
static void part_from_peers(weft_exec *x)
{
    struct program *p = x->program;
    /* Comes after all signals of this rank; pairs with the load in watch.c. */
    atomic_store_explicit(&x->block->freed, 1, memory_order_seq_cst);
    for (uint32_t i = 0; i < p->nins; i++) {
        core_ring(x->comm->group, p->ins[i].peer);
        block_drop(p->ins[i].block);
    }
    for (uint32_t i = 0; i < p->nouts; i++) {
        if (program_hears(p, p->outs[i].peer))
            continue;
        core_ring(x->comm->group, p->outs[i].peer);
        block_drop(p->outs[i].block);
    }
    for (uint32_t i = 0; i < x->nheld; i++)
        block_drop(x->held[i]);
    block_drop(x->block);
}

static void free_locked(weft_exec *x)
{
    weft_comm *c = x->comm;
    if (exec_in_flight(x) && c->in_callback) {
        x->orphan = true;
        return;
    }
    struct waiting w = wait_for(x);
    struct comm_need need = {over, lacking, &w, core_now() + c->deadline_ns};
    char who[NAMES_RANK];
    if (exec_in_flight(x) &&
        comm_wait(c, &need) == COMM_LATE) /* a peer that starts later must not use memory that is freed */
        comm_fail(c, WEFT_EPEER, "%s gave up a run and freed its exec: the run did not end within %lld ms",
                  names_rank(c, c->rank, who), (long long)(c->deadline_ns / 1000000));
    const char *text;
    bool clean = !atomic_load_explicit(&x->state, memory_order_relaxed) && !core_failure(c->group, &text);
    if (exec_in_flight(x) && x->quantise && x->quantise->folding)
        set_state(x, WEFT_EPEER); /* it is no task */
    else if (exec_in_flight(x))
        link_out(x, WEFT_EPEER);
    watcher_remove(x);
    if (core_failed(c->group))
        driver_release(x);
    exec_device_rest(x);
    flight_record(&c->flight, EVENT_FREED, 0, atomic_load_explicit(&x->state, memory_order_relaxed), x->task.id,
                  x->run);
    trace_write(c);
    metrics_write(c);
    traffic_count(&x->task);
    flight_log(c, WEFT_LOG_INFO, EVENT_FREED, "an exec was closed");
    comm_task_unlist(c, &x->task);
    part_from_peers(x);
    exec_mail_freed(x);
    comm_deferred_add(c, x->deferred, &x->block->holders, x->block, NULL);
    if (clean)
        c->transport->release(c->link, x->scratch);
    else
        x->program->reserve.offset =
            -1; /* peers may still read scratch and staging memory: the group frees it when it ends */
    outline_free(x, x->program);
    if (x->quantise && x->quantise->fold) {
        x->quantise->fold->done = NULL;
        free_locked(x->quantise->fold);
    }
    quantise_free(x, clean);
    exec_device_close(x);
    pinned_free(x);
    arrivals_free(x->arrivals);
    free(x->held);
    free(x);
    comm_drop(c);
}

void weft_exec_close(weft_exec *x)
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
